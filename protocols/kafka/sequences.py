"""Classifies a batch of an idempotent producer: next, repeated, or out of order. Knows
no partition and no bytes.

The rule is the broker's (`braidlog.broker.topics.sequence_rules`). For a batch sent again that is
older than the five remembered, Kafka's answer is out of order, and Java's client then stores the
batch once more under a new epoch. Here the answer is DUPLICATE_SEQUENCE_NUMBER, which clients take
for success. Such a batch can come after a takeover: the former owner stored the batch, its answer
is lost, and the client has sent later batches to the new owner meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from braidlog.broker.topics import sequence_rules
from braidlog.broker.topics.sequence_rules import BatchOrder
from braidlog.protocols.kafka.errors import Code

if TYPE_CHECKING:
    from braidlog.broker.topics.producer_memory import ProducerState, StoredBatch
    from braidlog.storage.formats.api import BodyInfo

NEXT: Final = None  # The batch is to be appended.
CODES: Final[Mapping[BatchOrder, Code | None]] = {
    BatchOrder.NEXT: NEXT,
    BatchOrder.REPEATED: Code.DUPLICATE_SEQUENCE,
    BatchOrder.UNKNOWN: NEXT,
    BatchOrder.FENCED: Code.INVALID_PRODUCER_EPOCH,
    BatchOrder.OUT_OF_ORDER: Code.OUT_OF_ORDER_SEQUENCE,
}


def judge(
    state: ProducerState | None, info: BodyInfo, *, is_new_owner: bool = False
) -> StoredBatch | Code | None:
    """NEXT for a batch to append, the stored batch for one sent again, else the error code:
    DUPLICATE_SEQUENCE for one sent again whose place is forgotten.

    An unknown producer may begin with any sequence: it may have been forgotten. Not so at a new
    owner: the former owner may have refused the producer's first batches, which the client sends
    again. If a later batch was stored first, the first batches would be out of order, and clients
    would send all of them under a new epoch: the later batch once more, if its answer was lost.
    With NOT_ENOUGH_REPLICAS clients send the batches again in order.
    """
    verdict = sequence_rules.judge(state, info)
    if not isinstance(verdict, BatchOrder):
        return verdict
    if verdict is BatchOrder.UNKNOWN and is_new_owner:
        return Code.NOT_ENOUGH_REPLICAS
    return CODES[verdict]
