"""Hypercorn's HTTP/1.1 and HTTP/2 of one connection, mended where a client could be left waiting.
Knows no socket but for a look at whether its peer is still there.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import h11
import trio
from hypercorn.events import Closed, Event
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.events import StreamClosed
from hypercorn.protocol.h2 import H2Protocol
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.trio.worker_context import EventWrapper

from broker.server.connection import forget_frames
from protocols.rest.errors import BAD_REQUEST
from protocols.rest.refusals import raw_refusal

if TYPE_CHECKING:
    from hypercorn.config import Config
    from hypercorn.protocol.h11 import H2CProtocolRequiredError, H2ProtocolAssumedError
    from hypercorn.trio.task_group import TaskGroup
    from hypercorn.trio.worker_context import WorkerContext
    from hypercorn.typing import AppWrapper, ConnectionState

    SwitchTo2 = H2CProtocolRequiredError | H2ProtocolAssumedError
    Address = tuple[str, int] | None
    Send = Callable[[Event], Awaitable[None]]
    # What a protocol is made of: then whether it is encrypted, the client's address and ours.
    Parts = tuple[
        AppWrapper, Config, WorkerContext, TaskGroup, ConnectionState, bool, Address, Address, Send
    ]

# How long the request before may take once its client, which has sent the next one already, has
# closed its side: nobody need be there to read a stream that never ends.
HALF_CLOSED_S = 10.0
# States of a socket whose peer has closed its side, or that is reset (tcp(7), TCP_INFO).
TCP_CLOSE, TCP_CLOSE_WAIT = 7, 8

HEAD = b"HEAD"


class PeerLeft(Exception):
    """The client has closed its side, and the request before the next one does not end."""


class Pause(EventWrapper):
    """Until the request before has ended: HTTP/1.1 has one at a time, so nothing is read."""

    def __init__(self, sock: trio.socket.SocketType) -> None:
        super().__init__()
        self._sock = sock

    async def wait(self) -> None:
        """Raises PeerLeft."""
        while True:
            with trio.move_on_after(HALF_CLOSED_S):
                await super().wait()
                return
            info = self._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
            if info[0] in (TCP_CLOSE, TCP_CLOSE_WAIT):
                raise PeerLeft


class Http1(H11Protocol):
    """HTTP/1.1, whose refusals of its own are JSON, too."""

    async def _create_stream(self, request: h11.Request) -> None:
        """Begin an answer, unless the method is HEAD in other letters: methods are told apart by
        case (RFC 9110 section 9.1), which h11 does and Hypercorn does not, so that one would
        announce a body that the other never sends.
        """
        if request.method != HEAD and request.method.upper() == HEAD:
            await self._send_error_response(BAD_REQUEST.status)
            await self.send(Closed())
            return
        await super()._create_stream(request)

    async def _send_error_response(self, status_code: int) -> None:
        """A request that is none: its head is too long, or breaks the rules of HTTP.

        Called where that error is dealt with, whose frames hold it: a circle.
        """
        error = sys.exception()
        if error is not None:
            forget_frames([error])
        del error
        for event in raw_refusal(status_code):
            await self._send_h11_event(event)


class Http2(H2Protocol):
    """HTTP/2, which says that it ends (GOAWAY) after the end of its last answer: another task sends
    that, and would find the connection closed.
    """

    def __init__(self, parts: Parts) -> None:
        super().__init__(*parts)
        self._sent: dict[int, trio.Event] = {}  # of streams whose answer is still to end

    async def stream_send(self, event: StreamEvent) -> None:
        """An answer goes on, or is over."""
        number = event.stream_id
        if isinstance(event, StreamClosed) and number in self.stream_buffers and not self.closed:
            self._sent[number] = trio.Event()
            await self._sent[number].wait()
            del self._sent[number]
        await super().stream_send(event)

    async def _send_data(self, stream_id: int) -> None:
        await super()._send_data(stream_id)
        if stream_id in self._sent and stream_id not in self.stream_buffers:
            self._sent[stream_id].set()

    async def handle(self, event: Event) -> None:
        """Bytes, or the end of the connection."""
        await super().handle(event)
        if self.closed:
            for sent in self._sent.values():
                sent.set()

    @classmethod
    async def begun(cls, switch: SwitchTo2, parts: Parts) -> Http2:
        """The protocol that a client changes to, by an upgrade or because it knew."""
        protocol = cls(parts)
        await protocol.initiate(getattr(switch, "headers", None), getattr(switch, "settings", None))
        return protocol
