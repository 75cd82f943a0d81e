"""Hypercorn's HTTP/2, with the limits that it lacks: on clients that take nothing, reset what they
ask for, or announce large frames. Knows no route and no broker.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, cast

import h2.events
import trio
from h2.errors import ErrorCodes
from h2.events import DataReceived, PriorityUpdated, RequestReceived, StreamReset
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol.events import Body, StreamClosed
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.h2 import H2Protocol

if TYPE_CHECKING:
    from braidlog.protocols.http.http1 import Applications, Parts, SwitchTo2

# How long the client of an HTTP/2 stream may take nothing of an answer, which holds memory of the
# budget that all share. The kernel sees no stall: the connection may go on.
STREAM_STALL_S = 10.0
# Requests of one connection, those included that their client has reset: they may be held up by a
# client that reads nothing. Above it nothing more is read.
RUNNING_MAX = 200
CROWDED_S = 0.01
PREFACE_BYTES, FRAME_HEAD_BYTES = 24, 9  # Of HTTP/2.
HEADERS, CONTINUATION = 1, 9  # Frames.
# Parsed before others have their turn: 200 requests with nothing in them take 10 ms.
PIECE_BYTES = 8 * 1024


class FrameLengths:
    """Finds by its head a frame that is too long, or that makes the headers of a request so: h2
    would collect all of it first, up to 16 MiB of a frame and 64 frames of headers. The frames come
    after HTTP/2's preface (RFC 9113, sections 3.4, 4.1 and 4.3).
    """

    def __init__(self, length_max: int, headers_max: int) -> None:
        self._length_max = length_max
        self._headers_max = headers_max
        self._left = PREFACE_BYTES  # Of what comes before the next head.
        self._head = bytearray()
        self._headers = 0  # Bytes of the request's headers so far, as they are sent.

    def check(self, data: bytes) -> ErrorCodes | None:
        """What is wrong with a frame of those that begin in what came next; None: nothing."""
        pos = 0
        while pos < len(data):
            if self._left:
                step = min(self._left, len(data) - pos)
                self._left -= step
                pos += step
                continue
            part = data[pos : pos + FRAME_HEAD_BYTES - len(self._head)]
            self._head += part
            pos += len(part)
            if len(self._head) == FRAME_HEAD_BYTES:
                self._left = int.from_bytes(self._head[:3])
                kind = self._head[3]
                self._head.clear()
                if self._left > self._length_max:
                    return ErrorCodes.FRAME_SIZE_ERROR
                if kind in (HEADERS, CONTINUATION):
                    self._headers = self._left + (self._headers if kind == CONTINUATION else 0)
                    if self._headers > self._headers_max:
                        return ErrorCodes.ENHANCE_YOUR_CALM
        return None


class Http2(H2Protocol):
    """HTTP/2 that sends GOAWAY only after the end of its last answer: another task sends that end,
    and would find the connection closed. The rest of a body whose request is answered is dropped.
    """

    def __init__(self, parts: Parts) -> None:
        super().__init__(*parts)
        self._sent: dict[int, trio.Event] = {}  # of streams whose answer is still to end
        self._given: dict[int, int] = {}  # bytes of each answer so far
        self._ended = trio.Event()
        self._requests = cast("Applications", self.task_group)
        self._lengths = FrameLengths(
            self.config.h2_max_inbound_frame_size, self.config.h2_max_header_list_size
        )

    async def initiate(
        self, headers: list[tuple[bytes, bytes]] | None = None, settings: bytes | None = None
    ) -> None:
        """Begin the connection."""
        await super().initiate(headers, settings)
        self.task_group.spawn(self._end_stalled)

    async def stream_send(self, event: StreamEvent) -> None:
        """Continue an answer, or end it."""
        number = event.stream_id
        if isinstance(event, Body):
            self._given[number] = self._given.get(number, 0) + len(event.data)
        if isinstance(event, StreamClosed) and number in self.stream_buffers and not self.closed:
            self._sent[number] = trio.Event()
            await self._sent[number].wait()
            del self._sent[number]
        await super().stream_send(event)

    async def _send_data(self, stream_id: int) -> None:
        with suppress(KeyError):  # It was dropped while a part of it was sent.
            await super()._send_data(stream_id)
        if stream_id in self._sent and stream_id not in self.stream_buffers:
            self._sent[stream_id].set()

    async def handle(self, event: Event) -> None:
        """Handle bytes, or the end of the connection."""
        if isinstance(event, RawData):
            await self._take(event.data)
            return
        await super().handle(event)
        if self.closed:
            self._ended.set()
            for sent in self._sent.values():
                sent.set()

    async def _take(self, data: bytes) -> None:
        for pos in range(0, len(data), PIECE_BYTES):
            piece = data[pos : pos + PIECE_BYTES]
            if self.closed:
                return
            fault = self._lengths.check(piece)
            if fault is not None:
                self.connection.close_connection(fault)
                await self._flush()
                await self.send(Closed())
                return
            await super().handle(RawData(piece))
            await trio.lowlevel.checkpoint()

    async def _end_stalled(self) -> None:
        """End answers of which clients take nothing."""
        before: dict[int, int] = {}
        while not self.closed:
            with trio.move_on_after(STREAM_STALL_S):
                await self._ended.wait()
            left = {number: len(one.buffer) for number, one in self.stream_buffers.items()}
            self._given = {number: self._given.get(number, 0) for number in left}
            taken = {number: self._given[number] - size for number, size in left.items()}
            stalled = [one for one, size in left.items() if size and before.get(one) == taken[one]]
            for number in stalled:
                if number in self.streams and number in self.stream_buffers:  # Still there.
                    await self._end(number)
            before = taken

    async def _end(self, number: int) -> None:
        """End a stream whose answer is not complete."""
        self.connection.reset_stream(number, ErrorCodes.CANCEL)
        await self._close_stream(number)
        await self._drop(number)
        await self._flush()
        await self.send(Updated(idle=self.idle))

    async def _drop(self, number: int) -> None:
        """Forget what is left of an answer that nobody wants. Hypercorn keeps it if nothing has
        been sent of it, for as long as the connection lasts.
        """
        buffer = self.stream_buffers.pop(number, None)
        if buffer is not None:
            await buffer.close()
            self.priority.remove_stream(number)
        if number in self._sent:
            self._sent[number].set()

    async def _handle_events(self, events: list[h2.events.Event]) -> None:
        """Handle each event by itself: a stream may end before the next one. What still comes of a
        refused body frees its part of the window, else its client could wait before it reads the
        answer. A request that Hypercorn cannot read ends alone (RFC 9113, section 8.1.1).
        Priorities are ignored, as that RFC's section 5.3.2 allows: a long chain of streams would
        end the connection.
        """
        for event in events:
            if self.closed:
                return
            if isinstance(event, PriorityUpdated):
                continue
            if isinstance(event, DataReceived) and event.stream_id not in self.streams:
                self.connection.acknowledge_received_data(
                    event.flow_controlled_length, event.stream_id
                )
                await self._flush()
            elif isinstance(event, RequestReceived) and _is_malformed(event.headers):
                self.connection.reset_stream(event.stream_id, ErrorCodes.PROTOCOL_ERROR)
                await self._flush()
            else:
                await super()._handle_events([event])
                if isinstance(event, RequestReceived):  # Many may come together, with resets.
                    await trio.lowlevel.checkpoint()
                    while self._requests.running > RUNNING_MAX and not self.closed:
                        await trio.sleep(CROWDED_S)
                elif isinstance(event, StreamReset):
                    await self._drop(event.stream_id)

    @classmethod
    async def begun(cls, switch: SwitchTo2, parts: Parts) -> Http2:
        """The protocol that a client changes to, by an upgrade or with prior knowledge."""
        protocol = cls(parts)
        await protocol.initiate(getattr(switch, "headers", None), getattr(switch, "settings", None))
        return protocol


def _is_malformed(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a request has no method or path, or one that is not ASCII."""
    found = [value for name, value in headers if name in (b":method", b":path")]
    return len(found) < 2 or not all(map(bytes.isascii, found))
