"""Power cuts at any moment: acknowledged records exist, and only written records."""

import random

import pytest

from braidlog.storage.directory.data_dir import DataDir
from braidlog.storage.directory.directory import NewPartition
from braidlog.storage.formats.api import BodyInfo
from braidlog.storage.log.committer import Committer
from braidlog.storage.log.local_files import LocalFiles
from braidlog.storage.log.settings import LogSettings
from tests.storage.files_twins import RecordingDisk
from tests.storage.log.power import Power

STATES = 12


class Witness:
    """Works on a log and a journal, and records each promise with its call."""

    def __init__(self, path, rng, settings):
        path.mkdir()
        self.path = path
        self.rng = rng
        self.settings = settings
        self.disk = RecordingDisk()
        files = LocalFiles(path, self.disk)
        if rng.random() < 0.5:
            files.adopt("/proc")  # Each file separately.
        self.committer = Committer(files)
        self.data_dir = DataDir.open(path, files)
        self.log = self.data_dir.create_partitions(
            [NewPartition(1, "public/default/t", 0)], settings, self.committer
        )[0]
        self.journal = self.data_dir.open_journal("cursors", self.committer)
        self.written = {}
        self.said = []
        self.promises = [self.promise()]

    def promise(self):
        """Return (calls so far, log start, log end, journal records): durable from now on."""
        durable = self.log.durable_offset
        return len(self.disk.calls), self.log.log_start_offset, durable, len(self.said)

    def work(self, steps):
        for number in range(steps):
            draw = self.rng.random()
            if draw < 0.5:
                body = self.rng.randbytes(self.rng.choice([3, 200, 1500]))
                self.written[self.append(body)] = body
            elif draw < 0.7:
                self.say(number)
            elif draw < 0.75:
                self.journal.snapshot([b"%d" % number for number in self.said])
            elif draw < 0.8:
                self.log.retain(now_us=0)
            else:
                self.committer.commit()
                self.promises.append(self.promise())

    def append(self, body):
        return self.log.append([body], BodyInfo(1), body_format=1, append_us=1)

    def say(self, number):
        self.said.append(number)
        self.journal.append(b"%d" % number)


def check(folder, witness, promised):
    """Start on the state after the cut, and compare."""
    _, log_start, durable, acked_count = promised
    files = LocalFiles(folder)
    committer = Committer(files)
    data_dir = DataDir.open(folder, files)
    log = data_dir.open_partition(1, witness.settings, committer)
    journal = data_dir.open_journal("cursors", committer)
    committer.commit()
    assert log.recovery.damages == []
    assert log.log_start_offset >= log_start
    assert log.log_end_offset >= durable
    offset = log.log_start_offset
    while batches := log.read(offset, 10_000):
        for batch in batches:
            assert bytes(batch.body) == witness.written[batch.base_offset]
        offset = batches[-1].next_offset
    assert offset == log.log_end_offset
    records = [int(body) for body in journal.replay()]
    assert records == witness.said[: len(records)]
    assert len(records) >= acked_count
    assert log.append([b"next"], BodyInfo(1), body_format=1, append_us=1) == offset
    journal.append(b"0")
    data_dir.close(committer)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_power_cuts_lose_no_acknowledged_record(tmp_path, seed):
    rng = random.Random(seed)
    settings = LogSettings(
        segment_bytes=rng.choice([2000, 6000]), index_interval_bytes=300, retention_bytes=9000
    )
    witness = Witness(tmp_path / "run", rng, settings)
    witness.work(60)
    calls = witness.disk.calls
    first = witness.promises[0][0]
    for number in range(STATES):
        cut = rng.randint(first, len(calls))
        promised = [promise for promise in witness.promises if promise[0] <= cut][-1]
        folder = tmp_path / str(number)
        folder.mkdir()
        Power(calls[:cut], witness.path).leave(folder, rng)
        check(folder, witness, promised)
    witness.data_dir.abandon()
