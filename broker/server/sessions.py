"""What the connection driver asks of a session: the handlers of one connection. Knows no protocol,
no broker and no socket.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Protocol, TypeGuard


class Session(Protocol):
    """One connection's handlers. Called by the driver only, one call at a time except for
    `on_deadline` and `goodbye`.
    """

    def frame_size(self, view: memoryview) -> int | None:
        """Whole length of the next frame, its length field included; None while its first bytes are
        missing.

        Raises ProtocolError for what can never become a frame, before anything is buffered for it.
        """

    def handle(self, frame: memoryview) -> Coroutine[Any, Any, None] | None:
        """Serve one whole frame. None: it is served. A coroutine is awaited in the connection's
        own task before the next frame: return one only if something may really wait.

        The view is valid until `turn_ended` is over, and writable.
        """

    def turn_ended(self) -> Coroutine[Any, Any, None] | None:
        """All whole frames of one receive have been handled; also called when one of them raised
        ProtocolError. May wait as `handle` may.
        """

    def on_deadline(self, now: float) -> float:
        """Keep time; `now` and the returned time of the next call are `trio.current_time()`
        seconds.

        Called first when the connection begins. May raise EndConnection.
        """

    def goodbye(self) -> None:
        """The broker is stopping: queue the protocol's message for that, if it has one. Nothing is
        read after this.
        """

    async def closed(self) -> None:
        """The connection is over, whatever the reason; its nursery is gone. Runs under a
        deadline.
        """


class RunSession(Session, Protocol):
    """Optional in a session: many small frames of one kind cost less together."""

    def handle_run(self, received: memoryview, frames_max: int) -> tuple[int, int]:
        """Serve the first frames together if they can be, at most `frames_max`; returns (bytes,
        frames) served.

        (0, 0) leaves the next frame to `frame_size` and `handle`. The view is valid until
        `turn_ended` has returned, and writable. Raises as `handle`.
        """


class HoldingSession(Session, Protocol):
    """Needed in a session whose client holds something that was allowed when it was opened and is
    not checked with each command.
    """

    def access_changed(self) -> None:
        """Users or permissions were changed: end what the client may no longer have."""


def holds_rights(session: Session) -> TypeGuard[HoldingSession]:
    """Whether the session must be told of changed permissions."""
    return hasattr(session, "access_changed")


def takes_runs(session: Session) -> TypeGuard[RunSession]:
    """Whether the session takes many frames at once."""
    return hasattr(session, "handle_run")
