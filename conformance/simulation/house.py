"""A whole broker without its listeners over a directory, opened like `Broker.open`.

Segments are tiny and snapshots of journals frequent, so that a short workload meets all of them.
The test runs the commit rounds, in their three steps.
"""

import dataclasses
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

import trio

from braidlog.broker.broker import Broker
from braidlog.broker.config.settings import Config, LogConfig
from braidlog.broker.topics.partition import Partition
from braidlog.storage.directory.data_dir import DataDir
from braidlog.storage.directory.directory import NewPartition
from braidlog.storage.errors import StorageFull
from braidlog.storage.journal.log import JournalLog
from braidlog.storage.log.committer import Committer, Round
from braidlog.storage.log.disk import Disk
from braidlog.storage.log.layout import JOURNAL_KINDS
from braidlog.storage.log.local_files import LocalFiles
from braidlog.storage.log.log import Log
from braidlog.storage.log.recovery import RecoveryReport
from braidlog.storage.log.reserve import Reserve
from braidlog.storage.log.settings import LogSettings
from braidlog.storage.metadata.journal_positions import JournalPositions
from conformance.simulation.calls import TracedDisk

# The configuration allows no smaller segments; they are cut down to a few batches.
SEGMENT_BYTES_ASKED = 64 * 1024
SEGMENT_BYTES = 1500
INDEX_INTERVAL_BYTES = 512
RESERVE_BYTES = 4096


@dataclasses.dataclass(slots=True, frozen=True)
class Shape:
    """Differences from a real broker.

    `syncs_all`: as if syncfs were reliable. `journal_factor`: a journal reports so many times its
    size, so that a snapshot is due early.
    """

    syncs_all: bool = False
    journal_factor: int = 300
    segment_bytes: int = SEGMENT_BYTES


class ShapedFiles(LocalFiles):
    """Files whose `sync_all` has a fixed answer."""

    def __init__(self, root: str, disk: Disk, *, syncs_all: bool) -> None:
        super().__init__(root, disk)
        self._says_all = syncs_all

    @property
    def syncs_all_at_once(self) -> bool:
        return self._says_all


class ShapedJournal(JournalLog):
    """A journal that reports more than its size."""

    factor = 1

    @property
    def size_bytes(self) -> int:
        return super().size_bytes * self.factor


class ShapedDir(DataDir):
    """A data directory with tiny segments, and journals that are soon due for a snapshot."""

    reserve_bytes = RESERVE_BYTES
    shape = Shape()

    def open_journal(self, name: str, committer: Committer) -> JournalLog:
        folder = os.path.join(self.path, name)
        journal = ShapedJournal(folder, self.files, committer, JOURNAL_KINDS[name], 1)
        journal.factor = self.shape.journal_factor
        self._journals.append(journal)
        return journal

    def create_partitions(
        self, new: Sequence[NewPartition], settings: LogSettings, committer: Committer
    ) -> Sequence[Log]:
        return super().create_partitions(new, self._shaped(settings), committer)

    def open_partition(
        self,
        partition_id: int,
        settings: LogSettings,
        committer: Committer,
        *,
        topic: str | None = None,
    ) -> Log:
        shaped = self._shaped(settings)
        return super().open_partition(partition_id, shaped, committer, topic=topic)

    def _shaped(self, settings: LogSettings) -> LogSettings:
        return dataclasses.replace(settings, segment_bytes=self.shape.segment_bytes)


T = TypeVar("T")


def done(change: Callable[..., Awaitable[T]], *arguments: object, **named: object) -> T:
    """Return the result of an awaited change. The change may use a thread; nothing else runs
    meanwhile.
    """
    return trio.run(partial(change, *arguments, **named))


class SimulatedBroker:
    """A life of a broker over a directory."""

    def __init__(self, path: str, disk: TracedDisk, shape: Shape) -> None:
        """Recover the directory. Raises errors of storage, with no file left open."""
        config = Config(
            data_dir=path,
            log=LogConfig(
                segment_bytes=SEGMENT_BYTES_ASKED, index_interval_bytes=INDEX_INTERVAL_BYTES
            ),
        )
        self.path = path
        self._disk = disk
        files = ShapedFiles(path, disk, syncs_all=shape.syncs_all)
        try:
            opened = ShapedDir.open(path, files)
        except BaseException:
            files.close()
            raise
        assert isinstance(opened, ShapedDir)
        self._dir = opened
        self._dir.shape = shape
        self._round: Round | None = None
        self._is_synced = False
        try:
            self.broker = Broker(config, self._dir)
            with suppress(StorageFull):
                opened.remove_retired()  # The first action of a running broker.
        except BaseException:
            self._dir.abandon()
            disk.close_left()
            raise

    @property
    def cursors(self) -> JournalPositions:
        """Return the store behind the subscriptions, also for deleted topics."""
        return self.broker.topics._cursors

    @property
    def partitions(self) -> dict[int, Partition]:
        """Return all partitions of all topics by number."""
        return {
            partition.partition_id: partition
            for topic in self.broker.topics.all()
            for partition in topic.partitions
        }

    @property
    def journal_reports(self) -> list[RecoveryReport]:
        """Return the start's findings in catalogue and cursors."""
        return [journal.recovery for journal in self._dir._journals]

    @property
    def round_covers_cursors(self) -> bool:
        """Return True if the present round covers the whole cursors' journal, lazy entries
        included.
        """
        members = [member for member, _ in self._round.points] if self._round is not None else []
        folders = [member.folder for member in members if isinstance(member, JournalLog)]
        return any(os.path.basename(folder) == "cursors" for folder in folders)

    @property
    def reserve(self) -> Reserve:
        """Return the disk space reserved for changes that free space."""
        return self._dir.reserve

    @property
    def in_round(self) -> bool:
        """Return True during a round."""
        return self._round is not None

    def step_round(self) -> str:
        """Take the next of a round's three steps; return the step's name, "" without work."""
        committer = self.broker.committer
        if self._round is None:
            self._round = committer.begin()
            return "" if self._round is None else "begin"
        if not self._is_synced:
            committer.sync(self._round)
            self._is_synced = True
            return "sync"
        round_, self._round, self._is_synced = self._round, None, False
        committer.finish(round_)
        for listener in self.broker.durability.round_listeners:
            listener(committer.durable_ticket)
        self.broker.retire_discarded()
        return "finish"

    def stop(self) -> None:
        """Stop cleanly."""
        self.broker.close()
        self._disk.close_left()

    def kill(self) -> None:
        """End the process at any point of its work."""
        self.broker.abandon()
        self._disk.close_left()
