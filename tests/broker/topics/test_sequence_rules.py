"""The order of a producer's batches; `protocols/kafka/test_sequences.py` tests Kafka's codes."""

import pytest

from braidlog.broker.topics.sequence_rules import BatchOrder, judge
from braidlog.storage.formats.api import SEQUENCE_MAX, BodyInfo
from braidlog.storage.log.sequences import ProducerState, StoredBatch


def state(*sequences: tuple[int, int], first: int = -1) -> ProducerState:
    recent = [StoredBatch(low, high, 100 + low) for low, high in sequences]
    return ProducerState(12, 3, 0, recent, first)


@pytest.mark.parametrize(
    ("known", "epoch", "sequences", "verdict"),
    [
        (None, 0, (0, 3), BatchOrder.NEXT),
        (None, 0, (1, 3), BatchOrder.UNKNOWN),
        (state((0, 4)), 3, (5, 5), BatchOrder.NEXT),
        (state((0, 4)), 3, (0, 4), StoredBatch(0, 4, 100)),
        (state((5, 9), first=2), 3, (2, 4), BatchOrder.REPEATED),
        (state((0, 4)), 3, (6, 6), BatchOrder.OUT_OF_ORDER),
        (state((0, 4)), 4, (5, 5), BatchOrder.OUT_OF_ORDER),
        (state((0, 4)), 4, (0, 0), BatchOrder.NEXT),
        (state((0, 4)), 2, (5, 5), BatchOrder.FENCED),
        (state((9, SEQUENCE_MAX)), 3, (0, 0), BatchOrder.NEXT),
    ],
)
def test_a_batch_is_next_repeated_or_out_of_order(known, epoch, sequences, verdict) -> None:
    assert judge(known, BodyInfo(1, None, None, 0, 12, epoch, *sequences)) == verdict
