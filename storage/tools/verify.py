"""`log verify`: a whole data directory, every log, and whether the logs agree.

Works without a broker and beside a running one, takes no lock and changes nothing. Beside a broker
each log is checked as far as its watermark slot goes. Knows no terminal.
"""

import os
import stat
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

from braidlog.storage.errors import DamagedLog, StorageError
from braidlog.storage.log.catalogue_age import older_catalogue
from braidlog.storage.log.directory_id import stored_directory_id
from braidlog.storage.log.files import FileGone, storage_error
from braidlog.storage.log.folder_reader import HANDLES_MAX
from braidlog.storage.log.layout import (
    ALL_JOURNAL_KINDS,
    DELETED_SUFFIX,
    JOURNAL_KINDS,
    PARTITIONS_NAME,
    numbers_among,
)
from braidlog.storage.log.local_files import LocalFiles
from braidlog.storage.log.recovery import LogIdentity
from braidlog.storage.log.segment import LOG_SUFFIX, segment_bases
from braidlog.storage.log.segment_header import KIND_PARTITION
from braidlog.storage.log.topic_file import TOPIC_NAME, BadTopicFile, TopicFile, unpack_topic_file
from braidlog.storage.log.topic_names import read_new_name
from braidlog.storage.metadata.catalogue import Catalogue
from braidlog.storage.metadata.changes import UnknownRecord
from braidlog.storage.metadata.journal_catalogue import JournalCatalogue
from braidlog.storage.metadata.journal_positions import JournalPositions
from braidlog.storage.metadata.nodes import StoredNodes
from braidlog.storage.tools.findings import Finding, Level, VerifyReport
from braidlog.storage.tools.folder_owners import FolderOwner, owners_of
from braidlog.storage.tools.journal_records import JournalRecords, NoSnapshotEnd, StoredJournal
from braidlog.storage.tools.known_ends import JournalledEnds
from braidlog.storage.tools.lock_holder import lock_holder
from braidlog.storage.tools.log_check import LogCheck
from braidlog.storage.tools.survey import Survey

# How often a log is looked at if a broker shortens it meanwhile.
LOOKS_MAX = 5

CATALOGUE, CURSORS, NODES = "catalogue", "cursors", "nodes"

# Unreadable changes of a journal that are reported separately; further changes are only counted.
LOST_TOLD_MAX = 100

Replayed = TypeVar("Replayed")
Lost = Callable[[DamagedLog], None]


class NoDataDir(StorageError):
    """There is no data directory at that place."""


