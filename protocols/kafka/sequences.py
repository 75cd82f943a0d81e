"""Classifies a batch of an idempotent producer: next, repeated, or out of order. Knows
no partition and no bytes.

Rules: kafka/log/ProducerAppendInfo and ProducerStateEntry of apache/kafka 3.9, except for a batch
sent again that is older than the five remembered: Kafka calls this out of order, and Java's client
then stores the batch once more under a new epoch. Here the answer is DUPLICATE_SEQUENCE_NUMBER,
which clients take for success. Such a batch can come after a takeover: the former owner stored the
batch, its answer is lost, and the client has sent later batches to the new owner meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from braidlog.protocols.kafka.errors import Code
from braidlog.storage.formats.kafka.record_batches import SEQUENCE_MAX

if TYPE_CHECKING:
    from braidlog.broker.topics.producer_memory import ProducerState, StoredBatch
    from braidlog.storage.formats.api import BodyInfo

NEXT: Final = None  # The batch is to be appended.


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
    if state is None:
        return Code.NOT_ENOUGH_REPLICAS if is_new_owner and info.first_sequence else NEXT
    if info.producer_epoch < state.epoch:
        return Code.INVALID_PRODUCER_EPOCH
    if info.producer_epoch > state.epoch:
        return Code.OUT_OF_ORDER_SEQUENCE if info.first_sequence else NEXT
    following = 0 if state.last_sequence == SEQUENCE_MAX else state.last_sequence + 1
    if info.first_sequence == following:
        return NEXT
    sequences = (info.first_sequence, info.last_sequence)
    for stored in state.recent:
        if (stored.first_sequence, stored.last_sequence) == sequences:
            return stored
    if state.first_sequence <= info.first_sequence <= info.last_sequence <= state.last_sequence:
        return Code.DUPLICATE_SEQUENCE
    return Code.OUT_OF_ORDER_SEQUENCE
