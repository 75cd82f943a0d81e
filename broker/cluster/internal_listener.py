"""The port for other brokers: calls, and connections that they forward to a local listener."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING

import structlog
import trio

from braidlog.broker.cluster.answers import PeerCallHandler
from braidlog.broker.cluster.cluster_peers import INTERNAL
from braidlog.broker.cluster.links import LinkLost, listening, welcome
from braidlog.broker.config.settings import ConfigError, is_loopback, parse_address
from braidlog.broker.server.adapters import Forwarding, ForwardServing
from braidlog.broker.server.connection import Connection, address_text
from braidlog.broker.server.listener import Listener

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.broker.cluster_parts import ClusterParts
    from braidlog.broker.runtime.sessions import Session


log = structlog.get_logger()


class InternalListener:
    """The internal port of a broker."""

    def __init__(self, broker: Broker, parts: ClusterParts) -> None:
        """Bind and listen. Raises ConfigError."""
        self._broker = broker
        self._parts = parts
        config = broker.config.cluster
        place = parse_address(config.listen)
        try:
            self._listener = listening(place)
        except OSError as error:
            text = f"cluster.listen: cannot listen on {config.listen}: {error.strerror}"
            raise ConfigError(text) from error
        self._bound: tuple[str, int] = self._listener.socket.getsockname()[:2]
        self._answers = PeerCallHandler(broker, parts)

    def addresses(self, listeners: Sequence[Listener]) -> dict[str, str]:
        """Return the addresses for other brokers and their clients, by name of the listener."""
        local = socket.gethostname()
        listed = {
            listener.name: address_text(listener.advertised_to((local, listener.bound[1])))
            for listener in listeners
        }
        advertised = self._broker.config.cluster.advertised
        host, port = self._bound
        if not is_loopback(host) and host in ("0.0.0.0", "::"):
            host = local
        return listed | {INTERNAL: advertised or address_text((host, port))}

    async def run(self) -> None:
        """Serve until cancelled."""
        await trio.serve_listeners(self._serve, [self._listener])

    async def _serve(self, stream: trio.SocketStream) -> None:
        try:
            hello = await welcome(stream, self._parts.secret)
            if hello.cluster != self._parts.shared.session.cluster.cluster_id:
                raise LinkLost("it is of another cluster")
            if hello.kind == "relay":
                await self._forward(stream, hello.listener)
            else:
                await self._answers.serve(stream, hello.session)
        except* LinkLost as group:
            reason = str(group.exceptions[0])
            self._broker.seldom.info("link_ended", cause=reason, reason=reason)
        except* (OSError, trio.BrokenResourceError, trio.ClosedResourceError) as group:
            log.debug("peer_gone", reason=str(group.exceptions[0]))
        except* Exception:  # A bug, or a broker of another version, ends only this connection.
            log.exception("call_failed")
        finally:
            await trio.aclose_forcefully(stream)

    async def _forward(self, stream: trio.SocketStream, name: str) -> None:
        """Serve a forwarded client as if the client had connected here. Raises LinkLost."""
        listener = self._broker.listeners.get(name)
        if isinstance(listener, Listener) and isinstance(listener.adapter, ForwardServing):
            await listener.adapter.serve_forwarded(self._broker, stream)
            return
        if not isinstance(listener, Listener) or not isinstance(listener.adapter, Forwarding):
            raise LinkLost(f"there is no listener {name} for forwarded clients")
        sock = stream.socket
        own = socket.fromfd(sock.fileno(), sock.family, sock.type)
        own.setblocking(False)
        own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        broker = self._broker
        served = _Forwarded(listener, listener.adapter)
        try:
            connection = Connection(broker, served, own, broker.next_connection_id())
        except OSError:  # The other broker closed the connection meanwhile.
            own.close()
            raise
        broker.connections.add(connection)
        try:
            await connection.run()
        finally:
            broker.connections.discard(connection)


class _Forwarded:
    """A listener for clients that connect through another broker."""

    def __init__(self, listener: Listener, adapter: Forwarding) -> None:
        self.name = listener.name
        self.protocol = listener.protocol
        self.loopback = listener.loopback
        self._listener = listener
        self._adapter = adapter

    def advertised_to(self, local: tuple[str, int]) -> tuple[str, int]:
        """As the listener."""
        return self._listener.advertised_to(local)

    def open_session(self, broker: Broker, connection: Connection) -> Session:
        return self._adapter.open_forwarded(broker, connection, self._listener.options)
