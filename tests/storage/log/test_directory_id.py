"""A data directory has an id, and its files name it; files of another directory are found."""

import shutil

import pytest

from braidlog.storage.log.committer import Committer
from braidlog.storage.log.data_dir import DataDir
from braidlog.storage.log.directory_id import id_of_cluster, named_elsewhere, stored_directory_id
from braidlog.storage.log.files import Files
from braidlog.storage.log.segment import unpack_segment_header
from braidlog.storage.metadata.catalogue import Catalogue
from braidlog.storage.tools.findings import Level
from braidlog.storage.tools.repair import Repair
from tests.storage.files_twins import FailingDisk
from tests.storage.log.directories import Directory, verified

SMALL = {"segment_bytes": 1600, "index_interval_bytes": 300}


def ids_of(one):
    """The ids that all segment files of a directory name."""
    paths = one.path.glob("**/*.log")
    return {unpack_segment_header(path.read_bytes()).directory_id for path in paths}


def filled(path, **settings):
    one = Directory(path, partitions=2, **SMALL | settings)
    one.fill(12)
    one.move_cursor(5)
    return one


class Unnamed(Directory):
    """A directory as an earlier version makes it, and opens it again."""

    def _open(self):
        self.data_dir.files.directory_id = 0
        super()._open()


def test_every_file_of_a_directory_names_it(tmp_path):
    one, other = filled(tmp_path / "one"), filled(tmp_path / "other")
    (number,), (other_number,) = ids_of(one), ids_of(other)
    assert number and other_number and number != other_number
    one.catalogue.rewrite()
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
    again.data_dir.take_id(again.catalogue.rewrite, again.committer)
    number = again.data_dir.files.directory_id
    (base,) = (one.path / "catalogue").glob("*.log")
    assert unpack_segment_header(base.read_bytes()).directory_id == number != 0
    again.fill(12)
    assert ids_of(again) == {0, number}
    again.data_dir.take_id(lambda: pytest.fail("it has one"), again.committer)
    again.stop()
    found, report = verified(one.path)
    assert (found, report.warnings) == ([], 0)


def test_without_room_for_an_id_everything_goes_on_without(tmp_path):
    one = Unnamed(tmp_path / "data")
    one.stop()
    disk = FailingDisk()
    data_dir = DataDir.open(one.path, Files(one.path, disk))
    committer = Committer(data_dir.files)
    catalogue = Catalogue(data_dir.open_journal("catalogue", committer), now_us=1)
    disk.fail("write", 28)
    data_dir.take_id(catalogue.rewrite, committer)
    assert data_dir.files.directory_id == 0
    disk.heal()
    data_dir.close(committer)
    assert ids_of(one) == {0}


def test_a_directory_without_catalogue_has_the_id_that_its_files_name(tmp_path):
    one = filled(tmp_path / "data")
    one.stop()
    files = Files(one.path)
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
    """Two equal directories, with these files of the second in the first one."""
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


@pytest.mark.parametrize("name", [PARTITION, "cursors", "catalogue"])
def test_files_of_another_directory_are_a_warning_of_verify_and_repair(tmp_path, name):
    one = mix_up(tmp_path, name)
    found, report = verified(one.path)
    assert report.faults == 0 and report.warnings == len(found) > 0
    assert {one.level for one in found} == {Level.WARNING}
    assert all("another data directory" in one.reason for one in found)
    repair = Repair(one.path, lambda done, total: None)
    plan = repair.plan()
    repair.close()
    assert plan.steps == [] and len(plan.warnings) == len(found)


def test_a_start_warns_of_a_last_segment_of_another_directory(tmp_path):
    one = mix_up(tmp_path, PARTITION)
    again = Directory(one.path, **SMALL)
    assert not again.logs[2].recovery.foreign
    report = again.logs[1].recovery
    (path,) = report.foreign
    assert path.startswith(str(one.path / PARTITION)) and not report.is_clean
    assert len(again.values()) == 36, "it is served as before"
    again.crash()


def test_a_start_warns_of_positions_of_another_directory(tmp_path):
    one = mix_up(tmp_path, "cursors")
    again = Directory(one.path, **SMALL)
    catalogue, cursors = again.data_dir._journals
    assert not catalogue.recovery.foreign and len(cursors.recovery.foreign) == 1
    again.crash()


def test_a_cluster_has_always_the_same_id():
    assert id_of_cluster("a") == id_of_cluster("a") != id_of_cluster("b")
