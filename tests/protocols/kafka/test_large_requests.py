"""Requests with many topics and partitions: their entries in memory have a limit."""

import trio
from trio.testing import wait_all_tasks_blocked

from braidlog.broker.broker import Broker
from braidlog.protocols.kafka.fields import ENTRIES_FEW_MAX
from braidlog.protocols.kafka.large_requests import (
    ENTRY_BYTES_MIN,
    LARGE_ENTRIES_MAX,
    LargeRequests,
    large_requests,
)
from tests.protocols.kafka import forms as m
from tests.protocols.kafka.frames import RawKafka, fetch, message_set
from tests.protocols.kafka.talk import FOO, OpenClient, produce_one, second_client

HALF = LARGE_ENTRIES_MAX // 2 * ENTRY_BYTES_MIN  # bytes of a frame


async def test_requests_are_served_in_order_as_room_is_freed() -> None:
    requests = LargeRequests()
    begun = []

    async def serve(number: int, frame_bytes: int) -> None:
        held = await requests.enter(frame_bytes)
        begun.append(number)
        await trio.sleep_forever()
        requests.keep(held, 0)

    first = requests.enter_now(HALF)
    assert first == LARGE_ENTRIES_MAX // 2
    second = requests.enter_now(HALF)
    assert requests.enter_now(HALF) == 0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, 1, 2 * HALF)
        await wait_all_tasks_blocked()
        nursery.start_soon(serve, 2, ENTRY_BYTES_MIN)
        await wait_all_tasks_blocked()
        requests.keep(first, 0)
        await wait_all_tasks_blocked()
        assert begun == []
        assert requests.enter_now(ENTRY_BYTES_MIN) == 0, "nobody goes before those who wait"
        requests.keep(second, 0)
        await wait_all_tasks_blocked()
        assert begun == [1]
        nursery.cancel_scope.cancel()


async def test_a_disconnect_during_a_wait_delays_no_other() -> None:
    requests = LargeRequests()
    held = requests.enter_now(2 * HALF)
    with trio.move_on_after(0):
        await requests.enter(HALF)
    requests.keep(held, 0)
    assert requests.enter_now(2 * HALF) == LARGE_ENTRIES_MAX
    assert requests.held == LARGE_ENTRIES_MAX


async def test_no_frame_counts_as_more_than_the_limit() -> None:
    requests = LargeRequests()
    assert requests.enter_now(1 << 30) == LARGE_ENTRIES_MAX
    assert requests.keep(LARGE_ENTRIES_MAX, 7) == 7
    assert requests.held == 7


async def test_the_largest_waiting_fetches_free_room() -> None:
    requests = LargeRequests()
    ended = []

    async def wait(count: int) -> None:
        held = requests.keep(requests.enter_now(HALF), count)
        with requests.waiting_fetch(count):
            await trio.sleep_forever()
        ended.append(count)
        requests.keep(held, 0)

    async with trio.open_nursery() as nursery:
        for count in (LARGE_ENTRIES_MAX // 4, LARGE_ENTRIES_MAX // 3, ENTRIES_FEW_MAX):
            nursery.start_soon(wait, count)
            await wait_all_tasks_blocked()
        held = await requests.enter(HALF)
        assert held == LARGE_ENTRIES_MAX // 2
        await wait_all_tasks_blocked()
        assert ended == [LARGE_ENTRIES_MAX // 3]
        nursery.cancel_scope.cancel()


def large_fetch(count: int, wait_ms: int = 0) -> m.FetchRequest:
    return fetch(FOO, dict.fromkeys(range(count), (0, 100)), wait_ms=wait_ms)


async def test_large_fetches_of_many_clients_are_served_in_turn(
    broker: Broker, client: RawKafka, open_client: OpenClient
) -> None:
    await produce_one(client, message_set(b"a"))
    answered = []
    most = 0

    async def ask() -> None:
        other = await second_client(open_client)
        reply = await other.call(large_fetch(15_000))
        partitions = reply.topics[FOO]
        assert (len(partitions), partitions[0].error, partitions[14_999].error) == (15_000, 0, 3)
        answered.append(other)

    async def watch() -> None:
        nonlocal most
        while len(answered) < 6:
            most = max(most, large_requests().held)
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch)
        for _ in range(6):
            nursery.start_soon(ask)
    assert 15_000 < most <= LARGE_ENTRIES_MAX
    assert large_requests().held == 0


async def test_a_large_fetch_waits_until_others_need_its_room(
    broker: Broker, client: RawKafka, open_client: OpenClient
) -> None:
    count = ENTRIES_FEW_MAX + 1
    names = [b"one-%d" % number for number in range(count)]
    for number in range(0, count, 50):
        await client.call(m.MetadataRequest(names[number : number + 50]))
    target = {0: m.FetchTarget(0, 100)}
    waiting = m.FetchRequest(-1, 3_600_000, 1, dict.fromkeys(names, target))
    replies = []

    async def ask() -> None:
        replies.append(await client.call(waiting))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await wait_all_tasks_blocked(0.05)
        assert replies == []
        assert large_requests().held == 2 * count  # Topics and partitions.
        other = await second_client(open_client)
        await other.call(large_fetch(30_000))  # Counts as the maximum until the request is decoded.
    assert len(replies[0].topics) == count
    assert large_requests().held == 0
