"""`log verify`, `dump` and `repair` over compacted segments and views."""

import os

from braidlog.storage.log.segment_header import SEGMENT_HEADER_BYTES
from braidlog.storage.tools.findings import Level
from tests.storage.log.compaction.compacting import compact_log, compact_view, read_all
from tests.storage.log.compaction.test_runs import append
from tests.storage.log.directories import repaired, verified
from tests.storage.log.logs import OneLog, flip, segment_names

SETTINGS = {"segment_bytes": 1500}


def compacted(path):
    """Return a log with a compacted segment, a view, and later records."""
    opened = OneLog(path, **SETTINGS)
    for number in range(60):
        append(opened, [(b"k%d" % (number % 7), b"%d" % number), (b"x", b"y")], "plain", number + 1)
    opened.commit()
    for _ in range(3):
        compact_log(opened)
    compact_view(opened)
    records = read_all(opened.log)
    opened.stop()
    paths = [opened.file(name) for name in segment_names(opened.folder) if "-" in name]
    return max(paths, key=os.path.getsize), records


def faults(path):
    findings, _ = verified(path)
    return [
        finding
        for finding in findings
        if "partitions" in finding.path and finding.level is Level.FAULT
    ]


def test_a_compacted_log_is_clean(tmp_path):
    compacted(tmp_path)
    assert faults(tmp_path) == []


def test_damage_in_a_compacted_segment_is_reported_and_repaired(tmp_path):
    path, before = compacted(tmp_path)
    flip(path, os.path.getsize(path) - 1)
    (fault,) = faults(tmp_path)
    assert fault.path == path
    repaired(tmp_path)
    assert faults(tmp_path) == []
    again = OneLog(tmp_path, **SETTINGS)
    assert again.log.recovery.is_clean
    after = read_all(again.log)
    assert set(after) < set(before)
    assert len(after) >= len(before) - 2
    assert os.path.exists(path)
    again.stop()


def test_a_compacted_segments_header_is_rewritten(tmp_path):
    path, before = compacted(tmp_path)
    flip(path, SEGMENT_HEADER_BYTES - 1)
    assert faults(tmp_path)
    repaired(tmp_path)
    assert faults(tmp_path) == []
    again = OneLog(tmp_path, **SETTINGS)
    assert read_all(again.log) == before
    again.stop()


def test_a_damaged_view_is_a_warning_without_repair(tmp_path):
    compacted(tmp_path)
    folder = os.path.join(tmp_path, "partitions", "1")
    (view,) = [name for name in os.listdir(folder) if name.endswith(".view")]
    path = os.path.join(folder, view)
    flip(path, os.path.getsize(path) - 1)
    assert faults(tmp_path) == []
    (warning,) = [finding for finding in verified(tmp_path)[0] if finding.path == path]
    assert warning.level is Level.WARNING
