import random

import pytest

from braidlog.storage.metadata.ranges import RANGES_MAX, STALE_MAX, RangeSet


def ranges_of(*ranges, ranges_max=RANGES_MAX):
    range_set = RangeSet(ranges_max=ranges_max)
    for start, end in ranges:
        assert range_set.add(start, end)
    return range_set


def offsets_of(ranges):
    return {offset for start, end in ranges for offset in range(start, end)}


def as_ranges(offsets):
    """Return the canonical ranges of a set of offsets."""
    ranges = []
    for offset in sorted(offsets):
        if ranges and ranges[-1][1] == offset:
            ranges[-1] = (ranges[-1][0], offset + 1)
        else:
            ranges.append((offset, offset + 1))
    return ranges


def check_against(ranges, model, span):
    assert list(ranges) == as_ranges(model)
    assert len(ranges) == len(as_ranges(model))
    assert ranges.total == len(model)
    for start in range(-1, span, 7):
        gap = next(offset for offset in range(max(start, 0), span + 100) if offset not in model)
        assert ranges.next_gap(max(start, 0)) == gap
        for end in (start + 1, start + 5, span):
            if end <= start:
                continue
            below = next(offset for offset in range(end - 1, -3, -1) if offset not in model)
            assert ranges.gap_before(end) == below
            inside = model & set(range(start, end))
            assert ranges.contains(start, end) == (inside == set(range(start, end)))
            assert ranges.within(start, end) == as_ranges(inside)
            assert ranges.count_within(start, end) == len(inside)
            reach = set(range(start - 1, end + 1))
            assert ranges.touches(start, end) == bool(model & reach)


@pytest.mark.parametrize("seed", range(30))
def test_any_mix_of_changes_equals_a_set_of_offsets(seed):
    rng = random.Random(seed)
    span = rng.choice([30, 120])
    ranges, model, position = RangeSet(), set(), 0
    for _ in range(120):
        kind = rng.random()
        if kind < 0.75:
            start = rng.randrange(position, position + span)
            end = start + rng.choice([1, 1, 2, 9])
            assert ranges.add(start, end)
            model |= set(range(start, end))
        elif kind < 0.97:
            position += rng.choice([0, 1, 5])
            model -= set(range(position))
            ranges_position = ranges.pop_below(position)
            while position in model:
                model.discard(position)
                position += 1
            assert ranges_position == position
        else:
            ranges.clear()
            model.clear()
        if rng.random() < 0.2:
            check_against(ranges, model, position + span + 12)
    check_against(ranges, model, position + span + 12)


def test_adjacent_ranges_are_joined():
    assert list(ranges_of((5, 6), (7, 8), (6, 7))) == [(5, 8)]


def test_a_position_moves_behind_an_adjacent_range():
    ranges = ranges_of((5, 8), (10, 12))
    assert ranges.pop_below(4) == 4
    assert ranges.pop_below(5) == 8
    assert list(ranges) == [(10, 12)]
    assert ranges.pop_below(11) == 12
    assert not ranges


def test_at_the_limit_only_a_separate_range_is_refused():
    ranges = ranges_of((2, 3), (6, 7), ranges_max=2)
    assert not ranges.add(10, 11)
    assert list(ranges) == [(2, 3), (6, 7)]
    assert ranges.add(3, 4)
    assert ranges.add(0, 6)
    assert list(ranges) == [(0, 7)]
    assert ranges.add(10, 11)


def test_passed_ranges_are_removed_and_new_ranges_inserted():
    count = STALE_MAX * 4
    ranges = ranges_of(*((2 * number, 2 * number + 1) for number in range(count)))
    for number in range(count - 3):
        assert ranges.pop_below(2 * number) == 2 * number + 1
        assert len(ranges) == count - number - 1
    assert ranges.add(2 * count - 1, 2 * count)
    assert ranges.total == 4
    assert len(ranges.to_bytes()) == 16 * 3  # The new range joined the last.


@pytest.mark.parametrize("seed", range(10))
def test_update_is_the_union(seed):
    rng = random.Random(seed)
    sets = []
    for _ in range(2):
        range_set = RangeSet()
        low = rng.choice([0, 0, 60])
        for _ in range(rng.choice([0, 3, 12])):
            start = low + rng.randrange(60)
            range_set.add(start, start + rng.randrange(1, 4))
        range_set.pop_below(low + rng.randrange(30))
        sets.append(range_set)
    first, second = sets
    union = offsets_of(first) | offsets_of(second)
    first.update(second)
    assert list(first) == as_ranges(union)
    assert first.total == len(union)


def test_update_at_the_limit_keeps_the_limit():
    first, second = ranges_of((0, 1), ranges_max=2), ranges_of((2, 3), (4, 5))
    first.update(second)
    assert list(first) == [(0, 1), (2, 3)]


def test_bytes_are_all_starts_then_all_ends_little_endian():
    ranges = ranges_of((1, 3), (2**40, 2**40 + 1))
    data = bytes.fromhex(
        "01" + "00" * 7 + "0000000000010000" + "03" + "00" * 7 + "0100000000010000"
    )
    assert ranges.to_bytes() == data
    assert RangeSet.from_bytes(data) == ranges
    assert RangeSet.from_bytes(data).total == 3


def test_pieces_start_at_the_first_remaining_range():
    ranges = ranges_of((1, 2), (4, 5), (7, 9), (10, 11))
    ranges.pop_below(1)
    pieces = list(ranges.pieces(2))
    assert pieces == [ranges_of((4, 5), (7, 9)), ranges_of((10, 11))]
    assert [piece.total for piece in pieces] == [3, 1]
    assert list(RangeSet().pieces(2)) == []


def test_a_broken_size_is_refused():
    with pytest.raises(ValueError, match="17 bytes"):
        RangeSet.from_bytes(bytes(17))


def test_sets_are_equal_by_their_ranges():
    passed = ranges_of((1, 2), (4, 5))
    passed.pop_below(1)
    assert passed == ranges_of((4, 5))
    assert passed != ranges_of((4, 6))
    assert repr(passed) == "RangeSet([(4, 5)])"


@pytest.mark.parametrize("seed", range(30))
def test_many_ranges_are_removed_as_one_after_the_other(seed):
    rng = random.Random(seed)
    together, singly = RangeSet(), RangeSet()
    for _ in range(rng.randrange(40)):
        start = rng.randrange(200)
        end = start + rng.randint(1, rng.choice((2, 20)))
        together.add(start, end)
        singly.add(start, end)
    position = rng.randrange(60)
    assert together.pop_below(position) == singly.pop_below(position)
    bounds = sorted(rng.sample(range(220), 2 * rng.randrange(30)))
    if rng.random() < 0.3:
        bounds = [bound for at in bounds for bound in (at, at + 1)]
        bounds = [
            b for pair in sorted({*zip(bounds[::2], bounds[1::2], strict=True)}) for b in pair
        ]
    ranges = list(zip(bounds[::2], bounds[1::2], strict=True))
    together.remove_all(ranges)
    for start, end in ranges:
        singly.remove(start, end)
    assert together == singly and together.total == singly.total
    together.add(500, 501)
    assert together.next_gap(500) == 501
