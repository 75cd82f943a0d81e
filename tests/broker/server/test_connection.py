"""The connection driver: any chunking, order, shared sends, all kinds of endings, and isolation of
faults.
"""

import math
import os
import random
import struct

import pytest
import structlog
import trio
from trio.testing import wait_all_tasks_blocked

from braidlog.broker.access.quotas import Quotas
from braidlog.broker.access.rights import Principal
from braidlog.broker.config.settings import AccessConfig, PrincipalLimits
from braidlog.broker.errors import LimitExceeded
from braidlog.broker.limits import (
    ANSWERS_MAX,
    FRAME_STALL_S,
    OUTBOX_BYTES_MAX,
    RECEIVE_BYTES,
    TURN_FRAMES_MAX,
)
from braidlog.broker.runtime.plain import is_plain
from braidlog.broker.server.connection import Connection
from tests.broker.server.echo import (
    EchoBench,
    framed,
    receive_all,
    receive_exactly,
    receive_frame,
    tcp_pair,
)
from tests.waiting import HANG_S, until

of_passes = pytest.mark.skipif(is_plain(), reason="on plain trio each socket has its own pass")


@pytest.fixture
async def bench(nursery):
    return EchoBench(nursery)


def session(bench):
    return bench.adapter.sessions[-1]


STREAM = [b"hello", b"", b"x" * 5000, b"last"]


@pytest.mark.parametrize("piece", [1, 2, 3, 7, 1000, 10_000])
async def test_any_chunking_gives_the_same_answers(bench, piece):
    client = await bench.connect()
    stream = b"".join(framed(b"E" + text) for text in STREAM)
    for start in range(0, len(stream), piece):
        await client.send_all(stream[start : start + piece])
    for text in STREAM:
        assert await receive_frame(client) == text


@of_passes
async def test_pipelined_frames_share_a_turn_and_a_send(bench):
    client = await bench.connect()
    await client.send_all(framed(b"Ea") * 100)
    assert await receive_exactly(client, 500) == framed(b"a") * 100
    assert session(bench).turns == [100]


@of_passes
async def test_answers_are_sent_after_all_ready_connections_were_served(bench, monkeypatch):
    # However long the machine takes for a pass.
    bench.broker.poller.pass_s_max = bench.broker.poller.held_back_s = math.inf
    clients = [await bench.connect() for _ in range(3)]
    sent_bytes = []
    for session in bench.adapter.sessions:

        def handle(frame, handle=session.handle):
            sent_bytes.append(sum(connection.outbox.sent_bytes for connection in bench.connections))
            return handle(frame)

        monkeypatch.setattr(session, "handle", handle)
    for client in clients:
        os.write(client.socket.fileno(), framed(b"Ea"))  # No task has a turn between them.
    for client in clients:
        assert await receive_frame(client) == b"a"
    assert sent_bytes == [0, 0, 0]


async def test_a_turn_has_a_limit_of_frames(bench):
    client = await bench.connect()
    frames = TURN_FRAMES_MAX + 10
    await client.send_all(framed(b"E") * frames)
    await receive_exactly(client, 4 * frames)
    assert max(session(bench).turns) <= TURN_FRAMES_MAX
    assert sum(session(bench).turns) == frames


async def test_frames_taken_in_runs_and_others_keep_their_order(bench):
    client = await bench.connect()
    texts = [b"%d" % number for number in range(50)]
    kinds = b"RRRERRE" * 10
    await client.send_all(
        b"".join(framed(kinds[at : at + 1] + text) for at, text in enumerate(texts))
    )
    assert [await receive_frame(client) for _ in texts] == texts
    # A turn has a limit of time too, which a busy machine may reach.
    assert sum(session(bench).turns) == len(texts) and session(bench).turns[0] > 1


async def test_a_turn_has_a_limit_of_frames_in_a_run(bench):
    client = await bench.connect()
    frames = TURN_FRAMES_MAX + 10
    await client.send_all(framed(b"R") * frames)
    assert await receive_exactly(client, 4 * frames) == framed(b"") * frames
    assert max(session(bench).turns) == TURN_FRAMES_MAX
    assert sum(session(bench).turns) == frames


async def test_a_frame_larger_than_the_receive_buffer_arrives_whole(bench):
    client = await bench.connect()
    text = random.Random(3).randbytes(5 * RECEIVE_BYTES + 17)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.send_all, framed(b"E" + text) + framed(b"Eafter"))
        assert await receive_frame(client) == text
        assert await receive_frame(client) == b"after"
    await until(lambda: (bench.pool.lent, bench.pool.grown_bytes) == (0, 0))


