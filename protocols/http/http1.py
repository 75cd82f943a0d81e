"""Hypercorn's HTTP/1.1 of one connection, fixed where a client could be left waiting. Uses a socket
only to see whether its peer is still there.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import h11
import trio
from hypercorn.events import Closed, Event, RawData
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.worker_context import EventWrapper

from braidlog.broker.server.connection import forget_frames
from braidlog.protocols.http.errors import BAD_REQUEST
from braidlog.protocols.http.ordinary import TOGETHER_BYTES
from braidlog.protocols.http.refusals import raw_refusal

if TYPE_CHECKING:
    from hypercorn.config import Config
    from hypercorn.protocol.h11 import H2CProtocolRequiredError, H2ProtocolAssumedError
    from hypercorn.trio.worker_context import WorkerContext
    from hypercorn.typing import (
        AppWrapper,
        ASGIReceiveEvent,
        ASGISendEvent,
        ConnectionState,
        H11SendableEvent,
        Scope,
    )

    SwitchTo2 = H2CProtocolRequiredError | H2ProtocolAssumedError
    Address = tuple[str, int] | None
    Send = Callable[[Event], Awaitable[None]]
    # What makes a protocol. The bool: whether it is encrypted; then the client's address, ours.
    Parts = tuple[
        AppWrapper, Config, WorkerContext, TaskGroup, ConnectionState, bool, Address, Address, Send
    ]

# How long a running request may go on after its client has sent the next one and closed its side:
# perhaps nobody is left to read an endless stream.
HALF_CLOSED_S = 10.0
# States of a socket whose peer has closed its side, or that is reset (tcp(7), TCP_INFO).
TCP_CLOSE, TCP_CLOSE_WAIT = 7, 8

HEAD = b"HEAD"


class Applications(TaskGroup):
    """The requests of one connection. Pieces of a request are handed over without a turn of the
    loop for each, which would cost more than the piece.
    """

    running = 0

    async def spawn_app(
        self,
        app: AppWrapper,
        config: Config,
        scope: Scope,
        send: Callable[[ASGISendEvent | None], Awaitable[None]],
    ) -> Callable[[ASGIReceiveEvent], Awaitable[None]]:
        """Start the application for a request; returns what to call with each of its events."""
        given: trio.MemorySendChannel[ASGIReceiveEvent]
        taken: trio.MemoryReceiveChannel[ASGIReceiveEvent]
        given, taken = trio.open_memory_channel(config.max_app_queue_size)

        async def give(event: ASGIReceiveEvent) -> None:
            try:
                given.send_nowait(event)
            except trio.WouldBlock:
                await given.send(event)

        async def receive() -> ASGIReceiveEvent:
            try:
                return taken.receive_nowait()
            except trio.WouldBlock:
                return await taken.receive()

        async def serve() -> None:
            try:
                await app(scope, receive, send, trio.to_thread.run_sync, trio.from_thread.run)
            finally:
                self.running -= 1
                await send(None)

        self.running += 1
        self.spawn(serve)
        return give


class PeerLeft(Exception):
    """The client has closed its side, and its running request does not end."""


class Pause(EventWrapper):
    """The wait for the running request to end: HTTP/1.1 serves one at a time, and reads no more."""

    def __init__(self, sock: trio.socket.SocketType) -> None:
        super().__init__()
        self._sock = sock

    async def wait(self) -> None:
        """Raises PeerLeft."""
        while True:
            with trio.move_on_after(HALF_CLOSED_S):
                await super().wait()
                return
            if _has_closed(self._sock):
                raise PeerLeft


async def peer_leaves(sock: trio.socket.SocketType) -> None:
    """Wait until the client has closed its side of a connection from which nobody reads."""
    while True:
        await trio.sleep(HALF_CLOSED_S)
        if _has_closed(sock):
            return


def _has_closed(sock: trio.socket.SocketType) -> bool:
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
    return info[0] in (TCP_CLOSE, TCP_CLOSE_WAIT)


class Prompt(RawData):
    """Bytes that leave at once if the socket takes them: at most one piece of each answer, so that
    a long one gives way to others.
    """


class Http1(H11Protocol):
    """HTTP/1.1 whose own refusals are JSON, too. A short answer is sent in one piece."""

    _head = b""  # of an answer with a known length: its body follows at once

    @property
    def is_between(self) -> bool:
        """Whether no part of a request has come: the next one may be served by `direct.py`."""
        connection = self.connection
        return (
            self.stream is None
            and isinstance(connection, h11.Connection)
            and connection.our_state is connection.their_state is h11.IDLE
            and connection.trailing_data == (b"", False)
        )

    async def _create_stream(self, request: h11.Request) -> None:
        """Begin an answer, unless the method is HEAD in another case. Methods are case-sensitive
        (RFC 9110 section 9.1), which h11 respects and Hypercorn does not: one would announce a body
        that the other never sends.
        """
        if request.method != HEAD and request.method.upper() == HEAD:
            await self._send_error_response(BAD_REQUEST.status)
            await self.send(Closed())
            return
        await super()._create_stream(request)

    async def _send_h11_event(self, event: H11SendableEvent) -> None:
        """Send an answer's head together with the first piece of its body; send no empty pieces."""
        try:
            data = self.connection.send(event)
        except h11.LocalProtocolError:
            if self.connection.their_state is not h11.ERROR:
                raise
            return
        if isinstance(event, h11.Response) and _has_length(event):
            self._head = data
            return
        if self._head and len(data) <= TOGETHER_BYTES:
            data, self._head = self._head + data, b""
            await self.send(Prompt(data))
            return
        await self._send_head()
        if data:
            await self.send(RawData(data))

    async def _send_head(self) -> None:
        head, self._head = self._head, b""
        if head:
            await self.send(RawData(head))

    async def _maybe_recycle(self) -> None:
        await self._send_head()  # A bug ended the answer before its body.
        await super()._maybe_recycle()

    async def _send_error_response(self, status_code: int) -> None:
        """Refuse an invalid request: its head is too long, or breaks the rules of HTTP.

        Called while that error is handled, whose frames hold it in a reference cycle.
        """
        error = sys.exception()
        if error is not None:
            forget_frames([error])
        del error
        for event in raw_refusal(status_code):
            await self._send_h11_event(event)


def _has_length(answer: h11.Response) -> bool:
    return any(name == b"content-length" for name, _ in answer.headers)
