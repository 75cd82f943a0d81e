"""The directory of a broker's partitions: the interface, and the guarantees of its implementations.

`DataDir` (`data_dir.py`) is a data directory, which has everything that the broker stores.
`SharedDir` (`storage/shared/shared_dir.py`) is the cache of a shared store; it holds a `DataDir`
for the folder, and gives out the logs of the partitions that this broker owns.

**Locked.** A process holds a directory until `close` or `abandon`.

**Errors.** StorageFull, with nothing changed; StorageFailed; DamagedLog for a partition that cannot
be opened.

**Threads.** `create_partitions`, `prepare_names`, `take_names` and `remove_retired` run in any
thread; all other calls belong to the thread that owns the logs.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from braidlog.storage.log.committer import Committer, Keeper
from braidlog.storage.log.files import Files
from braidlog.storage.log.log import Log
from braidlog.storage.log.reserve import Reserve
from braidlog.storage.log.settings import LogSettings


@dataclass(slots=True, frozen=True)
class NewPartition:
    """A partition to be made or opened, as the catalogue names it."""

    partition_id: int
    topic: str
    partition_index: int


class Directory(Protocol):
    """The partitions of a broker."""

    @property
    def path(self) -> str:
        """Path of the folder."""

    @property
    def files(self) -> Files:
        """The files of the folder."""

    @property
    def reserve(self) -> Reserve:
        """Space for changes that free space."""

    @property
    def keeper(self) -> Keeper:
        """The keeper that makes the rounds of this directory durable."""

    def check_settings(self, settings: LogSettings) -> None:
        """Check that partitions here can have these settings. Raises UnwritableChange."""

    def create_partitions(
        self, new: Sequence[NewPartition], settings: LogSettings, committer: Committer
    ) -> Sequence[Log]:
        """Make partitions and open their logs. The catalogue may name them from now on.

        Raises: UnwritableChange; StorageFull, with none of them left; StorageFailed.
        """

    def open_of_topic(self, part: NewPartition, settings: LogSettings, committer: Committer) -> Log:
        """Open a partition that the catalogue names. Raises DamagedLog, StorageFull,
        StorageFailed.
        """

    def in_turn(self, partition_ids: Sequence[int]) -> Iterator[int]:
        """Yield these numbers to a caller who opens each partition before asking for the next."""

    def is_open(self, partition_id: int) -> bool:
        """Return True if the log of that partition is open here."""

    def prepare_names(self, named: Sequence[NewPartition]) -> None:
        """Prepare new names of partitions; durable on return. Raises FileGone, StorageFull,
        StorageFailed.
        """

    def take_names(self, named: Sequence[NewPartition]) -> None:
        """Put prepared names in place, once the catalogue has them on disk. Raises
        StorageFailed.
        """

    def retire_partition(self, partition_id: int) -> None:
        """Close a partition that the catalogue no longer names. Raises StorageFailed."""

    def remove_retired(self, before_each: Callable[[], object] = lambda: None) -> None:
        """Remove the folders of retired partitions; `before_each` may stop the removal by raising
        an error. Raises: StorageFull, with some of them left; StorageFailed.
        """

    def note_used(self) -> None:
        """Note how far every log reaches that was written to since this start. Raises
        StorageFailed.
        """

    def close(self, committer: Committer) -> None:
        """Stop cleanly: everything durable. Raises StorageFailed; the lock is released in any
        case.
        """

    def abandon(self) -> None:
        """Close everything as it is, and release the lock."""
