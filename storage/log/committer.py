"""Group commit: one sync for everything that was written since the last sync.

A log or journal that has written marks itself here. A round takes all marked members, syncs their
files, and notifies them. The broker runs the rounds: `begin` and `finish` in the thread that owns
the logs, `sync` in a worker thread, while the next round gathers. Knows no log, only the interface
`RoundParticipant`.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from braidlog.storage.errors import StorageFailed
from braidlog.storage.log.files import File, Files
from braidlog.storage.log.sync_queue import SyncQueue


@dataclass(slots=True)
class SyncPoint:
    """The files that a member wrote and the folders in which names changed, to be synced.

    The member holds the files open until `finish_sync`. `end_offset` is for the member itself: the
    end of the log.
    """

    files: Sequence[File]
    folders: Sequence[str] = ()
    end_offset: int = 0


class RoundParticipant(Protocol):
    """A log or journal that takes part in rounds."""

    def begin_sync(self) -> SyncPoint:
        """Return the files and folders to sync now. Raises StorageFailed."""

    def finish_sync(self, point: SyncPoint) -> None:
        """Note that the point is durable. Raises StorageFailed."""


class Keeper(Protocol):
    """Makes a round durable: on the local disk (`DiskKeeper`) or in the shared store."""

    def wait_s(self, members: Iterable[RoundParticipant]) -> float:
        """Return the further gathering time of the next round with these members; 0 for none."""

    def keep(self, points: Iterable[SyncPoint]) -> None:
        """Make everything durable. Blocks; for any thread. Raises StorageFailed."""

    def sync_queue(self, eventfd: int) -> SyncQueue | None:
        """Return a queue that syncs files without a thread, None if unsupported."""


class DiskKeeper:
    """Keeps rounds on the local disk."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def wait_s(self, members: Iterable[RoundParticipant]) -> float:
        """Return 0: the next round gathers while the current round syncs."""
        return 0.0

    def keep(self, points: Iterable[SyncPoint]) -> None:
        """Sync files and folders. Raises StorageFailed."""
        sync_points(self._files, points)

    def sync_queue(self, eventfd: int) -> SyncQueue | None:
        """Return the kernel's queue, None if the kernel has none."""
        return self._files.sync_queue(eventfd)


@dataclass(slots=True)
class Round:
    """A round under way: the ticket and the point that each member waits for."""

    ticket: int
    points: list[tuple[RoundParticipant, SyncPoint]]

    def only_files(self, most: int) -> list[File]:
        """Return the files of the round if there are at most `most` and nothing else to sync, else
        [].

        Their descriptors are open until `Committer.finish`.
        """
        files: dict[File, None] = {}
        for _, point in self.points:
            files.update(dict.fromkeys(point.files))
            if point.folders or len(files) > most:
                return []
        return list(files)


