"""Forwards requests about topics of another broker to that broker's HTTP listener, once, and
returns the answers.

Requests go over the brokers' own port, so the clients' address of that listener does not matter.
The headers carry the client's credentials: the owner authenticates the client again. While a topic
moves from one broker to another, its requests wait here, and then go to the new owner.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import h11
import structlog
import trio
from starlette.requests import Request
from starlette.responses import Response

from braidlog.broker.cluster.placement import NOBODY, Owner, elsewhere
from braidlog.broker.errors import NotOwner
from braidlog.protocols.http.bodies import BodyBudget
from braidlog.protocols.http.errors import NO_OWNER, OWNER_LOST, RequestRefused
from braidlog.protocols.http.path_names import name_of as admin_name
from braidlog.protocols.http.path_names import topic_name
from braidlog.protocols.http.requests import READING, refuse
from braidlog.protocols.http.waiting import disconnected

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

    from braidlog.broker.broker import Broker
    from braidlog.storage.metadata.names import TopicName

Handler = Callable[[Request], Awaitable[Response]]
T = TypeVar("T")

# In a request: the request was forwarded, and must not be forwarded again. In an answer: the broker
# did nothing, as the broker does not own the topic any more.
HOP: Final = "braidlog-hop"
# Headers about one connection (RFC 9110, section 7.6.1), and headers that this connection sets
# itself.
OWN_HEADERS: Final = frozenset(
    {
        *(b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"upgrade"),
        *(b"transfer-encoding", HOP.encode()),
    }
)
# Time limit for finding a topic's owner. After a kill of the owner, the next broker owns the topic
# after the lease (5 s) and the time of the takeover.
FIND_S: Final = 10.0
RECEIVE_BYTES: Final = 64 * 1024
# After this silence of an owner, check that the owner's session is alive. A frozen broker, or a
# broker cut off from this one, closes no connection: other brokers take over its topics, and the
# wait would never end.
SILENT_S: Final = 1.0
# The owner has gone, or its answer is not HTTP.
LOST: Final = (OSError, trio.BrokenResourceError, h11.ProtocolError)

log = structlog.get_logger()


class Body:
    """A request's body while it arrives. Kept as long as memory allows, so that the body can be
    sent to another broker too.
    """

    def __init__(self, request: Request, budget: BodyBudget) -> None:
        self._request = request
        self._budget = budget
        self._messages: list[Message] = []
        self._bytes = 0
        self.is_kept = True
        self.has_ended = False

    def request(self) -> Request:
        """Return the request with its body from the first byte on. Only possible while the body is
        kept.
        """
        place = 0

        async def receive() -> Message:
            nonlocal place
            place += 1
            if place <= len(self._messages):
                return self._messages[place - 1]
            return await self._next()

        return Request(self._request.scope, receive)

    async def drain(self) -> None:
        """Read and drop the rest: an earlier answer would be lost with the connection."""
        with trio.move_on_after(FIND_S):
            while not self.has_ended:
                await self._next()

    async def _next(self) -> Message:
        message = await self._request.receive()
        piece = len(message.get("body", b""))
        is_body = message["type"] == "http.request"
        self.has_ended = self.has_ended or not is_body or not message.get("more_body", False)
        if is_body and self.is_kept:
            self.is_kept = self._budget.take(self._request, self._bytes, piece)
            self._bytes += piece
            self._messages.append(message)
        if not self.is_kept:
            self._messages.clear()
        return message


class HttpForwarder:
    """Forwards the requests of a listener."""

    def __init__(
        self, broker: Broker, *, find_s: float = FIND_S, silent_s: float = SILENT_S
    ) -> None:
        """`find_s` is the time limit for finding an owner. After `silent_s` without a byte from the
        owner its session is checked.
        """
        self._broker = broker
        self._find_s = find_s
        self._silent_s = silent_s
        self._budget = BodyBudget()

    def around(self, handler: Handler) -> Handler:
        """Wrap a handler: requests about this broker's topics are served, others are forwarded."""

        async def serve(request: Request) -> Response:
            if HOP in request.headers:
                return await self._serve_for_another(request, handler)
            body = Body(request, self._budget)
            tries = self._broker.peers.tries(self._find_s)
            while True:
                try:
                    return await self._serve_once(body.request(), handler)
                except NotOwner as error:
                    may_retry = body.is_kept and not self._broker.stopping.is_set()
                    with request.scope["exchange"].waiting():
                        if not may_retry or not await tries.again(error):
                            text = f"no broker serves that now: try again ({error})"
                            raise RequestRefused(NO_OWNER, text) from error

        return serve

    async def _serve_once(self, request: Request, handler: Handler) -> Response:
        """Serve or forward a request. Raises NotOwner, before any effect, if no broker owns the
        topic now.
        """
        owner = self._owner(request)
        if owner is None:
            return await handler(request)
        if owner is NOBODY:
            raise elsewhere("that", owner)
        return await self._pass_on(request, owner)

    async def _serve_for_another(self, request: Request, handler: Handler) -> Response:
        """Serve a request from a broker that takes this broker for the owner."""
        body = Body(request, self._budget)
        try:
            owner = self._owner(request)
            if owner is not None:
                raise elsewhere("that", owner)
            name = _topic_of(request)
            if name is not None and self._broker.topics.find(name) is None:
                await self._broker.peers.follow()  # The other broker may be ahead.
            return await handler(body.request())
        except NotOwner as error:
            await body.drain()
            answer = refuse(request.scope["exchange"], NO_OWNER, str(error))
            answer.headers[HOP] = "0"
            return answer

    def _owner(self, request: Request) -> Owner | None:
        """Return the other broker that serves the request; None if this broker does."""
        placement = self._broker.placement
        name = _topic_of(request)
        if name is not None:
            return placement.owner(name)
        # Permissions and namespaces belong to the catalogue's owner.
        return None if request.method in READING else placement.catalogue_owner()

    async def _pass_on(self, request: Request, owner: Owner) -> Response:
        """Forward a request.

        Raises NotOwner if the other broker was not reached or is not the owner, or if it was lost
        during a request that changes nothing. Raises RequestRefused.
        """
        name = next(
            listener.name
            for listener in self._broker.listeners.values()
            if listener.protocol == "http"
        )
        stream = await self._broker.peers.forward(owner.node_id, name)
        is_over = partial(self._broker.placement.is_over, owner.session)
        exchange = _Exchange(stream, is_over, self._silent_s)
        try:
            answer = await exchange.ask(request)
            if any(name == HOP.encode() for name, _ in answer.headers):
                raise NotOwner(f"broker {owner.node_id} does not own it any more", 0)
        except LOST as error:
            await exchange.close()
            text = f"the broker that serves it is gone: {error}"
            if request.method in READING:
                raise NotOwner(text, 0) from error
            raise RequestRefused(OWNER_LOST, text) from error
        except BaseException:  # Also after a disconnect of the client.
            await exchange.close()
            raise
        return _PassedOn(request, exchange, answer)


