"""Open listeners and connections as the broker sees them.

Knows no adapter.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from braidlog.broker.access.rights import Principal
    from braidlog.broker.runtime.outbox import Outbox
    from braidlog.broker.server.tls import TlsSettings
    from braidlog.broker.server.written_topics import WrittenTopics


class ListedConnection(Protocol):
    """The part of an open connection that lists of connections show."""

    id: int
    protocol: str
    listener_name: str
    peer: str
    is_encrypted: bool
    principal: Principal
    written_topics: WrittenTopics

    @property
    def library(self) -> str:
        """The client's library and version, as the client names them; "" if unknown."""

    def traffic(self) -> tuple[int, int]:
        """Return the bytes received and the bytes that the peer has acknowledged."""

    @property
    def heard_at(self) -> float:
        """Time of the last bytes received, in trio's seconds."""

    @property
    def is_open(self) -> bool:
        """True if nothing has ended the connection yet."""


class OpenConnection(ListedConnection, Protocol):
    """The part of an open connection that the broker uses."""

    outbox: Outbox

    @property
    def is_at_rest(self) -> bool:
        """True if nothing can stall: the next frame has not begun, and all output was sent."""

    @property
    def held_bytes(self) -> int:
        """Memory of received bytes that are not handled."""

    def stalled_s(self, now: float) -> float:
        """Return the seconds for which almost no bytes of an unfinished frame have arrived."""

    def notice_gone(self) -> bool:
        """Check whether the client has gone while a handler works on its answer."""

    def access_changed(self) -> None:
        """End resources that the client may no longer have: users or permissions were changed."""

    def end(self, reason: str) -> None:
        """End the connection; earlier answers are sent."""

    def cut_off(self, reason: str) -> None:
        """End the connection at once."""

    def drain(self) -> None:
        """Tell the client that the broker is stopping, read nothing more, finish begun requests."""


class OpenListener(Protocol):
    """A listener that accepts connections."""

    name: str
    protocol: str
    listen: tuple[str, int]  # Configured host and port.
    options: Any  # An instance of the adapter's `options_type`.
    bound: tuple[str, int]  # Host and port of the listening socket.
    tls: TlsSettings | None

    def advertised_to(self, local: tuple[str, int]) -> tuple[str, int]:
        """Return the address to which clients that connected to `local` should connect."""


def listener_of(
    listeners: Iterable[OpenListener], protocol: str, *, is_encrypted: bool
) -> OpenListener | None:
    """Return the first listener of a protocol with TLS, or without; None if there is none."""
    of_kind = (
        listener
        for listener in listeners
        if listener.protocol == protocol and (listener.tls is not None) == is_encrypted
    )
    return next(of_kind, None)
