"""A broker's data directory: its lock, its folders, and a clean stop of all logs and journals.

Knows partitions by number and journals by name; the catalogue decides which of them must exist.
Layout in FORMAT.md section 1.
"""

import errno
import os
import resource
import sys
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Protocol

from braidlog.storage.directory.directory import NewPartition
from braidlog.storage.directory.directory_lock import take_lock
from braidlog.storage.errors import DamagedLog, StorageFull, reason_of
from braidlog.storage.journal.log import JournalLog
from braidlog.storage.log.catalogue_age import older_catalogue
from braidlog.storage.log.committer import Committer, DiskKeeper, Keeper
from braidlog.storage.log.directory_id import named_elsewhere, new_directory_id, stored_directory_id
from braidlog.storage.log.files import FULL, Files, storage_error
from braidlog.storage.log.layout import (
    ALL_JOURNAL_KINDS,
    DELETED_SUFFIX,
    JOURNAL_KINDS,
    PARTITIONS_NAME,
    SET_ASIDE_NAME,
    numbers_among,
)
from braidlog.storage.log.local_files import LocalFiles
from braidlog.storage.log.log import Log
from braidlog.storage.log.opening import NewLog, make_log, open_log, open_new_log
from braidlog.storage.log.recovery import RecoveryReport
from braidlog.storage.log.reserve import RESERVE_BYTES, RESERVE_NAME, Reserve
from braidlog.storage.log.segment import segment_bases, segment_path
from braidlog.storage.log.segment_header import SEGMENT_HEADER_BYTES
from braidlog.storage.log.settings import LogSettings
from braidlog.storage.log.start_prefetch import read_ahead
from braidlog.storage.log.topic_file import (
    TOPIC_BYTES_MAX,
    TOPIC_NAME,
    BadTopicFile,
    TopicFile,
    pack_topic_file,
    unpack_topic_file,
)
from braidlog.storage.log.topic_names import sync_names, take_name, write_new_name
from braidlog.storage.metadata.changes import Journal

# A first start makes the catalogue before the cursors: a crash never leaves records in the cursors
# alone.
MADE_LATER: dict[str, tuple[str, ...]] = {"catalogue": ("cursors",), "cursors": ()}


class OpenedJournal(Journal, Protocol):
    """An opened journal, and the findings at its opening."""

    recovery: RecoveryReport


