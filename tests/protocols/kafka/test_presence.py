"""Members whose connection ends, and long polls of members that must rejoin."""

import sys
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from braidlog.broker.broker import Broker
from braidlog.protocols.kafka.classic_group import KafkaGroup
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.group_coordinator import GroupCoordinator, groups_of
from braidlog.protocols.kafka.long_polls import (
    CALLED_S,
    CLIENT_POLLS_MAX,
    CLIENTS_CALLED_MAX,
    REJOIN_POLL_S,
)
from braidlog.protocols.kafka.presence import MEMBERSHIPS_MAX, Presence
from braidlog.protocols.kafka.roster import HEARD_SHARE, RECONNECT_S, KafkaMember
from tests.protocols.kafka.frames import RawKafka, fetch
from tests.protocols.kafka.talk import FOO, OpenClient, join_request
from tests.protocols.kafka.test_classic_groups import (
    GROUP,
    another_waits,
    beat,
    join,
    synced,
    two_members,
)
from tests.waiting import until

SESSION_S = 6.0
POLL_S = 5.0
EARLY = 1 / 64  # Part of a wait, see `common_deadline`.
CLIENT = (b"c", b"/h")


def admit(group: KafkaGroup, instance: bytes | None = None) -> KafkaMember:
    session_ms = int(SESSION_S * 1000)
    request = join_request(session_timeout_ms=session_ms, group_instance_id=instance)
    return group.admit(request, CLIENT, trio.current_time())


async def poll(table: GroupCoordinator, client: tuple[bytes, bytes] = CLIENT) -> float:
    """Wait in a poll; return its duration."""
    begun = trio.current_time()
    with table.polls.waiting(client, POLL_S):
        await trio.sleep_forever()
    return trio.current_time() - begun


def settle(group: KafkaGroup) -> None:
    """Let all members join and have an assignment."""
    group.roster.absent.clear()
    group.advance(trio.current_time())
    group.assign({}, trio.current_time())


async def own_nursery(task_status: trio.TaskStatus[trio.Nursery]) -> None:
    """Open the nursery of a connection. Its end cancels no test, as one around the test would."""
    async with trio.open_nursery() as nursery:
        task_status.started(nursery)
        await trio.sleep_forever()


def presence_in(
    nursery: trio.Nursery, table: GroupCoordinator, *, is_open: bool = True
) -> Presence:
    nursery.start_soon(trio.sleep_forever)  # As the task that keeps a connection's time.
    connection: Any = SimpleNamespace(nursery=nursery, is_open=is_open)
    return Presence(connection, table)


async def test_a_disconnected_member_is_dead_before_its_session_ends(
    autojump_clock: trio.abc.Clock,
) -> None:
    table = GroupCoordinator()
    group = table.get(GROUP)
    async with trio.open_nursery() as nursery:
        first, second = presence_in(nursery, table), presence_in(nursery, table)
        living, leaving = admit(group), admit(group)
        settle(group)
        first.heard(group, living)
        second.heard(group, leaving)
        begun = trio.current_time()
        second.ended()
        while leaving.member_id in group.members:
            await trio.sleep(0.01)
        assert trio.current_time() - begun == pytest.approx(SESSION_S * HEARD_SHARE, abs=0.1)
        assert living.member_id in group.members
        nursery.cancel_scope.cancel()


async def test_without_a_watcher_another_members_long_poll_still_ends(
    autojump_clock: trio.abc.Clock,
) -> None:
    table = GroupCoordinator()
    group = table.get(GROUP)
    async with trio.open_nursery() as staying:
        ending = await staying.start(own_nursery)
        first, second = presence_in(ending, table), presence_in(staying, table, is_open=False)
        leaving, living = admit(group), admit(group)
        settle(group)
        await trio.sleep(CALLED_S)  # The rebalance, too, has cut polls short.
        first.heard(group, leaving)
        second.heard(group, living)
        begun = trio.current_time()
        ending.cancel_scope.cancel()  # This also ends the task that finds dead members.
        await until(lambda: not group.watched)
        async with trio.open_nursery() as waiting:
            waiting.start_soon(poll, table)
            await trio.testing.wait_all_tasks_blocked()
            first.ended()
        assert trio.current_time() - begun == pytest.approx(
            SESSION_S * HEARD_SHARE + REJOIN_POLL_S, abs=0.1
        )
        assert table.find(GROUP) is group
        assert list(group.members) == [living.member_id]
        staying.cancel_scope.cancel()


