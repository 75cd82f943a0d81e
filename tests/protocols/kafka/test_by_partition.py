"""Each partition once, as 0.8 counts them."""

from braidlog.protocols.kafka.by_partition import by_partition


def test_the_last_value_of_a_repeated_partition_counts() -> None:
    named = [(b"t", 1, "a"), (None, 0, "b"), (b"t", 0, "c"), (b"t", 1, "d")]
    assert by_partition(named) == {b"t": {1: "d", 0: "c"}, None: {0: "b"}}
    assert [*by_partition(named)[b"t"]] == [1, 0]  # In the order of the request.


def test_nothing_is_named() -> None:
    assert by_partition([]) == {}
