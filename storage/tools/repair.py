"""`log repair`: repairs damage on the operator's request. Holds the lock; plans first, then acts.

Damaged files are set aside, never deleted; losses are reported before anything changes. Knows no
terminal: the caller shows the plan and asks.
"""

import os
from collections.abc import Callable, Mapping
from time import time_ns

from braidlog.storage.directory.directory_lock import take_lock
from braidlog.storage.errors import DirectoryLocked
from braidlog.storage.log.catalogue_age import older_catalogue
from braidlog.storage.log.directory_id import is_catalogue_foreign, stored_directory_id
from braidlog.storage.log.files import storage_error
from braidlog.storage.log.layout import (
    JOURNAL_KINDS,
    PARTITIONS_NAME,
    SET_ASIDE_NAME,
    numbers_among,
)
from braidlog.storage.log.local_files import LocalFiles
from braidlog.storage.log.recovery import LogIdentity
from braidlog.storage.log.segment import segment_bases
from braidlog.storage.log.segment_header import KIND_PARTITION
from braidlog.storage.log.topic_file import (
    TOPIC_NAME,
    BadTopicFile,
    TopicFile,
    pack_topic_file,
    unpack_topic_file,
)
from braidlog.storage.log.watermark import RESERVED_NAME, Watermark
from braidlog.storage.metadata.catalogue import Catalogue
from braidlog.storage.metadata.changes import UnknownRecord
from braidlog.storage.metadata.journal_catalogue import JournalCatalogue
from braidlog.storage.metadata.journal_positions import JournalPositions
from braidlog.storage.metadata.nodes import StoredNodes
from braidlog.storage.tools.dump import find_partitions
from braidlog.storage.tools.folder_owners import FolderOwner, owners_of
from braidlog.storage.tools.known_ends import JournalledEnds
from braidlog.storage.tools.log_check import LogCheck, reservation_is_lost
from braidlog.storage.tools.repair_catalogue import CatalogueRepair
from braidlog.storage.tools.repair_folders import FolderPlacement
from braidlog.storage.tools.repair_journal import JournalRepair
from braidlog.storage.tools.repair_partition import PartitionRepair, ReservationRepair
from braidlog.storage.tools.repair_step import RepairPlan, RepairStep
from braidlog.storage.tools.rewriting import SetAside, write_whole
from braidlog.storage.tools.survey import Survey
from braidlog.storage.tools.verify import (
    CATALOGUE,
    CURSORS,
    NODES,
    NoDataDir,
    Replayed,
    is_data_dir,
    names_in,
    total_bytes,
)

FOREIGN_CATALOGUE = (
    "the catalogue belongs to another data directory than all other files; nothing is changed: put"
    " the catalogue of this directory back"
)


