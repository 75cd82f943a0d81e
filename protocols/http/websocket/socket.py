"""A WebSocket of Pulsar's API: from the opening request to the close frame.

Everything that may be refused happens before the 101, so that the client gets a status and a text.
Afterwards an error closes the connection with a code and the same text. Subclasses are the
producer, the consumer and the reader.
"""

from __future__ import annotations

import abc
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

import trio
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from braidlog.broker.errors import (
    BrokerError,
    LimitExceeded,
    NamespaceNotFound,
    NotAuthenticated,
    NotAuthorized,
    TopicNotFound,
    TopicTerminated,
)
from braidlog.broker.positions.backlog import BacklogFull
from braidlog.protocols.http.errors import BAD_REQUEST, RequestRefused, WireCode, wire_code
from braidlog.protocols.http.path_names import name_of
from braidlog.protocols.http.routes import made_by_itself
from braidlog.protocols.transport.messages import WEBSOCKET
from braidlog.protocols.transport.websocket import GOING_AWAY, NORMAL

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.broker.topics.partition import Partition
    from braidlog.broker.topics.topic import Topic
    from braidlog.protocols.http.requests import Exchange

FAILED: Final = "Failed to create producer/consumer"  # Apache's words.
# Close codes (RFC 6455, section 7.4.1).
BAD_DATA: Final = 1007
POLICY: Final = 1008
INTERNAL: Final = 1011
ALIVE_S: Final = 1.0  # Time to answer a ping, when another client wants this client's place.
REASON_BYTES_MAX: Final = 123  # Of a close frame (RFC 6455, section 5.5).
# Apache's status for a topic that takes no more messages, or no more producers.
TERMINATED: Final = WireCode(503, 50305, "topic_terminated")
BACKLOG_FULL: Final = WireCode(503, 50306, "backlog_full")
OPENING_CODES: Final[dict[type[BrokerError], WireCode]] = {
    TopicTerminated: TERMINATED,
    BacklogFull: BACKLOG_FULL,
}


class Sockets:
    """The open WebSockets of a listener."""

    def __init__(
        self, broker: Broker, stopping: trio.Event, most: int, message_bytes_max: int
    ) -> None:
        self.broker = broker
        self.stopping = stopping
        self.message_bytes_max = message_bytes_max
        self.count = 0
        self._most = most

    def check_room(self) -> None:
        """Raise LimitExceeded if there are as many connections as the setting allows."""
        if self.count >= self._most:
            raise LimitExceeded(f"{self._most} WebSocket connections are open already")


