"""A catalogue from an older backup, beside newer partitions, is noticed."""

import shutil

import pytest

from braidlog.storage.errors import DamagedLog
from braidlog.storage.log.catalogue_age import older_catalogue
from braidlog.storage.tools.findings import Level
from tests.storage.log.directories import Directory, levels, repaired, verified

OLDER = "the catalogue is older than the partitions"


@pytest.fixture
def older(tmp_path):
    """Return a directory with yesterday's catalogue, which lacks the second topic."""
    one = Directory(tmp_path / "data")
    one.fill(4)
    one.stop()
    shutil.copytree(one.path / "catalogue", tmp_path / "yesterday")
    again = Directory(one.path)
    again.make_topic("invoices", 2)
    again.fill(4, 2)
    again.fill(4, 3)
    again.stop()
    shutil.rmtree(one.path / "catalogue")
    shutil.copytree(tmp_path / "yesterday", one.path / "catalogue")
    return one.path


def test_verify_reports_a_fault(older):
    found, report = verified(older)
    (fault,) = levels(found, Level.FAULT)
    assert report.faults == 1 and fault.path == str(older / "catalogue")
    assert OLDER in fault.reason and "know 2 of them" in fault.reason
    assert str(older / "partitions/2") in fault.reason


def test_a_start_stops_with_that_message_and_changes_nothing(older):
    with pytest.raises(DamagedLog, match=OLDER):
        Directory(older)
    assert (older / "partitions/2").is_dir() and not list((older / "set-aside").iterdir())


def test_repair_reports_the_fault_and_recreates_the_topics(older):
    lines, refusals = repaired(older)
    assert refusals == [] and OLDER in lines[0]
    assert any("invoices is made again from its 2 folders" in line for line in lines)
    found, _ = verified(older)
    assert levels(found, Level.FAULT) == []
    mended = Directory(older)
    assert mended.aside == []
    assert [len(mended.values(number)) for number in (1, 2, 3)] == [12, 12, 12]
    mended.crash()


def test_the_folders_of_an_interrupted_creation_and_of_a_deleted_topic_are_no_evidence(tmp_path):
    one = Directory(tmp_path / "data")
    one.fill(1)
    topic_id = one.make_topic("deleted", 1)
    one.fill(1, 2)
    one.catalogue.delete_topic(topic_id)
    one.catalogue.writer.rewrite()
    one.stop()
    shutil.copytree(one.path / "partitions/1", one.path / "partitions/3")
    (one.path / "partitions/3/watermark").unlink()  # Its records were never durable.
    assert older_catalogue(str(one.path / "partitions"), [1, 2, 3], 3) is None
    assert levels(verified(one.path)[0], Level.FAULT) == []
    again = Directory(one.path)
    assert len(again.aside) == 2
    again.crash()
