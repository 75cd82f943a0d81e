"""What members of consumer groups say of topics and partitions: bytes against values."""

import pytest

from protocols.kafka.consumer_protocol import (
    assigned_partitions,
    assignment_of,
    subscription_of,
    wanted_topics,
)

WANTED = b"\0\0" + b"\0\0\0\2" + b"\0\1a" + b"\0\2bc" + b"\xff\xff\xff\xff"
GIVEN = b"\0\0" + b"\0\0\0\1" + b"\0\1a" + b"\0\0\0\2\0\0\0\0\0\0\0\5" + b"\xff\xff\xff\xff"


def test_topics_and_partitions_both_ways():
    assert subscription_of([b"a", b"bc"]) == WANTED
    assert wanted_topics(WANTED) == [b"a", b"bc"]
    assert assignment_of({b"a": [0, 5]}) == GIVEN
    assert assigned_partitions(GIVEN) == {b"a": [0, 5]}
    assert assigned_partitions(assignment_of({})) == {}


def test_later_versions_begin_the_same():
    assert wanted_topics(b"\0\3" + WANTED[2:] + b"more") == [b"a", b"bc"]
    assert assigned_partitions(b"\0\3" + GIVEN[2:] + b"more") == {b"a": [0, 5]}


@pytest.mark.parametrize("size", range(len(GIVEN) - 4))
def test_what_is_cut_short_says_nothing(size):
    assert assigned_partitions(GIVEN[:size]) == {}
    assert wanted_topics(WANTED[: min(size, len(WANTED) - 5)]) == []


@pytest.mark.parametrize("count", [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff"])
def test_counts_that_cannot_be_say_nothing(count):
    assert wanted_topics(b"\0\0" + count + b"\0\1a") == []
    assert assigned_partitions(b"\0\0" + count + b"\0\1a") == {}
    assert assigned_partitions(b"\0\0\0\0\0\1\0\1a" + count) == {}
