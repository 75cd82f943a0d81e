"""A run of a broker in the cluster: the session joins, gives signs of life, and owns shards.

`broker/cluster/membership.py` assigns shards to brokers. The ledger's clock decides only when a
silent session ends; the ledger itself ensures that no later statement of that session counts. Uses
plain threads: beats must not wait for anything else.
"""

import secrets
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from time import monotonic

from braidlog.storage.errors import StorageFailed, StoreUnanswered
from braidlog.storage.shared.layout import (
    CLUSTER_NAME,
    KIND_ROUND,
    ObjectHeader,
    pack_footer,
    pack_header,
    round_name,
)
from braidlog.storage.shared.ledger import (
    FORMAT,
    Cluster,
    Fenced,
    Ledger,
    LedgerRefused,
    LedgerUnanswered,
    LedgerWentBack,
    Owned,
    SessionRow,
    SessionState,
    ShardRow,
)
from braidlog.storage.shared.object_store import ObjectMissing, ObjectStore
from braidlog.storage.shared.proofs import Mark, Marker, check_not_older, marks_of, takes_of
from braidlog.storage.shared.publisher import Patience, SessionIdentity, put_surely
from braidlog.storage.shared.takeover import surely

# Between two checks that the object store answers.
STORE_LOOK_S = 10.0
# Between two marks of a session that publishes: a database dump older than this is noticed.
MARK_S = 1.0


@dataclass(slots=True, frozen=True)
class ClusterView:
    """The cluster at a look: sessions, and shards by number."""

    sessions: Sequence[SessionRow]
    shards: Sequence[ShardRow]

    @property
    def live(self) -> dict[int, SessionRow]:
        """The live sessions by their number."""
        return {row.session: row for row in self.sessions if row.state is SessionState.LIVE}


@dataclass(slots=True, frozen=True)
class SessionSettings:
    """Times in milliseconds; see `[cluster]` in docs/cluster.md."""

    node: int
    lease_ms: int = 5_000
    beat_ms: int = 1_000
    serve_without_beat_ms: int = 30_000


