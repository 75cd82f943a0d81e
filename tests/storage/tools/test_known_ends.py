"""Logs that end below the ends in the journals: older files, or a log that was cut short."""

import os
import shutil

import pytest

from braidlog.storage.tools.findings import Level
from braidlog.storage.tools.repair import Repair
from tests.storage.log.directories import LogDirectory, repaired, verified
from tests.storage.tools.conftest import SMALL


class Noting(LogDirectory):
    """A directory that notes the ends of its logs, like a broker."""

    def _open(self):
        super()._open()
        store = self.cursors
        self.data_dir.follow_ends(lambda ends: store.set_ends(store.ends.news(ends)))


def warnings_of(path):
    findings, report = verified(path)
    findings = [finding for finding in findings if finding.level is not Level.NOTE]
    assert report.faults == 0 and report.warnings == len(findings)
    repair = Repair(path, lambda done, total: None)
    plan = repair.plan()
    repair.close()
    return [finding.reason for finding in findings], plan


@pytest.fixture
def noting(tmp_path):
    directory = Noting(tmp_path / "data", **SMALL)
    directory.fill(12)
    return directory


def test_full_segments_and_a_stop_note_the_end(noting):
    base = int(noting.segments()[-1].stem)
    assert base <= noting.cursors.ends.get(1) <= 36
    noting.stop()
    again = Noting(noting.path, **SMALL)
    assert again.cursors.ends.get(1) == 36
    again.fill(1)
    again.crash()
    assert warnings_of(noting.path)[0] == [], "a log may have grown since"


def test_an_older_folder_with_newer_positions_is_a_warning(noting, tmp_path):
    noting.stop()
    shutil.copytree(noting.path / "partitions", tmp_path / "older")
    again = Noting(noting.path, **SMALL)
    again.fill(4)
    again.stop()
    shutil.rmtree(noting.path / "partitions")
    shutil.copytree(tmp_path / "older", noting.path / "partitions")
    (reason,), plan = warnings_of(noting.path)
    assert "ends at 36" in reason and "below 48 was on disk" in reason
    assert "offsets 36 to 47 are lost" in plan.steps[0].lines[0]
    repaired(noting.path)
    assert verified(noting.path)[0] == []
    mended = Noting(noting.path, **SMALL)
    assert mended.append() == 48
    assert set(mended.values()) == set(range(36))
    mended.crash()


def test_an_emptied_active_segment_without_watermark_is_a_warning(tmp_path):
    directory = Noting(tmp_path / "data")
    directory.fill(4)
    directory.stop()
    os.truncate(directory.segments()[-1], 0)
    (directory.path / "partitions/1/watermark").unlink()
    (directory.path / "partitions/1" / f"{0:020d}.index").unlink()
    (reason,), plan = warnings_of(directory.path)
    assert "below 12 was on disk" in reason
    assert plan.steps
    repaired(directory.path)
    assert verified(directory.path)[0] == []
    mended = Noting(directory.path)
    assert mended.append() == 12
    mended.crash()


def test_a_position_above_the_end_is_a_warning_and_nothing_continues_above_it(noting):
    noting.move_cursor(1 << 50)
    noting.stop()
    (reason,), plan = warnings_of(noting.path)
    assert "ends at 36" in reason and str(1 << 50) in reason
    assert plan.steps == [] and plan.warnings == [f"public/default/orders/0: {reason}"]
    shutil.rmtree(noting.path / "partitions/1")
    repaired(noting.path)
    mended = Noting(noting.path, **SMALL)
    assert mended.append() == 36
    mended.crash()


def test_a_log_with_an_unknown_end_continues_above_the_positions(tmp_path):
    directory = LogDirectory(tmp_path / "data")
    directory.fill(4)
    directory.move_cursor(7)
    directory.stop()
    shutil.rmtree(directory.path / "partitions/1")
    repaired(directory.path)
    mended = LogDirectory(directory.path)
    assert mended.append() == 7
    mended.crash()


def test_a_removed_partition_is_forgotten(noting):
    noting.data_dir.retire_partition(1)
    assert noting.cursors.ends.get(1) == 0
    noting.crash()
