"""The rule by which a batch of a producer without gaps is next, repeated, or out of order.

Kafka's idempotent producers and Iggy's follow this rule; each protocol has its own errors. Rules:
kafka/log/ProducerAppendInfo and ProducerStateEntry of apache/kafka 3.9, except that a repeated
batch older than the remembered batches is recognised. Knows no partition and no bytes.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from braidlog.broker.topics.producer_memory import ProducerState, StoredBatch
    from braidlog.storage.formats.api import BodyInfo


class BatchOrder(enum.Enum):
    """The place of a batch among its producer's batches, unless the stored batch is known."""

    NEXT = "to be appended"
    REPEATED = "stored at a place that is forgotten"
    UNKNOWN = "not the first batch, of a producer that is not known"
    FENCED = "of an older epoch"
    OUT_OF_ORDER = "behind a gap"


def judge(state: ProducerState | None, info: BodyInfo) -> StoredBatch | BatchOrder:
    """Return the verdict on a batch, or the stored batch that the batch repeats."""
    if state is None:
        return BatchOrder.UNKNOWN if info.first_sequence else BatchOrder.NEXT
    if info.producer_epoch < state.epoch:
        return BatchOrder.FENCED
    if info.producer_epoch > state.epoch:
        return BatchOrder.OUT_OF_ORDER if info.first_sequence else BatchOrder.NEXT
    if info.first_sequence == state.next_sequence:
        return BatchOrder.NEXT
    sequences = (info.first_sequence, info.last_sequence)
    for stored in state.recent:
        if (stored.first_sequence, stored.last_sequence) == sequences:
            return stored
    if state.first_sequence <= info.first_sequence <= info.last_sequence <= state.last_sequence:
        return BatchOrder.REPEATED
    return BatchOrder.OUT_OF_ORDER