class Repair:
    """A repair of a locked data directory: `plan`, apply its steps in order, then `close`."""

    def __init__(
        self, data_dir: str | os.PathLike[str], progress: Callable[[int, int], None]
    ) -> None:
        """`progress` gets bytes done and bytes to do while planning.

        Raises: NoDataDir; DirectoryLocked, while a broker runs; StorageFull; StorageFailed.
        """
        self.path = os.path.abspath(data_dir)
        if not is_data_dir(self.path):
            raise NoDataDir(f"{self.path} is no data directory of a broker")
        try:
            self._lock_fd = take_lock(self.path)
        except DirectoryLocked:
            raise
        except OSError as error:
            raise storage_error(error, "lock", self.path) from error
        self.files = LocalFiles(self.path)
        self.files.name_directory(stored_directory_id(self.files, self.path))
        self._aside = SetAside(self.files, os.path.join(self.path, SET_ASIDE_NAME))
        self._partitions_path = os.path.join(self.path, PARTITIONS_NAME)
        self._progress = progress
        self._total = total_bytes(self.path)
        self._done = 0
        self._plan = RepairPlan()
        self._cursors: JournalPositions | None = None

    def plan(self, place: str | None = None) -> RepairPlan:
        """Plan the whole repair, or only for a topic or partition; nothing is changed.

        Raises: StorageError, InvalidTopicName, NoSuchTopic.
        """
        if is_catalogue_foreign(self.files, self.path):
            self._plan.refusals.append(FOREIGN_CATALOGUE)
            return self._plan
        wanted = None
        if place is not None:
            wanted = {part.partition_id for part in find_partitions(self.path, place)}
        numbers = numbers_among(names_in(self._partitions_path))
        self._placement = placement = FolderPlacement(self.files, self._partitions_path, numbers)
        folders = {
            number: self._topic_file(folder, number) for number, folder in placement.partitions()
        }
        catalogue = self._plan_journals(folders, is_wanted=wanted is None)
        owners = {} if catalogue is None else owners_of(catalogue)
        if catalogue is not None:
            placement.decide(owners)
        moved = {*placement.strays, *placement.moves, *placement.moves.values()}
        if wanted is not None and wanted & moved:
            wanted |= moved
        is_moving = wanted is None or bool(wanted & moved)
        self._plan.refusals += placement.refusals
        if is_moving:
            self._plan.steps += placement.stray_steps(self._aside)
        for number in sorted(folders if catalogue is None else owners):
            if (wanted is None or number in wanted) and number not in placement.refused:
                self._plan_partition(number, owners.get(number), catalogue)
        if is_moving:
            self._plan.steps += placement.move_steps()
        return self._plan

    def close(self) -> None:
        """Release the directory."""
        self.files.close()
        os.close(self._lock_fd)

    # Journals

    def _plan_journals(
        self, folders: Mapping[int, TopicFile | None], *, is_wanted: bool
    ) -> Catalogue | None:
        """Return the catalogue as repaired, None if it cannot be replayed; add steps only if
        wanted.

        The cursors come first: a recreated topic must not get the cursors of another topic.
        """
        now_us = time_ns() // 1000
        if not folders and not any(self._has_segments(name) for name in JOURNAL_KINDS):
            return None
        plan = self._plan if is_wanted else RepairPlan()
        replayed = self._replay(
            CURSORS, plan, lambda records: JournalPositions(records.journal, lost=records.lost)
        )
        if replayed is not None:
            repair, self._cursors = replayed
            if repair.is_damaged:
                self._cursors.rewrite()
                plan.steps.append(repair.step(self._aside))
        self._plan_nodes(plan)
        replayed_catalogue = self._replay(
            CATALOGUE,
            plan,
            lambda records: JournalCatalogue(records.journal, now_us=now_us, lost=records.lost),
        )
        if replayed_catalogue is None:
            return None
        repair, stored = replayed_catalogue
        catalogue = stored.catalogue
        older = None
        if not repair.is_damaged:
            ids_end = catalogue.partition_ids_end
            older = older_catalogue(self._partitions_path, folders, ids_end)
        if repair.is_damaged or older:
            fitting = CatalogueRepair(catalogue, folders)
            if repair.loses or older:
                fitting.run(self._cursors, now_us)
            stored.rewrite()
            plan.steps.append(repair.step(self._aside, fitting.lines, older))
        return catalogue

    def _plan_nodes(self, plan: RepairPlan) -> None:
        """Add a step for the nodes of ZooKeeper's clients, if the directory has nodes."""
        if not self._has_segments(NODES):
            return
        replayed = self._replay(
            NODES, plan, lambda records: StoredNodes(records.journal, lost=records.lost)
        )
        if replayed is not None and replayed[0].is_damaged:
            replayed[1].rewrite()
            plan.steps.append(replayed[0].step(self._aside))

    def _replay(
        self, name: str, plan: RepairPlan, make: Callable[[JournalRepair], Replayed]
    ) -> tuple[JournalRepair, Replayed] | None:
        repair = JournalRepair(self.files, self.path, name)
        plan.refusals += repair.refusals
        if repair.refusals:
            return None
        try:
            return repair, make(repair)
        except UnknownRecord as error:
            plan.refusals.append(f"{error}; nothing of this journal is changed")
            return None

    def _has_segments(self, name: str) -> bool:
        return bool(segment_bases(names_in(os.path.join(self.path, name))))

    # Partitions

    def _topic_file(self, folder: str, number: int) -> TopicFile | None:
        """Read the topic file of that partition; return None if the file is bad or another
        partition's.
        """
        try:
            content = unpack_topic_file(self.files.read_whole(os.path.join(folder, TOPIC_NAME)))
        except (OSError, BadTopicFile):
            return None
        return content if content.partition_id == number else None

    def _plan_partition(
        self, number: int, owner: FolderOwner | None, catalogue: Catalogue | None
    ) -> None:
        present = self._placement.place_of(number)
        folder = present or self._placement.folder(number)
        content = None if present is None else self._topic_file(folder, number)
        name = str(
            owner or (content and FolderOwner(content.topic, content.partition_index)) or number
        )
        if owner is not None:
            wanted = TopicFile(number, owner.topic, owner.index)
            if content != wanted:
                is_missing = present is None or not os.path.isdir(folder)
                self._plan_topic_file(folder, wanted, name, is_missing=is_missing)
        elif content is None:
            path = os.path.join(folder, TOPIC_NAME)
            self._plan.refusals.append(f"{name}: {path}: nothing says whose partition it is")
        identity = LogIdentity(folder, KIND_PARTITION, number)
        ends = JournalledEnds(catalogue, self._cursors)
        if present is None:
            survey = Survey(identity, Watermark())  # A file with that name is moved away first.
        else:
            known_end = ends.durable_end(number)
            check = LogCheck(self.files, identity, name, running=False, known_end=known_end)
            survey = check.run(self._advance)
        first_free = 0
        if owner is not None:
            first_free = ends.first_free(number, owner)
            if present is not None:
                warning = ends.warning(number, owner, survey.end_offset)
                self._plan.warnings += [f"{name}: {warning}"] if warning else []
        if survey.holes or present is None:
            repair = PartitionRepair(self.files, self._aside, name, survey)
            repair.plan(self._plan, first_free=first_free)
        if present is not None and reservation_is_lost(self.files, identity):
            lost = ReservationRepair(self.files, self._aside, name, survey)
            self._plan.steps.append(lost.step(os.path.join(folder, RESERVED_NAME)))

    def _plan_topic_file(
        self, folder: str, wanted: TopicFile, name: str, *, is_missing: bool
    ) -> None:
        """Make folder and topic file agree with the catalogue."""
        if is_missing:
            repair = f"{folder} is missing: it is made again, and is empty"
        else:
            repair = f"{folder}: its topic file is written again as the catalogue has it"
        step = RepairStep(
            name, [f"{name}: {repair}"], lambda: self._write_topic_file(folder, wanted)
        )
        self._plan.steps.append(step)

    def _write_topic_file(self, folder: str, wanted: TopicFile) -> None:
        if not os.path.isdir(folder):
            self.files.make_folder(folder)
            self.files.sync_folder(self._partitions_path)
        path = os.path.join(folder, TOPIC_NAME)
        if os.path.exists(path):
            self._aside.copy(path, f"{wanted.partition_id}.{TOPIC_NAME}")
        write_whole(self.files, path, pack_topic_file(wanted))

    def _advance(self, size_bytes: int) -> None:
        self._done += size_bytes
        self._progress(self._done, self._total)
