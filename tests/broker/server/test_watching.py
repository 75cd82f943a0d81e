"""Peers that stall, do not read or have vanished are detected, and free memory for others."""

import socket
import struct
from functools import partial
from types import SimpleNamespace

import trio
from trio.testing import wait_all_tasks_blocked

from braidlog.broker.limits import (
    ACCESS_SWEEP_S,
    FRAME_STALL_S,
    MIB,
    RECEIVE_MEMORY_S,
    SHORT_STALL_S,
    STALL_BYTES,
    SWEEP_S,
    TURN_S_MAX,
    WRITE_STALL_S,
)
from braidlog.broker.runtime.output_budget import OutputBudget
from braidlog.broker.server.connection import RESET_AT_CLOSE
from braidlog.broker.server.watching import free_output, watch_access
from tests.broker.server.echo import EchoBench, framed, receive_all, receive_frame
from tests.waiting import until


async def ends_within(bench, connection, seconds):
    """Return the time, on trio's clock, until the connection has ended."""
    begun = trio.current_time()
    await until(lambda: connection in bench.ended, step_s=SWEEP_S / 4)
    assert trio.current_time() - begun <= seconds
    return trio.current_time() - begun


async def hog(bench, size):
    """Return a connection whose client requests much data and reads none, and the client."""
    client = await bench.connect(send_buffer=32 * 1024)
    await client.send_all(framed(b"L%d" % size))
    connection = bench.connections[-1]
    await until(lambda: connection.outbox.unsent_bytes)
    return connection, client


async def test_a_peer_that_does_not_read_is_disconnected(autojump_clock, nursery):
    bench = EchoBench(nursery)
    connection, _ = await hog(bench, 2 * MIB)
    took = await ends_within(bench, connection, 2 * WRITE_STALL_S)
    assert took >= WRITE_STALL_S - SWEEP_S
    assert bench.budget.used == 0


async def test_a_peer_that_reads_slowly_stays(autojump_clock, nursery):
    bench = EchoBench(nursery)
    connection, client = await hog(bench, 4 * MIB)
    for _ in range(5):
        await trio.sleep(WRITE_STALL_S / 2)
        unsent = connection.outbox.unsent_bytes
        while connection.outbox.unsent_bytes > unsent - STALL_BYTES:
            await client.receive_some(64 * 1024)
            await wait_all_tasks_blocked()
    assert connection not in bench.ended


class Stalled:
    """A connection whose peer has not read for `stalled_s`."""

    is_open = True

    def __init__(self, budget, unsent_bytes, stalled_s=SHORT_STALL_S):
        self.budget, self.unsent_bytes, self.stalled = budget, unsent_bytes, stalled_s
        self.outbox = self
        self.is_cut_off = False
        budget.charge(unsent_bytes)

    def stalled_s(self, now):
        return self.stalled

    def cut_off(self, reason):
        self.is_cut_off = True
        self.budget.charge(-self.unsent_bytes)


async def test_with_little_memory_the_largest_silent_reader_is_disconnected_first():
    budget = OutputBudget(8 * MIB)
    small, large = Stalled(budget, MIB), Stalled(budget, 3 * MIB)
    reading = Stalled(budget, 3 * MIB, stalled_s=SHORT_STALL_S / 2)
    free_output([small, large, reading], budget)
    assert [connection.is_cut_off for connection in (small, large, reading)] == [False, True, False]
    assert not budget.is_short


async def test_while_a_large_answer_waits_silent_readers_make_room_for_the_answer(nursery):
    budget = OutputBudget(8 * MIB)
    silent = [Stalled(budget, MIB) for _ in range(6)]
    reading = Stalled(budget, MIB, stalled_s=SHORT_STALL_S / 2)
    nursery.start_soon(budget.room, 5 * MIB)
    await wait_all_tasks_blocked()
    free_output([*silent, reading], budget)
    assert [connection.is_cut_off for connection in silent] == [True] * 6
    assert not reading.is_cut_off
    await wait_all_tasks_blocked()
    assert not budget.is_short


async def test_with_little_memory_a_silent_reader_is_disconnected_soon(autojump_clock, nursery):
    bench = EchoBench(nursery, output_bytes=8 * MIB)
    connection, _ = await hog(bench, 7 * MIB)
    assert await ends_within(bench, connection, WRITE_STALL_S / 2) >= SHORT_STALL_S - SWEEP_S


async def test_a_healthy_client_is_served_meanwhile(autojump_clock, nursery):
    bench = EchoBench(nursery, output_bytes=8 * MIB)
    for _ in range(8):
        await hog(bench, MIB)
    healthy = await bench.connect()
    begun = trio.current_time()
    await healthy.send_all(framed(b"Ehere"))
    assert await receive_frame(healthy) == b"here"
    assert trio.current_time() - begun < 1


async def test_a_trickling_frame_counts_as_stalled(autojump_clock, nursery):
    bench = EchoBench(nursery)
    client = await bench.connect()
    connection = bench.connections[-1]
    await client.send_all(struct.pack(">I", 100_000))
    begun = trio.current_time()
    while connection not in bench.ended:
        assert trio.current_time() - begun < 2 * FRAME_STALL_S
        try:
            await client.send_all(b"x")
        except trio.BrokenResourceError:
            break
        await trio.sleep(5)
    assert trio.current_time() - begun >= FRAME_STALL_S


