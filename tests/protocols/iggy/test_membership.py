"""Membership and partition assignment of consumer groups."""

import random

import pytest

from braidlog.protocols.iggy.membership import REVOKE_S, Groups
from tests.fake_clock import FakeClock

TOPIC, NAME = 7, "grp"


def dealt(groups: Groups, partitions_count: int) -> dict[int, list[int]]:
    return {
        member.member_id: member.partitions
        for member in groups.members(TOPIC, NAME, partitions_count)
    }


def test_partition_i_goes_to_member_i_mod_m():
    groups = Groups(lambda: 0.0)
    for member_id in (11, 22):
        groups.join(TOPIC, NAME, member_id)
    assert dealt(groups, 5) == {11: [0, 2, 4], 22: [1, 3]}


def test_a_member_takes_its_partitions_in_turn():
    groups = Groups(lambda: 0.0)
    groups.join(TOPIC, NAME, 11)
    member = groups.member(TOPIC, NAME, 11, 3)
    assert [member.next_partition() for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]


def test_current_partition_is_the_first_before_any_turn_and_the_last_taken_afterwards():
    groups = Groups(lambda: 0.0)
    groups.join(TOPIC, NAME, 11)
    member = groups.member(TOPIC, NAME, 11, 2)
    assert member.current == 0
    assert (member.next_partition(), member.next_partition(), member.current) == (0, 1, 1)


def test_member_without_partition_has_no_turn():
    groups = Groups(lambda: 0.0)
    for member_id in (11, 22, 33):
        groups.join(TOPIC, NAME, member_id)
    idle = groups.member(TOPIC, NAME, 33, 2)
    assert (idle.partitions, idle.current, idle.next_partition()) == ([], None, None)


def test_a_leave_reassigns_partitions_and_restarts_turns():
    groups = Groups(lambda: 0.0)
    for member_id in (11, 22):
        groups.join(TOPIC, NAME, member_id)
    groups.member(TOPIC, NAME, 11, 4).next_partition()
    groups.leave(TOPIC, NAME, 22)
    member = groups.member(TOPIC, NAME, 11, 4)
    assert member.partitions == [0, 1, 2, 3]
    assert member.next_partition() == 0


def test_a_growing_topic_reassigns_partitions():
    groups = Groups(lambda: 0.0)
    groups.join(TOPIC, NAME, 11)
    assert dealt(groups, 1) == {11: [0]}
    assert dealt(groups, 3) == {11: [0, 1, 2]}


def test_joining_twice_changes_nothing():
    groups = Groups(lambda: 0.0)
    groups.join(TOPIC, NAME, 11)
    groups.member(TOPIC, NAME, 11, 2).next_partition()
    groups.join(TOPIC, NAME, 11)
    assert groups.member(TOPIC, NAME, 11, 2).next_partition() == 1
    assert groups.joined(11) == [(TOPIC, NAME)]


def test_leaving_without_having_joined_is_no_fault():
    groups = Groups(lambda: 0.0)
    groups.leave(TOPIC, NAME, 11)
    groups.leave_all(11)
    assert groups.members(TOPIC, NAME, 3) == []


def test_a_closed_connection_leaves_every_group():
    groups = Groups(lambda: 0.0)
    for name in ("a", "b"):
        groups.join(TOPIC, name, 11)
        groups.join(TOPIC, name, 22)
    groups.leave_all(11)
    assert groups.joined(11) == []
    assert [member.member_id for member in groups.members(TOPIC, "a", 1)] == [22]
    assert groups.member(TOPIC, "b", 11, 1) is None


def test_dropped_group_has_no_members():
    groups = Groups(lambda: 0.0)
    groups.join(TOPIC, NAME, 11)
    groups.join(TOPIC, "other", 11)
    groups.drop(TOPIC, NAME)
    assert groups.members(TOPIC, NAME, 1) == []
    assert groups.joined(11) == [(TOPIC, "other")]


