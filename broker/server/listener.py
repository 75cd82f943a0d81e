"""Listeners: an address with its adapter. Binds, accepts, and passes each connection to the driver.

Entry points name the available adapters. Knows no storage.
"""

from __future__ import annotations

import errno
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog
import trio

from braidlog.broker.access.rights import ANONYMOUS
from braidlog.broker.config.settings import (
    OFF,
    Config,
    ConfigError,
    ListenerConfig,
    decode,
    is_loopback,
    parse_address,
)
from braidlog.broker.errors import LimitExceeded, NotAuthenticated
from braidlog.broker.limits import (
    KEEPALIVE_IDLE_S,
    KEEPALIVE_PROBE_S,
    KEEPALIVE_PROBES,
    LISTEN_BACKLOG,
)
from braidlog.broker.runtime.sessions import Session
from braidlog.broker.runtime.streams import HandshakeFailed, Stream
from braidlog.broker.runtime.tls_socket import TlsSocket
from braidlog.broker.server import adapters
from braidlog.broker.server.accepting import accept_all
from braidlog.broker.server.adapters import Adapter, AdapterError, Options
from braidlog.broker.server.connection import Connection, address_text
from braidlog.broker.server.tls import TlsSettings, UnusableFile

if TYPE_CHECKING:
    from braidlog.broker.access.authentication import Identity
    from braidlog.broker.access.rights import Principal
    from braidlog.broker.broker import Broker

log = structlog.get_logger()


@dataclass(slots=True)
class Listener:
    """An address, its adapter and its options. Implements `Served`."""

    name: str
    protocol: str
    adapter: Adapter
    options: Options
    listen: tuple[str, int]
    advertised: tuple[str, int] | None
    tls: TlsSettings | None = None
    principal: str | None = None  # the user of clients until their login
    socket: socket.socket | None = None
    bound: tuple[str, int] = ("", 0)  # host and port, once the listener listens
    _loopback: bool | None = None  # see `loopback`

    @property
    def loopback(self) -> bool:
        if self._loopback is None:  # Parsing an address takes longer than accepting a connection.
            self._loopback = is_loopback(self.listen[0])
        return self._loopback

    def advertised_to(self, local: tuple[str, int]) -> tuple[str, int]:
        """Return the address to which clients should connect: the configured address, otherwise the
        bound address, otherwise the address to which this client connected.
        """
        if self.advertised is not None:
            return self.advertised
        return local if self.bound[0] in ("0.0.0.0", "::") else self.bound

    def open_session(self, broker: Broker, connection: Connection) -> Session:
        assert adapters.is_framed(self.adapter)
        return self.adapter.open_session(broker, connection, self.options)

    def open(self) -> None:
        """Bind and listen. Raises ConfigError if the address is not available."""
        host, port = self.listen
        try:
            family, kind, number, _, address = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            self.socket = socket.socket(family, kind, number)
            self.socket.setblocking(False)
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            keep_alive(self.socket)
            self.socket.bind(address)
            self.socket.listen(LISTEN_BACKLOG)
            self.bound = self.socket.getsockname()[:2]
        except OSError as error:
            self.close()
            place = address_text(self.listen)
            text = f"{self.name}: cannot listen on {place}: {error.strerror}"
            if error.errno == errno.EADDRINUSE:
                text += f"; --listen {self.name}=HOST:PORT names another address"
            raise ConfigError(text) from error

    def close(self) -> None:
        """Stop listening."""
        if self.socket is not None:
            self.socket.close()
            self.socket = None


def make_listeners(config: Config) -> list[Listener]:
    """Return a listener for every protocol that listens by default, and for every configured
    listener that is not off.

    Raises ConfigError, also for an adapter that cannot be imported.
    """
    names = sorted({*adapters.listening_by_default(), *config.listeners})
    configured = [config.listener(name) for name in names]
    return [_make_listener(settings, config) for settings in configured if settings.listen != OFF]


async def accept(listener: Listener, broker: Broker, nursery: trio.Nursery) -> None:
    """Accept connections of a framed listener until cancelled; each runs in `nursery`."""
    assert listener.socket is not None

    def start(sock: socket.socket) -> None:
        nursery.start_soon(serve_connection, listener, broker, sock)

    await accept_all(broker, listener.socket, listener.protocol, listener.name, start)


def keep_alive(listening: socket.socket) -> None:
    """Let the kernel probe idle connections: accepted sockets inherit the option, also in adapters
    with a server. Raises OSError.
    """
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_IDLE_S)
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_PROBE_S)
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_PROBES)


async def serve_connection(listener: Listener, broker: Broker, sock: socket.socket) -> None:
    """Serve an accepted and admitted connection to its end."""
    try:
        await _serve(listener, broker, sock)
    finally:
        broker.admission.leave(listener.protocol)


