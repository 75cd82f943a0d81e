"""Members of a group: joining, leading, dying, without a broker; times are numbers."""

import pytest

from braidlog.protocols.kafka.classic_group import (
    GROUP_MEMBERS_MAX,
    MEMBER_BYTES_MAX,
    GroupState,
    KafkaGroup,
    MemberRefused,
)
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.roster import KafkaMember
from braidlog.protocols.kafka.wire.join_group import JoinGroupRequest, JoinGroupRequestProtocol


def join(
    group: KafkaGroup,
    now: float = 0.0,
    *,
    member_id: bytes = b"",
    instance: bytes | None = None,
    names: tuple[bytes, ...] = (b"range",),
    session_ms: int = 10_000,
    kind: bytes = b"consumer",
) -> KafkaMember:
    protocols = [JoinGroupRequestProtocol(name=name, metadata=b"of " + name) for name in names]
    request = JoinGroupRequest(
        group_id=b"g",
        session_timeout_ms=session_ms,
        member_id=member_id,
        protocol_type=kind,
        protocols=protocols,
        rebalance_timeout_ms=60_000,
        group_instance_id=instance,
    )
    return group.admit(request, (b"client", b"/host"), now)


def stable(count: int) -> tuple[KafkaGroup, list[KafkaMember]]:
    """Return a group in which `count` members have joined and have an assignment."""
    group = KafkaGroup(b"g")
    members = [join(group)]
    for _ in range(count - 1):
        members.append(join(group))
        for member in members[:-1]:
            join(group, member_id=member.member_id)
    group.assign({member.member_id: b"x" for member in members}, 0.0)
    return group, [group.members[member.member_id] for member in members]


def refused(code: Code) -> object:
    return pytest.raises(MemberRefused, match=f"^{code.name}$")


def test_the_first_member_leads_its_own_generation() -> None:
    group = KafkaGroup(b"g")
    member = join(group, names=(b"a", b"b"))
    assert (group.state, group.generation) == (GroupState.COMPLETING, 1)
    reply = group.joined_reply(member.member_id)
    assert (reply.leader, reply.protocol_name) == (member.member_id, b"a")
    assert [member.metadata for member in reply.members] == [b"of a"]
    assert member.member_id.startswith(b"client-")


def test_a_second_member_waits_until_the_first_has_joined_again() -> None:
    group, (first,) = stable(1)
    second = join(group, 1.0)
    assert group.state is GroupState.PREPARING
    join(group, 2.0, member_id=first.member_id)
    assert (group.state, group.generation) == (GroupState.COMPLETING, 2)
    assert not group.joined_reply(second.member_id).members
    assert len(group.joined_reply(first.member_id).members) == 2
    group.assign({second.member_id: b"yours"}, 3.0)
    assert group.state is GroupState.STABLE
    assert [member.assignment for member in group.members.values()] == [b"", b"yours"]


def test_a_member_waiting_for_its_generation_joins_the_next_too() -> None:
    """The third joins in the turn in which the generation of the first two begins: neither would
    send a request before the time for joining has passed.
    """
    group, (first,) = stable(1)
    second = join(group)
    second.parked = True
    first = join(group, member_id=first.member_id)
    first.parked = True
    assert (group.state, group.generation) == (GroupState.COMPLETING, 2)
    join(group)
    assert (group.state, group.generation) == (GroupState.COMPLETING, 3)
    assert len(group.joined_reply(first.member_id).members) == 3
    first.parked = second.parked = False
    join(group)
    assert group.state is GroupState.PREPARING


def test_a_member_that_does_not_join_in_time_is_removed() -> None:
    group, (first,) = stable(1)
    first.due = 1000.0
    second = join(group, 5.0)
    group.advance(64.0)
    assert group.state is GroupState.PREPARING
    assert group.next_due() == 65.0
    group.advance(65.0)
    assert set(group.members) == {second.member_id}
    assert group.leader == second.member_id


def test_a_dead_member_makes_the_others_join_again() -> None:
    group, (first, second, third) = stable(3)
    assert group.next_due() == 10.0
    first.due = second.due = 20.0
    group.advance(10.0)
    assert group.state is GroupState.PREPARING
    assert third.member_id not in group.members
    join(group, 11.0, member_id=second.member_id)
    join(group, 11.0, member_id=first.member_id)
    assert (group.state, len(group.members)) == (GroupState.COMPLETING, 2)


def test_a_lost_member_dies_once() -> None:
    group, (_, second) = stable(2)
    group.lost(second, 0.0)
    group.advance(99.0)
    assert group.state is GroupState.EMPTY


def test_when_all_are_dead_the_group_is_empty() -> None:
    group, _ = stable(3)
    group.advance(99.0)
    assert (group.state, group.members) == (GroupState.EMPTY, {})


