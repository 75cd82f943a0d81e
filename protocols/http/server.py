"""HTTP connections inside the broker's own trio run: accepts them, counts them with those of the
other listeners, and lets Hypercorn speak HTTP/1.1 and HTTP/2 on each. Knows no route.

Hypercorn's own accept loop is not used: it has no limit, and an error of one connection ends it.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast
from weakref import WeakKeyDictionary

import structlog
import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ASGIFramework

from braidlog.broker.server.accepting import accept_all
from braidlog.broker.server.connection import address_text
from braidlog.broker.server.tls import HANDSHAKE_S, handshake_reason
from braidlog.protocols.http.app import make_app
from braidlog.protocols.http.connection import HttpConnection
from braidlog.protocols.http.login import CERTIFICATE

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from braidlog.broker.broker import Broker
    from braidlog.broker.server.tls import TlsSettings
    from braidlog.protocols.http.options import RestOptions

log = structlog.get_logger()

PROTOCOL = "http"
HEAD_BYTES_MAX = 32 * 1024  # Request line and headers; browsers behind proxies need 8 to 16 KiB.
KEEP_ALIVE_S = 15.0  # An idle connection; also the whole time for a request's head to arrive.
STOP_S = 3.0  # Requests that still run at a stop take milliseconds; waiting ones end at once.
# How long sent bytes may stay unacknowledged. Sends are shielded from cancellation, so the kernel
# has to end them (tcp(7); it counts closed windows too), or one client could delay a stop.
SEND_STALL_MS = 10_000
# Requests of one HTTP/2 connection at the same time; each may hold a body.
STREAMS_MAX = 100
# Of one connection, before Hypercorn ends it: never. It would drop the answers that are under way
# over HTTP/2. A number of a stream has 31 bits, of which a client has every second.
REQUESTS_UNLIMITED = 1 << 31


async def serve(
    broker: Broker,
    sockets: Sequence[socket.socket],
    options: RestOptions,
    stopping: trio.Event,
    tls: TlsSettings | None = None,
) -> None:
    """Serve until `stopping` is set and running requests are answered, at most `STOP_S` more."""
    server = _SERVERS[broker] = Server(broker, options, stopping, tls)
    async with trio.open_nursery() as connections:
        async with trio.open_nursery() as accepting:
            for listening in sockets:
                accepting.start_soon(server.accept, listening, connections)
            accepting.start_soon(server.keep_time)
            await stopping.wait()
            accepting.cancel_scope.cancel()
        await server.stop()
        connections.cancel_scope.deadline = trio.current_time() + STOP_S


_SERVERS: WeakKeyDictionary[Broker, Server] = WeakKeyDictionary()


async def serve_relayed(broker: Broker, stream: trio.SocketStream) -> None:
    """Serve one connection that another broker has made for its clients."""
    server = _SERVERS.get(broker)
    if server is not None:
        await server.serve_stream(stream)


class Server:
    """What all connections of one listener share."""

    def __init__(
        self,
        broker: Broker,
        options: RestOptions,
        stopping: trio.Event,
        tls: TlsSettings | None = None,
    ) -> None:
        self._broker = broker
        self._tls = tls
        app = make_app(broker, options, stopping)
        self.keep_time = app.consumers.keep_time
        self._app = ASGIWrapper(cast(ASGIFramework, app))
        self._config = _config()
        self._context = WorkerContext(None)
        self._open: set[HttpConnection] = set()

    async def stop(self) -> None:
        """End idle connections, and let no connection take another request."""
        await self._context.terminated.set()
        for connection in self._open:
            connection.stop()

    async def accept(self, listening: socket.socket, connections: trio.Nursery) -> None:
        """Accept connections until cancelled."""

        def start(sock: socket.socket) -> None:
            connections.start_soon(self._serve_connection, sock)

        await accept_all(self._broker, listening, PROTOCOL, PROTOCOL, start)

    async def _stream(
        self, sock: socket.socket
    ) -> trio.SSLStream[trio.SocketStream] | trio.SocketStream:
        """The stream to read and write; with TLS it is encrypted, and the handshake is done.

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
            cause=f"{PROTOCOL} {reason}",
            listener=PROTOCOL,
            peer=peer,
            reason=reason,
        )
        raise trio.BrokenResourceError(reason)

    async def serve_stream(
        self, stream: trio.SSLStream[trio.SocketStream] | trio.SocketStream
    ) -> None:
        """Serve a stream to its end. Raises what a bug raises."""
        app = _certified(self._app, stream)
        give_way = self._broker.poller.give_way
        connection = HttpConnection(app, self._config, self._context, stream, give_way)
        self._open.add(connection)
        try:
            await connection.run()
        finally:
            self._open.discard(connection)

    async def _serve_connection(self, sock: socket.socket) -> None:
        """Serve a connection. A bug ends only this connection, with a traceback in the log."""
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SEND_STALL_MS)
            stream = await self._stream(sock)
            await self.serve_stream(stream)
        except (OSError, trio.BrokenResourceError):  # It was closed before it was served.
            pass
        except Exception:  # A bug ends this connection and nothing else.
            log.exception("http_connection_failed", protocol=PROTOCOL)
        finally:
            sock.close()
            self._broker.admission.leave(PROTOCOL)


def _certified(
    app: ASGIWrapper, stream: trio.SSLStream[trio.SocketStream] | trio.SocketStream
) -> ASGIWrapper:
    """The application for one connection: its requests carry the client's certificate, if any."""
    certificate = stream.getpeercert() if isinstance(stream, trio.SSLStream) else None
    if not certificate:
        return app

    async def certified(scope: Scope, receive: Receive, send: Send) -> None:
        inner = cast("ASGIApp", app.app)
        await inner({**scope, CERTIFICATE: certificate}, receive, send)

    return ASGIWrapper(cast(ASGIFramework, certified))


def _config() -> Config:
    config = Config()
    config.h11_max_incomplete_size = HEAD_BYTES_MAX
    config.h2_max_concurrent_streams = STREAMS_MAX
    config.h2_max_header_list_size = HEAD_BYTES_MAX
    config.keep_alive_timeout = KEEP_ALIVE_S
    config.keep_alive_max_requests = REQUESTS_UNLIMITED
    config.graceful_timeout = STOP_S
    config.include_server_header = False
    config.accesslog = None
    config.errorlog = logging.getLogger("hypercorn.error")
    return config