@pytest.mark.parametrize("seed", range(20))
def test_every_partition_has_exactly_one_owner_at_any_time(seed):
    chance = random.Random(seed)
    groups = Groups(lambda: 0.0)
    inside: set[int] = set()
    for _ in range(60):
        member_id = chance.randrange(6)
        if chance.random() < 0.5:
            groups.join(TOPIC, NAME, member_id, gently=chance.random() < 0.5)
            inside.add(member_id)
        else:
            groups.leave(TOPIC, NAME, member_id)
            inside.discard(member_id)
        count = chance.randrange(1, 9)
        owners = dealt(groups, count)
        assert set(owners) == inside
        if inside:
            assert sorted(index for mine in owners.values() for index in mine) == list(range(count))
            sizes = [len(mine) for mine in owners.values()]
            assert max(sizes) - min(sizes) <= 1


def two(clock: FakeClock, partitions: int = 4) -> Groups:
    """Return groups with a member that has all partitions, and a member that has just joined
    gently.
    """
    groups = Groups(clock)
    groups.join(TOPIC, NAME, 11, gently=True)
    assert dealt(groups, partitions) == {11: list(range(partitions))}
    return groups


KEY = (TOPIC, NAME)


def test_a_gentle_join_takes_its_share_and_others_keep_the_rest():
    groups = two(FakeClock())
    groups.member(TOPIC, NAME, 11, 4).next_partition()
    generation = groups.generation(TOPIC, NAME)
    groups.join(TOPIC, NAME, 22, gently=True)
    assert dealt(groups, 4) == {11: [0, 1], 22: [2, 3]}
    assert groups.member(TOPIC, NAME, 11, 4).next_partition() == 1  # The member's turns continue.
    assert groups.generation(TOPIC, NAME) > generation
    groups.join(TOPIC, NAME, 33, gently=True)
    assert dealt(groups, 4) == {11: [0], 22: [2, 3], 33: [1]}
    groups.join(TOPIC, NAME, 44, gently=True)
    assert dealt(groups, 4) == {11: [0], 22: [2], 33: [1], 44: [3]}
    groups.join(TOPIC, NAME, 55, gently=True)  # No partition is left.
    assert dealt(groups, 4)[55] == []


def test_a_polled_partition_moves_after_its_commit():
    groups = two(FakeClock(), partitions=2)
    for partition in (0, 1):
        groups.polled(KEY, 11, partition, 5)
    groups.join(TOPIC, NAME, 22, gently=True)
    assert dealt(groups, 2) == {11: [0, 1], 22: []}
    first = groups.member(TOPIC, NAME, 11, 2)
    assert first.polled_partitions == [0]  # No more polls of leaving partitions.
    assert [first.next_partition() for _ in range(2)] == [0, 0]
    generation = groups.generation(TOPIC, NAME)
    groups.committed(KEY, 1, 4)
    assert dealt(groups, 2) == {11: [0, 1], 22: []}
    groups.committed(KEY, 1, 5)
    assert dealt(groups, 2) == {11: [0], 22: [1]}
    assert groups.generation(TOPIC, NAME) == generation + 1


def test_unpolled_partitions_move_first():
    groups = two(FakeClock(), partitions=2)
    groups.polled(KEY, 11, 1, 5)
    groups.join(TOPIC, NAME, 22, gently=True)
    assert dealt(groups, 2) == {11: [1], 22: [0]}


def test_a_member_without_commits_keeps_a_partition_for_a_limited_time():
    clock = FakeClock()
    groups = two(clock, partitions=2)
    for partition in (0, 1):
        groups.polled(KEY, 11, partition, 5)
    groups.join(TOPIC, NAME, 22, gently=True)
    assert dealt(groups, 2)[22] == []
    clock.now = REVOKE_S
    assert dealt(groups, 2) == {11: [0], 22: [1]}


@pytest.mark.parametrize("gone", [11, 22])
def test_a_leave_during_a_move_reassigns_all_partitions(gone):
    groups = two(FakeClock(), partitions=2)
    for partition in (0, 1):
        groups.polled(KEY, 11, partition, 5)
    groups.join(TOPIC, NAME, 22, gently=True)
    dealt(groups, 2)
    groups.leave(TOPIC, NAME, gone)
    assert list(dealt(groups, 2).values()) == [[0, 1]]
    groups.committed(KEY, 1, 5)
    assert list(dealt(groups, 2).values()) == [[0, 1]]


