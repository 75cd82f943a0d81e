"""One HTTP connection: reads, sends and keeps deadlines for Hypercorn's protocols, and serves the
ordinary requests of HTTP/1.1 by itself. Knows no route and no listener.

Hypercorn's own `TCPServer` starts a task for each pause between two requests, holds an ended
connection until that task's time is up, and leaves reference cycles behind, which only the garbage
collector frees.
"""

from __future__ import annotations

import math
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, cast

import trio
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol.h11 import H2CProtocolRequiredError, H2ProtocolAssumedError
from hypercorn.typing import ConnectionState, LifespanState
from hypercorn.utils import parse_socket_addr

from braidlog.broker.server.connection import forget_frames
from braidlog.protocols.http.direct import DirectRequest
from braidlog.protocols.http.http1 import Applications, Http1, Pause, PeerLeft, Prompt
from braidlog.protocols.http.http2 import Http2
from braidlog.protocols.http.ordinary import Dates, read_head

if TYPE_CHECKING:
    from hypercorn.app_wrappers import ASGIWrapper
    from hypercorn.config import Config
    from hypercorn.trio.worker_context import WorkerContext

    from braidlog.protocols.http.http1 import Parts

RECEIVE_BYTES = 1 << 16
# How much of a body is read after its request was answered: more than the largest body that is
# accepted by default.
UNREAD_BYTES_MAX = 16 * 1024 * 1024
UNREAD_S = 2.0
ENDED = (trio.BrokenResourceError, trio.ClosedResourceError, trio.BusyResourceError)
DATES = Dates()  # Shared by all connections.


