"""Topics and partitions in the messages of group members: bytes and values."""

import pytest

from braidlog.protocols.kafka.consumer_protocol import (
    TOPICS_WALKED_MAX,
    assignment_of,
    given_partitions,
    subscription_of,
    wants,
)

WANTED = b"\0\0" + b"\0\0\0\2" + b"\0\1a" + b"\0\2bc" + b"\xff\xff\xff\xff"
GIVEN = b"\0\0" + b"\0\0\0\1" + b"\0\1a" + b"\0\0\0\2\0\0\0\0\0\0\0\5" + b"\xff\xff\xff\xff"


def test_topics_and_partitions_round_trip():
    assert subscription_of([b"a", b"bc"]) == WANTED
    assert [wants(WANTED, name) for name in (b"a", b"bc", b"b", b"")] == [True, True, False, False]
    assert assignment_of({b"a": [0, 5]}) == GIVEN
    assert given_partitions(GIVEN, b"a", 2) == [0, 5]
    assert given_partitions(GIVEN, b"a", 1) == [0]
    assert given_partitions(GIVEN, b"b", 2) is None
    assert given_partitions(assignment_of({}), b"a", 2) is None


def test_later_versions_have_the_same_beginning():
    assert wants(b"\0\3" + WANTED[2:] + b"more", b"bc")
    assert given_partitions(b"\0\3" + GIVEN[2:] + b"more", b"a", 2) == [0, 5]


def test_a_topic_is_not_taken_for_bytes_that_look_like_its_name():
    number = int.from_bytes(b"\0\0\1t", "big")
    assignment = assignment_of({b"other": [number, 1], b"t": [2]})
    assert given_partitions(assignment, b"t", 9) == [2]
    assert given_partitions(assignment_of({b"other": [number, 1]}), b"t", 9) is None
    assert not wants(subscription_of([b"other"]) + b"\0\1t", b"t")


def test_a_topic_is_found_by_its_bytes_among_very_many():
    names = [b"topic-%d" % number for number in range(3 * TOPICS_WALKED_MAX)]
    assignment = assignment_of({name: [number] for number, name in enumerate(names)})
    for number in (0, TOPICS_WALKED_MAX - 1, TOPICS_WALKED_MAX, len(names) - 1):
        assert wants(subscription_of(names), names[number])
        assert given_partitions(assignment, names[number], 9) == [number]
    assert not wants(subscription_of(names), b"topic-x")
    assert given_partitions(assignment, b"topic-x", 9) is None


@pytest.mark.parametrize("size", range(len(GIVEN) - 4))
def test_truncated_messages_have_no_topics(size):
    assert given_partitions(GIVEN[:size], b"a", 2) is None
    assert not wants(WANTED[: min(size, len(WANTED) - 5)], b"bc")


@pytest.mark.parametrize("count", [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff"])
def test_messages_with_impossible_counts_have_no_topics(count):
    assert not wants(b"\0\0" + count + b"\0\1a", b"b")
    assert given_partitions(b"\0\0" + count + b"\0\1a", b"a", 2) is None
    assert given_partitions(b"\0\0\0\0\0\1\0\1a" + count, b"a", 2) is None
