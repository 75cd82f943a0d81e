"""Whole data directories for tests: catalogue, cursors and a topic with records of every format."""

import os
from pathlib import Path

from braidlog.storage.directory.data_dir import DataDir
from braidlog.storage.directory.directory import NewPartition
from braidlog.storage.formats.record import Record
from braidlog.storage.formats.registry import codec_for, codec_named
from braidlog.storage.log.committer import Committer
from braidlog.storage.log.layout import ALL_JOURNAL_KINDS
from braidlog.storage.log.local_files import LocalFiles
from braidlog.storage.log.recovery import LogIdentity
from braidlog.storage.log.settings import LogSettings
from braidlog.storage.log.watermark import read_watermark
from braidlog.storage.metadata.cursors import Moved
from braidlog.storage.metadata.journal_catalogue import JournalCatalogue
from braidlog.storage.metadata.journal_positions import JournalPositions
from braidlog.storage.metadata.names import parse_topic
from braidlog.storage.tools.repair import Repair
from braidlog.storage.tools.survey import LogSurvey
from braidlog.storage.tools.verify import Verifier

FORMATS = ("plain", "kafka", "pulsar", "iggy")
GROUP = b"billing"
BATCH_RECORDS = 3


class LogDirectory:
    """A data directory as a broker opens it: created with a topic, or opened by a start."""

    def __init__(self, path, *, partitions=1, topic="orders", **settings):
        self.path = Path(path)
        is_new = not self.path.exists()
        self.data_dir = DataDir.open(self.path)
        self.committer = Committer(self.data_dir.files)
        self.settings = LogSettings(**settings)
        self.logs = {}
        self.aside = []
        try:
            self._open()
        except BaseException:
            self.crash()
            raise
        if is_new:
            self.make_topic(topic, partitions)
        self.committer.commit()

    def make_topic(self, topic, partitions):
        """Create a topic; its partitions are in `logs` by partition id."""
        name = parse_topic(topic)
        ids = [self.catalogue.next_partition_id() for _ in range(partitions)]
        new = [NewPartition(number, name.full, index) for index, number in enumerate(ids)]
        created = self.data_dir.create_partitions(new, self.settings, self.committer)
        self.logs.update(zip(ids, created, strict=True))
        self.catalogue.create_topic(name, ids, partitioned=partitions > 1, created_us=1)
        topic_id = self.catalogue.topic(name).topic_id
        self.cursors.open(topic_id, GROUP, partitions=partitions)
        self.committer.commit()
        return topic_id

    def _open(self):
        self.data_dir.check_journals()
        self.catalogue = JournalCatalogue(
            self.data_dir.open_journal("catalogue", self.committer), now_us=1
        ).catalogue
        self.cursors = JournalPositions(self.data_dir.open_journal("cursors", self.committer))
        known = [number for meta in self.catalogue.all_topics() for number in meta.partition_ids]
        self.data_dir.check_folders(known, self.catalogue.partition_ids_end)
        self.catalogue.raise_partition_ids(self.data_dir.highest_partition_id())
        self.aside = self.data_dir.set_aside_unknown(known)
        topic_ids = {meta.topic_id for meta in self.catalogue.all_topics()}
        for topic_id in set(self.cursors.topic_ids()) - topic_ids:
            self.cursors.drop_topic(topic_id)
        for number in known:
            log = self.data_dir.open_partition(number, self.settings, self.committer)
            self.logs[number] = log

    def append(self, number=1, body_format="plain", count=BATCH_RECORDS):
        """Append a batch of records whose values name their offsets; return the base offset."""
        log = self.logs[number]
        base = log.log_end_offset
        records = [
            Record(base + n, 5_000_000, value=b"value %d" % (base + n)) for n in range(count)
        ]
        codec = codec_named(body_format)
        body = codec.encode(records, base)
        positions = [pos for _, pos in codec.split(body, base)]
        info = codec.inspect(body)
        log.append([body], info, body_format=codec.format, append_us=5_000_000, positions=positions)
        return base

    def fill(self, batches, number=1, *, commit=True):
        """Append batches of every format in turn, each made durable separately."""
        for place in range(batches):
            self.append(number, FORMATS[place % len(FORMATS)])
            if commit:
                self.committer.commit()

    def move_cursor(self, position, number=0, topic_id=1, name=GROUP):
        self.cursors.move(Moved(topic_id, name, number, position, position))
        self.committer.commit()

    def values(self, number=1):
        """Return offset -> value of every readable record; gaps have none."""
        log = self.logs[number]
        values, offset = {}, log.log_start_offset
        while batches := log.read(offset, 1 << 20):
            for batch in batches:
                if batch.header.record_count:
                    decoded = codec_of(batch).decode(batch.body, batch.base_offset, 0)
                    assert decoded.failed is None
                    values |= {record.offset: record.value for record in decoded.records}
            offset = batches[-1].next_offset
        return values

    def crash(self):
        self.data_dir.abandon()

    def stop(self):
        self.data_dir.close(self.committer)

    def file(self, name, number=1):
        return self.path / "partitions" / str(number) / name

    def segments(self, number=1):
        return sorted(self.file("", number).glob("*.log"))


def codec_of(batch):
    return codec_for(batch.header.body_format)


def value_of(offset):
    return b"value %d" % offset


def verified(path):
    """Return (findings, report) of a verification."""
    findings = []
    report = Verifier(path, findings.append, lambda done, total: None).run()
    return findings, report


def levels(findings, level):
    return [finding for finding in findings if finding.level == level]


def snapshot_of(path):
    """Return every file below a folder with its bytes and time, to detect changes."""
    return {
        os.path.relpath(os.path.join(folder, name), path): (
            Path(folder, name).read_bytes(),
            os.stat(os.path.join(folder, name)).st_mtime_ns,
        )
        for folder, _, names in os.walk(path)
        for name in names
    }


def repaired(path, place=None):
    """Plan and run a repair; return (reported lines, refusals)."""
    repair = Repair(path, lambda done, total: None)
    try:
        plan = repair.plan(place)
        for step in plan.steps:
            step.apply()
        return [line for step in plan.steps for line in step.lines], plan.refusals
    finally:
        repair.close()


def journal_segment(path, journal):
    return sorted((path / journal).glob("*.log"))[-1]


def batch_places(path, journal):
    """Return (file_pos, base offset) of the batches of a journal's last segment."""

    kind = ALL_JOURNAL_KINDS[journal]
    folder = os.fspath(path / journal)
    files = LocalFiles(folder, read_only=True)
    slot = read_watermark(folder, 1, kind)
    survey = LogSurvey(files, LogIdentity(folder, kind, 1), slot)
    return [(good.file_pos, good.header.base_offset) for good in survey.batches()]