class Socket(Response, abc.ABC):
    """A response that opens a WebSocket, and serves the client to its end."""

    def __init__(self, sockets: Sockets, request: Request) -> None:
        super().__init__()
        self.broker = sockets.broker
        self.request = request
        self.exchange: Exchange = request.scope["exchange"]
        self._sockets = sockets
        self._serving = trio.CancelScope()
        self._farewell = (NORMAL, "")
        self._sign_of_life = trio.Event()
        self._is_over = False  # The client has left, or the connection is being closed.

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the client. Raises RequestRefused before the 101."""
        self._send = send
        self._check_opening()
        self._sockets.check_room()
        self._sockets.count += 1
        try:
            await self._open()
            limit = self._sockets.message_bytes_max
            await send({"type": "websocket.accept", "message_bytes_max": limit})
            with self.exchange.waiting():
                await self._serve(receive)
            code, reason = self._farewell
            await send({"type": "websocket.close", "code": code, "reason": reason})
        finally:
            self._sockets.count -= 1
            self.leave()

    def _check_opening(self) -> None:
        """Raise RequestRefused unless the request asks for a WebSocket."""
        fault = self.request.scope.get("extensions", {}).get(WEBSOCKET)
        if fault is None:
            raise RequestRefused(BAD_REQUEST, "the opening request of a WebSocket is expected")
        if fault:
            raise RequestRefused(BAD_REQUEST, f"the opening request is faulty: {fault}")

    async def _open(self) -> None:
        try:
            await self.open()
        except BrokerError as error:
            text = f"{FAILED}: {error}"
            wire = OPENING_CODES.get(type(error)) or wire_code(error)
            raise RequestRefused(wire, text) from error

    async def _serve(self, receive: Receive) -> None:
        try:
            await self._serve_tasks(receive)
        finally:
            self._is_over = True
            self._sign_of_life.set()

    async def _serve_tasks(self, receive: Receive) -> None:
        with self._serving:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch_stop)
                nursery.start_soon(self._guarded, self.run)
                await self._guarded(lambda: self._receive(receive))
                nursery.cancel_scope.cancel()

    async def _receive(self, receive: Receive) -> None:
        while (message := await receive())["type"] != "websocket.disconnect":
            self._sign_of_life.set()
            text = message.get("text")
            if text is not None:  # Apache ignores binary frames.
                self._check_again()
                await self._pace(len(text))
                await self.received(text)

    async def _pace(self, size: int) -> None:
        """Count a frame towards the principal's quota, and wait while the quota is used up."""
        allowance = self.exchange.allowance
        if allowance is not None and (pause_s := allowance.spend(1, size)) > 0:
            await trio.sleep(pause_s)

    async def _watch_stop(self) -> None:
        await self._sockets.stopping.wait()
        self.end("the broker is stopping")

    async def _guarded(self, act: Callable[[], Awaitable[None]]) -> None:
        """Run a task; an error closes the connection with a readable reason."""
        try:
            await act()
        except (NotAuthorized, NotAuthenticated) as error:
            self.end(str(error), POLICY)
        except (BrokerError, RequestRefused) as error:
            self.end(str(error), INTERNAL)

    def _check_again(self) -> None:
        """Check that the client may still do this. Raises NotAuthorized, NotAuthenticated."""
        self.exchange.check_again()

    async def send(self, text: str) -> None:
        """Send a frame; wait while the client takes nothing."""
        await self._send({"type": "websocket.send", "text": text})

    async def is_alive(self) -> bool:
        """Return False if the client has left. A client that is busy and reads nothing stays: only
        the kernel knows that its machine is gone, some seconds after the ping.
        """
        if self._is_over:
            return False
        self._sign_of_life = trio.Event()
        with trio.move_on_after(ALIVE_S):
            await self._send({"type": "websocket.ping"})
            await self._sign_of_life.wait()
        return not self._is_over

    def end(self, reason: str, code: int = GOING_AWAY) -> None:
        """End the connection's tasks; the client then gets a close frame."""
        self._farewell = (code, reason.encode()[:REASON_BYTES_MAX].decode(errors="ignore"))
        self._serving.cancel()

    async def topic(self) -> tuple[Topic, list[Partition]]:
        """Return the topic of the path, and its partitions or the named partition. A missing topic
        is created if the settings allow that.

        Raises RequestRefused, BrokerError.
        """
        name, index = name_of(self.request)
        try:
            self.broker.namespaces.get(name.tenant, name.namespace)
        except NamespaceNotFound:
            raise NamespaceNotFound("Namespace not found") from None  # Apache's words.
        topic = self.broker.topics.find(name)
        if topic is None:
            await self.broker.peers.follow()
            topic = self.broker.topics.find(name)
        if topic is None:
            if index:
                raise TopicNotFound(f"Topic not found: {name}")
            topic = await made_by_itself(self.broker, self.request, name)
        return topic, [*topic.partitions] if index is None else [topic.partition(index)]

    @abc.abstractmethod
    async def open(self) -> None:
        """Do everything that the client may be refused. Raises RequestRefused, BrokerError."""

    @abc.abstractmethod
    async def run(self) -> None:
        """Do the work that does not answer a frame at once, until cancelled."""

    @abc.abstractmethod
    async def received(self, text: str) -> None:
        """Handle a frame."""

    @abc.abstractmethod
    def leave(self) -> None:
        """Release everything. Called once, also when the opening failed."""