@pytest.mark.parametrize("way", ["left", "moved"])
async def test_dead_members_are_found_after_the_watching_connection_has_no_member(
    autojump_clock: trio.abc.Clock, way: str
) -> None:
    """The member has left, or speaks over another connection, before its first connection ends."""
    table = GroupCoordinator()
    group = table.get(GROUP)
    async with trio.open_nursery() as staying:
        ending = await staying.start(own_nursery)
        first, second = presence_in(ending, table), presence_in(staying, table)
        member, living, silent = admit(group), admit(group), admit(group)
        settle(group)
        first.heard(group, member)
        second.heard(group, living)
        if way == "left":
            group.leave(member.member_id, None, trio.current_time())
        else:
            second.heard(group, member)
        ending.cancel_scope.cancel()  # This also ends the task that finds dead members.
        await until(lambda: not group.watched)
        first.ended()
        await trio.sleep(2 * SESSION_S)
        assert silent.member_id not in group.members
        staying.cancel_scope.cancel()


async def calls_of_ends(count: int) -> int:
    """Return the number of function calls when so many connections of a group end at once."""
    table = GroupCoordinator()
    group = table.get(GROUP)
    async with trio.open_nursery() as nursery:
        connections = [presence_in(nursery, table, is_open=False) for _ in range(count)]
        for connection in connections:
            connection.heard(group, admit(group))
        settle(group)
        calls = 0

        def note(frame: object, event: str, argument: object) -> None:
            nonlocal calls
            calls += event == "call"

        sys.setprofile(note)
        try:
            for connection in connections:
                connection.ended()
        finally:
            sys.setprofile(None)
        nursery.cancel_scope.cancel()
    return calls


async def test_the_end_of_a_process_with_many_members_costs_as_much_for_each() -> None:
    assert await calls_of_ends(200) < 3 * await calls_of_ends(100)


def test_members_of_a_group_without_a_watch_are_called_for_each_deadline_once() -> None:
    group = KafkaGroup(GROUP)
    assert group.calls_for(20.0, 0.0)
    assert not group.calls_for(20.0, 1.0)
    assert not group.calls_for(19.8, 1.0)
    assert group.calls_for(10.0, 1.0)
    assert not group.calls_for(20.0, 10.0)
    assert group.calls_for(20.0, 11.0)  # The former deadline has passed.
    group.watch_begins()
    group.watch_ends()
    assert group.calls_for(20.0, 12.0)


def test_a_long_silent_member_still_has_time_to_reconnect() -> None:
    group = KafkaGroup(GROUP)
    member = KafkaMember(b"m", None, CLIENT, SESSION_S, SESSION_S, {}, 10.0)
    group.members[b"m"] = member
    member.heard(100.0)
    member.lost(105.0)
    assert member.due == 105.0 + RECONNECT_S
    member.heard(105.2)
    assert member.due == 105.2 + SESSION_S


def test_a_static_member_may_be_away_for_its_session() -> None:
    member = KafkaMember(b"m", b"instance", CLIENT, SESSION_S, SESSION_S, {}, 10.0)
    member.heard(100.0)
    member.lost(101.0)
    assert member.due == 100.0 + SESSION_S


async def test_a_member_on_a_new_connection_is_not_lost() -> None:
    table = GroupCoordinator()
    group = table.get(GROUP)
    async with trio.open_nursery() as nursery:
        old, new = presence_in(nursery, table), presence_in(nursery, table)
        member = admit(group)
        old.heard(group, member)
        new.heard(group, member)
        due = member.due
        old.ended()
        assert member.due == due
        nursery.cancel_scope.cancel()


async def test_memberships_of_a_connection_have_a_limit() -> None:
    table = GroupCoordinator()
    async with trio.open_nursery() as nursery:
        presence = presence_in(nursery, table)
        for number in range(MEMBERSHIPS_MAX + 5):
            group = table.get(b"%d" % number)
            presence.heard(group, admit(group))
        assert len(presence._spoken) == MEMBERSHIPS_MAX
        nursery.cancel_scope.cancel()