class ClusterSession:
    """This broker's session. `epochs` are its shards."""

    def __init__(
        self, ledger: Ledger, objects: ObjectStore, cluster: Cluster, settings: SessionSettings
    ) -> None:
        self.ledger = ledger
        self.objects = objects
        self.cluster = cluster
        self.settings = settings
        self.identity = SessionIdentity(0, secrets.randbits(64))
        self.epochs: dict[int, int] = {}
        self.ended: StorageFailed | None = None
        self.fenced_others = 0
        self._published: Callable[[], int] = lambda: 0
        self._takes = 0  # Takes of shards, by all sessions, when this session took its last shard.
        self._marker = Marker(objects)
        self._marks_due: list[Mark] = []  # Of sessions that this session has fenced.
        self._marking = threading.Lock()
        self._on_end: list[Callable[[StorageFailed], None]] = []
        self._answered_s = monotonic()  # The time of the last answer to a beat,
        # and of the first in an unbroken run of answers.
        self._answered_since_s: float | None = None
        self._store_answered = False  # Since the last beat.
        self._ahead_since_s: dict[int, float] = {}  # Sessions with a last beat in the future.
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._beats, name="braidlog-beat", daemon=True),
            threading.Thread(target=self._looks, name="braidlog-look", daemon=True),
        ]

    @property
    def number(self) -> int:
        """The session's number."""
        return self.identity.session

    @property
    def beat_age_s(self) -> float:
        """Seconds since the last answer to a beat."""
        return monotonic() - self._answered_s

    @property
    def patience(self) -> Patience:
        """Retry rules for work of this session."""
        return Patience(self.pause)

    def pause(self, seconds: float) -> None:
        """Wait before another try. Raises the error that ended the session."""
        self._stop.wait(seconds)
        if self.ended is not None:
            raise self.ended

    def begin(self, listeners: dict[str, str], patience: Patience) -> None:
        """Join and end an older session of this node; then show that the store is writable.

        Raises the error that `patience` raises without an answer; LedgerRefused; LedgerWentBack and
        ObjectForged, if the ledger is older than the objects. Then the ledger is unchanged: another
        session would make the ledger look newer.
        """
        ledger, objects, node = self.ledger, self.objects, self.settings.node
        surely(lambda: check_not_older(ledger, objects), patience)
        self._upgrade(patience)
        rows = surely(ledger.sessions, patience)
        over = {row.session for row in rows if row.state is not SessionState.LIVE}
        # A try without an answer may have begun a session: the next try ends that session.
        number = surely(lambda: ledger.join(node, listeners), patience)
        try:
            self.identity = SessionIdentity(number, self.identity.nonce)
            self._takes = takes_of(surely(ledger.shards, patience))
            header = pack_header(ObjectHeader(KIND_ROUND, number, 0, self.identity.nonce))
            probe = header + pack_footer(header, [])
            put_surely(objects, round_name(number, 0, 0), probe, patience)
        except BaseException:  # Also on cancellation: others need not wait for the lease.
            with suppress(LedgerUnanswered, LedgerRefused):  # The lease runs out by itself.
                ledger.leave(number)
            raise
        with suppress(StoreUnanswered):  # Tried again each second.
            self.mark()
            self._drop_marks(over)
        self._answered_s = self._answered_since_s = monotonic()
        for thread in self._threads:
            thread.start()

    def _upgrade(self, patience: Patience) -> None:
        """Raise the format of a cluster that earlier programs use: they refuse it from then on.
        Raises LedgerRefused while such a program runs.
        """
        if self.cluster.format == FORMAT:
            return
        node, lease_ms = self.settings.node, self.settings.lease_ms
        if not surely(lambda: self.ledger.upgrade(node, lease_ms), patience):
            raise LedgerRefused(
                "brokers of an earlier version are running in this cluster: stop all of them, then"
                " start this one"
            )
        self.cluster = replace(self.cluster, format=FORMAT)

    def _drop_marks(self, over: Collection[int]) -> None:
        """Remove marks of sessions that ended before this session joined; its own mark
        proves more.
        """
        for mark in marks_of(self.objects):
            if mark.session in over:
                self.objects.delete(mark.name)

    def on_end(self, call: Callable[[StorageFailed], None]) -> None:
        """Call this, in any thread, when the session ends other than by `leave`."""
        self._on_end.append(call)
        if self.ended is not None:
            call(self.ended)

    def end(self, reason: StorageFailed) -> None:
        """End the session; for any thread."""
        if self.ended is None:
            self.ended = reason
            self._stop.set()
            for call in self._on_end:
                call(reason)

    # Signs of life.

    def _beats(self) -> None:
        while not self._stop.wait(self.settings.beat_ms / 1000):
            self._beat()

    def _beat(self) -> None:
        now_s = monotonic()
        store_ok, self._store_answered = self._store_answered, False
        published = self._published()  # Read before the beat: the beat's answer cannot be lower.
        try:
            state, number = self.ledger.beat(self.number, store_ok=store_ok)
        except (LedgerUnanswered, LedgerRefused):
            self._answered_since_s = None
            if self.beat_age_s * 1000 > self.settings.serve_without_beat_ms:
                text = f"PostgreSQL has not answered for {self.beat_age_s:.0f} s"
                self.end(StorageFailed(text))
            return
        if number < published:
            text = f"session {self.number} at round {number}, but round {published} was confirmed"
            self.end(LedgerWentBack(f"PostgreSQL has {text}: an older state of it is running"))
        elif state is not SessionState.LIVE and not self._stop.is_set():
            self.end(Fenced(f"session {self.number} was ended: another broker took over"))
        self._answered_s = monotonic()
        self._answered_since_s = self._answered_since_s or now_s

    def _looks(self) -> None:
        """Check that the object store answers, and mark published rounds, separately from the
        beats: a store that hangs for longer than a lease must not look like a broker that has gone.
        """
        due_s = monotonic()
        while not self._stop.is_set():
            with suppress(StoreUnanswered, ObjectMissing):  # The beats report it.
                if monotonic() >= due_s:
                    due_s = monotonic() + STORE_LOOK_S
                    self.objects.size(CLUSTER_NAME)
                    self._store_answered = True
                self.mark()
            self._stop.wait(MARK_S)

    def follow_rounds(self, published: Callable[[], int]) -> None:
        """Set the source of this session's last published round."""
        self._published = published

    def mark(self) -> None:
        """Mark in the store the last round of this session in the ledger, and the last rounds of
        sessions that this session has fenced. Raises StoreUnanswered.
        """
        if not self._marking.acquire(timeout=MARK_S):
            return  # Another thread waits for the store and marks as much.
        try:
            self._marker.put(Mark(self.number, self._published(), self._takes))
            while self._marks_due:
                self._marker.put(self._marks_due[0])
                del self._marks_due[0]
        finally:
            self._marking.release()

    def tell_addresses(self, addresses: dict[str, str]) -> None:
        """Publish the addresses of this broker's listeners. Raises the error that ended the
        session.
        """
        surely(lambda: self.ledger.set_listeners(self.number, addresses), self.patience)

    # Ownership.

    def look(self) -> "ClusterView":
        """Return the sessions and shard owners of the cluster. Ends silent sessions first. Raises
        the error that ended the session, LedgerUnanswered.
        """
        self.pause(0)
        self._fence_silent()
        return ClusterView(self.ledger.sessions(), self.ledger.shards())

    def _fence_silent(self) -> None:
        """End silent sessions if our own beats were answered all the time: otherwise this broker
        may be the broker without a connection.
        """
        since_s = self._answered_since_s
        lease_ms = self.settings.lease_ms
        if since_s is None or (monotonic() - since_s) * 1000 < lease_ms:
            return
        live = [row for row in self.ledger.sessions() if row.state is SessionState.LIVE]
        ahead = self._ahead(live)
        for row in live:
            silent = row.silent_ms > lease_ms or ahead.get(row.session, 0.0) * 1000 > lease_ms
            if silent and row.session != self.number and self.ledger.fence(row.session, lease_ms):
                self.fenced_others += 1
                _, number = self.ledger.session_state(row.session)
                self._marks_due.append(Mark(row.session, number, 0))

    def _ahead(self, live: Sequence[SessionRow]) -> dict[int, float]:
        """Return for how many seconds, by our own clock, the last beat of each session has been in
        the future: PostgreSQL's clock was set back. A live session beats again by the new time.
        """
        now_s = monotonic()
        self._ahead_since_s = {
            row.session: self._ahead_since_s.get(row.session, now_s)
            for row in live
            if row.silent_ms < 0
        }
        return {session: now_s - since_s for session, since_s in self._ahead_since_s.items()}

    @property
    def clock_went_back(self) -> bool:
        """True if the last look found beats in the future."""
        return bool(self._ahead_since_s)

    def take(self, shards: Sequence[int]) -> dict[int, int]:
        """Take the free shards among these; return the epochs of the new shards. Raises the error
        that ended the session.
        """

        def ask() -> dict[int, int]:
            self.ledger.take(self.number, shards)
            rows = self.ledger.shards()
            self._takes = takes_of(rows)
            return {row.shard: row.epoch for row in rows if row.session == self.number}

        mine = surely(ask, self.patience)  # Includes shards taken by an unanswered statement.
        shards_taken = {shard: mine[shard] for shard in shards if shard in mine}
        new = {shard: epoch for shard, epoch in shards_taken.items() if shard not in self.epochs}
        self.epochs |= new
        return new

    def release(self, shard: int) -> None:
        """Give up a shard with everything published. Raises the error that ended the session."""
        owned = Owned(self.number, shard, self.epochs[shard])

        def ask() -> None:
            if self.ledger.release(owned):
                return
            row = self.ledger.shards()[shard]
            if (row.session, row.epoch) == (owned.session, owned.epoch):
                raise LedgerUnanswered(f"shard {shard} was not released")

        surely(ask, self.patience)
        del self.epochs[shard]

    def drain(self) -> None:
        """Let the other brokers take all shards. Raises the error that ended the session."""
        self.pause(0)
        surely(lambda: self.ledger.drain(self.settings.node, drains=True), self.patience)

    def leave(self) -> None:
        """End the session in good order: everything is published, so others may take
        over at once.
        """
        self._stop.set()
        with suppress(LedgerUnanswered, LedgerRefused):  # The lease runs out by itself.
            self.ledger.leave(self.number)
        with suppress(StoreUnanswered):  # The mark of a later session proves as much.
            self.mark()

    def close(self) -> None:
        """Stop the threads and close the ledger."""
        self._stop.set()
        for thread in self._threads:
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join(1.0)
        self.ledger.close()
