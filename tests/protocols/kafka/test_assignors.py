"""Server-side assignment: balanced, complete, and moving few partitions."""

import random

import pytest

from braidlog.protocols.kafka.assignors import (
    ASSIGNORS,
    NOWHERE,
    AssignedMember,
    Assignor,
    Places,
    Shares,
    range_,
    simple,
    uniform,
)


def check(subscribers: list[AssignedMember], counts: dict[bytes, int], shares: Shares) -> None:
    """Check that each partition with subscribers belongs to a single one of them."""
    wanted = {topic for subscriber in subscribers for topic in subscriber.topics}
    places = [place for share in shares.values() for place in share]
    assert len(places) == len(set(places)) == sum(counts.get(topic, 0) for topic in wanted)
    for subscriber in subscribers:
        assert all(topic in subscriber.topics for topic, _ in shares[subscriber.member_id])
        assert all(index < counts[topic] for topic, index in shares[subscriber.member_id])


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
    both, single = frozenset((b"t", b"u")), frozenset((b"t",))
    old = frozenset((b"t", index) for index in range(6))
    shares = uniform(
        [AssignedMember(b"1", both, old), AssignedMember(b"2", single)], {b"t": 6, b"u": 2}
    )
    assert {name: len(share) for name, share in shares.items()} == {b"1": 4, b"2": 4}


def test_range_gives_neighbours_of_each_topic() -> None:
    topics = frozenset((b"t", b"u"))
    subscribers = [AssignedMember(b"b", topics), AssignedMember(b"z", topics, instance_id=b"a")]
    shares = range_(subscribers, {b"t": 3, b"u": 3})
    assert shares[b"z"] == {(topic, index) for topic in (b"t", b"u") for index in (0, 1)}
    assert shares[b"b"] == {(b"t", 2), (b"u", 2)}


def members_of(
    *names: bytes, topic: bytes = b"t", target: Places = NOWHERE
) -> list[AssignedMember]:
    return [AssignedMember(name, frozenset({topic}), target) for name in names]


@pytest.mark.parametrize(
    ("members", "partitions"), [(1, 4), (3, 4), (4, 4), (10, 4), (7, 3), (5, 1)]
)
def test_simple_shares_partitions_evenly(members: int, partitions: int) -> None:
    names = [b"%d" % number for number in range(members)]
    shares = simple(members_of(*names), {b"t": partitions})
    sizes = [len(places) for places in shares.values()]
    assert max(sizes) - min(sizes) <= 1 and min(sizes) >= 1
    holders = [
        sum((b"t", index) in places for places in shares.values()) for index in range(partitions)
    ]
    assert set(holders) == {-(-members // partitions)}


def test_simple_moves_few_partitions() -> None:
    first = simple(members_of(b"a", b"b"), {b"t": 4})
    subscribers = [
        AssignedMember(name, frozenset({b"t"}), first.get(name, NOWHERE))
        for name in (b"a", b"b", b"c")
    ]
    second = simple(subscribers, {b"t": 4})
    assert all(second[name] <= first[name] for name in first)
    assert simple(subscribers[:2], {b"t": 4}) == first
    assert simple(members_of(b"a"), {}) == {b"a": NOWHERE}
