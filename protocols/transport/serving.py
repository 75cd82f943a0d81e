"""An HTTP listener inside the broker's own trio run: accepts connections, counts them with the
connections of the other listeners, and serves an application on each. Knows no route.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeVar

import structlog
import trio

from braidlog.broker.runtime.tls_socket import HANDSHAKE_S, handshake_reason
from braidlog.broker.server.accepting import accept_all
from braidlog.broker.server.connection import address_text
from braidlog.protocols.transport.clients import CLIENT, HttpClient
from braidlog.protocols.transport.connection import Application, HttpConnection, Refusal, Settings

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.broker.server.tls import TlsSettings
    from braidlog.protocols.transport.connection import Stream

log = structlog.get_logger()

CERTIFICATE: Final = "braidlog.certificate"  # Scope key of the verified certificate.
HEAD_BYTES_MAX = 32 * 1024  # Request line and headers; browsers behind proxies need 8 to 16 KiB.
KEEP_ALIVE_S = 15.0  # Idle timeout; also the time limit for the whole head of a request.
STOP_S = 3.0  # Requests that still run at a stop take milliseconds; waiting requests end at once.
# How long sent bytes may stay unacknowledged. Sends are shielded from cancellation, so the kernel
# has to end them (tcp(7); closed windows count too), or a single client could delay a stop.
SEND_STALL_MS = 10_000

Work = Callable[[], Awaitable[None]]
T = TypeVar("T")


@contextmanager
def listed(table: MutableMapping[Broker, T], broker: Broker, value: T) -> Iterator[None]:
    """Keep a value that refers to its broker in a table, only while the broker's listener serves:
    a lasting entry would keep an ended broker, with its descriptors, in memory.
    """
    table[broker] = value
    try:
        yield
    finally:
        if table.get(broker) is value:  # Another listener of the broker may serve, too.
            del table[broker]


class HttpListener:
    """State that all connections of a listener share."""

    def __init__(
        self,
        broker: Broker,
        protocol: str,
        app: Application,
        refusal: Refusal,
        tls: TlsSettings | None = None,
    ) -> None:
        """Serve `app`; `refusal` answers bytes that are no request."""
        self._broker = broker
        self._protocol = protocol
        self._tls = tls
        self._settings = Settings(
            app, refusal, head_bytes_max=HEAD_BYTES_MAX, keep_alive_s=KEEP_ALIVE_S
        )
        self._open: set[HttpConnection] = set()

    async def run(
        self, sockets: Sequence[socket.socket], stopping: trio.Event, works: Sequence[Work] = ()
    ) -> None:
        """Serve until `stopping` is set and running requests are answered, at most `STOP_S` more;
        `works` run as long as connections are accepted.
        """
        async with trio.open_nursery() as connections:
            async with trio.open_nursery() as accepting:
                for listening in sockets:
                    accepting.start_soon(self._accept, listening, connections)
                for work in works:
                    accepting.start_soon(work)
                await stopping.wait()
                accepting.cancel_scope.cancel()
            self._stop()
            connections.cancel_scope.deadline = trio.current_time() + STOP_S

    def _stop(self) -> None:
        """End idle connections, and let no connection take another request."""
        self._settings.is_stopping = True
        for connection in self._open:
            connection.stop()

    async def _accept(self, listening: socket.socket, connections: trio.Nursery) -> None:
        """Accept connections until cancelled."""

        def start(sock: socket.socket) -> None:
            connections.start_soon(self._serve_connection, sock)

        await accept_all(self._broker, listening, self._protocol, self._protocol, start)

    async def _stream(self, sock: socket.socket) -> Stream:
        """Return the stream to read and write; with TLS, after the handshake.

        Raises OSError, trio.BrokenResourceError.
        """
        peer = address_text(sock.getpeername())
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(sock))
        if self._tls is None:
            return stream
        encrypted = trio.SSLStream(
            stream, self._tls.context, server_side=True, https_compatible=True
        )
        reason = f"not done within {HANDSHAKE_S:.0f} s"
        with trio.move_on_after(HANDSHAKE_S):
            try:
                await encrypted.do_handshake()
                return encrypted
            except trio.BrokenResourceError as error:
                reason = handshake_reason(error.__cause__ or error)
        self._broker.seldom.warning(
            "tls_handshake_failed",
            cause=f"{self._protocol} {reason}",
            listener=self._protocol,
            peer=peer,
            reason=reason,
        )
        raise trio.BrokenResourceError(reason)

    async def serve_stream(self, stream: Stream) -> None:
        """Serve a stream to its end. Raises any bug's error."""
        certificate = stream.getpeercert() if isinstance(stream, trio.SSLStream) else None
        broker = self._broker
        client = HttpClient(broker.next_connection_id(), self._protocol, stream)
        extra = {CLIENT: client} | ({CERTIFICATE: certificate} if certificate else {})
        connection = HttpConnection(self._settings, stream, extra)
        self._open.add(connection)
        broker.served_connections.add(client)
        try:
            await connection.run()
        finally:
            self._open.discard(connection)
            broker.served_connections.discard(client)

    async def _serve_connection(self, sock: socket.socket) -> None:
        """Serve a connection. A bug ends only this connection, with a traceback in the log."""
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SEND_STALL_MS)
            stream = await self._stream(sock)
            await self.serve_stream(stream)
        except (OSError, trio.BrokenResourceError):  # The client left before the first request.
            pass
        except Exception:  # A bug ends this connection and nothing else.
            log.exception("http_connection_failed", protocol=self._protocol)
        finally:
            sock.close()
            self._broker.admission.leave(self._protocol)