class Committer:
    """Gathers members into rounds. All methods but `sync` belong to the thread that owns the logs.

    `ticket` is the number of the gathering round: changes marked until now are durable once
    `durable_ticket` has reached that number. The committer calls `on_dirty` when a round gets its
    first member.

    Guarantees: rounds finish in order, each only after all its files were synced; after a failed
    sync no round begins. Only `sync` and `commit` wait for the disk.
    Implements `Keeper`.
    """

    def __init__(
        self,
        files: Files,
        on_dirty: Callable[[], None] | None = None,
        *,
        keeper: Keeper | None = None,
    ) -> None:
        self.ticket = 1
        self.durable_ticket = 0
        self._on_dirty = on_dirty
        self.failure: StorageFailed | None = None
        self._keeper = keeper or DiskKeeper(files)
        self._gathering: dict[RoundParticipant, None] = {}  # A dict keeps the order.
        self._lazy: dict[RoundParticipant, None] = {}
        self._running: Round | None = None

    def call_when_dirty(self, call: Callable[[], None]) -> None:
        """Call this from now on when a round gets its first member."""
        self._on_dirty = call

    @property
    def gathers(self) -> bool:
        """True if a member waits for the next round."""
        return bool(self._gathering)

    def mark(self, member: RoundParticipant) -> int:
        """Put the member into the gathering round; return the ticket of the round."""
        gathering = self._gathering
        if member not in gathering:
            gathering[member] = None
            if len(gathering) == 1 and self._on_dirty is not None:
                self._on_dirty()
        return self.ticket

    def mark_lazy(self, member: RoundParticipant) -> None:
        """Hold the member back until `promote_lazy`.

        The member joins no rounds of others: no client waits for it, and a second file would slow
        each round.
        """
        self._lazy[member] = None

    def promote_lazy(self) -> None:
        """Put all lazy members into the gathering round."""
        lazy, self._lazy = self._lazy, {}
        for member in lazy:
            self.mark(member)

    def forget(self, member: RoundParticipant) -> None:
        """Leave a closed member out of the next round."""
        self._gathering.pop(member, None)
        self._lazy.pop(member, None)

    def wait_s(self) -> float:
        return self._keeper.wait_s(self._gathering) if self._gathering else 0.0

    def begin(self) -> Round | None:
        """Close the gathering round and start the next; None if no member waits.

        Raises: StorageFailed, also whenever an earlier round failed: a sync is never retried.
        """
        if self.failure is not None:
            raise self.failure
        assert self._running is None, "one round at a time"
        if not self._gathering:
            return None
        members, self._gathering = self._gathering, {}
        for member in members:
            self._lazy.pop(member, None)
        self._running = Round(self.ticket, [])
        self.ticket += 1
        try:
            self._running.points = [(member, member.begin_sync()) for member in members]
        except StorageFailed as failure:
            self.failure = failure
            raise
        return self._running

    def sync(self, round_: Round) -> None:
        """Make everything of the round durable. Blocks; for any thread. Raises StorageFailed."""
        try:
            self._keeper.keep(point for _, point in round_.points)
        except StorageFailed as failure:
            self.failure = failure
            raise

    def give_up(self, reason: str) -> None:
        """Begin no further round: the outcome of a sync stays unknown."""
        self.failure = self.failure or StorageFailed(reason)

    def sync_queue(self, eventfd: int) -> SyncQueue | None:
        return self._keeper.sync_queue(eventfd)

    def check_synced(self, results: Iterable[tuple[str, int]]) -> None:
        """Check a queue's results for the files of a round. Raises StorageFailed."""
        for path, number in results:
            if number:
                self.failure = StorageFailed(f"cannot sync {path}: {os.strerror(number)}")
                raise self.failure

    def finish(self, round_: Round) -> None:
        """Tell the members of a round that it is synced. Raises StorageFailed."""
        assert round_ is self._running, "only the round that began"
        self._running = None
        for member, point in round_.points:
            member.finish_sync(point)
        self.durable_ticket = round_.ticket

    def commit(self) -> None:
        """Run a round now, lazy members included. Raises StorageFailed.

        Finishes an interrupted round first.
        """
        if self._running is not None and self.failure is None:
            left = self._running
            self.sync(left)
            self.finish(left)
        self.promote_lazy()
        round_ = self.begin()
        if round_ is not None:
            self.sync(round_)
            self.finish(round_)


def sync_points(files: Files, points: Iterable[SyncPoint]) -> None:
    """Sync files and folders of all points in the cheapest way. Raises StorageFailed."""
    dirty: dict[File, None] = {}
    folders: dict[str, None] = {}
    for point in points:
        dirty.update(dict.fromkeys(point.files))
        folders.update(dict.fromkeys(point.folders))
    if len(dirty) + len(folders) > 1 and files.syncs_all_at_once:
        files.sync_all()  # Also covers names in folders.
        return
    for file in dirty:
        file.datasync()
    for folder in folders:  # After the files: a name must not come before its content.
        files.sync_folder(folder)
