"""Logs for tests: a partition in a folder, opened, filled and opened again."""

import os

from braidlog.storage.directory.data_dir import DataDir
from braidlog.storage.directory.directory import NewPartition
from braidlog.storage.formats.api import BodyInfo
from braidlog.storage.log.committer import Committer
from braidlog.storage.log.local_files import LocalFiles
from braidlog.storage.log.settings import LogSettings

FORMAT = 1

SETTINGS = ("segment_bytes", "index_interval_bytes")


class OneLog:
    """A data directory with partition 1, and its committer."""

    def __init__(self, path, disk=None, **settings):
        self.path = os.fspath(path)
        os.makedirs(self.path, exist_ok=True)
        self.files = LocalFiles(self.path, disk)
        self.committer = Committer(self.files)
        self.settings = LogSettings(**settings)
        self.data_dir = DataDir.open(self.path, self.files)
        if self.data_dir.partition_ids():
            self.log = self.data_dir.open_partition(1, self.settings, self.committer)
        else:
            self.log = self.data_dir.create_partitions(
                [NewPartition(1, "public/default/orders", 0)], self.settings, self.committer
            )[0]

    @property
    def folder(self):
        return os.path.join(self.path, "partitions", "1")

    def file(self, name):
        return os.path.join(self.folder, name)

    def append(self, body=b"body", count=1, *, append_us=1_000_000, **more):
        return self.log.append(
            [body], BodyInfo(count, **more), body_format=FORMAT, append_us=append_us
        )

    def commit(self):
        self.committer.commit()

    def fill(self, bodies, count=1, *, commit=True):
        """Append the bodies, with a commit after each by default."""
        for number, body in enumerate(bodies):
            self.append(body, count, append_us=1_000_000 + number)
            if commit:
                self.commit()

    def all_bodies(self, bytes_max=1 << 20):
        return [bytes(batch.body) for batch in self.all_batches(bytes_max)]

    def all_batches(self, bytes_max=1 << 20):
        batches_read, offset = [], self.log.log_start_offset
        while batches := self.log.read(offset, bytes_max):
            batches_read += batches
            offset = batches[-1].next_offset
        return batches_read

    def crash(self):
        """End like a killed process: nothing more is written."""
        self.data_dir.abandon()

    def stop(self):
        self.data_dir.close(self.committer)

    def again(self, disk=None, **settings):
        """Return the log after a restart, with all kept data synced."""
        again = OneLog(self.path, disk, **settings)
        again.commit()
        return again


def segment_names(folder):
    return sorted(name for name in os.listdir(folder) if name.endswith(".log"))


def flip(path, pos, mask=0x40):
    """Damage a byte of a file."""
    with open(path, "r+b") as file:
        file.seek(pos)
        byte = file.read(1)[0]
        file.seek(pos)
        file.write(bytes([byte ^ mask]))


def before_and_after_restart(opened):
    """Yield the log, then the log after a clean restart."""
    yield opened.log
    opened.stop()
    yield OneLog(opened.path, **{name: getattr(opened.settings, name) for name in SETTINGS}).log