def _topic_of(request: Request) -> TopicName | None:
    """Return the topic that the path names; None without a topic. Raises RequestRefused."""
    parts = request.path_params
    if "role" not in parts and "name" in parts:
        return admin_name(request)[0]
    return topic_name(request) if "role" not in parts and "topic" in parts else None


class _PassedOn(Response):
    """The owner's answer, returned piece by piece as it arrives, until the client leaves."""

    def __init__(self, request: Request, exchange: _Exchange, answer: h11.Response) -> None:
        super().__init__(status_code=answer.status_code)
        self.raw_headers = [
            (name, value)
            for name, value in answer.headers
            if name not in OWN_HEADERS and name != b"x-request-id"
        ]
        self._request = request
        self._exchange = exchange

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer. If the owner is lost, end the answer and the connection early."""

        async def watch() -> None:
            await disconnected(self._request)
            nursery.cancel_scope.cancel()

        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(watch)
                await self._send(send)
                nursery.cancel_scope.cancel()
        finally:
            with trio.CancelScope(shield=True):
                await self._exchange.close()

    async def _send(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": self.status_code}
        await send({**start, "headers": self.raw_headers})
        more = True
        while more:
            try:
                body = await self._exchange.piece()
            except LOST as error:
                log.warning("owner_lost", protocol="http", reason=str(error))
                return
            more = bool(body)
            await send({"type": "http.response.body", "body": body, "more_body": more})


class _Exchange:
    """One request over a connection of its own."""

    def __init__(
        self, stream: trio.SocketStream, is_over: Callable[[], bool], silent_s: float
    ) -> None:
        """Use `stream`. After each `silent_s` of silence `is_over` is called: True once the session
        of the other broker has ended.
        """
        self._silent_s = silent_s
        self._stream = stream
        self._is_over = is_over
        self._http = h11.Connection(h11.CLIENT)

    async def ask(self, request: Request) -> h11.Response:
        """Send the request and return the head of the answer. Raises one of LOST."""
        scope = request.scope
        target = bytes(scope["raw_path"])
        if query := bytes(scope["query_string"]):
            target += b"?" + query
        headers = [(name, value) for name, value in request.headers.raw if name not in OWN_HEADERS]
        headers += [(b"connection", b"close"), (HOP.encode(), b"1")]
        if "host" not in request.headers:
            headers.append((b"host", b"braidlog"))
        has_length = any(name == b"content-length" for name, _ in headers)
        has_body = has_length or b"transfer-encoding" in dict(request.headers.raw)
        if has_body and not has_length:
            headers.append((b"transfer-encoding", b"chunked"))
        await self._send(h11.Request(method=request.method, target=target, headers=headers))
        if has_body:
            async for piece in request.stream():
                if piece:
                    await self._send(h11.Data(data=piece))
        await self._send(h11.EndOfMessage())
        while True:
            event = await self._next()
            if isinstance(event, h11.Response):
                return event

    async def piece(self) -> bytes:
        """Return the next piece of the answer's body; b"" at the end. Raises one of LOST."""
        event = await self._next()
        return bytes(event.data) if isinstance(event, h11.Data) else b""

    async def close(self) -> None:
        """Close the connection without reading the rest."""
        await trio.aclose_forcefully(self._stream)

    async def _send(self, event: h11.Request | h11.Data | h11.EndOfMessage) -> None:
        left = memoryview(self._http.send(event) or b"")
        while left:
            left = left[await self._while_there(partial(self._stream.socket.send, left)) :]

    async def _next(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        while True:
            event = self._http.next_event()
            if event is not h11.NEED_DATA:
                return event
            receive = partial(self._stream.receive_some, RECEIVE_BYTES)
            self._http.receive_data(await self._while_there(receive))

    async def _while_there(self, act: Callable[[], Awaitable[T]]) -> T:
        """Run a send or receive until done, and check the owner's session after each silence.

        A cancelled send or receive loses no bytes. Raises one of LOST.
        """
        while True:
            with trio.move_on_after(self._silent_s):
                return await act()
            if self._is_over():
                raise trio.BrokenResourceError("it does not answer, and its session has ended")
