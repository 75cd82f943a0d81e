"""Interfaces of protocol adapters, and their discovery. Names no concrete adapter: the entry points
do.

An adapter is a plug-in of the entry-point group `braidlog.protocols`, `NAME =
"package.module:ADAPTER"`. An adapter serves framed streams (`FramedAdapter`: the connection driver
owns the bytes) or brings a server (`ServingAdapter`).
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import metadata
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard, runtime_checkable

# Part of the interface for adapters.
from braidlog.broker.runtime.endings import EndConnection as EndConnection
from braidlog.broker.runtime.endings import ProtocolError as ProtocolError
from braidlog.broker.runtime.sessions import RunSession as RunSession
from braidlog.broker.runtime.sessions import Session as Session

if TYPE_CHECKING:
    import socket

    import msgspec
    import trio

    from braidlog.broker.broker import Broker
    from braidlog.broker.runtime.streams import LayeredSocket
    from braidlog.broker.runtime.tls_socket import TlsSocket
    from braidlog.broker.server.connection import Connection
    from braidlog.broker.server.tls import TlsSettings

ENTRY_POINT_GROUP = "braidlog.protocols"
# Adapters that listen only if the settings name their listener.
OPTIONAL_GROUP = "braidlog.optional_protocols"

Options = Any  # An instance of the adapter's `options_type`.


class AdapterError(Exception):
    """An adapter is missing or cannot be imported; the text is a line for the operator."""


class Adapter(Protocol):
    """The part that all adapters share."""

    name: str
    default_address: tuple[str, int]
    options_type: type[msgspec.Struct]  # frozen, forbid_unknown_fields, a default for every field

    def describe(self, host: str, port: int, options: Options) -> str:
        """Return a line to copy and paste: the way a client of this protocol connects to the
        address.

        `options` is an `options_type`; the line shows no secrets of the options.
        """


class FramedAdapter(Adapter, Protocol):
    """Serves framed streams through the generic connection driver."""

    def open_session(self, broker: Broker, connection: Connection, options: Options) -> Session:
        """Return the handlers for a new connection; `options` is an `options_type`."""


class ServingAdapter(Adapter, Protocol):
    """Brings a server."""

    async def serve(
        self,
        broker: Broker,
        sockets: Sequence[socket.socket],
        options: Options,
        stopping: trio.Event,
        *,
        tls: TlsSettings | None = None,
    ) -> None:
        """Serve listening, non-blocking sockets, encrypted if `tls` is given, until `stopping` is
        set and requests in progress are answered.

        The sockets are closed by the caller. `options` is an `options_type`.
        """


@runtime_checkable
class Preparing(Protocol):
    """Optional in an adapter: imports modules before the listener opens."""

    def prepare(self) -> None:
        """Import the modules that serving needs. Later the kernel accepts connections already, and
        there may be no file descriptor left for imports.
        """


@runtime_checkable
class Layering(Protocol):
    """Optional in a framed adapter: the frames travel inside another protocol."""

    async def open_stream(
        self, stream: socket.socket | TlsSocket, options: Options
    ) -> LayeredSocket:
        """Do the handshake of that protocol on a new connection, and return the stream of frames.

        Raises HandshakeFailed, OSError.
        """


@runtime_checkable
class Forwarding(Protocol):
    """Optional in an adapter: serves clients that another broker forwards."""

    def open_forwarded(self, broker: Broker, connection: Connection, options: Options) -> Session:
        """Return the handlers for a connection on which another broker forwards the frames of a
        client.
        """


@runtime_checkable
class ForwardServing(Protocol):
    """Optional in an adapter with a server: takes connections of other brokers."""

    async def serve_forwarded(self, broker: Broker, stream: trio.SocketStream) -> None:
        """Serve a connection of another broker's clients, to the end of the connection."""


@runtime_checkable
class Starting(Protocol):
    """Optional in an adapter: prepares before its listener opens."""

    async def start(self, broker: Broker, options: Options, *, loopback: bool) -> None:
        """Prepare for the first client before the listener opens. Raises OSError, StorageFull,
        StorageFailed.
        """


@runtime_checkable
class Working(Protocol):
    """Optional in an adapter: work by the clock."""

    async def work(self, broker: Broker, options: Options) -> None:
        """Work while the listener is open, until cancelled."""


@runtime_checkable
class OptionsCheck(Protocol):
    """Optional in an adapter: rules for the options that are allowed at an address."""

    def check(self, options: Options, *, loopback: bool) -> None:
        """Raise ValueError, with a line for the operator, for options that are unsafe at the
        address.
        """


def is_framed(adapter: Adapter) -> TypeGuard[FramedAdapter]:
    """Return True if the connection driver serves this adapter's sockets."""
    return hasattr(adapter, "open_session")


def is_serving(adapter: Adapter) -> TypeGuard[ServingAdapter]:
    """Return True if the adapter brings a server."""
    return hasattr(adapter, "serve")


def alpn_protocols(adapter: Adapter) -> Sequence[str]:
    """Return the names that a listener with TLS offers by ALPN: the adapter's `alpn_protocols`, if
    any.
    """
    return getattr(adapter, "alpn_protocols", ())


def discover() -> dict[str, metadata.EntryPoint]:
    """Return every installed adapter by name, not yet imported."""
    entry_points = [*metadata.entry_points(group=ENTRY_POINT_GROUP)]
    entry_points += metadata.entry_points(group=OPTIONAL_GROUP)
    return {point.name: point for point in sorted(entry_points, key=lambda point: point.name)}


def listening_by_default() -> list[str]:
    """Return the names of the installed adapters that listen without any settings."""
    return [point.name for point in metadata.entry_points(group=ENTRY_POINT_GROUP)]


def load(name: str) -> Adapter:
    """Import the adapter of that name. Raises AdapterError if the adapter is missing or cannot be
    imported.
    """
    points = discover()
    if name not in points:
        known = ", ".join(points) or "none"
        raise AdapterError(f"no protocol named {name!r} is installed (there are: {known})")
    try:
        adapter: Adapter = points[name].load()
    except (ImportError, AttributeError) as error:
        raise AdapterError(
            f"protocol {name!r} ({points[name].value}) failed to load: {error}"
        ) from error
    if not (is_framed(adapter) or is_serving(adapter)):
        raise AdapterError(
            f"protocol {name!r} ({points[name].value}) has neither open_session nor serve"
        )
    return adapter