class HttpConnection:
    """Serves one stream until its client, its pause or the listener ends it."""

    def __init__(
        self,
        app: ASGIWrapper,
        config: Config,
        context: WorkerContext,
        stream: trio.SSLStream[trio.SocketStream] | trio.SocketStream,
        give_way: Callable[[], Awaitable[None]],
    ) -> None:
        """`give_way` first serves clients whose requests cost less than ours."""
        self._app = app
        self._config = config
        self._context = context
        self._stream = stream
        self._give_way = give_way
        self._sending = trio.Lock()
        self._receiving: trio.CancelScope | None = None
        self._idle_until = math.inf  # trio's seconds; infinite while a request runs
        self._protocol: Http1 | Http2 | None = None  # None once it has ended
        self._parts: Parts | None = None  # what a protocol is made of
        self.is_encrypted = isinstance(stream, trio.SSLStream)
        inner = stream.transport_stream if isinstance(stream, trio.SSLStream) else stream
        self.socket = inner.socket
        self.client = parse_socket_addr(self.socket.family, self.socket.getpeername())
        self.server = parse_socket_addr(self.socket.family, self.socket.getsockname())

    async def run(self) -> None:
        """Serve the connection to its end, and close it. Raises what a bug raises."""
        try:
            requests = Applications()
            async with requests:
                self._protocol = self._opened(requests)
                self._be_idle()
                await self._protocol.initiate()
                await self._read()
        finally:
            self._protocol = self._parts = None  # Breaks reference cycles.
            await self._close()

    def stop(self) -> None:
        """End the connection if it is idle: the listener stops."""
        if self._idle_until < math.inf:
            self._be_idle()

    def _opened(self, requests: Applications) -> Http1 | Http2:
        self._parts = parts = (
            self._app,
            self._config,
            self._context,
            requests,
            ConnectionState(cast(LifespanState, {})),
            self.is_encrypted,
            self.client,
            self.server,
            self.send,
        )
        stream = self._stream
        if isinstance(stream, trio.SSLStream) and stream.selected_alpn_protocol() == "h2":
            return Http2(parts)
        protocol = Http1(*parts)
        protocol.can_read = Pause(self.socket)
        return protocol

    async def _read(self) -> None:
        ahead: bytes | None = b""
        while ahead is not None:
            ahead = await self._take(ahead or await self._next())
        await self._handle(Closed())

    async def _take(self, received: bytes | None) -> bytes | None:
        """Handle what has come. Returns what comes after it, b"" if nothing has come yet; None if
        the connection ends.
        """
        if received is None:
            return None
        await self._give_way()
        head = read_head(received) if self._is_between else None
        if head is not None:
            request = DirectRequest(head, received[head.size :], self, DATES)
            del received  # A request may wait for a long time.
            return await self._serve(request)
        try:
            await self._handle(RawData(received))
        except PeerLeft:
            return None
        return b"" if received else None

    @property
    def _is_between(self) -> bool:
        return isinstance(self._protocol, Http1) and self._protocol.is_between

    async def _next(self) -> bytes | None:
        """What comes next, b"" once the client has closed its side; None if the pause was too long
        or the connection has ended.
        """
        with trio.CancelScope(deadline=self._idle_until) as self._receiving:
            try:
                return await self._received()
            except ENDED:
                return None
            finally:
                self._receiving = None
        return None

    async def _received(self) -> bytes:
        """What comes next. Raises one of ENDED."""
        while not self.is_encrypted:
            if self.socket.fileno() < 0:
                raise trio.ClosedResourceError
            await trio.lowlevel.wait_readable(self.socket)  # Data is seldom here already.
            try:
                return os.read(self.socket.fileno(), RECEIVE_BYTES)
            except BlockingIOError:
                continue
            except OSError as error:
                raise trio.BrokenResourceError(str(error)) from error
        return bytes(await self._stream.receive_some(RECEIVE_BYTES))

    async def _serve(self, request: DirectRequest) -> bytes | None:
        """Serve an ordinary request; returns as `_take` does."""
        self._idle_until = math.inf
        if not await request.serve(self._app):
            return None
        if request.unread and not await self._passed_over(request):
            return None
        if request.closes or self._context.terminated.is_set():
            return None
        self._be_idle()
        if request.ahead:
            await trio.lowlevel.checkpoint()  # Many requests may have come together.
        return request.ahead

    async def _passed_over(self, request: DirectRequest) -> bool:
        """Read and drop the rest of an unwanted body: the client does not read an answer before it
        has sent all. Returns whether the body is complete.
        """
        if request.unread > UNREAD_BYTES_MAX:
            return False
        self._idle_until = trio.current_time() + UNREAD_S
        while request.unread and not self._context.terminated.is_set():
            received = await self._next()
            if not received:
                return False
            request.take(received)
        return not request.unread

    async def receive(self) -> bytes:
        """What comes while a request is served; b"" if nothing more will."""
        try:
            return await self._received()
        except ENDED:
            return b""

    async def _handle(self, event: Event) -> None:
        if self._protocol is None or self._parts is None:
            return
        try:
            await self._protocol.handle(event)
            return
        except (H2ProtocolAssumedError, H2CProtocolRequiredError) as error:
            self._protocol = await Http2.begun(error, self._parts)
            if isinstance(error, H2ProtocolAssumedError):  # The preface only looks like a request.
                self._be_idle()
            data = error.data
        if data:
            await self._protocol.handle(RawData(data))

    async def send(self, event: Event) -> None:
        """Do what the protocol asks for. A send is never cut: cancellation waits for its end, which
        the kernel forces if the peer takes nothing.
        """
        if isinstance(event, RawData):
            try:
                data = self._sent_at_once(event.data) if isinstance(event, Prompt) else event.data
                if not data:
                    return
                async with self._sending:
                    with trio.CancelScope(shield=True):
                        await self._stream.send_all(data)
            except ENDED:  # Lost with the peer, or by `_close`, which takes no lock.
                await self._handle(Closed())
        elif isinstance(event, Closed):
            await self._close()
            await self._handle(Closed())
        elif isinstance(event, Updated):
            if event.idle:
                self._be_idle()
            else:
                self._keep_until(math.inf)
                await self._give_way()

    def _sent_at_once(self, data: bytes) -> bytes:
        """Send what the socket takes now; returns the rest. Raises trio.BrokenResourceError."""
        if isinstance(self._stream, trio.SSLStream) or self._sending.locked():
            return data
        try:
            return data[os.write(self._stream.socket.fileno(), data) :]
        except BlockingIOError:
            return data
        except OSError as error:
            raise trio.BrokenResourceError(str(error)) from error

    def _be_idle(self) -> None:
        """Set the deadline for the whole head of the next request: no request runs now."""
        is_over = self._context.terminated.is_set()
        pause_s = -math.inf if is_over else self._config.keep_alive_timeout
        self._keep_until(trio.current_time() + pause_s)

    def _keep_until(self, deadline: float) -> None:
        self._idle_until = deadline
        if self._receiving is not None:
            self._receiving.deadline = deadline

    async def _close(self) -> None:
        if not isinstance(self._stream, trio.SSLStream):
            await _if_open(self._stream.send_eof)
        await _if_open(self._stream.aclose)


async def _if_open(step: Callable[[], Awaitable[None]]) -> None:
    """Do this, unless the client has closed the connection before."""
    try:
        await step()
    except ENDED as error:
        forget_frames([error])  # In Python 3.13 they form a cycle that holds the connection.