async def test_a_long_poll_ends_early_for_a_rejoin(
    autojump_clock: trio.abc.Clock,
) -> None:
    table = GroupCoordinator()
    group = table.get(GROUP)
    admit(group)
    group.assign({}, trio.current_time())
    assert await poll(table) == pytest.approx(POLL_S, rel=EARLY)
    async with trio.open_nursery() as waiting:
        waiting.start_soon(poll, table)
        waiting.start_soon(poll, table, (b"other", b"/h"))
        await trio.testing.wait_all_tasks_blocked()
        begun = trio.current_time()
        admit(group)
        await trio.sleep(REJOIN_POLL_S)
        await trio.testing.wait_all_tasks_blocked()
        assert len(waiting.child_tasks) == 1
    assert trio.current_time() - begun == pytest.approx(POLL_S, rel=EARLY)


async def test_polls_are_short_for_a_while_after_a_rejoin_request(
    autojump_clock: trio.abc.Clock,
) -> None:
    table = GroupCoordinator()
    table.polls.call(CLIENT)
    assert await poll(table) == pytest.approx(REJOIN_POLL_S, rel=EARLY)
    await trio.sleep(CALLED_S)
    assert await poll(table) == pytest.approx(POLL_S, rel=EARLY)


async def test_many_polls_of_the_same_client_id_are_not_ended(
    autojump_clock: trio.abc.Clock,
) -> None:
    table = GroupCoordinator()
    begun = trio.current_time()
    async with trio.open_nursery() as waiting:
        for _ in range(CLIENT_POLLS_MAX + 1):
            waiting.start_soon(poll, table)
        await trio.testing.wait_all_tasks_blocked()
        table.polls.call(CLIENT)
    assert trio.current_time() - begun == pytest.approx(POLL_S, rel=EARLY)


async def test_the_oldest_rejoin_requests_are_forgotten() -> None:
    table = GroupCoordinator()
    for number in range(CLIENTS_CALLED_MAX + 5):
        table.polls.call((b"%d" % number, b""))
    assert len(table.polls._called) == CLIENTS_CALLED_MAX


async def test_the_end_of_a_connection_reaches_the_group(
    broker: Broker, client: RawKafka, open_client: OpenClient
) -> None:
    other, first, second = await two_members(client, open_client)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(synced, other, second))
        await synced(client, first)
    group = groups_of(broker, "public/default").find(GROUP)
    assert group is not None
    member = group.members[second.member_id]
    await other.stream.aclose()
    await until(lambda: member.speaks_over is None)
    assert member.due <= trio.current_time() + member.session_s * HEARD_SHARE
    assert await beat(client, first) == Code.NONE
    member.due = 0.0
    group.lost(member, 0.0)
    assert await beat(client, first) == Code.REBALANCE_IN_PROGRESS


async def test_a_fetch_of_a_member_ends_early_in_a_rebalance(
    broker: Broker, client: RawKafka, open_client: OpenClient
) -> None:
    async with another_waits(broker, client, open_client) as (first, _, _):
        await client.call(fetch(FOO, {0: (0, 1000)}, wait_ms=600_000))
        await client.call_with_table(join(first.member_id), 5)


async def test_a_killed_member_is_noticed_while_its_fetch_waits(
    broker: Broker, client: RawKafka, open_client: OpenClient
) -> None:
    other, first, second = await two_members(client, open_client)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(synced, other, second))
        await synced(client, first)
    await other.send(fetch(FOO, {0: (0, 1000)}, wait_ms=600_000))
    await until(lambda: len(broker.waiters) == 1)
    await other.stream.aclose()
    await until(lambda: sum(connection.notice_gone() for connection in broker.connections))


async def test_a_wait_after_a_change_is_woken_by_the_next_change(
    autojump_clock: trio.abc.Clock,
) -> None:
    table = GroupCoordinator()
    group = table.get(GROUP)
    member = admit(group)
    woken = []

    async def wait(number: int) -> None:
        for _ in range(2):
            await table.wait(member)
            woken.append(number)

    begun = trio.current_time()
    async with trio.open_nursery() as nursery:
        for number in range(3):
            nursery.start_soon(wait, number)
        for _ in range(2):
            await trio.testing.wait_all_tasks_blocked()
            member.wake()
    assert len(woken) == 6
    assert trio.current_time() == begun
