"""What a protocol adapter is, and how adapters are found. Names no concrete one: the entry points
do.

An adapter is a plug-in of the entry-point group `braidlog.protocols`, `NAME =
"package.module:ADAPTER"`. It serves framed streams (`FramedAdapter`: the connection driver owns the
bytes) or brings its own server (`ServingAdapter`).
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import metadata
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard

# Part of the interface for adapters.
from braidlog.broker.server.endings import EndConnection as EndConnection
from braidlog.broker.server.endings import ProtocolError as ProtocolError
from braidlog.broker.server.sessions import RunSession as RunSession
from braidlog.broker.server.sessions import Session as Session

if TYPE_CHECKING:
    import socket

    import msgspec
    import trio

    from braidlog.broker.broker import Broker
    from braidlog.broker.server.connection import Connection
    from braidlog.broker.server.tls import TlsSettings

ENTRY_POINT_GROUP = "braidlog.protocols"

Options = Any  # An instance of the adapter's `options_type`.


class AdapterError(Exception):
    """An adapter is missing or cannot be imported; the text is one line for the operator."""


class Adapter(Protocol):
    """What every adapter has."""

    name: str
    default_address: tuple[str, int]
    options_type: type[msgspec.Struct]  # frozen, forbid_unknown_fields, a default for every field

    def describe(self, host: str, port: int, options: Options) -> str:
        """One line to copy and paste: how a client of this protocol connects to that address.

        `options` is an `options_type`; the line shows none of its secrets.
        """


class FramedAdapter(Adapter, Protocol):
    """Serves framed streams through the generic connection driver."""

    def open_session(self, broker: Broker, connection: Connection, options: Options) -> Session:
        """Handlers for a connection that has just come in; `options` is an `options_type`."""


class ServingAdapter(Adapter, Protocol):
    """Brings its own server."""

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


class Preparing(Protocol):
    """Optional in an adapter."""

    def prepare(self) -> None:
        """Import what serving needs. Later the kernel accepts connections already, and there may be
        no file descriptor left for imports.
        """


class Relaying(Protocol):
    """Optional in an adapter: it serves clients that another broker passes on."""

    def open_relayed(self, broker: Broker, connection: Connection, options: Options) -> Session:
        """Handlers for a connection on which another broker relays what one client sends it."""


class RelayServing(Protocol):
    """Optional in an adapter with a server of its own."""

    async def serve_relayed(self, broker: Broker, stream: trio.SocketStream) -> None:
        """Serve a connection that another broker has made for its clients, to its end."""


class Starting(Protocol):
    """Optional in an adapter."""

    async def start(self, broker: Broker, options: Options, *, loopback: bool) -> None:
        """Do what must be done before the first client can connect. Raises OSError, StorageFull,
        StorageFailed.
        """


class OptionsCheck(Protocol):
    """Optional in an adapter: rules for which options are allowed at which address."""

    def check(self, options: Options, *, loopback: bool) -> None:
        """Raises ValueError, with one line for the operator, for options that are not safe
        there.
        """


def is_framed(adapter: Adapter) -> TypeGuard[FramedAdapter]:
    """Whether the connection driver serves this adapter's sockets."""
    return hasattr(adapter, "open_session")


def is_serving(adapter: Adapter) -> TypeGuard[ServingAdapter]:
    """Whether the adapter brings its own server."""
    return hasattr(adapter, "serve")


def has_check(adapter: object) -> TypeGuard[OptionsCheck]:
    """Whether the adapter has rules of its own for its options."""
    return hasattr(adapter, "check")


def has_prepare(adapter: object) -> TypeGuard[Preparing]:
    """Whether the adapter imports what serving needs before anything is opened."""
    return hasattr(adapter, "prepare")


def takes_relayed(adapter: object) -> TypeGuard[Relaying]:
    """Whether the adapter serves clients that another broker passes on."""
    return hasattr(adapter, "open_relayed")


def serves_relayed(adapter: object) -> TypeGuard[RelayServing]:
    """Whether the adapter's own server takes connections of other brokers."""
    return hasattr(adapter, "serve_relayed")


def has_start(adapter: object) -> TypeGuard[Starting]:
    """Whether the adapter has something to do before its listener is opened."""
    return hasattr(adapter, "start")


def alpn_protocols(adapter: Adapter) -> Sequence[str]:
    """The names that a listener with TLS offers by ALPN: the adapter's `alpn_protocols`, if any."""
    return getattr(adapter, "alpn_protocols", ())


def discover() -> dict[str, metadata.EntryPoint]:
    """Every installed adapter by name, not yet imported."""
    found = metadata.entry_points(group=ENTRY_POINT_GROUP)
    return {point.name: point for point in sorted(found, key=lambda point: point.name)}


def load(name: str) -> Adapter:
    """Import the adapter of that name. Raises AdapterError if there is none or it cannot be
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
