"""The interface between the connection driver and sessions, the handlers of a connection. Knows no
protocol, no broker and no socket.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Protocol, TypeGuard


class Session(Protocol):
    """The handlers of a connection. Called by the driver only, with a single call at a time except
    for `on_deadline` and `goodbye`.
    """

    def frame_size(self, view: memoryview) -> int | None:
        """Return the whole length of the next frame, the length field included; None while its
        first bytes are missing.

        Raises ProtocolError for bytes that can never become a frame, before anything is buffered.
        """

    def handle(self, frame: memoryview) -> Coroutine[Any, Any, None] | None:
        """Serve a whole frame. Return None if the frame is served. A returned coroutine is awaited
        in the connection's task before the next frame: return a coroutine only if something may
        really wait.

        The view is valid until the end of `turn_ended`, and writable.
        """

    def turn_ended(self) -> Coroutine[Any, Any, None] | None:
        """End a turn: all whole frames of a receive have been handled. Also called when a frame
        raised ProtocolError. May wait as `handle` may.
        """

    def on_deadline(self, now: float) -> float:
        """Keep time; `now` and the returned time of the next call are `trio.current_time()`
        seconds.

        Called first when the connection begins. May raise EndConnection.
        """

    def goodbye(self) -> None:
        """Queue the protocol's message for a stopping broker, if the protocol has such a message.
        Nothing is read after this.
        """

    async def closed(self) -> None:
        """Clean up after the end of the connection, whatever the reason; the nursery is gone. Runs
        under a deadline.
        """


class RunSession(Session, Protocol):
    """Optional in a session: many small frames of a kind cost less together."""

    def handle_run(self, received: memoryview, frames_max: int) -> tuple[int, int]:
        """Serve the first frames together if possible, at most `frames_max`; return (bytes, frames)
        served.

        (0, 0) leaves the next frame to `frame_size` and `handle`. The view is valid until
        `turn_ended` has returned, and writable. Raises as `handle`.
        """


class HoldingSession(Session, Protocol):
    """Needed in a session if the client holds resources that were allowed when opened and are not
    checked with each command.
    """

    def access_changed(self) -> None:
        """End resources that the client may no longer have: users or permissions were changed."""


def holds_rights(session: Session) -> TypeGuard[HoldingSession]:
    """Return True if the session must be told of changed permissions."""
    return hasattr(session, "access_changed")


def takes_runs(session: Session) -> TypeGuard[RunSession]:
    """Return True if the session takes many frames at once."""
    return hasattr(session, "handle_run")
