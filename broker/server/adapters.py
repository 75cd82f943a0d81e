"""What a protocol adapter is, and how adapters are found. Names no concrete one: the entry points
do.

An adapter is a plug-in of the entry-point group `braidlog.protocols`, `NAME =
"package.module:ADAPTER"`. It serves framed streams (`FramedAdapter`: the connection driver owns the
bytes) or brings its own server (`ServingAdapter`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from importlib import metadata
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard

# Part of what an adapter is written against.
from broker.server.endings import EndConnection as EndConnection
from broker.server.endings import ProtocolError as ProtocolError

if TYPE_CHECKING:
    import socket

    import msgspec
    import trio

    from broker.broker import Broker
    from broker.server.connection import Connection
    from broker.server.tls import TlsSettings

ENTRY_POINT_GROUP = "braidlog.protocols"

Options = Any  # An instance of the adapter's `options_type`.


class AdapterError(Exception):
    """An adapter is missing or cannot be imported; the text is one line for the operator."""


class Session(Protocol):
    """One connection's handlers. Called by the driver only, one call at a time but for
    `on_deadline` and `goodbye`.
    """

    def frame_size(self, view: memoryview) -> int | None:
        """Whole length of the next frame, its length field included; None while its first bytes are
        missing.

        Raises ProtocolError for what can never become a frame, before anything is buffered for it.
        """

    def handle(self, frame: memoryview) -> Awaitable[None] | None:
        """Serve one whole frame; what is returned is awaited before the next frame. A plain
        function returns None and costs no coroutine.

        The view is valid until `turn_ended` is over, and writable.
        """

    def turn_ended(self) -> Awaitable[None] | None:
        """All whole frames of one receive have been handled; also called when one of them raised
        ProtocolError. May wait as `handle` may.
        """

    def on_deadline(self, now: float) -> float:
        """Keep time; `now` and the returned time of the next call are `trio.current_time()`
        seconds.

        Called first when the connection begins. May raise EndConnection.
        """

    def goodbye(self) -> None:
        """The broker is stopping: queue the protocol's word for it, if it has one. Nothing is read
        after this.
        """

    async def closed(self) -> None:
        """The connection is over, whatever the reason; its nursery is gone. Runs under a
        deadline.
        """


class RunSession(Session, Protocol):
    """A session may have this besides: many small frames of one kind cost less together."""

    def handle_run(self, received: memoryview, frames_max: int) -> tuple[int, int]:
        """Serve the frames at the front that go together, at most so many: (bytes, frames) served.

        (0, 0) leaves the next frame to `frame_size` and `handle`. The view is valid until
        `turn_ended` has returned, and writable. Raises as `handle`.
        """


class Adapter(Protocol):
    """What every adapter has."""

    name: str
    default_address: tuple[str, int]
    options_type: type[msgspec.Struct]  # frozen, forbid_unknown_fields, a default for every field

    def describe(self, host: str, port: int, options: Options) -> str:
        """One line to copy and paste: how a client of this protocol connects to that address.

        `options` is an `options_type`; nothing secret of it is told.
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
        """Serve listening, non-blocking sockets until `stopping` is set and what was begun is
        answered; encrypted if `tls` is given.

        The sockets are closed by the caller. `options` is an `options_type`.
        """


class Preparing(Protocol):
    """An adapter may have this besides."""

    def prepare(self) -> None:
        """Import what serving takes. Later there may be no descriptor left for it, while the
        kernel takes connections already.
        """


class OptionsCheck(Protocol):
    """An adapter may have this besides: rules between its options and the place where it
    listens.
    """

    def check(self, options: Options, *, loopback: bool) -> None:
        """Raises ValueError, with one line for the operator, for options that are not safe
        there.
        """


def takes_runs(session: Session) -> TypeGuard[RunSession]:
    """Whether the session takes many frames at once."""
    return hasattr(session, "handle_run")


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
    """Whether the adapter wants to import what serving takes before anything is opened."""
    return hasattr(adapter, "prepare")


def alpn_protocols(adapter: Adapter) -> Sequence[str]:
    """What a listener with TLS offers by ALPN: names that an adapter may have as
    `alpn_protocols`.
    """
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
