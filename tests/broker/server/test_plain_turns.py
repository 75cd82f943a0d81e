"""Turns without a task: a request that waits leaves its connection's task parked."""

import pytest
import trio.testing

from braidlog.broker.limits import SWEEP_S
from tests.broker.server.echo import EchoBench, framed, receive_all, receive_frame
from tests.waiting import until


@pytest.fixture
async def bench(nursery):
    return EchoBench(nursery)


async def waiting(bench, *frames):
    """Return a client whose request waits without a task, its session and the wait; frames follow
    the request.
    """
    client = await bench.connect()
    session = bench.adapter.sessions[-1]
    await client.send_all(b"".join(map(framed, frames)))
    await until(lambda: session.waits)
    await trio.testing.wait_all_tasks_blocked()
    return client, session, session.waits[0]


async def test_the_answer_needs_no_task_and_the_next_request_is_served(bench):
    client, _, wait = await waiting(bench, b"Nlate")
    wait.end()
    assert await receive_frame(client) == b"late"
    assert wait.is_closed and not wait.is_awaited
    await client.send_all(framed(b"Enext"))
    assert await receive_frame(client) == b"next"


async def test_frames_behind_a_wait_are_served_in_order_after_the_wait(bench):
    client, session, wait = await waiting(bench, b"Efirst", b"Nlate", b"Nlater", b"Elast")
    assert await receive_frame(client) == b"first"
    assert len(session.waits) == 1
    wait.end()
    assert await receive_frame(client) == b"late"
    session.waits[1].end()
    assert [await receive_frame(client) for _ in range(2)] == [b"later", b"last"]
    assert not any(wait.is_awaited for wait in session.waits)


async def test_a_request_may_wait_twice(bench):
    client, session, wait = await waiting(bench, b"Nagain")
    wait.end()
    assert await receive_frame(client) == b"again"
    session.waits[1].end()
    assert await receive_frame(client) == b"twice"


async def test_more_frames_than_a_turn_takes_are_served_behind_a_wait(bench):
    count = 3000
    client, _, wait = await waiting(bench, b"Nlate", *[b"E%d" % i for i in range(count)])
    wait.end()
    assert await receive_frame(client) == b"late"
    assert [await receive_frame(client) for _ in range(count)] == [b"%d" % i for i in range(count)]


async def test_bytes_that_arrive_meanwhile_give_the_request_to_the_task(bench):
    client, _, wait = await waiting(bench, b"Nlate")
    await client.send_all(framed(b"Enext"))
    await until(lambda: wait.is_awaited)
    assert wait.call is None and not wait.is_closed
    wait.end()
    assert [await receive_frame(client) for _ in range(2)] == [b"late", b"next"]


async def test_a_client_that_closes_its_side_still_gets_the_answer(bench):
    client, _, wait = await waiting(bench, b"Nlate")
    await client.send_eof()
    await until(lambda: wait.is_awaited)
    wait.end()
    assert await receive_all(client) == framed(b"late")


async def test_a_vanished_client_ends_the_wait(autojump_clock, nursery):
    bench = EchoBench(nursery)
    client, session, wait = await waiting(bench, b"Nlate")
    await client.aclose()
    await trio.sleep(10 * SWEEP_S)
    assert session.is_closed and wait.is_closed


async def test_an_ended_connection_closes_the_wait(bench):
    client, session, wait = await waiting(bench, b"Nlate")
    bench.connections[0].end("in this test")
    await until(lambda: session.is_closed)
    assert wait.is_closed and not wait.is_awaited
    assert await receive_all(client) == b""


async def test_a_draining_broker_answers_the_request_that_waits(bench):
    client, _, wait = await waiting(bench, b"Nlate", b"Enever")
    bench.connections[0].drain()
    assert await receive_frame(client) == b"goodbye"
    wait.end()
    assert await receive_all(client) == framed(b"late")


async def test_a_bug_behind_a_wait_ends_the_connection(bench, capsys):
    client, session, wait = await waiting(bench, b"NX")
    wait.end()
    assert await receive_all(client) == b""
    assert session.is_closed
    assert "a bug behind a wait" in capsys.readouterr().out


async def test_the_end_of_the_connection_behind_a_wait_sends_its_reply(bench):
    client, session, wait = await waiting(bench, b"NQ", b"Enever")
    wait.end()
    assert await receive_all(client) == framed(b"Q") + framed(b"quiet")
    assert session.turns == [1]


async def test_a_request_that_waits_cannot_stall(bench):
    _, _, wait = await waiting(bench, b"Nlate")
    (connection,) = bench.connections
    assert connection.is_at_rest
    now = trio.current_time()
    assert connection.stalled_s(now) == connection.stalled_s(now + 1000) == 0
    wait.end()
    await until(lambda: connection.is_at_rest)