async def test_earlier_answers_are_sent_before_a_handler_waits(bench):
    client = await bench.connect()
    await client.send_all(framed(b"Efirst") + framed(b"W") + framed(b"Elast"))
    assert await receive_frame(client) == b"first"
    session(bench).event.set()
    assert await receive_frame(client) == b"woken"
    assert await receive_frame(client) == b"last"


async def test_pending_answers_delay_later_answers_but_not_reading(bench):
    client = await bench.connect()
    await client.send_all(framed(b"T1 one") + framed(b"Etwo"))
    await wait_all_tasks_blocked()
    await client.send_all(framed(b"Ethree"))
    await until(lambda: sum(session(bench).turns) == 3)
    bench.tickets.reach(1)
    assert [await receive_frame(client) for _ in range(3)] == [b"one", b"two", b"three"]


async def test_too_many_pending_answers_stop_reading_until_a_sync(bench):
    client = await bench.connect()
    for _ in range(ANSWERS_MAX // 512 + 20):
        await client.send_all(framed(b"T1 x") * 512)
        await wait_all_tasks_blocked()
    await until(lambda: sum(session(bench).turns) >= ANSWERS_MAX)
    await wait_all_tasks_blocked()
    assert sum(session(bench).turns) < ANSWERS_MAX + 20 * 512
    bench.tickets.reach(1)
    total = (ANSWERS_MAX // 512 + 20) * 512
    assert await receive_exactly(client, 5 * total) == framed(b"x") * total


async def test_a_slow_readers_requests_wait_until_it_reads(bench):
    client = await bench.connect(send_buffer=32 * 1024)
    request = framed(b"L200000")
    await client.send_all(request * 100)
    await until(lambda: bench.connections[0].outbox.over_limit)
    await wait_all_tasks_blocked()
    assert bench.connections[0].outbox.unsent_bytes <= OUTBOX_BYTES_MAX + 200_004
    assert session(bench).frames < 20  # still in the first turn
    answer = struct.pack(">I", 200_000) + b"l" * 200_000
    for _ in range(100):
        assert await receive_exactly(client, len(answer)) == answer


async def test_end_of_stream_finishes_pending_answers_then_closes(bench):
    client = await bench.connect()
    await client.send_all(framed(b"T1 late") + framed(b"Eand this"))
    await client.send_eof()
    await until(lambda: session(bench).is_closed)
    bench.tickets.reach(1)
    assert await receive_all(client) == framed(b"late") + framed(b"and this")
    await until(lambda: bench.ended == bench.connections)


@pytest.mark.parametrize("steps", range(12))
async def test_an_answer_that_is_durable_while_the_conversation_ends_is_sent(bench, steps):
    client = await bench.connect(send_buffer=32 * 1024)
    large = b"x" * 300_000
    await client.send_all(framed(b"T1 " + large))
    await until(lambda: bench.connections[0].outbox.pending_answers)
    await client.send_eof()
    for _ in range(steps):
        await trio.lowlevel.checkpoint()
    bench.tickets.reach(1)
    assert await receive_all(client) == framed(large)


async def test_a_client_that_closed_its_side_still_gets_large_answers(bench):
    client = await bench.connect()
    answers = [os.urandom(300_000) for _ in range(4)]
    await client.send_all(b"".join(framed(b"E" + answer) for answer in answers))
    await client.send_eof()
    assert await receive_all(client) == b"".join(map(framed, answers))
    await until(lambda: bench.ended == bench.connections)


@pytest.mark.parametrize("end", [Connection.end, Connection.cut_off])
async def test_an_ended_connection_can_be_ended_again(bench, end):
    """A handler that waited for a silent client ends its connection late."""
    client = await bench.connect()
    await client.aclose()
    await until(lambda: bench.ended)
    end(bench.connections[0], "late")


async def test_protocol_error_sends_its_reply_after_earlier_answers_and_ends(bench):
    client = await bench.connect()
    await client.send_all(framed(b"T1 pending") + framed(b"P") + framed(b"Enever"))
    await until(lambda: session(bench).is_closed)
    assert session(bench).turns == [2]  # the turn of the bad frame has also ended
    bench.tickets.reach(1)
    assert await receive_all(client) == framed(b"pending") + framed(b"bye")


async def test_end_connection_sends_its_reply_and_ends(bench):
    client = await bench.connect()
    await client.send_all(framed(b"Q"))
    assert await receive_all(client) == framed(b"quiet")


@pytest.mark.parametrize(
    "garbage",
    [
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x00",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        bytes.fromhex("16030100c8010000c40303") + bytes(200),
    ],
    ids=["oversized", "empty", "http", "tls"],
)
async def test_an_impossible_frame_ends_the_connection_at_once(bench, garbage):
    client = await bench.connect()
    await client.send_all(garbage)
    assert await receive_all(client) == framed(b"too large")
    assert (bench.pool.lent, bench.pool.grown_bytes) == (0, 0)


async def test_a_bug_ends_only_its_connection_with_a_traceback(bench, capsys):
    other = await bench.connect()
    victim = await bench.connect()
    await victim.send_all(framed(b"Efine") + framed(b"X"))
    assert await receive_all(victim) == framed(b"fine")
    assert session(bench).is_closed
    output = capsys.readouterr()
    assert "RuntimeError: a bug" in output.out + output.err
    await other.send_all(framed(b"Estill here"))
    assert await receive_frame(other) == b"still here"


async def test_a_bug_in_a_task_of_the_connection_ends_that_connection(bench, capsys):
    client = await bench.connect()
    await client.send_all(framed(b"S"))
    assert await receive_all(client) == b""
    output = capsys.readouterr()
    assert "a bug in a task" in output.out + output.err


async def test_connections_that_break_the_protocol_are_counted(bench):
    for command in (b"P", b"Q", b"P"):
        client = await bench.connect()
        await client.send_all(framed(command))
        await receive_all(client)
    assert bench.broker.metrics.number("braidlog_protocol_errors", "echo").value == 2


async def test_unread_bytes_do_not_turn_the_last_answer_into_a_reset(bench):
    client = await bench.connect()
    await client.send_all(framed(b"P") + framed(b"E" + b"x" * 100_000))
    assert await receive_all(client) == framed(b"bye")


async def test_drain_notifies_finishes_answers_and_stops_reading(bench):
    client = await bench.connect()
    await client.send_all(framed(b"T1 pending"))
    await until(lambda: session(bench).turns == [1])
    bench.connections[0].drain()
    await client.send_all(framed(b"Eignored"))
    bench.tickets.reach(1)
    assert await receive_all(client) == framed(b"pending") + framed(b"goodbye")
    await client.aclose()
    await until(lambda: bench.ended == bench.connections)


@pytest.mark.parametrize("ending", [b"P", b"Q"])
async def test_drain_does_not_affect_an_ending_connection(bench, capsys, ending):
    client = await bench.connect()
    await client.send_all(framed(ending))
    last = await receive_all(client)  # The broker's side is closed, and waits for the client's.
    await wait_all_tasks_blocked()
    bench.connections[0].drain()
    await wait_all_tasks_blocked()
    assert last in (framed(b"bye"), framed(b"quiet"))
    await client.aclose()
    await until(lambda: bench.ended == bench.connections)
    output = capsys.readouterr()
    assert "connection_failed" not in output.out + output.err


async def test_an_end_from_a_task_still_sends_answers(bench):
    client = await bench.connect()
    await client.send_all(framed(b"T1 pending") + framed(b"W"))
    await until(lambda: session(bench).frames == 2)
    bench.connections[0].end("its time is over")
    await wait_all_tasks_blocked()
    bench.tickets.reach(1)
    assert await receive_all(client) == framed(b"pending")


async def test_a_client_that_vanishes_ends_the_session_and_its_buffers(bench):
    client = await bench.connect()
    await client.send_all(struct.pack(">I", 300_000) + bytes(100_000))
    await until(lambda: bench.pool.lent == 1)
    await client.aclose()
    await until(lambda: bench.ended == bench.connections)
    assert session(bench).is_closed
    assert bench.pool.lent == 0


async def test_a_session_is_called_at_its_deadline(autojump_clock, bench):
    await bench.connect()
    idle_session = session(bench)
    start = idle_session.deadlines[0]
    idle_session.deadline_answer = trio.current_time() + 100
    await trio.sleep(1)
    assert idle_session.deadlines == [start]


async def test_a_deadline_may_end_the_connection(autojump_clock, nursery):
    from braidlog.broker.runtime.endings import EndConnection

    bench = EchoBench(nursery)
    open_session = bench.adapter.open_session

    def impatient(broker, connection, options):
        opened = open_session(broker, connection, options)
        opened.deadline_answer = EndConnection("idle", framed(b"idle"))
        return opened

    bench.adapter.open_session = impatient
    client = await bench.connect()
    assert await receive_all(client) == framed(b"idle")


async def test_a_frame_that_stalls_ends_the_connection(autojump_clock, nursery):
    bench = EchoBench(nursery)
    client = await bench.connect()
    begun = trio.current_time()
    await client.send_all(struct.pack(">I", 100) + b"E")
    assert await receive_all(client) == b""
    assert trio.current_time() - begun >= FRAME_STALL_S


async def test_an_idle_connection_between_frames_stays(autojump_clock, nursery):
    bench = EchoBench(nursery)
    client = await bench.connect()
    await trio.sleep(3 * FRAME_STALL_S)
    await client.send_all(framed(b"Ehere"))
    assert await receive_frame(client) == b"here"


async def test_hostile_connections_leave_nothing_behind(bench):
    chance = random.Random(11)
    for _ in range(100):
        client = await bench.connect()
        try:
            await client.send_all(chance.randbytes(chance.randint(1, 300)))
            await client.send_eof()
        except trio.BrokenResourceError:
            pass
        await client.aclose()
    await until(lambda: len(bench.ended) == 100)
    assert (bench.pool.lent, bench.pool.grown_bytes) == (0, 0)


async def test_connections_refused_for_the_same_cause_are_a_single_line_with_a_hint(bench):
    with structlog.testing.capture_logs() as lines:
        for _ in range(20):
            client = await bench.connect()
            await client.send_all(framed(b"P"))
            await receive_all(client)
    (line,) = [line for line in lines if line["log_level"] != "debug"]
    assert (line["event"], line["hint"]) == ("protocol_error", "send something else")
    assert line["protocol"] == "echo"


async def test_a_connection_above_its_rate_is_read_again_after_a_pause(bench, autojump_clock):
    limits = PrincipalLimits(requests_per_s=10)
    bench.broker.quotas = Quotas(AccessConfig(limits=limits), trio.current_time)
    client = await bench.connect()
    session(bench).connection.act_for(Principal("anna"))
    began = trio.current_time()
    await client.send_all(framed(b"Ea") * 30)  # Ten are free; twenty must wait.
    assert await receive_exactly(client, 150) == framed(b"a") * 30
    await client.send_all(framed(b"Eb"))
    assert await receive_frame(client) == b"b"
    assert 1.9 <= trio.current_time() - began <= 2.2


async def test_connections_of_a_principal_have_a_limit_and_are_returned(bench):
    bench.broker.quotas = Quotas(
        AccessConfig(limits=PrincipalLimits(connections=1)), trio.current_time
    )
    anna = Principal("anna")
    first, second = await bench.connect(), await bench.connect()
    near, other = (session.connection for session in bench.adapter.sessions)
    near.act_for(anna)
    near.act_for(anna)  # A repeated login does not count twice.
    with pytest.raises(LimitExceeded):
        other.act_for(anna)
    await first.aclose()
    await until(lambda: bench.adapter.sessions[0].is_closed)
    await wait_all_tasks_blocked()
    other.act_for(anna)
    await second.aclose()


async def test_a_handler_that_cancels_the_broker_ends_its_connection_at_once(bench, nursery):
    """A handler does this to report a failed disk, on which the broker stops."""
    client = await bench.connect()
    everything, ended = trio.CancelScope(), trio.Event()

    async def run():
        server, client_of_it = await tcp_pair()
        connection = Connection(bench.broker, bench.listener, server, 2)
        bench.clients.append(client_of_it)
        with everything:
            await connection.run()
        ended.set()

    nursery.start_soon(run)
    await until(lambda: len(bench.adapter.sessions) == 2)
    await wait_all_tasks_blocked()
    session(bench).handle = lambda frame: everything.cancel()
    await bench.clients[-1].send_all(framed(b"E"))
    with trio.fail_after(HANG_S):
        await ended.wait()
    await client.send_all(framed(b"Estill here"))
    assert await receive_frame(client) == b"still here"


async def test_a_connection_keeps_a_printable_library_and_counts_bytes(bench):
    client = await bench.connect()
    await client.send_all(framed(b"E" + b"x" * 100))
    await receive_exactly(client, 104)
    (connection,) = bench.connections
    connection.note_library("evil\x1b[31m" + "y" * 200)
    assert connection.library == "evil?[31m" + "y" * 91
    await until(lambda: connection.traffic() == (105, 104))
