"""Whether a batch of an idempotent producer is the next one, one sent again, or out of order. Knows
no partition and no bytes.

Rules: kafka/log/ProducerAppendInfo and ProducerStateEntry of apache/kafka 3.9.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from protocols.kafka.errors import Code
from storage.codecs.kafka_batches import SEQUENCE_MAX

if TYPE_CHECKING:
    from broker.topics.producer_memory import ProducerState, StoredBatch
    from storage.codecs.api import BodyInfo

NEXT: Final = None  # The batch is to be appended.


def judge(state: ProducerState | None, info: BodyInfo) -> StoredBatch | Code | None:
    """NEXT for a batch to append, the stored batch for one sent again, else the error code.

    An unknown producer may begin with any sequence: it may have been forgotten.
    """
    if state is None:
        return NEXT
    if info.producer_epoch < state.epoch:
        return Code.INVALID_PRODUCER_EPOCH
    if info.producer_epoch > state.epoch:
        return Code.OUT_OF_ORDER_SEQUENCE if info.first_sequence else NEXT
    sequences = (info.first_sequence, info.last_sequence)
    for stored in state.recent:
        if (stored.first_sequence, stored.last_sequence) == sequences:
            return stored
    following = 0 if state.last_sequence == SEQUENCE_MAX else state.last_sequence + 1
    return NEXT if info.first_sequence == following else Code.OUT_OF_ORDER_SEQUENCE
