"""Partitions by key and by turn."""

import pytest

from braidlog.protocols.iggy.partitioning import take_turn, xxhash32_from_one

# Key, xxHash32 with seed 0, and the partition (from 1) of topics with 3, 4 and 10 partitions.
KEYS = [
    (b"key-1", 962816521, 1, 1, 1),
    (b"user-42", 1635883646, 2, 2, 6),
    (b"hello", 4211111929, 1, 1, 9),
    (b"\x01\x00\x00\x00", 4089149075, 2, 3, 5),
    (b"\x02\x00\x00\x00", 527729046, 3, 2, 6),
    (b"\x03\x00\x00\x00", 2158931063, 2, 3, 3),
]


@pytest.mark.parametrize(("key", "hashed", "of_3", "of_4", "of_10"), KEYS)
def test_a_key_goes_to_the_reference_servers_partition(key, hashed, of_3, of_4, of_10):
    partitions = [xxhash32_from_one(key, count) + 1 for count in (3, 4, 10)]
    assert partitions == [of_3, of_4, of_10]
    assert partitions == [hashed % count or count for count in (3, 4, 10)]


def test_turns_begin_with_the_first_partition_and_go_round():
    turns: dict[int, int] = {}
    assert [take_turn(turns, 7, 3) for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]


def test_each_topic_has_its_own_turns():
    turns: dict[int, int] = {}
    assert [take_turn(turns, 7, 3), take_turn(turns, 8, 3), take_turn(turns, 7, 3)] == [0, 0, 1]


def test_turns_include_new_partitions():
    turns: dict[int, int] = {}
    assert [take_turn(turns, 7, 2), take_turn(turns, 7, 2), take_turn(turns, 7, 4)] == [0, 1, 2]