class Verifier:
    """A verification. `tell` gets each finding at once, `progress` the bytes done and the total."""

    def __init__(
        self,
        data_dir: str | os.PathLike[str],
        tell: Callable[[Finding], None],
        progress: Callable[[int, int], None],
    ) -> None:
        """Raises NoDataDir, StorageFailed."""
        self.path = os.path.abspath(data_dir)
        if not is_data_dir(self.path):
            raise NoDataDir(f"{self.path} is no data directory of a broker")
        self.report = VerifyReport(self.path, lock_holder(self.path), [])
        self._tell = tell
        self._progress = progress
        self._running = self.report.broker_pid != 0
        self._files = LocalFiles(self.path, handles_max=HANDLES_MAX, read_only=True)
        self._files.name_directory(stored_directory_id(self._files, self.path))
        self._total = total_bytes(self.path)
        self._done = 0
        self._is_older = False  # The catalogue, than the partitions.

    def run(self) -> VerifyReport:
        """Check everything."""
        try:
            catalogue = self._replay(CATALOGUE, stored_catalogue)
            if catalogue is not None and not self.report.faults and not self._running:
                self._check_age(catalogue)
            cursors = self._replay(
                CURSORS, lambda journal, lost: JournalPositions(journal, lost=lost)
            )
            if os.path.isdir(os.path.join(self.path, NODES)):  # Only some listeners need nodes.
                self._replay(NODES, lambda journal, lost: StoredNodes(journal, lost=lost))
            if catalogue is not None:
                self._compare_journals(catalogue, cursors)
                self._compare_folders(catalogue)
            owners = {} if catalogue is None else owners_of(catalogue)
            self._ends = JournalledEnds(catalogue, cursors)
            for number in self._partition_ids():
                if catalogue is None or number in owners:
                    self._partition(number, owners)
        finally:
            self._files.close()
        return self.report

    # Journals

    def _replay(
        self, name: str, make: Callable[[StoredJournal, Lost], Replayed]
    ) -> Replayed | None:
        """Check a journal; return its replayed state, None if it cannot be replayed."""
        folder = os.path.join(self.path, name)
        if not os.path.isdir(folder):
            if self._partition_ids():
                self._say(Level.FAULT, name, folder, "the journal is missing")
            return None
        if not self._partition_ids() and not segment_bases(names_in(folder)):
            return None  # A crash at the very first start; the next start creates the journal.
        result = self._log(LogIdentity(folder, ALL_JOURNAL_KINDS[name], 1), name)
        if result is None:
            return None
        survey, records = result
        lost: list[DamagedLog] = []
        try:
            bodies = records.records(survey, records.start(survey))
            replayed = make(StoredJournal(bodies, records.damage), lost.append)
            self._say_lost(name, folder, lost)
            return replayed
        except NoSnapshotEnd as error:
            offset = error.segment.base_offset
            self._say(Level.FAULT, name, error.segment.path, "its snapshot has no end", offset)
        except UnknownRecord as error:
            self._say(Level.FAULT, name, folder, str(error))
        return None

    def _say_lost(self, name: str, folder: str, lost: Sequence[DamagedLog]) -> None:
        """Report records and changes that no start can read, although their checksums are right."""
        for fault in lost[:LOST_TOLD_MAX]:
            self._count(Level.FAULT)
            place = (fault.path, fault.file_pos, fault.offset, fault.offset + 1)
            self._tell(Finding(Level.FAULT, name, *place, fault.reason))
        if len(lost) > LOST_TOLD_MAX:
            reason = f"{len(lost) - LOST_TOLD_MAX} more changes cannot be read"
            self._say(Level.FAULT, name, folder, reason)

    def _compare_journals(self, catalogue: Catalogue, cursors: JournalPositions | None) -> None:
        if cursors is None or self._running:
            return
        for topic_id in cursors.topic_ids():
            if catalogue.topic_by_id(topic_id) is None:
                reason = f"it has subscriptions of topic number {topic_id}, which the catalogue"
                reason += " does not name; the next start drops them"
                self._say(Level.WARNING, CURSORS, os.path.join(self.path, CURSORS), reason)

    def _check_age(self, catalogue: Catalogue) -> None:
        partitions_path = os.path.join(self.path, PARTITIONS_NAME)
        ids_end = catalogue.partition_ids_end
        if older := older_catalogue(partitions_path, self._partition_ids(), ids_end):
            self._is_older = True
            self._say(Level.FAULT, CATALOGUE, os.path.join(self.path, CATALOGUE), older)

    def _compare_folders(self, catalogue: Catalogue) -> None:
        owners = owners_of(catalogue)
        missing = sorted(owners.keys() - set(self._partition_ids()))
        if missing and self._running:  # A topic may have been deleted between the two looks.
            again = self._replay(CATALOGUE, stored_catalogue)
            missing = [number for number in missing if again and number in owners_of(again)]
        for number in missing:
            path = os.path.join(self.path, PARTITIONS_NAME, str(number))
            reason = f"the folder is missing, the catalogue names it for {owners[number]}"
            self._say(Level.FAULT, f"partition {number}", path, reason)
        if self._running:
            return  # A folder that the catalogue does not name is being created or removed.
        for name in names_in(os.path.join(self.path, PARTITIONS_NAME)):
            path = os.path.join(self.path, PARTITIONS_NAME, name)
            if name.endswith(DELETED_SUFFIX):
                self._say(Level.NOTE, name, path, "of a deleted topic; the next start removes it")
            elif name not in map(str, owners) and not self._is_older:
                reason = "the catalogue does not name it; the next start sets it aside"
                self._say(Level.WARNING, name, path, reason)

    # Partitions

    def _partition(self, number: int, owners: Mapping[int, FolderOwner]) -> None:
        folder = os.path.join(self.path, PARTITIONS_NAME, str(number))
        name = self._topic_file(number, folder, owners.get(number))
        replayed = self._log(LogIdentity(folder, KIND_PARTITION, number), name)
        owner = owners.get(number)
        if replayed is None or owner is None or self._running:
            return
        end_offset = replayed[0].end_offset
        if (reason := self._ends.warning(number, owner, end_offset)) is not None:
            self._say(Level.WARNING, name, folder, reason)

    def _topic_file(self, number: int, folder: str, owner: FolderOwner | None) -> str:
        """Check the partition named by the folder's topic file; return a name for reports."""
        name = f"partition {number}"
        path = os.path.join(folder, TOPIC_NAME)
        try:
            content = unpack_topic_file(self._files.read_whole(path))
        except (OSError, BadTopicFile) as error:
            if os.path.isdir(folder):
                reason = error.strerror if isinstance(error, OSError) else str(error)
                self._say(Level.FAULT, name, path, f"{reason}")
            return str(owner or name)
        folder_owner = FolderOwner(content.topic, content.partition_index)
        if content.partition_id != number:
            reason = f"it is that of partition {content.partition_id}"
            self._say(Level.FAULT, name, path, reason)
        elif owner is not None and folder_owner != owner:
            self._other_name(number, folder, folder_owner, owner)
        return str(owner or folder_owner)

    def _other_name(
        self, number: int, folder: str, folder_owner: FolderOwner, owner: FolderOwner
    ) -> None:
        """A topic file disagrees with the catalogue as it was read."""
        path = os.path.join(folder, TOPIC_NAME)
        if self._running:  # The topic may have been renamed between the two looks.
            again = self._replay(CATALOGUE, stored_catalogue)
            owner = owners_of(again).get(number, folder_owner) if again is not None else owner
            if folder_owner == owner:
                return
        if read_new_name(self._files, folder) == TopicFile(number, owner.topic, owner.index):
            reason = f"it says {folder_owner}, which is {owner} now; the next start makes it say so"
            self._say(Level.NOTE, str(owner), path, reason)
        else:
            self._say(
                Level.FAULT, str(owner), path, f"it says {folder_owner}, the catalogue says {owner}"
            )

    def _log(self, identity: LogIdentity, name: str) -> tuple[Survey, JournalRecords] | None:
        """Check a log, again if a broker removed a file meanwhile; return None if the
        log is gone.
        """
        done = self._done
        for _ in range(LOOKS_MAX):
            self._done = done
            check = LogCheck(self._files, identity, name, running=self._running)
            records = JournalRecords()
            visit = None if identity.kind == KIND_PARTITION else records.batch
            try:
                survey = check.run(self._advance, visit)
            except FileGone:
                continue
            except StorageError as error:
                self._say(Level.FAULT, name, identity.folder, str(error))
                return None
            if self._running and not os.path.isdir(identity.folder):
                return None  # Its topic was deleted meanwhile.
            if identity.kind != KIND_PARTITION:
                with suppress(NoSnapshotEnd):  # Reported where the records are needed.
                    records.forget_superseded(survey, records.start(survey))
            check.take(survey)
            self._take(check)
            return survey, records
        if os.path.isdir(identity.folder):
            reason = "the broker drops its segments faster than they can be looked at"
            self._say(Level.WARNING, name, identity.folder, reason)
        return None

    def _take(self, check: LogCheck) -> None:
        for finding in check.findings:
            self._count(finding.level)
            self._tell(finding)
        for level, count in check.left_out.items():
            reason = f"{count} more of this log are left out here"
            self._say(level, check.summary.log, check.folder, reason)
        self.report.logs.append(check.summary)

    # Telling

    def _say(
        self, level: Level, log: str, path: str, reason: str, offset: int | None = None
    ) -> None:
        self._count(level)
        self._tell(Finding(level, log, path, 0, offset, None, reason))

    def _count(self, level: Level) -> None:
        self.report.faults += level is Level.FAULT
        self.report.warnings += level is Level.WARNING

    def _advance(self, size_bytes: int) -> None:
        self._done += size_bytes
        self._progress(self._done, self._total)

    def _partition_ids(self) -> list[int]:
        return sorted(numbers_among(names_in(os.path.join(self.path, PARTITIONS_NAME))))


