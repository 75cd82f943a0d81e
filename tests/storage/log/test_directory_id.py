"""A data directory has an id, and its files name it; files of another directory are found."""

import os
import shutil

import pytest

from braidlog.storage.directory.data_dir import DataDir
from braidlog.storage.errors import DamagedLog
from braidlog.storage.log.committer import Committer
from braidlog.storage.log.directory_id import id_of_cluster, named_elsewhere, stored_directory_id
from braidlog.storage.log.folder_reader import open_folder
from braidlog.storage.log.local_files import LocalFiles
from braidlog.storage.log.segment_header import unpack_segment_header
from braidlog.storage.metadata.journal_catalogue import JournalCatalogue
from braidlog.storage.tools.repair import Repair
from tests.storage.files_twins import FailingDisk
from tests.storage.log.directories import LogDirectory, repaired, verified

SMALL = {"segment_bytes": 1600, "index_interval_bytes": 300}


def ids_of(directory):
    """Return the ids in all segment files of a directory."""
    paths = directory.path.glob("**/*.log")
    return {unpack_segment_header(path.read_bytes()).directory_id for path in paths}


def filled(path, **settings):
    directory = LogDirectory(path, partitions=2, **SMALL | settings)
    directory.fill(12)
    directory.move_cursor(5)
    return directory


class Unnamed(LogDirectory):
    """A directory as an earlier version creates and opens it."""

    def _open(self):
        self.data_dir.files.name_directory(0)
        super()._open()


def test_every_file_of_a_directory_names_it(tmp_path):
    directory, other = filled(tmp_path / "one"), filled(tmp_path / "other")
    (number,), (other_number,) = ids_of(directory), ids_of(other)
    assert number and other_number and number != other_number
    directory.catalogue.writer.rewrite()
    directory.stop()
    again = LogDirectory(directory.path, **SMALL)
    again.fill(12)
    assert ids_of(again) == {number}
    assert stored_directory_id(again.data_dir.files, str(directory.path)) == number


def test_a_directory_of_an_earlier_version_gets_its_id_with_the_catalogue(tmp_path):
    directory = Unnamed(tmp_path / "data", **SMALL)
    directory.fill(12)
    directory.stop()
    assert ids_of(directory) == {0} and verified(directory.path)[0] == []
    again = LogDirectory(directory.path, **SMALL)
    again.data_dir.take_id(again.catalogue.writer.rewrite, again.committer)
    number = again.data_dir.files.directory_id
    (base,) = (directory.path / "catalogue").glob("*.log")
    assert unpack_segment_header(base.read_bytes()).directory_id == number != 0
    again.fill(12)
    assert ids_of(again) == {0, number}
    again.data_dir.take_id(lambda: pytest.fail("it has one"), again.committer)
    again.stop()
    findings, report = verified(directory.path)
    assert (findings, report.warnings) == ([], 0)


def test_without_room_for_an_id_the_directory_works_without(tmp_path):
    directory = Unnamed(tmp_path / "data")
    directory.stop()
    disk = FailingDisk()
    data_dir = DataDir.open(directory.path, LocalFiles(directory.path, disk))
    committer = Committer(data_dir.files)
    catalogue = JournalCatalogue(data_dir.open_journal("catalogue", committer), now_us=1).catalogue
    disk.fail("write", 28)
    data_dir.take_id(catalogue.writer.rewrite, committer)
    assert data_dir.files.directory_id == 0
    disk.heal()
    data_dir.close(committer)
    assert ids_of(directory) == {0}


def test_a_directory_without_catalogue_has_the_id_of_its_files(tmp_path):
    directory = filled(tmp_path / "data")
    directory.stop()
    files = LocalFiles(directory.path)
    (number,) = ids_of(directory)
    assert named_elsewhere(files, str(directory.path)) == number
    shutil.rmtree(directory.path / "catalogue")
    assert stored_directory_id(files, str(directory.path)) == number
    repair = Repair(directory.path, lambda done, total: None)
    for step in repair.plan().steps:
        step.apply()
    repair.close()
    assert ids_of(directory) == {number}


