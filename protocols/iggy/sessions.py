"""Sessions of clients: their numbers, and in dialect W their lives without a connection.

A session of dialect W survives the loss of its connection for some time, and so do the memberships
in groups: another connection with the client's id and secret continues the session. Sessions are in
memory only: after a restart clients log in again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hmac import compare_digest
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from braidlog.broker.access.authentication import Identity

START_US: Final = 1_767_225_600_000_000  # 2026-01-01: the numbers suffice until 2060.
US_PER_MS: Final = 1000
NODE_BITS: Final = 3
# A client puts these bits behind a number, and the sum, a producer's id, has 63 bits.
PRODUCER_BITS: Final = 20
NUMBER_BITS: Final = 63 - PRODUCER_BITS
# Clients may choose any producer ids: ids above this are not followed.
AHEAD_MS_MAX: Final = 366 * 86_400_000
# Sessions without a connection; a session is a few hundred bytes, without its memberships.
LOST_SESSIONS_MAX: Final = 10_000
# Memberships of all these sessions, some 700 bytes each.
LOST_MEMBERSHIPS_MAX: Final = 50_000
# A connection to another broker counts as so many memberships: both brokers hold a socket.
LINK_MEMBERSHIPS: Final = 50


class SessionNumbers:
    """Numbers of new sessions: the time in ms, then the last bits of the broker's node id.

    Clients of dialect W derive the ids of their idempotent producers from the number of their
    session, so no two sessions have the same number, over restarts and in all brokers of a cluster.
    """

    def __init__(self) -> None:
        self._last_ms = 0
        self.has_begun = False

    def begin(self, producer_ids: Iterable[int], now_us: int) -> None:
        """Begin behind the sessions of all remembered producers: the clock may have been set back
        since. An id that is further ahead of the clock than `AHEAD_MS_MAX` stands for no session.
        """
        self.has_begun = True
        latest_ms = (now_us - START_US) // US_PER_MS + AHEAD_MS_MAX
        for producer_id in producer_ids:
            session_ms = producer_id >> PRODUCER_BITS >> NODE_BITS
            if self._last_ms < session_ms <= latest_ms:
                self._last_ms = session_ms

    def next(self, now_us: int, node_id: int) -> int:
        """Return a number that no other session has."""
        self._last_ms = max(self._last_ms + 1, (now_us - START_US) // US_PER_MS)
        number = self._last_ms << NODE_BITS | node_id % (1 << NODE_BITS)
        return number % (1 << NUMBER_BITS)


class SessionConnection(Protocol):
    """A connection that carries a session."""

    def end(self, reason: str) -> None:
        """End the connection."""


class ForwardedLinks(Protocol):
    """A client's connections to other brokers, where the client has memberships."""

    def close_unneeded(self) -> tuple[int, int]:
        """End the connections without memberships. Return the number of the other connections, and
        of their memberships.
        """

    def close(self) -> None:
        """End all connections."""


@dataclass(slots=True, eq=False)
class LogicalSession:
    """A session of dialect W.

    `member_id` is the client's number in groups and lists of clients. `user_id` counts from 0;
    `is_kept` as in `users.py`. `holder` is None, and `lost_until_s` set, without a connection.
    """

    client: bytes
    secret: bytes
    number: int
    member_id: int
    user_id: int
    identity: Identity
    is_kept: bool
    holder: SessionConnection | None = None
    lost_until_s: float | None = None
    lost_memberships: int = 0  # Counted while there is no connection.
    links: ForwardedLinks | None = None  # For the next connection.


class LogicalSessions:
    """The sessions of dialect W at a broker, by the ids that clients choose."""

    def __init__(
        self,
        clock_s: Callable[[], float],
        on_end: Callable[[LogicalSession], None],
        memberships: Callable[[LogicalSession], int] = lambda _: 0,
        lost_max: int = LOST_SESSIONS_MAX,
        lost_memberships_max: int = LOST_MEMBERSHIPS_MAX,
    ) -> None:
        """`clock_s` is a steady clock in seconds; `on_end` hears of each session that ends;
        `memberships` counts those of a session at this broker.
        """
        self._lost_max = lost_max
        self._lost_memberships_max = lost_memberships_max
        self._lost_memberships = 0  # Of all lost sessions.
        self._memberships = memberships
        self._clock_s = clock_s
        self._on_end = on_end
        self._sessions: dict[bytes, LogicalSession] = {}
        self._lost: dict[bytes, LogicalSession] = {}  # The longest lost first.
        self._next_due_s: float | None = None  # No lost session ends before.

    def find(self, client: bytes) -> LogicalSession | None:
        """Return the session of a client, if any."""
        self.end_due()
        return self._sessions.get(client)

    def proven(self, client: bytes, secret: bytes, number: int) -> LogicalSession | None:
        """Return the session of that client, secret and number (0: any), if there is any."""
        session = self.find(client)
        if session is None or not compare_digest(session.secret, secret):
            return None
        return session if number in (0, session.number) else None

    def add(self, session: LogicalSession) -> None:
        """Add a session, whose client has no other session."""
        assert session.client not in self._sessions, "the caller looks for an earlier session"
        self._sessions[session.client] = session

    def hold(self, session: LogicalSession, holder: SessionConnection) -> None:
        """Let a connection carry a session; a former connection ends."""
        former, session.holder, session.lost_until_s = session.holder, holder, None
        self._forget_lost(session)
        if former is not None and former is not holder:
            former.end("another connection continues the session")

    def lose(
        self,
        session: LogicalSession,
        holder: SessionConnection,
        kept_s: float,
        links: ForwardedLinks | None = None,
    ) -> None:
        """Note that a connection has ended. The session goes on without a connection for that long,
        unless another connection carries the session already.
        """
        has_ended = self._sessions.get(session.client) is not session
        if links is not None and (has_ended or session.links is not None):
            links.close()
        elif links is not None:
            session.links = links
        if has_ended or session.holder is not holder:
            return
        session.holder = None
        if not kept_s:
            self.end(session)
            return
        count = self._memberships(session)
        if session.links is not None:
            links_count, remote = session.links.close_unneeded()
            count += remote + links_count * LINK_MEMBERSHIPS
        while self._lost and (
            len(self._lost) >= self._lost_max
            or self._lost_memberships + count > self._lost_memberships_max
        ):
            self.end(next(iter(self._lost.values())))
        session.lost_memberships = count
        self._lost_memberships += count
        session.lost_until_s = due_s = self._clock_s() + kept_s
        self._lost[session.client] = session
        if self._next_due_s is None or due_s < self._next_due_s:
            self._next_due_s = due_s

    def end(self, session: LogicalSession) -> None:
        """End a session, for example at a logout; no effect on a session that has ended."""
        if self._sessions.get(session.client) is not session:
            return
        del self._sessions[session.client]
        self._forget_lost(session)
        if session.links is not None:
            session.links.close()
            session.links = None
        self._on_end(session)

    def _forget_lost(self, session: LogicalSession) -> None:
        if self._lost.pop(session.client, None) is not None:
            self._lost_memberships -= session.lost_memberships

    def end_due(self) -> None:
        """End the sessions that have been without a connection for too long."""
        if self._next_due_s is None or self._clock_s() < self._next_due_s:
            return
        now_s, self._next_due_s = self._clock_s(), None
        for session in [*self._lost.values()]:
            due_s = session.lost_until_s
            if due_s is not None and due_s <= now_s:
                self.end(session)
            elif due_s is not None and (self._next_due_s is None or due_s < self._next_due_s):
                self._next_due_s = due_s