def stored_catalogue(journal: StoredJournal, lost: Lost) -> Catalogue:
    """Return the catalogue as a start would see it; `lost` is called for each unreadable change."""
    return JournalCatalogue(journal, now_us=0, lost=lost).catalogue


def is_data_dir(path: str | os.PathLike[str]) -> bool:
    """Return True if a broker was ever started there. Raises StorageFailed if this user cannot
    know.
    """
    for name in (*JOURNAL_KINDS, PARTITIONS_NAME):
        try:
            if stat.S_ISDIR(os.stat(os.path.join(path, name)).st_mode):
                return True
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise storage_error(error, "read", os.fspath(path)) from error
    return False


def names_in(path: str) -> list[str]:
    """Names in a folder, sorted; none where there is no folder."""
    try:
        return sorted(os.listdir(path))
    except (FileNotFoundError, NotADirectoryError):
        return []


def total_bytes(data_dir: str) -> int:
    """Return the bytes of all segment files: the total work."""
    folders = [os.path.join(data_dir, name) for name in ALL_JOURNAL_KINDS]
    partitions = os.path.join(data_dir, PARTITIONS_NAME)
    folders += [os.path.join(partitions, name) for name in names_in(partitions)]
    total = 0
    for folder in folders:
        for name in names_in(folder):
            path = os.path.join(folder, name)
            if name.endswith(LOG_SUFFIX) and os.path.exists(path):
                total += os.path.getsize(path)
    return total
