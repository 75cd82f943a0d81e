"""Requests about topics of another broker: their destination while a topic moves."""

from types import SimpleNamespace

import pytest
import trio
import trio.testing
from starlette.requests import Request
from starlette.responses import Response

from braidlog.broker.cluster.alone import Alone
from braidlog.broker.cluster.placement import NOBODY, Owner, Placement, Tries, elsewhere
from braidlog.broker.errors import NotOwner
from braidlog.broker.metrics import Metrics
from braidlog.protocols.http import request_forwarding
from braidlog.protocols.http.errors import NO_OWNER, OWNER_LOST, RequestRefused
from braidlog.protocols.http.request_forwarding import HOP, HttpForwarder
from braidlog.protocols.http.requests import Exchange, RunningRequests
from tests.protocols.http.asgi import bare_broker, scope_of

OTHER = Owner(2)
PATH = {"tenant": "public", "namespace": "default", "topic": "t"}
BODY = [b"a" * 1000, b"b" * 1000]


class MovingOwners(Placement):
    """A placement with a series of owners of all topics; the last owner stays.

    `ended` are ended sessions; `looks` counts the queries about them.
    """

    def __init__(self, *owners):
        super().__init__()
        self.owners = list(owners)
        self.ended = set()
        self.looks = 0

    def is_over(self, session):
        self.looks += 1
        return session in self.ended

    def owner(self, name):
        self.wake()  # The next look finds another owner.
        return self.owners.pop(0) if len(self.owners) > 1 else self.owners[0]


class Frozen(bytes):
    """The answer of a broker before it froze: its connection stays open."""


class Other(Alone):
    """The other broker with an answer per request; None: the broker is unreachable."""

    is_alone = False

    def __init__(self, placement, nursery, *answers):
        self.placement = placement
        self.nursery = nursery
        self.answers = list(answers)
        self.asked = []
        self.followed = 0

    def tries(self, seconds):
        return Tries(self.placement, seconds)

    async def forward(self, node, listener):
        answer = self.answers.pop(0)
        if answer is None:
            raise NotOwner("not reached", 0)
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        ours = await trio.testing.open_stream_to_socket_listener(listeners[0])
        self.nursery.start_soon(self._serve, await listeners[0].accept(), answer)
        await listeners[0].aclose()
        return ours

    async def _serve(self, stream, answer):
        data = b""
        while not data.endswith(b"\r\n\r\n" if data.startswith(b"GET") else BODY[-1]):
            data += await stream.receive_some()
        self.asked.append(data)
        await stream.send_all(answer)
        if isinstance(answer, Frozen):
            await trio.sleep_forever()
        await stream.aclose()

    async def follow(self):
        self.followed += 1


def http(status, *headers):
    lines = [f"HTTP/1.1 {status} x", *headers, "content-length: 0", "", ""]
    return "\r\n".join(lines).encode()


MOVED = http(503, f"{HOP}: 0")
GONE = b""  # The connection ends without an answer.


async def received(request):
    return Response(await request.body(), 200)


class Asked:
    """A request through a proxy in front of `received`."""

    def __init__(self, nursery, owners, *answers, handler=received, **times_s):
        placement = MovingOwners(*owners)
        self.peers = Other(placement, nursery, *answers)
        self.broker = bare_broker()
        self.broker.placement = placement
        self.broker.peers = self.peers
        self.broker.listeners = {"http": SimpleNamespace(name="http", protocol="http")}
        self.broker.topics = SimpleNamespace(find=lambda name: None)
        self.serve = HttpForwarder(self.broker, **times_s).around(handler)

    async def __call__(self, method="POST", **headers):
        pieces = [*BODY] if method == "POST" else []
        pieces = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]
        pieces.append({"type": "http.request", "body": b"", "more_body": False})

        async def receive():
            if not pieces:
                await trio.sleep_forever()  # The client stays.
            return pieces.pop(0)

        async def send(message):
            raise AssertionError("nothing is sent here")

        sent = {"content-length": "2000"} if method == "POST" else {}
        scope = {**scope_of(method, "/t", sent | headers), "path_params": PATH}
        working = RunningRequests(Metrics().number("braidlog_waiting_requests", "http"))
        scope["exchange"] = Exchange(scope, send, working, self.broker)
        return await self.serve(Request(scope, receive))


async def test_a_request_for_a_topic_without_owner_waits_for_an_owner(nursery):
    proxied = Asked(nursery, [NOBODY, NOBODY, None])
    answer = await proxied()
    assert (answer.status_code, answer.body) == (200, b"".join(BODY))