async def _serve(listener: Listener, broker: Broker, sock: socket.socket) -> None:
    if broker.stopping.is_set():
        sock.close()
        return
    try:
        peer = address_text(sock.getpeername())  # TLS takes the socket over.
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        secured = sock if listener.tls is None else await _encrypted(listener.tls, sock)
        stream: Stream = secured
        if isinstance(listener.adapter, adapters.Layering):
            stream = await _layered(listener.adapter, secured, listener.options)
        connection = Connection(broker, listener, stream, broker.next_connection_id())
        connection.act_for(*_first_principal(listener, broker, secured, connection.at))
    except HandshakeFailed as error:
        broker.seldom.warning(
            error.event,
            cause=f"{listener.name} {error}",
            listener=listener.name,
            peer=peer,
            reason=str(error),
        )
        return
    except NotAuthenticated:  # Logged where the error was raised.
        stream.close()
        return
    except LimitExceeded as error:
        broker.seldom.warning("connection_refused", cause=str(error), reason=str(error))
        stream.close()
        return
    except OSError:  # The client closed the connection already.
        sock.close()
        return
    except Exception:  # A bug ends this connection, and nothing else.
        log.exception("connection_failed", protocol=listener.protocol, peer=peer)
        sock.close()
        return
    broker.connections.add(connection)
    try:
        await connection.run()
    finally:
        broker.connections.discard(connection)


async def _encrypted(tls: TlsSettings, sock: socket.socket) -> TlsSocket:
    """Make the TLS handshake. Raises HandshakeFailed, OSError; the socket is closed then."""
    stream = TlsSocket(sock, tls.context)
    try:
        await stream.handshake()
    except BaseException:  # Also cancelled: no other code has the socket.
        stream.close()
        raise
    return stream


async def _layered(
    adapter: adapters.Layering, stream: socket.socket | TlsSocket, options: Options
) -> Stream:
    """Begin the adapter's layer. Raises HandshakeFailed, OSError; the socket is closed then."""
    try:
        return await adapter.open_stream(stream, options)
    except BaseException:  # Also cancelled: no other code has the socket.
        stream.close()
        raise


def _first_principal(
    listener: Listener, broker: Broker, stream: socket.socket | TlsSocket, at: str
) -> tuple[Principal, Identity | None]:
    """Return the principal of a connection before the login, and its proof: the certificate's name,
    otherwise the listener's principal. Raises NotAuthenticated.
    """
    if isinstance(stream, TlsSocket) and stream.certificate is not None:
        identity = broker.authentication.certificate(stream.certificate, at)
        return identity.principal, identity
    if listener.principal is not None:
        identity = broker.authentication.listener(listener.principal, at)
        return identity.principal, identity
    return ANONYMOUS, None


def _make_listener(configured: ListenerConfig, config: Config) -> Listener:
    at = f"listeners.{configured.name}"
    origin = config.origin(at)
    try:
        adapter = adapters.load(configured.protocol)
    except AdapterError as error:
        raise ConfigError(f"{origin}: {error}") from error
    address = (
        adapter.default_address if configured.listen is None else parse_address(configured.listen)
    )
    options = decode(configured.options, adapter.options_type, config.origins, at)
    loopback = is_loopback(address[0])
    if not loopback and not configured.insecure:
        _check_open_bind(f"{origin}: {at}: {address_text(address)}", at, configured, config)
    try:
        tls = _tls_settings(configured, adapter)
    except ValueError as error:
        place = f"{at}.tls"
        if isinstance(error, UnusableFile) and configured.tls is not None:
            place += f".{error.setting(configured.tls)}"
        raise ConfigError(f"{config.origin(place)}: {at}.tls: {error}") from None
    if isinstance(adapter, adapters.OptionsCheck):
        try:
            adapter.check(options, loopback=loopback)
        except ValueError as error:
            raise ConfigError(f"{origin}: {at}: {error}") from None
    if isinstance(adapter, adapters.Preparing):
        adapter.prepare()
    return Listener(
        name=configured.name,
        protocol=configured.protocol,
        adapter=adapter,
        options=options,
        listen=address,
        advertised=configured.advertised,
        tls=tls,
        principal=configured.principal,
    )


def _tls_settings(configured: ListenerConfig, adapter: Adapter) -> TlsSettings | None:
    """Return the TLS settings. Raises ValueError for unusable certificates."""
    if configured.tls is None:
        return None
    return TlsSettings(configured.tls, adapters.alpn_protocols(adapter))


def _check_open_bind(place: str, at: str, configured: ListenerConfig, config: Config) -> None:
    """Raise ConfigError if other machines could connect without a login or without TLS."""
    missing = [
        *([] if config.access.required else ["access.required = true"]),
        *([] if configured.tls is not None else [f"{at}.tls"]),
    ]
    if missing:
        raise ConfigError(
            f"{place} can be reached from other machines: that needs {' and '.join(missing)}, or"
            f" {at}.insecure = true, which says that this network is trusted (docs/security.md)"
        )