def test_a_member_waiting_for_a_rebalance_is_alive() -> None:
    group, (first,) = stable(1)
    first.due = 1000.0
    second = join(group, 0.0)
    group.advance(50.0)
    assert second.member_id in group.members


def test_only_a_leaders_repeated_join_starts_a_rebalance() -> None:
    group, (first, second) = stable(2)
    join(group, 1.0, member_id=second.member_id)
    assert group.state is GroupState.STABLE
    assert group.members[second.member_id].assignment == b"x"
    join(group, 1.0, member_id=first.member_id)
    assert group.state is GroupState.PREPARING


def test_members_share_a_protocol_or_are_refused() -> None:
    group = KafkaGroup(b"g")
    join(group, names=(b"a", b"b"))
    with refused(Code.INCONSISTENT_GROUP_PROTOCOL):
        join(group, names=(b"c",))
    with refused(Code.INCONSISTENT_GROUP_PROTOCOL):
        join(group, names=(b"a",), kind=b"connect")
    with refused(Code.INCONSISTENT_GROUP_PROTOCOL):
        join(group, names=())
    second = join(group, names=(b"b",))
    join(group, member_id=group.leader, names=(b"a", b"b"))
    assert group.protocol_name == b"b"
    assert second.member_id in group.members


def test_member_ids_must_be_known_or_promised() -> None:
    group = KafkaGroup(b"g")
    with refused(Code.UNKNOWN_MEMBER_ID):
        join(group, member_id=b"x")
    promised = group.promise(b"client", 0.0, 10.0)
    assert join(group, member_id=promised).member_id == promised
    late = group.promise(b"client", 0.0, 10.0)
    group.promise(b"client", 11.0, 10.0)
    with refused(Code.UNKNOWN_MEMBER_ID):
        join(group, 11.0, member_id=late)


def test_generations_and_members_are_checked() -> None:
    group, (first,) = stable(1)
    assert group.check(first.member_id, None, group.generation) is first
    with refused(Code.ILLEGAL_GENERATION):
        group.check(first.member_id, None, group.generation - 1)
    with refused(Code.UNKNOWN_MEMBER_ID):
        group.check(b"x", None, group.generation)


def test_a_returning_static_member_gets_a_new_id_and_fences_the_old() -> None:
    group = KafkaGroup(b"g")
    first = join(group, instance=b"i")
    again = join(group, instance=b"i")
    assert set(group.members) == {again.member_id}
    with refused(Code.FENCED_INSTANCE_ID):
        group.check(first.member_id, b"i", group.generation)
    with refused(Code.FENCED_INSTANCE_ID):
        join(group, member_id=first.member_id, instance=b"i")
    assert group.leave(None, b"i", 0.0) == Code.NONE
    assert not group.members


def test_a_static_member_keeps_its_assignment_without_a_rebalance() -> None:
    """KIP-345: the generation stands; a new member id fences the old."""
    group, (leader, _) = stable(2)
    static = join(group, instance=b"i")
    for member in list(group.members.values())[:-1]:
        join(group, member_id=member.member_id)
    group.assign({static.member_id: b"mine"}, 0.0)
    generation = group.generation
    again = join(group, 1.0, instance=b"i")
    assert (group.state, group.generation) == (GroupState.STABLE, generation)
    assert again.assignment == b"mine"
    reply = group.joined_reply(again.member_id)
    assert (reply.generation_id, reply.leader, reply.members) == (generation, leader.member_id, [])
    assert group.check(again.member_id, b"i", generation) is again
    with refused(Code.FENCED_INSTANCE_ID):
        group.check(static.member_id, b"i", generation)


def test_a_static_leader_that_comes_back_skips_the_assignment() -> None:
    """A client that cannot be told so is shown its former id as the leader's."""
    group = KafkaGroup(b"g")
    old = join(group, instance=b"i")
    group.assign({old.member_id: b"mine"}, 0.0)
    for _ in range(2):
        former = group.leader
        new = join(group, 1.0, instance=b"i")
        assert (group.state, group.generation, group.leader) == (
            GroupState.STABLE,
            1,
            new.member_id,
        )
        reply = group.joined_reply(new.member_id)
        assert (reply.leader, len(reply.members), reply.skip_assignment) == (new.member_id, 1, True)
        reply = group.joined_reply(new.member_id, may_skip=False)
        assert (reply.leader, reply.members, reply.skip_assignment) == (former, [], False)
    join(group, 2.0, member_id=new.member_id, instance=b"i", names=(b"range", b"other"))
    reply = group.joined_reply(new.member_id, may_skip=False)
    assert (group.generation, reply.leader) == (2, new.member_id)


