"""Power cuts at any disk call of compactions: either the old files count or the new files.

No key's latest record is lost, no replaced or deleted record returns, and the log continues.
"""

import os
import random
from contextlib import suppress

import pytest

from braidlog.storage.log.compaction.runs import LogCompaction, ViewCompaction
from braidlog.storage.log.files import FileGone
from conformance.simulation.calls import RENAME, UNLINK, TracedDisk
from conformance.simulation.medium import PLAIN, Medium, choose_loss
from conformance.simulation.scratch import empty
from tests.storage.log.compaction.compacting import HOUR_US, read_all, read_view
from tests.storage.log.compaction.test_runs import append, fill
from tests.storage.log.logs import OneLog

FORMATS = ("plain", "kafka", "pulsar")
# A cut follows each change of names, and regularly other calls.
NAMES = (RENAME, UNLINK)
EACH = 19
SETTINGS = {"segment_bytes": 1200, "index_interval_bytes": 512, "delete_retention_ms": 0}


class Worked:
    """A log that was filled and compacted on a recording disk, and the promises
    with their times.
    """

    def __init__(self, path, rng):
        self.rng = rng
        folder = empty(os.path.join(path, "life"))
        OneLog(folder, **SETTINGS).stop()
        self.disk = TracedDisk(folder)
        self.medium = Medium.of(folder, self.disk.names.numbers)
        self.one = OneLog(folder, self.disk, **SETTINGS)
        self.records = []
        self.promises = []  # (calls so far, durable offset, log start, end of the view)
        self.view_start = None  # The log start when the first view was created.
        self.hour = 0

    def work(self, steps):
        for _ in range(steps):
            draw = self.rng.random()
            if draw < 0.6:
                self.records += fill(self.one, self.rng, 6, formats=FORMATS, keys=5)
                self.promise()
            elif draw < 0.8:
                end_offset = self.one.log.compacted.closed_offset(1 << 62)
                self.hour += 1
                now_us = self.hour * HOUR_US
                if end_offset:
                    self.compact(LogCompaction(self.one.log, self.one.files, now_us, end_offset))
            elif draw < 0.95:
                if self.view_start is None:
                    self.view_start = self.one.log.log_start_offset
                self.compact(ViewCompaction(self.one.log, self.one.files))
            else:
                self.one.log.drop(1)
                self.one.commit()
                self.promise()

    def compact(self, compaction):
        """Run a compaction; some end early, and other appends come meanwhile."""
        steps = compaction.steps()
        with suppress(FileGone):
            for step in steps:
                if self.rng.random() < 0.02:
                    break
                if self.rng.random() < 0.05:
                    self.records += append(self.one, [(b"key-0", b"beside")], "plain", 1)
                if step is not None:
                    if not compaction.publish(step):
                        break
                    self.one.commit()
                    self.promise()
        steps.close()

    def promise(self):
        log = self.one.log
        horizon = log.compacted.view.horizon if log.compacted.view else 0
        calls = len(self.disk.calls)
        self.promises.append((calls, log.durable_offset, log.log_start_offset, horizon))


def check(path, worked, promised):
    """Start on the state after the cut, compare, restart, compare."""
    _, durable, start, horizon = promised
    seen = None
    for _ in range(2):
        opened = OneLog(path, **SETTINGS)
        assert opened.log.recovery.damages == []
        opened.commit()
        log = opened.log
        assert log.log_end_offset >= durable
        assert log.log_start_offset >= start or seen is None
        records = read_all(log)
        check_latest(records, worked.records, log.log_start_offset, log.log_end_offset)
        assert (log.compacted.view.horizon if log.compacted.view else 0) >= horizon
        view_start = 0 if log.compacted.view else log.log_start_offset
        view = read_view(log, view_start)
        view_start = worked.view_start if log.compacted.view else log.log_start_offset
        check_latest(view, worked.records, view_start, log.log_end_offset, is_view=True)
        assert seen in (None, (records, view))
        seen = records, view
        opened.commit()
        assert not [name for name in os.listdir(opened.folder) if name.endswith(".new")]
        opened.stop()


def check_latest(read, records, start, end, *, is_view=False):
    """Check that the latest of each key exists, or is a tombstone without older records."""
    written = set(records)
    assert all(record in written for record in read)
    assert [record[0] for record in read] == sorted({record[0] for record in read})
    latest = {key: (offset, value) for offset, key, value in records if start <= offset < end}
    last = {key: (offset, value) for offset, key, value in read}
    for key, (offset, value) in latest.items():
        if key is None:
            continue
        is_tombstone = value is None or (is_view and not value)
        assert last.get(key) == (offset, value) or (is_tombstone and key not in last), key
    if not is_view:
        keyless = [record for record in records if record[1] is None and start <= record[0] < end]
        assert [record for record in read if record[1] is None and record[0] >= start] == keyless


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_no_cut_within_a_compaction_loses_or_brings_back_a_record(tmp_path, seed):
    rng = random.Random(seed)
    worked = Worked(tmp_path, rng)
    worked.promise()
    worked.work(14)
    worked.one.crash()
    promised, later = worked.promises[0], worked.promises[1:]
    for stamp, call in enumerate(worked.disk.calls, 1):
        worked.medium.take(call)
        while later and later[0][0] <= stamp:
            promised = later.pop(0)
        if call.kind not in NAMES and stamp % EACH:
            continue
        loss = PLAIN[stamp % len(PLAIN)] if stamp % 2 else choose_loss(rng)
        path = empty(os.path.join(tmp_path, "state"))
        worked.medium.cut(rng, loss).write(path)
        try:
            check(path, worked, promised)
        except Exception as error:
            raise AssertionError(f"seed {seed}, call {stamp}, {call}, {loss}") from error