async def test_an_idle_connection_has_full_time_for_its_next_frame(autojump_clock, nursery):
    bench = EchoBench(nursery)
    client = await bench.connect()
    for _ in range(2):
        await trio.sleep(3 * FRAME_STALL_S)
        frame = framed(b"Ehere")
        await client.send_all(frame[:3])
        await trio.sleep(FRAME_STALL_S / 2)
        await client.send_all(frame[3:])
        assert await receive_frame(client) == b"here"


async def test_only_a_connection_with_nothing_under_way_is_at_rest(autojump_clock, nursery):
    bench = EchoBench(nursery)
    client = await bench.connect()
    connection = bench.connections[-1]
    assert connection.is_at_rest
    frame = framed(b"Ehere")
    await client.send_all(frame[:3])
    await until(lambda: not connection.is_at_rest)
    await client.send_all(frame[3:])
    assert await receive_frame(client) == b"here"
    await until(lambda: connection.is_at_rest)
    unread, _ = await hog(bench, 2 * MIB)
    assert not unread.is_at_rest


async def test_half_frames_give_way_to_whole_frames(autojump_clock, nursery):
    bench = EchoBench(nursery, input_bytes=8 * MIB)
    for _ in range(8):
        client = await bench.connect()
        nursery.start_soon(client.send_all, struct.pack(">I", MIB) + b"E" + bytes(MIB - 5))
    await until(lambda: bench.pool.is_short)
    healthy = await bench.connect()
    text = bytes(2 * MIB)
    begun = trio.current_time()
    async with trio.open_nursery() as sending:
        sending.start_soon(healthy.send_all, framed(b"E" + text))
        assert await receive_frame(healthy) == text
    assert trio.current_time() - begun < SHORT_STALL_S + 4 * SWEEP_S
    assert bench.pool.used <= 8 * MIB


async def test_frames_that_block_each_others_memory_end(autojump_clock, nursery):
    bench = EchoBench(nursery, input_bytes=8 * MIB)
    clients = [await bench.connect() for _ in range(2)]

    async def send(client):
        try:
            await client.send_all(framed(b"E" + bytes(7 * MIB)))
        except trio.BrokenResourceError:
            pass

    for client in clients:
        nursery.start_soon(send, client)
    begun = trio.current_time()
    await until(lambda: bench.ended, step_s=0.5)
    assert trio.current_time() - begun <= 2 * RECEIVE_MEMORY_S


async def test_a_client_that_leaves_while_its_handler_waits_is_noticed(autojump_clock, nursery):
    bench = EchoBench(nursery)
    client = await bench.connect()
    await client.send_all(framed(b"W") + framed(b"E" * 10))
    await until(lambda: bench.adapter.sessions[-1].frames == 1)
    await client.aclose()
    await ends_within(bench, bench.connections[-1], 10)


async def test_a_half_closed_client_gets_its_pending_answer(autojump_clock, nursery):
    bench = EchoBench(nursery)
    client = await bench.connect()
    await client.send_all(framed(b"H"))
    await until(lambda: bench.adapter.sessions[-1].frames == 1)
    await client.send_eof()
    await trio.sleep(5 * SWEEP_S)
    bench.adapter.sessions[-1].event.set()
    assert await receive_all(client) == framed(b"woken")
    await ends_within(bench, bench.connections[-1], 5 * SWEEP_S)


async def test_a_reset_is_noticed_during_any_wait(autojump_clock, nursery):
    bench = EchoBench(nursery)
    client = await bench.connect()
    await client.send_all(framed(b"H"))
    await until(lambda: bench.adapter.sessions[-1].frames == 1)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_CLOSE)
    await client.aclose()
    await ends_within(bench, bench.connections[-1], 5 * SWEEP_S)


async def test_answers_for_vanished_clients_are_not_made(nursery):
    bench = EchoBench(nursery)
    client = await bench.connect(send_buffer=32 * 1024)
    await client.send_all(framed(b"L2000000") * 500)
    await client.aclose()
    await until(lambda: bench.connections[-1] in bench.ended)
    assert bench.adapter.sessions[-1].frames < 10


async def test_a_turn_has_a_time_limit(nursery):
    bench = EchoBench(nursery)
    client = await bench.connect()
    session = bench.adapter.sessions[-1]
    session.frame_s = TURN_S_MAX / 2
    await client.send_all(framed(b"E") * 20)
    for _ in range(20):
        await receive_frame(client)
    assert max(session.turns) <= 6


async def test_a_peer_that_half_closes_gets_its_answers(autojump_clock, nursery):
    bench = EchoBench(nursery)
    client = await bench.connect()
    await client.send_all(framed(b"L5000000"))
    await client.send_eof()
    await trio.sleep(SHORT_STALL_S)
    assert len(await receive_all(client)) == 5_000_004


async def test_connections_are_notified_once_for_many_user_changes(autojump_clock, nursery):
    notified, version = [], [7]
    connections = [SimpleNamespace(access_changed=partial(notified.append, n)) for n in range(3)]
    nursery.start_soon(watch_access, connections, lambda: version[0])
    await trio.sleep(3 * ACCESS_SWEEP_S)
    assert notified == []
    version[0] += 5
    await trio.sleep(1.5 * ACCESS_SWEEP_S)
    assert notified == [0, 1, 2]
    await trio.sleep(3 * ACCESS_SWEEP_S)
    assert notified == [0, 1, 2]
