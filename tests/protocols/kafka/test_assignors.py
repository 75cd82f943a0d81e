"""Server-side assignment: balanced, complete, and moving few partitions."""

import random

import pytest

from braidlog.protocols.kafka.assignors import (
    ASSIGNORS,
    AssignedMember,
    Assignor,
    Shares,
    range_,
    uniform,
)


def check(subscribers: list[AssignedMember], counts: dict[bytes, int], shares: Shares) -> None:
    """Check that each partition with subscribers belongs to a single one of them."""
    wanted = {topic for one in subscribers for topic in one.topics}
    places = [place for share in shares.values() for place in share]
    assert len(places) == len(set(places)) == sum(counts.get(topic, 0) for topic in wanted)
    for one in subscribers:
        assert all(topic in one.topics for topic, _ in shares[one.member_id])
        assert all(index < counts[topic] for topic, index in shares[one.member_id])


@pytest.mark.parametrize("assign", ASSIGNORS.values())
def test_every_partition_has_one_subscriber(assign: Assignor) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    topics = [b"a", b"b", b"c", b"d"]
    shares: Shares = {}
    for _ in range(200):
        counts = {topic: rng.randrange(8) for topic in topics[: rng.randrange(1, 5)]}
        subscribers = [
            AssignedMember(
                b"%d" % number,
                frozenset(rng.sample(sorted(counts), rng.randrange(len(counts) + 1))),
                shares.get(b"%d" % number, frozenset()),
            )
            for number in rng.sample(range(10), rng.randrange(10))
        ]
        shares = assign(subscribers, counts)
        check(subscribers, counts, shares)


def test_uniform_moves_only_what_a_new_member_gets() -> None:
    counts, topics = {b"t": 10, b"u": 2}, frozenset((b"t", b"u"))
    shares: Shares = {}
    for members in (1, 2, 3, 4, 5):
        before = shares
        subscribers = [
            AssignedMember(b"%d" % n, topics, before.get(b"%d" % n, frozenset()))
            for n in range(members)
        ]
        shares = uniform(subscribers, counts)
        check(subscribers, counts, shares)
        sizes = sorted(map(len, shares.values()))
        assert sizes[-1] - sizes[0] <= 1
        stayed = sum(len(shares[name] & before[name]) for name in before)
        assert stayed == 12 - (len(shares[b"%d" % (members - 1)]) if before else 12)


def test_uniform_balances_members_of_different_topics() -> None:
    both, one = frozenset((b"t", b"u")), frozenset((b"t",))
    old = frozenset((b"t", index) for index in range(6))
    shares = uniform(
        [AssignedMember(b"1", both, old), AssignedMember(b"2", one)], {b"t": 6, b"u": 2}
    )
    assert {name: len(share) for name, share in shares.items()} == {b"1": 4, b"2": 4}


def test_range_gives_neighbours_of_each_topic() -> None:
    topics = frozenset((b"t", b"u"))
    subscribers = [AssignedMember(b"b", topics), AssignedMember(b"z", topics, instance_id=b"a")]
    shares = range_(subscribers, {b"t": 3, b"u": 3})
    assert shares[b"z"] == {(topic, index) for topic in (b"t", b"u") for index in (0, 1)}
    assert shares[b"b"] == {(b"t", 2), (b"u", 2)}
