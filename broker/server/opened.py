"""What a broker knows of open listeners and connections: only what it asks of them.

Knows no adapter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from braidlog.broker.runtime.outbox import Outbox
    from braidlog.broker.server.tls import TlsSettings


class OpenConnection(Protocol):
    """What the broker asks of a connection while it serves its client."""

    outbox: Outbox

    @property
    def is_open(self) -> bool:
        """Whether nothing has ended it yet."""

    @property
    def held_bytes(self) -> int:
        """Memory for what it has received and not handled."""

    def stalled_s(self, now: float) -> float:
        """For how long next to nothing has come in of a frame that has begun."""

    def notice_gone(self) -> bool:
        """Look whether the client has gone while a handler works on its answer."""

    def access_changed(self) -> None:
        """Users or permissions were changed."""

    def end(self, reason: str) -> None:
        """End it; answers given before are still sent."""

    def cut_off(self, reason: str) -> None:
        """End it at once."""

    def drain(self) -> None:
        """The broker is stopping: tell the client, read nothing more, finish what was begun."""


class OpenListener(Protocol):
    """A listener that accepts connections."""

    name: str
    protocol: str
    bound: tuple[str, int]  # Host and port where it listens.
    tls: TlsSettings | None

    def advertised_to(self, local: tuple[str, int]) -> tuple[str, int]:
        """Where clients that came in at `local` are told to connect."""
