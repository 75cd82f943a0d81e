"""A data directory has an id, and its files name it; files of another directory are found."""

import shutil

import pytest

from braidlog.storage.directory.data_dir import DataDir
from braidlog.storage.errors import DamagedLog
from braidlog.storage.log.committer import Committer
from braidlog.storage.log.directory_id import id_of_cluster, named_elsewhere, stored_directory_id
from braidlog.storage.log.local_files import LocalFiles
from braidlog.storage.log.reader import open_folder
from braidlog.storage.log.segment_header import unpack_segment_header
from braidlog.storage.metadata.journal_catalogue import JournalCatalogue
from braidlog.storage.tools.repair import Repair
from tests.storage.files_twins import FailingDisk
from tests.storage.log.directories import Directory, repaired, verified

SMALL = {"segment_bytes": 1600, "index_interval_bytes": 300}


def ids_of(one):
    """Return the ids in all segment files of a directory."""
    paths = one.path.glob("**/*.log")
    return {unpack_segment_header(path.read_bytes()).directory_id for path in paths}


def filled(path, **settings):
    one = Directory(path, partitions=2, **SMALL | settings)
    one.fill(12)
    one.move_cursor(5)
    return one


class Unnamed(Directory):
    """A directory as an earlier version creates and opens it."""

    def _open(self):
        self.data_dir.files.name_directory(0)
        super()._open()


def test_every_file_of_a_directory_names_it(tmp_path):
    one, other = filled(tmp_path / "one"), filled(tmp_path / "other")
    (number,), (other_number,) = ids_of(one), ids_of(other)
    assert number and other_number and number != other_number
    one.catalogue.writer.rewrite()
    one.stop()
    again = Directory(one.path, **SMALL)
    again.fill(12)
    assert ids_of(again) == {number}
    assert stored_directory_id(again.data_dir.files, str(one.path)) == number


def test_a_directory_of_an_earlier_version_gets_its_id_with_the_catalogue(tmp_path):
    one = Unnamed(tmp_path / "data", **SMALL)
    one.fill(12)
    one.stop()
    assert ids_of(one) == {0} and verified(one.path)[0] == []
    again = Directory(one.path, **SMALL)
    again.data_dir.take_id(again.catalogue.writer.rewrite, again.committer)
    number = again.data_dir.files.directory_id
    (base,) = (one.path / "catalogue").glob("*.log")
    assert unpack_segment_header(base.read_bytes()).directory_id == number != 0
    again.fill(12)
    assert ids_of(again) == {0, number}
    again.data_dir.take_id(lambda: pytest.fail("it has one"), again.committer)
    again.stop()
    found, report = verified(one.path)
    assert (found, report.warnings) == ([], 0)


def test_without_room_for_an_id_the_directory_works_without(tmp_path):
    one = Unnamed(tmp_path / "data")
    one.stop()
    disk = FailingDisk()
    data_dir = DataDir.open(one.path, LocalFiles(one.path, disk))
    committer = Committer(data_dir.files)
    catalogue = JournalCatalogue(data_dir.open_journal("catalogue", committer), now_us=1).catalogue
    disk.fail("write", 28)
    data_dir.take_id(catalogue.writer.rewrite, committer)
    assert data_dir.files.directory_id == 0
    disk.heal()
    data_dir.close(committer)
    assert ids_of(one) == {0}


def test_a_directory_without_catalogue_has_the_id_of_its_files(tmp_path):
    one = filled(tmp_path / "data")
    one.stop()
    files = LocalFiles(one.path)
    (number,) = ids_of(one)
    assert named_elsewhere(files, str(one.path)) == number
    shutil.rmtree(one.path / "catalogue")
    assert stored_directory_id(files, str(one.path)) == number
    repair = Repair(one.path, lambda done, total: None)
    for step in repair.plan().steps:
        step.apply()
    repair.close()
    assert ids_of(one) == {number}


def mix_up(tmp_path, *names):
    """Return two equal directories, the first with these files of the second."""
    one, other = filled(tmp_path / "one"), filled(tmp_path / "other")
    one.stop()
    other.stop()
    for name in names:
        source, target = other.path / name, one.path / name
        if source.is_dir():
            shutil.rmtree(target)
            shutil.copytree(source, target)
        else:
            shutil.copy(source, target)
    return one


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
    one = mix_up(tmp_path, name)
    foreign = len(list((one.path / name).glob("*.log")))
    found, report = verified(one.path)
    assert report.faults == len(found) == foreign
    assert all(FOREIGN in one.reason for one in found)
    repaired(one.path)
    assert verified(one.path)[0] == []
    assert len(list((one.path / "set-aside").glob("*.log"))) == foreign
    again = Directory(one.path, **SMALL)
    assert len(again.values(1)) == (0 if name == PARTITION else 36)
    assert again.append() == 36
    again.crash()


def test_repair_does_not_give_up_every_file_for_a_catalogue_of_another_directory(tmp_path):
    one = mix_up(tmp_path, "catalogue")
    assert verified(one.path)[1].faults > 0
    plan = planned(one.path)
    assert plan.steps == [] and "catalogue belongs to another" in plan.refusals[0]


def test_a_start_serves_no_record_of_another_directory(tmp_path):
    one = mix_up(tmp_path, PARTITION)
    again = Directory(one.path, **SMALL)
    (damage,) = again.logs[1].recovery.damages
    assert FOREIGN in damage.reason and damage.path.startswith(str(one.path / PARTITION))
    with pytest.raises(DamagedLog, match=FOREIGN):
        again.values(1)
    with pytest.raises(DamagedLog, match=FOREIGN):
        again.append(1)
    assert again.logs[2].recovery.is_clean
    again.crash()


def test_a_segment_of_another_directory_is_found_when_it_is_first_read(tmp_path):
    """A start reads the last segment of a log; this is an earlier segment."""
    other = filled(tmp_path / "other")
    one = filled(tmp_path / "one")
    one.stop()
    earlier = one.segments()[1].name
    other.stop()
    shutil.copy(other.file(earlier), one.file(earlier))
    again = Directory(one.path, **SMALL)
    log = again.logs[1]
    assert log.recovery.is_clean
    offset = int(earlier.removesuffix(".log"))
    assert log.read(0, 1)[0].base_offset == 0
    with pytest.raises(DamagedLog, match=FOREIGN):
        log.read(offset, 1)
    assert again.append() == 36
    again.stop()
    with open_folder(one.file("")) as beside, pytest.raises(DamagedLog, match=FOREIGN):
        list(beside.batches(offset))


def test_a_start_stops_at_positions_of_another_directory(tmp_path):
    one = mix_up(tmp_path, "cursors")
    with pytest.raises(DamagedLog, match=FOREIGN):
        Directory(one.path, **SMALL)


def test_a_cluster_always_has_the_same_id():
    assert id_of_cluster("a") == id_of_cluster("a") != id_of_cluster("b")