def test_a_join_while_all_partitions_move_gets_another_members_partition():
    groups = two(FakeClock())
    for partition in range(4):
        groups.polled(KEY, 11, partition, 5)
    for member in (22, 33, 44):
        groups.join(TOPIC, NAME, member, gently=True)
        assert dealt(groups, 4)[member] == []
    for partition in range(4):
        groups.committed(KEY, partition, 5)
    assert sorted(dealt(groups, 4).values()) == [[0], [1], [2], [3]]


def test_of_three_joining_members_a_single_member_gets_the_last_partition():
    groups = two(FakeClock(), partitions=3)
    groups.join(TOPIC, NAME, 22, gently=True)
    assert dealt(groups, 3) == {11: [0, 1], 22: [2]}
    for member in (33, 44):
        groups.join(TOPIC, NAME, member, gently=True)
    assert dealt(groups, 3) == {11: [0], 22: [2], 33: [1], 44: []}


def owners(groups: Groups, partitions: int = 4) -> list[int]:
    return [groups.owner_generation(KEY, partition) for partition in range(partitions)]


def test_the_generation_of_an_owner_changes_with_the_owner_alone():
    groups = Groups(FakeClock(), first_generation=lambda: 100)
    groups.join(TOPIC, NAME, 11, gently=True)
    dealt(groups, 4)
    assert owners(groups) == [101] * 4
    groups.join(TOPIC, NAME, 22, gently=True)
    assert dealt(groups, 4) == {11: [0, 1], 22: [2, 3]}
    assert owners(groups) == [101, 101, 103, 102]
    groups.join(TOPIC, NAME, 33)  # All partitions are dealt again, to three members.
    assert dealt(groups, 4) == {11: [0, 3], 22: [1], 33: [2]}
    assert owners(groups) == [101, 104, 104, 104]
    groups.leave(TOPIC, NAME, 11)
    groups.join(TOPIC, NAME, 11)
    assert dealt(groups, 4) == {22: [0, 3], 33: [1], 11: [2]}
    assert owners(groups) == [105] * 4
    assert groups.generation(TOPIC, NAME) == 105


def test_a_member_that_joins_again_is_another_owner():
    groups = two(FakeClock(), partitions=1)
    (former,) = owners(groups, 1)
    groups.leave(TOPIC, NAME, 11)
    groups.join(TOPIC, NAME, 11)
    assert dealt(groups, 1) == {11: [0]}
    assert owners(groups, 1) > [former]


def test_a_topic_that_was_away_has_other_owners():
    """Another broker may have had other members read it meanwhile."""
    groups = two(FakeClock(), partitions=2)
    groups.polled(KEY, 11, 0, 5)
    former = owners(groups, 2)
    groups.deal_again(TOPIC)
    assert owners(groups, 2) == [0, 0]
    assert dealt(groups, 2) == {11: [0, 1]}
    assert min(owners(groups, 2)) > max(former)
    groups.join(TOPIC, NAME, 22, gently=True)
    assert dealt(groups, 2) == {11: [0], 22: [1]}  # Nothing waits for a commit.


@pytest.mark.parametrize(
    ("before", "after", "has_ended"),
    [
        (None, None, False),
        (None, 4, False),
        (None, 5, True),
        (2, 2, False),
        (2, 4, False),
        (2, 5, True),
        (2, 1, True),  # A reset: the messages are delivered again.
        (2, None, True),  # The group's positions were deleted.
    ],
)
def test_a_move_ends_by_the_groups_position(before, after, has_ended):
    positions = dict.fromkeys(range(2), before)
    groups = Groups(FakeClock(), lambda _, partition: positions[partition])
    groups.join(TOPIC, NAME, 11, gently=True)
    dealt(groups, 2)
    for partition in range(2):
        groups.polled(KEY, 11, partition, 5)
    groups.join(TOPIC, NAME, 22, gently=True)
    assert dealt(groups, 2)[22] == []
    positions[1] = after
    assert dealt(groups, 2)[22] == ([1] if has_ended else [])


def test_a_partition_that_another_protocols_client_has_committed_moves_first():
    positions = {0: 5, 1: 0}
    groups = Groups(FakeClock(), lambda _, partition: positions[partition])
    groups.join(TOPIC, NAME, 11, gently=True)
    dealt(groups, 2)
    for partition in range(2):
        groups.polled(KEY, 11, partition, 5)
    groups.join(TOPIC, NAME, 22, gently=True)
    assert dealt(groups, 2) == {11: [1], 22: [0]}
