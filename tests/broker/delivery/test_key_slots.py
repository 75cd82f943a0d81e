"""Slots of keys and their owners."""

import random
from itertools import pairwise

import pytest

from braidlog.broker.delivery.key_slots import RANGES_MAX, SLOTS, KeyRanges, KeyRing, key_hash
from braidlog.broker.errors import InvalidRequest
from tests.broker.delivery.dispatch_fakes import FakeConsumer

# Key, hash, sticky slot, slot on the ring: from Apache's own code.
KNOWN = [
    (b"", 0, 1, 1),
    (b"a", 1009084850, 27058, 42456),
    (b"k1", 2110152746, 24618, 56817),
    (b"key-1", 414258592, 5536, 11858),
    (b"hello world", 1586663183, 36623, 60834),
    (b"user-12345", 685934240, 34464, 44931),
]


@pytest.mark.parametrize(("key", "number", "sticky", "ring"), KNOWN)
def test_slots_equal_apaches(key, number, sticky, ring):
    assert key_hash(key) == number
    assert KeyRanges().slot(key) == sticky
    assert KeyRing().slot(key) == ring


def test_the_ring_assigns_every_slot_and_shares_evenly():
    ring = KeyRing()
    assert ring.owner(1) is None
    consumers = [FakeConsumer("same name") for _ in range(4)]
    for consumer in consumers:
        ring.add(consumer)
    owners = [ring.owner(slot) for slot in range(1, SLOTS)]
    counts = [owners.count(consumer) for consumer in consumers]
    assert sum(counts) == SLOTS - 1
    assert min(counts) > SLOTS // 8


def test_only_slots_of_a_leaving_consumer_move():
    ring = KeyRing()
    consumers = [FakeConsumer(f"c{number}") for number in range(4)]
    for consumer in consumers:
        ring.add(consumer)
    before = {slot: ring.owner(slot) for slot in range(1, SLOTS, 7)}
    ring.remove(consumers[2])
    for slot, owner in before.items():
        if owner is consumers[2]:
            assert ring.owner(slot) in (consumers[0], consumers[1], consumers[3])
        else:
            assert ring.owner(slot) is owner


@pytest.mark.parametrize("seed", range(5))
def test_owners_do_not_depend_on_earlier_consumers(seed):
    rng = random.Random(seed)
    ring, queried, present = KeyRing(), KeyRing(), []
    for number in range(60):
        if present and rng.random() < 0.5:
            consumer = present.pop(rng.randrange(len(present)))
            ring.remove(consumer)
            queried.remove(consumer)
        else:
            present.append(FakeConsumer(f"c{number}"))
            ring.add(present[-1])
            queried.add(present[-1])
        assert (
            queried.owner(1) in present or not present
        )  # The other ring is not asked until the end.
    slots = range(1, SLOTS, 50)
    assert [ring.owner(slot) for slot in slots] == [queried.owner(slot) for slot in slots]


class CountedRing(KeyRing):
    def __init__(self):
        super().__init__()
        self.walks = 0

    def _take_out(self):
        self.walks += 1
        super()._take_out()


def test_the_ranges_of_the_ring_agree_with_the_owners():
    ring = KeyRing()
    consumers = [FakeConsumer(f"c{number}") for number in range(5)]
    for consumer in consumers:
        ring.add(consumer)
    ring.remove(consumers[2])
    ranges = ring.ranges()
    assert set(ranges) == {*consumers} - {consumers[2]}
    assert {
        slot: consumer
        for consumer, owned in ranges.items()
        for start, end in owned
        for slot in range(start, end + 1)
    } == {slot: ring.owner(slot) for slot in range(1, SLOTS)}
    for owned in ranges.values():  # Neighbouring ranges are joined.
        assert all(end + 1 < start for (_, end), (start, _) in pairwise(owned))


@pytest.mark.parametrize("is_asked", [False, True])
def test_the_ring_is_rarely_walked_when_all_leave_at_once(is_asked):
    ring = CountedRing()
    consumers = [FakeConsumer(f"c{number}") for number in range(100)]
    for consumer in consumers:
        ring.add(consumer)
    for number, consumer in enumerate(consumers, 1):
        ring.remove(consumer)
        if is_asked:
            assert (ring.owner(1) in consumers[number:]) == (number < len(consumers))
    assert ring.owner(1) is None
    assert ring.walks < 10


def test_ranges_include_both_ends_and_other_slots_have_no_owner():
    ranges = KeyRanges()
    first = FakeConsumer("a", key_ranges=[(0, 100), (200, 65535)])
    ranges.add(first)
    assert [ranges.owner(slot) for slot in (1, 100, 101, 199, 200, 65535)] == [
        first,
        first,
        None,
        None,
        first,
        first,
    ]
    ranges.remove(first)
    assert ranges.owner(1) is None


@pytest.mark.parametrize(
    "wanted",
    [
        [],
        [(5, 4)],
        [(0, 10), (10, 20)],
        [(50, 60)],
        [(0, 65535)],
        [(-1, 5)],
        [(70, 80)],
        [(60, 61)],
    ],
)
def test_invalid_ranges_are_refused(wanted):
    ranges = KeyRanges()
    ranges.add(FakeConsumer("a", key_ranges=[(55, 70)]))
    with pytest.raises(InvalidRequest):
        ranges.check(wanted)


@pytest.mark.parametrize("wanted", [[(0, 54)], [(71, 80)], [(0, 54), (71, 65535)]])
def test_ranges_beside_another_consumers_ranges_are_accepted(wanted):
    ranges = KeyRanges()
    ranges.add(FakeConsumer("a", key_ranges=[(55, 70)]))
    ranges.check(wanted)


def test_too_many_ranges_are_refused():
    with pytest.raises(InvalidRequest):
        KeyRanges().check([(number, number) for number in range(RANGES_MAX + 1)])


def test_a_range_above_the_slots_is_accepted_as_in_apache():
    KeyRanges().check([(0, 70_000)])


def test_owner_agrees_with_a_plain_search():
    rng = random.Random(3)
    ranges, consumers = KeyRanges(), []
    start = 0
    while start < SLOTS:
        end = start + rng.randint(0, 9000)
        if rng.random() < 0.7:
            consumer = FakeConsumer("c", key_ranges=[(start, end)])
            consumers.append(consumer)
            ranges.add(consumer)
        start = end + 1
    for _ in range(500):
        slot = rng.randrange(SLOTS)
        owners = [c for c in consumers if c.key_ranges[0][0] <= slot <= c.key_ranges[0][1]]
        assert ranges.owner(slot) is (owners[0] if owners else None)
