"""Requests about topics of another broker go to its HTTP listener, once, and their answers back.

Over the brokers' own port, so that it matters not how clients reach that listener. Credentials go
along in their headers: the owner asks who it is once more.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

import h11
import structlog
import trio
from starlette.responses import Response

from broker.cluster.placement import NOBODY, Owner
from broker.errors import OwnedElsewhere
from protocols.rest.admin.names import name_of as admin_name
from protocols.rest.bodies import topic_name
from protocols.rest.errors import NO_OWNER, OWNER_LOST, Refused
from protocols.rest.requests import READING
from protocols.rest.waiting import disconnected

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

    from broker.broker import Broker

Handler = Callable[["Request"], Awaitable[Response]]

HOP: Final = "braidlog-hop"  # In a request that has been passed on: it is not passed on again.
# What is about one connection (RFC 9110, 7.6.1), and what this connection says itself.
OWN_HEADERS: Final = frozenset(
    {
        *(b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"upgrade"),
        *(b"transfer-encoding", HOP.encode()),
    }
)
FIND_S: Final = 5.0  # For a topic to have an owner.
LOOK_S: Final = 0.05
RECEIVE_BYTES: Final = 64 * 1024
# The owner is gone, or says what is no HTTP.
LOST: Final = (OSError, trio.BrokenResourceError, h11.ProtocolError)

log = structlog.get_logger()


class Proxy:
    """Passes requests on for one listener."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def around(self, handler: Handler) -> Handler:
        """The handler, where this broker owns what the path names; else the owner's."""

        async def serve(request: Request) -> Response:
            deadline = trio.current_time() + FIND_S
            while (owner := self._owner(request)) is not None:
                if owner is NOBODY or HOP in request.headers:
                    if HOP in request.headers or trio.current_time() > deadline:
                        raise Refused(NO_OWNER, "no broker serves that now: try again")
                    await trio.sleep(LOOK_S)
                    continue
                return await self._pass_on(request, owner)
            return await handler(request)

        return serve

    def _owner(self, request: Request) -> Owner | None:
        """The other broker that serves it; None: this one does."""
        placement = self._broker.placement
        parts = request.path_params
        if "role" not in parts and ("name" in parts or "topic" in parts):
            name = admin_name(request)[0] if "name" in parts else topic_name(request)
            return placement.owner(name)
        # Who may do what, and namespaces, are the catalogue's.
        return None if request.method in READING else placement.catalogue_owner()

    async def _pass_on(self, request: Request, owner: Owner) -> Response:
        name = next(one.name for one in self._broker.listeners.values() if one.protocol == "http")
        try:
            stream = await self._broker.siblings.relay(owner.node_id, name)
        except OwnedElsewhere as error:
            raise Refused(NO_OWNER, str(error)) from error
        exchange = _Exchange(stream)
        try:
            answer = await exchange.ask(request)
        except LOST as error:
            await exchange.close()
            raise Refused(OWNER_LOST, f"the broker that serves it is gone: {error}") from error
        except BaseException:  # The client is gone, too.
            await exchange.close()
            raise
        return _PassedOn(request, exchange, answer)


class _PassedOn(Response):
    """The owner's answer, piece by piece as it comes, until the client leaves."""

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
        """Send it. Where its owner is lost on the way it ends early, and so does the connection."""

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

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._http = h11.Connection(h11.CLIENT)

    async def ask(self, request: Request) -> h11.Response:
        """Send it, and take the head of the answer. Raises OSError, h11.ProtocolError."""
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
        """The next piece of the answer's body; b"" at its end. Raises one of LOST."""
        event = await self._next()
        return bytes(event.data) if isinstance(event, h11.Data) else b""

    async def close(self) -> None:
        """Let go of the connection, whatever is still to come."""
        await trio.aclose_forcefully(self._stream)

    async def _send(self, event: h11.Request | h11.Data | h11.EndOfMessage) -> None:
        data = self._http.send(event)
        if data:
            await self._stream.send_all(data)

    async def _next(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        while True:
            event = self._http.next_event()
            if event is not h11.NEED_DATA:
                return event
            self._http.receive_data(await self._stream.receive_some(RECEIVE_BYTES))
