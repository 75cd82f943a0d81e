"""The members of a group with their sums: no request walks over all members."""

import random

from braidlog.protocols.kafka.deadlines import SPARE_ENTRIES_MAX
from braidlog.protocols.kafka.roster import KafkaMember, Roster

SESSION_S = 10.0


def member(
    member_id: bytes, *names: bytes, instance: bytes | None = None, due: float = SESSION_S
) -> KafkaMember:
    protocols = {name: b"of " + name for name in names or (b"range",)}
    return KafkaMember(member_id, instance, (b"c", b"/h"), SESSION_S, 60.0, protocols, due)


def test_sums_equal_a_walk_over_all_members() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng, roster = random.Random(seed), Roster()
    names = [b"a", b"b", b"c"]
    for _ in range(500):
        member_id = b"%d" % rng.randrange(8)
        known = roster.members.get(member_id)
        if known is not None and rng.random() < 0.4:
            roster.remove(known)
        elif known is not None and rng.random() < 0.4:
            roster.assign(known, bytes(rng.randrange(20)))
        else:
            instance = b"i" + member_id if rng.random() < 0.5 else None
            roster.add(
                member(member_id, *rng.sample(names, rng.randrange(1, 4)), instance=instance)
            )
        members = list(roster.members.values())
        assert roster.size == sum(other.size for other in members)
        shared = [name for name in names if all(name in other.protocols for other in members)]
        assert list(roster.shared(names)) == shared
        for joining in (member_id, b"new"):
            others = [other for other in members if other.member_id != joining]
            for name in names:
                fits = all(name in other.protocols for other in others)
                assert roster.fits([name], joining) == fits
        for other in members:
            if other.instance_id is not None:
                assert roster.instance(other.instance_id) is other


def test_a_sign_of_life_moves_the_deadline_without_a_walk() -> None:
    roster = Roster()
    silent, other = member(b"1"), member(b"2", due=15.0)
    roster.add(silent)
    roster.add(other)
    silent.heard(9.0)
    assert roster.take_dead(10.0, lambda _: False) == []
    assert roster.next_due() == 15.0
    assert roster.take_dead(15.0, lambda _: False) == [other]
    assert roster.take_dead(19.0, lambda _: True) == []  # It waits for a rebalance.
    assert roster.take_dead(29.0, lambda _: False) == [silent]


def test_a_lost_connection_makes_the_deadline_sooner() -> None:
    roster = Roster()
    lost = member(b"1")
    roster.add(lost)
    roster.lost(lost, 0.0)
    assert roster.next_due() == lost.due < SESSION_S
    assert roster.take_dead(lost.due, lambda _: False) == [lost]


def test_lost_connections_keep_no_memory() -> None:
    roster = Roster()
    lost = member(b"1")
    roster.add(lost)
    for _ in range(10 * SPARE_ENTRIES_MAX):
        roster.lost(lost, 0.0)
    assert len(roster._dues._heap) <= SPARE_ENTRIES_MAX + 2


def test_a_member_that_joins_again_wakes_its_earlier_requests() -> None:
    roster, woken = Roster(), []
    joined = member(b"1")
    roster.add(joined)
    joined.wakers.append(lambda: woken.append(1))
    roster.add(member(b"1"))
    assert woken == [1] and not roster.has(joined)