def test_a_directory_whose_only_journal_is_of_nodes_has_the_id_of_that_journal(tmp_path):
    directory = filled(tmp_path / "data")
    directory.stop()
    files = LocalFiles(directory.path)
    (number,) = ids_of(directory)
    os.rename(directory.path / "cursors", directory.path / "nodes")
    shutil.rmtree(directory.path / "catalogue")
    shutil.rmtree(directory.path / "partitions")
    assert stored_directory_id(files, str(directory.path)) == number


def mix_up(tmp_path, *names):
    """Return two equal directories, the first with these files of the second."""
    directory, other = filled(tmp_path / "one"), filled(tmp_path / "other")
    directory.stop()
    other.stop()
    for name in names:
        source, target = other.path / name, directory.path / name
        if source.is_dir():
            shutil.rmtree(target)
            shutil.copytree(source, target)
        else:
            shutil.copy(source, target)
    return directory


PARTITION = "partitions/1"


FOREIGN = "names another data directory"


def planned(path):
    repair = Repair(path, lambda done, total: None)
    try:
        return repair.plan()
    finally:
        repair.close()


@pytest.mark.parametrize("name", [PARTITION, "cursors"])
def test_files_of_another_directory_are_faults_that_a_repair_sets_aside(tmp_path, name):
    directory = mix_up(tmp_path, name)
    foreign = len(list((directory.path / name).glob("*.log")))
    findings, report = verified(directory.path)
    assert report.faults == len(findings) == foreign
    assert all(FOREIGN in finding.reason for finding in findings)
    repaired(directory.path)
    assert verified(directory.path)[0] == []
    assert len(list((directory.path / "set-aside").glob("*.log"))) == foreign
    again = LogDirectory(directory.path, **SMALL)
    assert len(again.values(1)) == (0 if name == PARTITION else 36)
    assert again.append() == 36
    again.crash()


def test_repair_does_not_give_up_every_file_for_a_catalogue_of_another_directory(tmp_path):
    directory = mix_up(tmp_path, "catalogue")
    assert verified(directory.path)[1].faults > 0
    plan = planned(directory.path)
    assert plan.steps == [] and "catalogue belongs to another" in plan.refusals[0]


def test_a_start_serves_no_record_of_another_directory(tmp_path):
    directory = mix_up(tmp_path, PARTITION)
    again = LogDirectory(directory.path, **SMALL)
    (damage,) = again.logs[1].recovery.damages
    assert FOREIGN in damage.reason and damage.path.startswith(str(directory.path / PARTITION))
    with pytest.raises(DamagedLog, match=FOREIGN):
        again.values(1)
    with pytest.raises(DamagedLog, match=FOREIGN):
        again.append(1)
    assert again.logs[2].recovery.is_clean
    again.crash()


def test_a_segment_of_another_directory_is_found_when_it_is_first_read(tmp_path):
    """A start reads the last segment of a log; this is an earlier segment."""
    other = filled(tmp_path / "other")
    directory = filled(tmp_path / "one")
    directory.stop()
    earlier = directory.segments()[1].name
    other.stop()
    shutil.copy(other.file(earlier), directory.file(earlier))
    again = LogDirectory(directory.path, **SMALL)
    log = again.logs[1]
    assert log.recovery.is_clean
    offset = int(earlier.removesuffix(".log"))
    assert log.read(0, 1)[0].base_offset == 0
    with pytest.raises(DamagedLog, match=FOREIGN):
        log.read(offset, 1)
    assert again.append() == 36
    again.stop()
    with open_folder(directory.file("")) as beside, pytest.raises(DamagedLog, match=FOREIGN):
        list(beside.batches(offset))


def test_a_start_stops_at_positions_of_another_directory(tmp_path):
    directory = mix_up(tmp_path, "cursors")
    with pytest.raises(DamagedLog, match=FOREIGN):
        LogDirectory(directory.path, **SMALL)


def test_a_cluster_always_has_the_same_id():
    assert id_of_cluster("a") == id_of_cluster("a") != id_of_cluster("b")
