from contextlib import nullcontext
from types import SimpleNamespace

import msgspec
import pytest
import trio
from starlette.requests import Request

from braidlog.protocols.http.bodies import (
    PROMPT_S,
    Bodies,
    BodyBudget,
    BodyLimits,
    BodyReader,
)
from braidlog.protocols.http.errors import RequestRefused
from braidlog.protocols.http.limits import SERVED_WAIT_S
from braidlog.protocols.http.options import RestOptions
from tests.protocols.http.asgi import scope_of


class Wanted(msgspec.Struct, forbid_unknown_fields=True):
    number: int = 0


def request_of(*pieces: bytes, headers: dict[str, str] | None = None, end: bool = True) -> Request:
    messages = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]
    if end:
        messages.append({"type": "http.request", "body": b"", "more_body": False})
    messages.reverse()

    async def receive():
        await trio.lowlevel.checkpoint()
        if not messages:
            await trio.sleep_forever()
        return messages.pop()

    exchange = SimpleNamespace(at_end=[], uncounted=nullcontext)
    return Request({**scope_of("PUT", "/", headers), "exchange": exchange}, receive)


def reader(
    *, bytes_max: int = 100, stopping: trio.Event | None = None, **limits: int
) -> BodyReader:
    budget = BodyBudget(BodyLimits(**limits))
    return BodyReader(bytes_max, 30.0, trio.Event() if stopping is None else stopping, budget)


async def refused(request: Request, bodies: BodyReader | None = None) -> str:
    with pytest.raises(RequestRefused) as caught:
        await (bodies or reader()).read(request, Wanted)
    return caught.value.wire.code


async def test_a_body_in_pieces_is_joined():
    assert await reader().read(request_of(b'{"num', b'ber": 5}'), Wanted) == Wanted(5)


async def test_no_body_is_the_empty_object():
    assert await reader().read(request_of(), Wanted) == Wanted(0)


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b'{"number": "5"}', b'{"numbre": 5}', b"\xff", b'{"number": 1e400}']
)
async def test_an_unexpected_body_is_refused(body):
    assert await refused(request_of(body)) == "bad_body"


async def test_a_wrong_field_is_named():
    with pytest.raises(RequestRefused, match="numbre"):
        await reader().read(request_of(b'{"numbre": 5}'), Wanted)


async def test_the_limit_of_a_body_is_exact():
    body = b'{"number": 5}'
    exact = reader(bytes_max=len(body))
    assert await exact.read(request_of(body), Wanted) == Wanted(5)
    assert await refused(request_of(body, b" "), exact) == "body_too_large"


async def test_an_endless_body_is_refused_as_soon_as_it_is_too_large():
    assert await refused(request_of(b" " * 60, b" " * 60, end=False)) == "body_too_large"


async def test_a_declared_size_is_refused_before_anything_is_read():
    request = request_of(headers={"Content-Length": "101"}, end=False)
    assert await refused(request) == "body_too_large"


async def test_a_silent_client_is_disconnected(autojump_clock):
    started = trio.current_time()
    assert await refused(request_of(b"{", end=False)) == "body_timeout"
    assert trio.current_time() - started == pytest.approx(30.0)


async def test_a_silent_client_does_not_delay_a_stop(autojump_clock):
    stopping = trio.Event()
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def stop():
            await trio.testing.wait_all_tasks_blocked()
            stopping.set()

        assert await refused(request_of(end=False), reader(stopping=stopping)) == "shutting_down"
    assert trio.current_time() < 1.0


async def test_a_slow_body_is_complete_in_the_end(autojump_clock):
    whole = b'{"number": 123456789}'
    pieces = [whole[at : at + 1] for at in range(len(whole))]

    async def receive():
        await trio.sleep(0.2)
        body = pieces.pop(0)
        return {"type": "http.request", "body": body, "more_body": bool(pieces)}

    uncounted = []
    request = request_of()
    request.scope["exchange"].uncounted = lambda: uncounted.append(1) or nullcontext()
    request = Request(request.scope, receive)
    assert await reader().read(request, Wanted) == Wanted(123456789)
    assert trio.current_time() > 4.0
    assert uncounted == [1]


