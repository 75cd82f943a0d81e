"""Entries by their number, from a position up and from the end down."""

import pytest

from braidlog.broker.reading.numbered import nth_entry, nth_entry_from_end
from braidlog.storage.metadata.ranges import RangeSet
from tests.broker.delivery.conftest import is_warm
from tests.broker.delivery.entry_fakes import FakePartition
from tests.broker.reading.test_entries import SPANS, mixed

__all__ = ["is_warm", "mixed"]  # Fixtures.

pytestmark = pytest.mark.usefixtures("is_warm")


def spanned(span):
    return None if span is None else (span.offset, span.record_count)


async def test_entries_are_counted_from_a_position(mixed):
    numbered = [spanned(await nth_entry(mixed, 0, number)) for number in range(1, 10)]
    assert numbered == [*SPANS, None]


@pytest.mark.parametrize(
    ("start", "first"), [(2, (0, 3)), (3, (3, 1)), (8, (10, 1)), (14, (13, 5))]
)
async def test_the_first_entry_may_have_begun_before_the_position(mixed, start, first):
    assert spanned(await nth_entry(mixed, start, 1)) == first


async def test_acknowledged_entries_are_not_counted(mixed):
    acked = RangeSet()
    for start, end in ((2, 4), (5, 6), (13, 18)):  # A part of the first entry is left.
        acked.add(start, end)
    numbered = [spanned(await nth_entry(mixed, 0, number, acked)) for number in range(1, 7)]
    assert numbered == [(0, 3), (4, 1), (6, 1), (10, 1), (12, 1), None]


async def test_entries_are_counted_from_the_end(mixed):
    numbered = [spanned(await nth_entry_from_end(mixed, number)) for number in range(1, 11)]
    assert numbered == [*reversed(SPANS), SPANS[0], SPANS[0]]


async def test_an_empty_partition_has_no_entry():
    empty = FakePartition(7)
    assert await nth_entry(empty, 0, 1) is None
    assert await nth_entry_from_end(empty, 1) is None