@pytest.mark.parametrize("before", [None, MOVED])
async def test_a_request_at_a_former_owner_goes_to_the_new_owner(nursery, before):
    proxied = Asked(nursery, [OTHER, None], before)
    answer = await proxied()
    assert (answer.status_code, answer.body) == (200, b"".join(BODY))


async def test_a_body_goes_whole_to_the_next_owner_too(nursery):
    proxied = Asked(nursery, [OTHER], MOVED, http(201))
    assert (await proxied()).status_code == 201
    first, second = proxied.peers.asked
    assert first == second and first.count(b"a") >= 1000 and first.count(b"b") >= 1000


async def test_a_request_during_a_move_goes_to_the_new_owner(nursery):
    handled = []

    async def handler(request):
        handled.append(await request.body())
        raise elsewhere("t", OTHER)

    proxied = Asked(nursery, [None, OTHER], http(201), handler=handler)
    assert (await proxied()).status_code == 201
    assert handled == [b"".join(BODY)]


@pytest.mark.parametrize("owners", [[NOBODY], [OTHER]])
async def test_a_request_without_owner_in_time_is_asked_to_retry(nursery, owners):
    proxied = Asked(nursery, owners, MOVED, find_s=-1.0)
    with pytest.raises(RequestRefused) as refused:
        await proxied()
    assert refused.value.wire is NO_OWNER


async def test_a_stopping_broker_waits_for_no_owner(nursery):
    proxied = Asked(nursery, [NOBODY])
    proxied.broker.stopping.set()
    with pytest.raises(RequestRefused) as refused:
        await proxied()
    assert refused.value.wire is NO_OWNER


async def test_a_body_without_room_in_memory_goes_to_a_single_owner(nursery, monkeypatch):
    monkeypatch.setattr(request_forwarding.BodyBudget, "take", lambda *_: False)
    proxied = Asked(nursery, [OTHER], MOVED, http(201))
    with pytest.raises(RequestRefused) as refused:
        await proxied()
    assert refused.value.wire is NO_OWNER
    proxied = Asked(nursery, [OTHER], http(201))
    assert (await proxied()).status_code == 201


async def test_only_requests_without_effect_are_repeated_at_a_lost_owner(nursery):
    proxied = Asked(nursery, [OTHER, None], GONE)
    assert (await proxied("GET")).status_code == 200
    proxied = Asked(nursery, [OTHER, None], GONE)
    with pytest.raises(RequestRefused) as refused:
        await proxied()
    assert refused.value.wire is OWNER_LOST


FROZEN = Owner(2, session=7)


async def test_a_frozen_owner_is_not_awaited_after_its_session(nursery):
    proxied = Asked(nursery, [FROZEN, None], Frozen(), silent_s=0.001)
    proxied.broker.placement.ended.add(7)
    assert (await proxied("GET")).status_code == 200
    proxied = Asked(nursery, [FROZEN, None], Frozen(b"HTTP/1.1 200 x\r\n"), silent_s=0.01)
    proxied.broker.placement.ended.add(7)
    with pytest.raises(RequestRefused) as refused:
        await proxied()
    assert refused.value.wire is OWNER_LOST


async def test_a_silent_owner_is_awaited_during_its_session(nursery):
    proxied = Asked(nursery, [FROZEN, None], Frozen(), silent_s=0.001)
    placement = proxied.broker.placement

    @nursery.start_soon
    async def end():
        while placement.looks < 5:
            await trio.lowlevel.checkpoint()
        placement.ended.add(7)

    assert (await proxied("GET")).status_code == 200
    assert placement.looks >= 5


async def test_a_stream_ends_with_the_session_of_its_frozen_owner(nursery):
    head = b"HTTP/1.1 200 x\r\ntransfer-encoding: chunked\r\n\r\n"
    proxied = Asked(nursery, [FROZEN], Frozen(head + b"4\r\n: x\n\r\n"), silent_s=0.01)
    answer = await proxied("GET")
    sent = []

    async def send(message):
        sent.append(message.get("body"))
        proxied.broker.placement.ended.add(7)

    await answer({}, None, send)
    assert sent == [None, b": x\n"]


async def test_a_forwarded_request_is_not_forwarded_again(nursery):
    proxied = Asked(nursery, [OTHER])
    answer = await proxied(**{HOP: "1"})
    assert (answer.status_code, answer.headers[HOP]) == (503, "0")
    assert answer.headers["retry-after"] == "1"
    assert not proxied.peers.asked


async def test_a_forwarded_request_makes_the_owner_follow_the_catalogue(nursery):
    proxied = Asked(nursery, [None])
    assert (await proxied(**{HOP: "1"})).status_code == 200
    assert proxied.peers.followed == 1
