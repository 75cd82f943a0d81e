"""Offsets in pages of bits."""

import random

from braidlog.storage.log.compaction.offset_set import PAGE_OFFSETS, OffsetSet


def test_the_answers_equal_a_set_of_numbers():
    chosen = random.Random(3)
    offsets, known = OffsetSet(), set()
    for _ in range(300):
        offset = chosen.choice((chosen.randrange(4000), chosen.randrange(1 << 40)))
        offsets.add(offset)
        known.add(offset)
    assert all(offset in offsets for offset in known)
    for _ in range(2000):
        start = chosen.choice((chosen.randrange(5000), chosen.randrange(1 << 40)))
        end = start + chosen.choice((0, 1, 3, 2000, 1 << 39))
        assert (start in offsets) == (start in known)
        assert offsets.has_any(start, end) == any(start <= offset < end for offset in known)


def test_offsets_without_room_are_left_out_and_reported():
    few = OffsetSet(pages_max=2)
    for number in range(3):
        few.add(number * PAGE_OFFSETS)
    assert few.is_full
    assert [number * PAGE_OFFSETS in few for number in range(3)] == [True, True, False]
