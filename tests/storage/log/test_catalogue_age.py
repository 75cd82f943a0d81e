"""A catalogue from an older backup, beside newer partitions, is noticed."""

import shutil

import pytest

from braidlog.storage.errors import DamagedLog
from braidlog.storage.log.catalogue_age import older_catalogue
from braidlog.storage.tools.findings import Level
from tests.storage.log.directories import LogDirectory, levels, repaired, verified

OLDER = "the catalogue is older than the partitions"


@pytest.fixture
def older(tmp_path):
    """Return a directory with yesterday's catalogue, which lacks the second topic."""
    directory = LogDirectory(tmp_path / "data")
    directory.fill(4)
    directory.stop()
    shutil.copytree(directory.path / "catalogue", tmp_path / "yesterday")
    again = LogDirectory(directory.path)
    again.make_topic("invoices", 2)
    again.fill(4, 2)
    again.fill(4, 3)
    again.stop()
    shutil.rmtree(directory.path / "catalogue")
    shutil.copytree(tmp_path / "yesterday", directory.path / "catalogue")
    return directory.path


def test_verify_reports_a_fault(older):
    findings, report = verified(older)
    (fault,) = levels(findings, Level.FAULT)
    assert report.faults == 1 and fault.path == str(older / "catalogue")
    assert OLDER in fault.reason and "know 2 of them" in fault.reason
    assert str(older / "partitions/2") in fault.reason


def test_a_start_stops_with_that_message_and_changes_nothing(older):
    with pytest.raises(DamagedLog, match=OLDER):
        LogDirectory(older)
    assert (older / "partitions/2").is_dir() and not list((older / "set-aside").iterdir())


def test_repair_reports_the_fault_and_recreates_the_topics(older):
    lines, refusals = repaired(older)
    assert refusals == [] and OLDER in lines[0]
    assert any("invoices is made again from its 2 folders" in line for line in lines)
    findings, _ = verified(older)
    assert levels(findings, Level.FAULT) == []
    mended = LogDirectory(older)
    assert mended.aside == []
    assert [len(mended.values(number)) for number in (1, 2, 3)] == [12, 12, 12]
    mended.crash()


def test_the_folders_of_an_interrupted_creation_and_of_a_deleted_topic_are_no_evidence(tmp_path):
    directory = LogDirectory(tmp_path / "data")
    directory.fill(1)
    topic_id = directory.make_topic("deleted", 1)
    directory.fill(1, 2)
    directory.catalogue.delete_topic(topic_id)
    directory.catalogue.writer.rewrite()
    directory.stop()
    shutil.copytree(directory.path / "partitions/1", directory.path / "partitions/3")
    (directory.path / "partitions/3/watermark").unlink()  # Its records were never durable.
    assert older_catalogue(str(directory.path / "partitions"), [1, 2, 3], 3) is None
    assert levels(verified(directory.path)[0], Level.FAULT) == []
    again = LogDirectory(directory.path)
    assert len(again.aside) == 2
    again.crash()