def test_a_static_member_that_changes_the_protocol_makes_all_join_again() -> None:
    group = KafkaGroup(b"g")
    member = join(group, instance=b"i", names=(b"range",))
    group.assign({member.member_id: b"mine"}, 0.0)
    with refused(Code.INCONSISTENT_GROUP_PROTOCOL):
        join(group, 1.0, instance=b"i", names=(b"sticky",))
    join(group, 1.0, instance=b"i", names=(b"sticky", b"range"))
    assert (group.state, group.protocol_name) == (GroupState.COMPLETING, b"sticky")


def test_leaving_makes_the_others_join_again() -> None:
    group, (first, second) = stable(2)
    assert group.leave(second.member_id, None, 1.0) == Code.NONE
    assert group.state is GroupState.PREPARING
    assert group.leave(second.member_id, None, 1.0) == Code.UNKNOWN_MEMBER_ID
    assert group.leave(first.member_id, None, 1.0) == Code.NONE
    assert group.state is GroupState.EMPTY


def test_a_group_has_a_size_limit() -> None:
    group = KafkaGroup(b"g")
    for _ in range(GROUP_MEMBERS_MAX):
        join(group)
    with refused(Code.GROUP_MAX_SIZE_REACHED):
        join(group)


def test_a_new_group_waits_a_little_for_more_members() -> None:
    group = KafkaGroup(b"g", initial_delay_s=0.25)
    join(group)
    assert group.state is GroupState.PREPARING
    assert group.next_due() == 0.25
    join(group, 0.1)
    group.advance(0.2)
    assert group.state is GroupState.PREPARING
    group.advance(0.25)
    assert (group.state, group.generation, len(group.members)) == (GroupState.COMPLETING, 1, 2)


def test_an_instance_with_another_member_id_is_fenced() -> None:
    group = KafkaGroup(b"g")
    member = join(group, instance=b"i")
    join(group, instance=b"i", member_id=member.member_id)
    with refused(Code.FENCED_INSTANCE_ID):
        join(group, member_id=b"other", instance=b"i")
    for member_id in (member.member_id, b"other"):
        with refused(Code.UNKNOWN_MEMBER_ID):
            join(group, member_id=member_id, instance=b"j")
    assert join(group, member_id=member.member_id).instance_id == b"i"
    assert group.leave(member.member_id, b"j", 0.0) == Code.UNKNOWN_MEMBER_ID
    assert group.leave(b"other", b"i", 0.0) == Code.FENCED_INSTANCE_ID
    assert group.leave(None, b"i", 0.0) == Code.NONE
    assert not group.members


def test_promised_ids_have_a_limit_and_expire() -> None:
    group = KafkaGroup(b"g")
    promised = [group.promise(b"c", 0.0, 10.0) for _ in range(GROUP_MEMBERS_MAX)]
    with refused(Code.GROUP_MAX_SIZE_REACHED):
        group.promise(b"c", 9.0, 10.0)
    assert group.leave(promised[0], None, 9.0) == Code.NONE
    assert group.leave(promised[0], None, 9.0) == Code.UNKNOWN_MEMBER_ID
    assert join(group, 9.0, member_id=group.promise(b"c", 9.0, 10.0))
    assert group.promise(b"c", 10.0, 10.0)
    with refused(Code.UNKNOWN_MEMBER_ID):
        join(group, 10.0, member_id=promised[1])


def test_an_unchanged_rejoin_during_a_sync_starts_no_rebalance() -> None:
    group = KafkaGroup(b"g")
    member = join(group)
    assert (group.state, group.generation) == (GroupState.COMPLETING, 1)
    join(group, member_id=member.member_id)
    assert (group.state, group.generation) == (GroupState.COMPLETING, 1)
    join(group, member_id=member.member_id, names=(b"other",))
    assert group.generation == 2


def test_a_removed_member_gets_no_generation() -> None:
    group, (_, second) = stable(2)
    group.leave(second.member_id, None, 0.0)
    with refused(Code.UNKNOWN_MEMBER_ID):
        group.joined_reply(second.member_id)


def test_a_members_data_is_limited() -> None:
    protocols = [
        JoinGroupRequestProtocol(name=b"%d" % n, metadata=bytes(MEMBER_BYTES_MAX // 2 + 1))
        for n in range(2)
    ]
    request = JoinGroupRequest(
        group_id=b"g",
        session_timeout_ms=10_000,
        member_id=b"",
        protocol_type=b"consumer",
        protocols=protocols,
        rebalance_timeout_ms=60_000,
        group_instance_id=None,
    )
    with refused(Code.INVALID_REQUEST):
        KafkaGroup(b"g").admit(request, (b"client", b"/host"), 0.0)
