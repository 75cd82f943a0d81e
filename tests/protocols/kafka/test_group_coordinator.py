"""Memory limits of all groups of a namespace."""

import pytest
import trio
import trio.testing

from braidlog.broker.broker import Broker
from braidlog.protocols.kafka.classic_group import (
    GROUP_MEMBERS_MAX,
    MEMBER_BYTES_MAX,
    MemberRefused,
)
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.group_coordinator import KEPT_BYTES_MAX, GroupCoordinator, groups_of
from braidlog.protocols.kafka.wire.join_group import JoinGroupRequest
from tests.protocols.kafka.frames import RawKafka
from tests.protocols.kafka.talk import join_request

SAID = bytes(MEMBER_BYTES_MAX - 100)  # Beside names.
SESSION_MS = 10_000
CLIENT = (b"c", b"/h")


def saying_much(name: bytes) -> JoinGroupRequest:
    return join_request({b"range": SAID}, group_id=name, rebalance_timeout_ms=SESSION_MS)


def fill(table: GroupCoordinator) -> list[bytes]:
    """Fill the table with groups of a single member; return their names."""
    names: list[bytes] = []
    while True:
        names.append(b"g-%d" % len(names))
        try:
            table.check_room(len(SAID))
        except MemberRefused as refused:
            assert refused.code == Code.CONSUMER_COORDINATOR_NOT_AVAILABLE
            return names[:-1]
        group = table.get(names[-1])
        group.admit(saying_much(names[-1]), CLIENT, trio.current_time())
        table.note_change(group)


async def test_members_data_has_a_limit_and_a_leave_frees_room() -> None:
    table = GroupCoordinator()
    names = fill(table)
    assert KEPT_BYTES_MAX // 2 < len(names) * len(SAID) <= KEPT_BYTES_MAX
    group = table.find(names[0])
    assert group is not None
    (member,) = group.members
    group.leave(member, None, trio.current_time())
    table.note_change(group)
    table.check_room(len(SAID))


async def test_dead_members_free_room_without_requests(
    autojump_clock: trio.testing.MockClock,
) -> None:
    table = GroupCoordinator()
    names = fill(table)
    await trio.sleep(SESSION_MS / 1000)
    table.check_room(len(SAID))
    assert not table.names() and fill(table) == names


async def test_unused_member_ids_free_room(
    autojump_clock: trio.testing.MockClock,
) -> None:
    table = GroupCoordinator()
    long_id = bytes(KEPT_BYTES_MAX // GROUP_MEMBERS_MAX)
    group = table.get(b"g")
    for _ in range(GROUP_MEMBERS_MAX - 1):
        group.promise(long_id, trio.current_time(), SESSION_MS / 1000)
    table.weigh(group)
    with pytest.raises(MemberRefused):
        table.check_room(len(SAID))
    await trio.sleep(SESSION_MS / 1000)
    table.check_room(len(SAID))
    assert not table.names()


async def test_a_client_is_asked_to_retry_without_room(broker: Broker, client: RawKafka) -> None:
    table = groups_of(broker, "public/default")
    names = fill(table)
    refused = await client.call_with_table(saying_much(b"one more"), 1)
    assert refused.error_code == Code.CONSUMER_COORDINATOR_NOT_AVAILABLE
    table.forget(names[0])
    answer = await client.call_with_table(saying_much(b"one more"), 1)
    assert answer.error_code == Code.NONE