async def test_waiting_bodies_have_a_limit(autojump_clock, nursery):
    bodies = reader(uploads=1)
    nursery.start_soon(refused, request_of(end=False), bodies)
    await trio.sleep(2 * PROMPT_S)
    assert await refused(request_of(end=False), bodies) == "limit_exceeded"
    assert await bodies.read(request_of(b'{"number": 5}'), Wanted) == Wanted(5)
    await trio.sleep(60)  # The first body has timed out.
    assert await refused(request_of(end=False), bodies) == "body_timeout"


@pytest.mark.parametrize("pause_s", [0, 2 * PROMPT_S])
async def test_a_late_body_without_room_is_refused(autojump_clock, pause_s):
    bodies = reader(small_bytes=4, all_bytes=8)
    request = request_of(b'{"number": 5}')
    receive = request.receive

    async def late():
        await trio.sleep(pause_s)
        return await receive()

    assert await refused(Request(request.scope, late), bodies) == "limit_exceeded"


@pytest.mark.parametrize("timeout_s", [0.1, PROMPT_S])
async def test_a_timeout_may_be_shorter_than_the_prompt_time(autojump_clock, timeout_s):
    short = BodyReader(100, timeout_s, trio.Event())
    assert await refused(request_of(b"{", end=False), short) == "body_timeout"
    assert trio.current_time() == pytest.approx(timeout_s)


async def test_a_prompt_body_costs_no_task():
    class Spawned(trio.abc.Instrument):
        count = 0

        def task_spawned(self, task):
            self.count += 1

    spawned = Spawned()
    trio.lowlevel.add_instrument(spawned)
    assert await reader().read(request_of(b'{"number": 5}'), Wanted) == Wanted(5)
    trio.lowlevel.remove_instrument(spawned)
    assert spawned.count == 0


def test_the_bodies_of_all_requests_share_their_memory():
    bodies = Bodies.of(RestOptions(), trio.Event())
    assert bodies.of_messages.budget is bodies.of_others.budget
    assert bodies.of_messages.bytes_max > bodies.of_others.bytes_max


@pytest.mark.parametrize(
    "headers",
    [{"Content-Type": "text/plain"}, {"Content-Encoding": "gzip"}],
)
async def test_non_standard_json_is_refused(headers):
    assert await refused(request_of(b"{}", headers=headers)) == "not_json"


async def test_json_may_name_its_charset():
    headers = {"Content-Type": "application/json; charset=utf-8"}
    assert await reader().read(request_of(b"{}", headers=headers), Wanted) == Wanted(0)


async def test_large_bodies_wait_for_the_end_of_others(autojump_clock):
    """JSON grows to twenty times its size in objects, so the size of bodies in memory is no
    measure.
    """
    bodies, body = reader(served_small_bytes=5, served_bytes=20), b'{"number": 5}'
    first, second, small = request_of(body), request_of(body), request_of(b"{}")
    for request in (first, second):
        request.scope["exchange"] = SimpleNamespace(at_end=[])
    assert await bodies.read(first, Wanted) == Wanted(5)
    assert await bodies.read(small, Wanted) == Wanted(0)
    begun_at = trio.current_time()
    assert await refused(request_of(body), bodies) == "limit_exceeded"
    assert trio.current_time() - begun_at >= SERVED_WAIT_S

    async def end_first():
        await trio.sleep(1)
        for ended in first.scope["exchange"].at_end:
            ended()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(end_first)
        assert await bodies.read(second, Wanted) == Wanted(5)


async def test_a_fault_names_the_field_in_plain_words():
    with pytest.raises(RequestRefused) as caught:
        await reader().read(request_of(b'{"number": "x"}'), Wanted)
    assert str(caught.value) == "number: expected a whole number, not text"