class DataDir:
    """An open, locked data directory. Made by `DataDir.open`. Implements `Directory`."""

    reserve_bytes = RESERVE_BYTES

    def __init__(self, path: str, files: Files, lock_fd: int) -> None:
        self.path = path
        self.files = files
        self.reserve = Reserve(files, os.path.join(path, RESERVE_NAME), self.reserve_bytes)
        self._lock_fd = lock_fd
        self._partitions_path = os.path.join(path, PARTITIONS_NAME)
        self._logs: dict[int, Log] = {}
        self._journals: list[JournalLog] = []
        self._retired_in_place: deque[str] = deque()
        self._note_ends: Callable[[Mapping[int, int]], None] = lambda _: None

    @classmethod
    def open(cls, path: str | os.PathLike[str], files: Files | None = None) -> "DataDir":
        """Open and lock a data directory; create a missing directory.

        Raises: DirectoryLocked, StorageFull, StorageFailed.
        """
        path = os.path.abspath(path)
        try:
            os.makedirs(path, exist_ok=True)
            lock_fd = take_lock(path)
        except FileExistsError as error:  # `makedirs` raises this if `path` is a file.
            reason = NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
            raise storage_error(reason, "use the data directory", path) from error
        except OSError as error:
            raise storage_error(error, "use the data directory", path) from error
        try:
            files = files or LocalFiles(path)
            data_dir = cls(path, files, lock_fd)
            data_dir.prepare()
        except BaseException:  # Release the lock after any error.
            os.close(lock_fd)
            raise
        return data_dir

    def prepare(self) -> None:
        """Make the folders and the reserve, and find the directory's id. Raises StorageFull,
        StorageFailed.
        """
        for name in (PARTITIONS_NAME, SET_ASIDE_NAME):
            if not os.path.isdir(os.path.join(self.path, name)):
                self.files.make_folder(os.path.join(self.path, name))
        self.reserve.make()
        self.files.sync_folder(self.path)
        self._find_id()

    def _find_id(self) -> None:
        """Make new files name this directory. A new directory draws its id; a directory of an
        earlier version gets its id with `take_id`.
        """
        self.files.name_directory(stored_directory_id(self.files, self.path))
        is_new = not self.partition_ids() and not any(map(self._segment_paths, JOURNAL_KINDS))
        if is_new:
            self.files.name_directory(new_directory_id())

    def take_id(self, rewrite: Callable[[], None], committer: Committer) -> None:
        """Give a directory of an earlier version an id: `rewrite` writes the catalogue into a new
        segment. That is durable before any other file names the id, so that an earlier program
        stops at the catalogue. Without room for it the directory has no id yet.

        Raises: StorageFailed.
        """
        if self.files.directory_id:
            return
        self.files.name_directory(named_elsewhere(self.files, self.path) or new_directory_id())
        try:
            rewrite()
        except StorageFull:
            self.files.name_directory(0)
            return
        committer.commit()
        committer.commit()  # The slot that leaves out the older segments.

    def follow_ends(self, note: Callable[[Mapping[int, int]], None]) -> None:
        """Call `note` with durable ends by partition id: of full segments, and of `note_used`."""
        self._note_ends = note

    @property
    def keeper(self) -> Keeper:
        return DiskKeeper(self.files)

    def partition_folder(self, partition_id: int) -> str:
        """Path of a partition's folder, whether it is there or not."""
        return f"{self._partitions_path}/{partition_id}"

    def partition_ids(self) -> list[int]:
        """Numbers of the partition folders that are there, ascending."""
        return sorted(numbers_among(self.files.names(self._partitions_path)))

    def highest_partition_id(self) -> int:
        """Highest number that any folder has or had, including set-aside folders; 0 if none."""
        aside = self.files.names(os.path.join(self.path, SET_ASIDE_NAME))
        seen = numbers_among(name.split(".")[0] for name in aside)
        return max([0, *seen, *self.partition_ids()])

    def check_folders(self, known: Iterable[int], partition_ids_end: int) -> None:
        """Check that every partition that the catalogue names has a folder, and that the catalogue,
        which gave out the ids below `partition_ids_end`, is no older than the folders; before any
        is touched.

        Raises: DamagedLog, for the first that has none, and for an older catalogue; StorageFailed.
        """
        present = set(self.partition_ids())
        if reason := older_catalogue(self._partitions_path, present, partition_ids_end):
            raise DamagedLog(os.path.join(self.path, "catalogue"), 0, 0, reason)
        for number in known:
            if number not in present:
                folder = self.partition_folder(number)
                raise DamagedLog(folder, 0, 0, "the partition's folder is missing")

    def set_aside_unknown(self, known: Collection[int]) -> list[str]:
        """Move everything among the partitions that is neither known nor retired to `set-aside`.

        Returns the new paths. Raises: StorageFull, StorageFailed.
        """
        wanted = {str(number) for number in known}
        moved = []
        for name in self.files.names(self._partitions_path):
            if name not in wanted and not name.endswith(DELETED_SUFFIX):
                new_path = self._free_path(name)
                self.files.rename(os.path.join(self._partitions_path, name), new_path)
                moved.append(new_path)
        if moved:
            self.files.sync_folder(os.path.join(self.path, SET_ASIDE_NAME))
            self.files.sync_folder(self._partitions_path)
        return moved

    def _free_path(self, name: str) -> str:
        path = os.path.join(self.path, SET_ASIDE_NAME, name)
        number = 1
        candidate = path
        while os.path.lexists(candidate):
            number += 1
            candidate = f"{path}.{number}"
        return candidate

    def check_settings(self, settings: LogSettings) -> None:
        """Check that partitions here can have these settings: they can."""

    def create_partitions(
        self, new: Sequence[NewPartition], settings: LogSettings, committer: Committer
    ) -> Sequence[Log]:
        """Make partitions and open their logs; all folders are durable on return.

        The catalogue may name them from now on. Waits for the disk.
        Raises: StorageFull, with none of them left; StorageFailed.
        """
        new_logs: list[NewLog] = []
        try:
            for part in new:
                log = self._make_folder(part)
                new_logs.append(log)
            self.files.adopt(self._partitions_path)
            if self.files.syncs_all_at_once:
                self.files.sync_all()
            else:
                self._sync_folders([log.identity.folder for log in new_logs])
            return [self._open_new(log, settings, committer) for log in new_logs]
        except StorageFull:
            for log in new_logs:
                log.close()
            for part in new:
                self._discard_new(part.partition_id)
            raise

    def _open_new(self, new: NewLog, settings: LogSettings, committer: Committer) -> Log:
        log = open_new_log(self.files, new, settings, committer, self._note_end)
        self._logs[new.identity.partition_id] = log
        return log

    def _make_folder(self, new: NewPartition) -> NewLog:
        folder = self.partition_folder(new.partition_id)
        self.files.make_folder(folder)
        with closing(self.files.create(os.path.join(folder, TOPIC_NAME))) as topic_file:
            topic_file.write_at([pack_topic_file(_content(new))], 0)
        return make_log(self.files, folder, new.partition_id)

    def _sync_folders(self, folders: Sequence[str]) -> None:
        for folder in folders:
            for name in self.files.names(folder):
                file = self.files.open(os.path.join(folder, name))
                file.datasync()
                file.close()
            self.files.sync_folder(folder)
        self.files.sync_folder(self._partitions_path)

    def open_partition(
        self,
        partition_id: int,
        settings: LogSettings,
        committer: Committer,
        *,
        topic: str | None = None,
    ) -> Log:
        """Open an existing partition, recovering it.

        After opening the last partition, commit once before readers come: only then are the records
        visible that recovery kept above the slot. Raises: DamagedLog, if the folder is missing or
        its topic file is wrong; StorageFull; StorageFailed.
        """
        folder = self.partition_folder(partition_id)
        try:
            content = self.read_topic_file(partition_id)
            if topic is not None and content.topic != topic:
                take_name(self.files, folder, replace(content, topic=topic))
        except DamagedLog:
            if not os.path.isdir(folder):
                raise DamagedLog(folder, 0, 0, "the partition's folder is missing") from None
            raise
        log = open_log(self.files, folder, partition_id, settings, committer, self._note_end)
        self._logs[partition_id] = log
        return log

    def open_of_topic(self, part: NewPartition, settings: LogSettings, committer: Committer) -> Log:
        """Open a partition that the catalogue names; otherwise like `open_partition`. If a crash
        left the folder with the topic's old name, the folder gets the prepared new name.
        """
        return self.open_partition(part.partition_id, settings, committer, topic=part.topic)

    def in_turn(self, partition_ids: Sequence[int]) -> Iterator[int]:
        """Yield these numbers to a caller who opens each partition before asking for the next; the
        files of later partitions are read ahead meanwhile.
        """
        folders = read_ahead([self.partition_folder(number) for number in partition_ids])
        return (number for number, _ in zip(partition_ids, folders, strict=True))

    def prepare_names(self, named: Sequence[NewPartition]) -> None:
        """Write new topic files of partitions beside the old files, which `take_names` replaces;
        durable on return. The catalogue may use the new names only then.

        In any thread. Raises FileGone where a folder was removed, StorageFull, StorageFailed.
        """
        folders = []
        for part in named:
            folder = self.partition_folder(part.partition_id)
            write_new_name(self.files, folder, _content(part))
            folders.append(folder)
        sync_names(self.files, folders)

    def take_names(self, named: Sequence[NewPartition]) -> None:
        """Put the prepared topic files in place, once the catalogue has the names on disk; in any
        thread. The next start completes any work that cannot be done now. Raises StorageFailed.
        """
        for part in named:
            take_name(self.files, self.partition_folder(part.partition_id), _content(part))

    def is_open(self, partition_id: int) -> bool:
        return partition_id in self._logs

    def read_topic_file(self, partition_id: int) -> TopicFile:
        """The topic of a partition. Raises DamagedLog; StorageFull if no descriptor is left."""
        path = f"{self.partition_folder(partition_id)}/{TOPIC_NAME}"
        try:
            content = unpack_topic_file(self.files.read_head(path, TOPIC_BYTES_MAX))
        except (OSError, BadTopicFile) as error:
            if isinstance(error, OSError) and error.errno in FULL:
                raise storage_error(error, "read", path) from error
            raise DamagedLog(path, 0, 0, reason_of(error)) from error
        if content.partition_id != partition_id:
            raise DamagedLog(path, 0, 0, f"it is that of partition {content.partition_id}")
        return content

    def retire_partition(self, partition_id: int) -> None:
        """Close a partition that the catalogue no longer names, and rename its folder for
        `remove_retired`, which also finds it after the next start. Raises: StorageFailed.
        """
        log = self._logs.pop(partition_id, None)
        if log is not None:
            log.close()
        self._note_ends({partition_id: 0})
        self.retire_folder(partition_id)

    def retire_folder(self, partition_id: int) -> None:
        """Rename a partition's folder for `remove_retired`. Raises StorageFailed."""
        folder = self.partition_folder(partition_id)
        try:
            self.files.rename(folder, folder + DELETED_SUFFIX)
        except StorageFull:  # The removal frees space, so the folder is removed under its old name.
            self._retired_in_place.append(folder)

    def remove_retired(self, before_each: Callable[[], object] = lambda: None) -> None:
        """Remove the folders of retired partitions, those of earlier runs too; in any thread, one
        at a time.

        The removal may take minutes: `before_each` is called before each folder, and may stop the
        removal by raising an error. Raises: StorageFull, with some of them left; StorageFailed.
        """
        names = self.files.names(self._partitions_path)
        retired = [name for name in names if name.endswith(DELETED_SUFFIX)]
        if retired:
            self.files.sync_folder(self._partitions_path)
        for name in retired:
            before_each()
            self.files.remove_folder(os.path.join(self._partitions_path, name))
        while self._retired_in_place:
            before_each()
            self.files.remove_folder(self._retired_in_place[0])
            self._retired_in_place.popleft()

    def _discard_new(self, partition_id: int) -> None:
        log = self._logs.pop(partition_id, None)
        if log is not None:
            log.close()
        folder = self.partition_folder(partition_id)
        if os.path.isdir(folder):
            self.files.remove_folder(folder)

    def open_journal(self, name: str, committer: Committer) -> OpenedJournal:
        """Open the journal of that folder name, made if it is not there.

        Raises: DamagedLog, StorageFull, StorageFailed.
        """
        folder = os.path.join(self.path, name)
        journal = JournalLog(folder, self.files, committer, ALL_JOURNAL_KINDS[name], 1)
        self._journals.append(journal)
        return journal

    def check_journals(self) -> None:
        """Check that no journal that once existed is missing, before any is opened: opening would
        start an empty journal. Raises: DamagedLog, StorageFailed.
        """
        for name, later in MADE_LATER.items():
            if not self._segment_paths(name) and (
                self.partition_ids() or any(map(self._has_records, later))
            ):
                folder = os.path.join(self.path, name)
                raise DamagedLog(
                    folder, 0, 0, "the journal is missing beside partitions or positions"
                )

    def _segment_paths(self, journal: str) -> list[str]:
        folder = os.path.join(self.path, journal)
        return [segment_path(folder, base) for base in segment_bases(self.files.names(folder))]

    def _has_records(self, journal: str) -> bool:
        paths = self._segment_paths(journal)
        return any(os.path.getsize(path) > SEGMENT_HEADER_BYTES for path in paths)

    def close(self, committer: Committer) -> None:
        """Stop cleanly: make everything durable, and the next start trivial. No round may be
        running.

        Raises: StorageFailed; the lock is released in any case.
        """
        try:
            committer.commit()
            self.note_used()
            committer.commit()
            sealed: list[Log | JournalLog] = [*self._logs.values(), *self._journals]
            self.files.close_idle()
            at_once = _sealed_at_once()
            for number, log in enumerate(sealed, 1):
                try:
                    log.seal()
                except StorageFull:
                    pass  # Its slots stay as they are: the next start has a little more to walk.
                if number % at_once == 0:
                    committer.commit()  # Which closes the files of these.
            committer.commit()
        finally:
            self.abandon()

    def note_used(self) -> None:
        """Note how far every log reaches that was written to since this start. A broker does so
        once a minute, and a clean stop. Raises StorageFailed.
        """
        logs = self._logs.items()
        self._note_ends({number: log.durable_offset for number, log in logs if log.was_used})

    def _note_end(self, partition_id: int, durable_offset: int) -> None:
        self._note_ends({partition_id: durable_offset})

    def abandon(self) -> None:
        for log in self._logs.values():
            log.close()
        for journal in self._journals:
            journal.close()
        self._logs, self._journals = {}, []
        self.reserve.close()
        self.files.close()
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1


def _sealed_at_once() -> int:
    """Return how many logs may be sealed before a commit. Each holds two or three files open until
    then; the next start would walk a log that gets no descriptor.
    """
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most < 0:
        return sys.maxsize
    try:
        most -= len(os.listdir("/proc/self/fd"))  # Less the number of open descriptors.
    except OSError:  # Not every system has /proc.
        most //= 2
    return max(most // 4, 1)


def _content(part: NewPartition) -> TopicFile:
    return TopicFile(part.partition_id, part.topic, part.partition_index)
