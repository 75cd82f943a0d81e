"""Sessions of clients: begun, continued by reconnecting clients, expired. Knows no byte.

A session outlives its connection, and a restart of the broker: its time starts again then.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from braidlog.broker.coordination.nodes import SessionMade

if TYPE_CHECKING:
    from braidlog.broker.coordination.nodes import Nodes

TICKS_LEAST, TICKS_MOST = 2, 20  # minSessionTimeout and maxSessionTimeout of ZooKeeper, in ticks
# A check this late means that the broker itself stood still, not its clients.
LATE_S: Final = 1.0
PASSWORD_BYTES: Final = 16
SESSION_IDS: Final = (1 << 63) - 1


class SessionHolder(Protocol):
    """The connection of a session."""

    peer: str

    def end(self, reason: str) -> None:
        """End the connection."""


@dataclass(slots=True)
class LiveSession:
    """A session, and the time when it expires unless the client is heard."""

    session_id: int
    password: bytes
    timeout_s: float
    expires_at: float
    holder: SessionHolder | None = None
    is_served: bool = False  # The broker works on a request: later requests are not read yet.

    def heard(self, now: float) -> None:
        """Note that the client was heard."""
        self.expires_at = now + self.timeout_s


class LiveSessions:
    """All sessions. The stored sessions and these are always the same."""

    def __init__(self, nodes: Nodes, tick_ms: int, clock_s: Callable[[], float]) -> None:
        """Begin with the stored sessions; each has its whole timeout from now on."""
        self._nodes = nodes
        self._tick_ms = tick_ms
        self._clock_s = clock_s
        now = clock_s()
        self.live = {number: _live(stored, now) for number, stored in nodes.sessions.items()}

    def begin(self, timeout_ms: int, holder: SessionHolder) -> LiveSession:
        """Begin a session for a connection. Raises LimitExceeded, StorageFull, StorageFailed."""
        session_id = 0
        while not session_id or session_id in self.live:
            session_id = secrets.randbelow(SESSION_IDS)
        password = secrets.token_bytes(PASSWORD_BYTES)
        return self._store(session_id, password, timeout_ms, holder)

    def resume(
        self, session_id: int, password: bytes, timeout_ms: int, holder: SessionHolder
    ) -> LiveSession | None:
        """Continue a session on another connection; None if it has expired or the password is
        wrong. Raises StorageFull, StorageFailed.
        """
        session = self.live.get(session_id)
        if session is None or not hmac.compare_digest(session.password, password):
            return None
        if session.holder is not None and session.holder is not holder:
            session.holder.end("the session moved to another connection")
        return self._store(session_id, session.password, timeout_ms, holder)

    def _store(
        self, session_id: int, password: bytes, timeout_ms: int, holder: SessionHolder
    ) -> LiveSession:
        timeout_ms = min(max(timeout_ms, TICKS_LEAST * self._tick_ms), TICKS_MOST * self._tick_ms)
        stored = SessionMade(session_id, password, timeout_ms)
        if self._nodes.sessions.get(session_id) != stored:
            self._nodes.begin_session(stored)
        live = _live(stored, self._clock_s())
        live.holder = holder
        self.live[session_id] = live
        return live

    def left(self, session: LiveSession, holder: SessionHolder) -> None:
        """Note the end of a connection; its session waits for the client to reconnect."""
        if session.holder is holder:
            session.holder = None

    def end(self, session_id: int) -> None:
        """Remove a session; the caller deletes its nodes. Raises StorageFull, StorageFailed."""
        self._nodes.end_session(session_id)
        del self.live[session_id]

    def expired(self, due: float) -> list[LiveSession]:
        """Return the sessions that have expired; `due` is the planned time of this check. A client
        that waits for the broker is silent without its fault.
        """
        now = self._clock_s()
        if now - due > LATE_S:
            for session in self.live.values():
                session.expires_at += now - due
        for session in self.live.values():
            if session.is_served and session.holder is not None:
                session.heard(now)
        return [session for session in self.live.values() if session.expires_at <= now]

    def is_expired(self, session: LiveSession) -> bool:
        """Return True unless a client was heard, or has continued the session, since `expired`."""
        is_latest = self.live.get(session.session_id) is session
        return is_latest and session.expires_at <= self._clock_s()


def _live(stored: SessionMade, now: float) -> LiveSession:
    timeout_s = stored.timeout_ms / 1000
    return LiveSession(stored.session_id, stored.password, timeout_s, now + timeout_s)
