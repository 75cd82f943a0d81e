"""A journal whose records are rows of the ledger, written with the round (FORMAT.md section 11.2).

Has the interface of `storage/journal/log.py`: catalogue and cursors notice no difference. Rows wait
in memory until a round takes them. Belongs to the owner's thread.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise

from braidlog.storage.errors import DamagedLog, LogClosed
from braidlog.storage.log.committer import Committer, SyncPoint
from braidlog.storage.log.recovery import RecoveryReport
from braidlog.storage.metadata.changes import PREFIX
from braidlog.storage.shared.ledger import SNAPSHOT, JournalRow
from braidlog.storage.shared.points import SharedPoint

FIRST_PLACE = 1

NOTHING = PREFIX + b"\x90"  # A record without changes: a snapshot has at least one row.


class LedgerJournal:
    """A journal of a shard. Call `replay` once, before the first append. Implements `Journal`."""

    def __init__(
        self, shard: int, kind: int, rows: Sequence[JournalRow], committer: Committer
    ) -> None:
        """`rows` are the last snapshot and the rows after it, in order. Raises DamagedLog for a
        missing row.
        """
        self.folder = f"journal {kind} of shard {shard}"
        self.recovery = RecoveryReport(self.folder)
        self.lazy_source: Callable[[], Iterable[bytes]] | None = None
        self.size_bytes = sum(len(row.body) for row in rows)
        self.snapshot_bytes = sum(len(row.body) for row in rows if row.kind >= SNAPSHOT)
        self._shard, self._kind = shard, kind
        self._rows = rows
        self._committer = committer
        self._place = FIRST_PLACE
        self._replayed = 0
        self._waiting: list[JournalRow] = []
        self._lazy: list[bytes] = []
        self._snapshot_place: int | None = None
        self._closed = False
        self._check(rows)

    def _check(self, rows: Sequence[JournalRow]) -> None:
        for before, row in pairwise(rows):
            if row.place != before.place + 1:
                reason = f"a row is missing behind place {before.place}"
                raise DamagedLog(self.folder, before.place, row.place, reason)
        if rows:
            if rows[0].place != FIRST_PLACE and rows[0].kind < SNAPSHOT:
                raise DamagedLog(self.folder, 0, rows[0].place, "its beginning is missing")
            self._place = rows[-1].place + 1

    @property
    def last_place(self) -> int:
        return self._place - 1

    @property
    def next_place(self) -> int:
        return self._place + len(self._lazy)

    @property
    def replayed_place(self) -> int:
        return self._replayed

    def replay(self) -> Iterator[bytes]:
        """All records of the last snapshot and since, in order."""
        rows, self._rows = self._rows, ()
        for row in rows:
            self._replayed = row.place
            yield row.body

    def damage(self, reason: str) -> DamagedLog:
        return DamagedLog(self.folder, self._replayed, self._replayed, reason)

    def append(self, body: bytes) -> int:
        """Add a record; return the ticket of the round that makes the record durable. Raises
        LogClosed.

        Waiting lazy records go first, so that changes stay in order.
        """
        self._store_lazy()
        self._add(body, self._kind)
        return self._committer.mark(self)

    def append_lazy(self, body: bytes) -> None:
        """Queue a record for the journal's next round. Raises LogClosed."""
        self._check_open()
        self._lazy.append(body)
        self._committer.mark_lazy(self)

    def mark_lazy(self) -> None:
        """Ask `lazy_source` for records when the next round begins."""
        self._committer.mark_lazy(self)

    def snapshot(self, bodies: Iterable[bytes]) -> None:
        """Replace all records by these, which are the whole state, waiting records included."""
        self._check_open()
        # The waiting rows are not published, but readers of positions may know their places.
        self._place += len(self._lazy)
        self._waiting, self._lazy = [], []
        self._snapshot_place = self._place
        self.size_bytes = 0
        for body in [*bodies] or [NOTHING]:
            self._add(body, self._kind + SNAPSHOT)
        self.snapshot_bytes = self.size_bytes
        self._committer.mark(self)

    def _store_lazy(self) -> None:
        lazy, self._lazy = self._lazy, []
        for body in lazy:
            self._add(body, self._kind)

    def _add(self, body: bytes, kind: int) -> None:
        self._check_open()
        self._waiting.append(JournalRow(self._shard, self._place, kind, body))
        self._place += 1
        self.size_bytes += len(body)

    def _check_open(self) -> None:
        if self._closed:
            raise LogClosed(self.folder)

    # Rounds.

    def begin_sync(self) -> SyncPoint:
        """For the committer: the rows of this round."""
        if self.lazy_source is not None and not self._lazy:
            self._lazy = list(self.lazy_source())
        self._store_lazy()
        rows, self._waiting = self._waiting, []
        place, self._snapshot_place = self._snapshot_place, None
        snapshots = [] if place is None else [(self._shard, self._kind, place)]
        return SharedPoint((), rows=rows, snapshots=snapshots)

    def finish_sync(self, point: SyncPoint) -> None:
        """For the committer: the rows are in the ledger."""

    def seal(self) -> None:
        """For a clean stop: nothing is left to do."""

    def close(self) -> None:
        """Take no more records."""
        self._closed = True
        self._committer.forget(self)
