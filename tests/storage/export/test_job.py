"""The export job without a JVM: exported records, their time, and the summary."""

import itertools
import threading

import pyarrow.parquet as parquet
import pytest

from braidlog.storage.directory.directory import NewPartition
from braidlog.storage.export.commit import ExportFolder, Intent
from braidlog.storage.export.export import (
    ExportFailed,
    ExportJob,
    ExportSource,
    ExportTopicMissing,
    Progress,
    run_export,
)
from braidlog.storage.export.ranges import Bounds, Range, RecordsLost
from braidlog.storage.formats.api import BodyFormat
from braidlog.storage.formats.registry import codec_for
from braidlog.storage.log.committer import Committer
from braidlog.storage.log.settings import LogSettings
from braidlog.storage.metadata.names import parse_topic
from conformance.exports.living import InThisProcess
from tests.storage.export.test_worker import record
from tests.storage.open_directories import open_directory


class ExportedTopics:
    """A data directory with topics, and an export of them."""

    def __init__(self, path):
        self.path = path
        self.root = path / "out"
        self.directory = open_directory(path / "data")
        self.committer = Committer(self.directory.files)
        self.logs = {}
        self.numbers = itertools.count(1)

    def topic(self, name, partitions=1):
        for index in range(partitions):
            number = next(self.numbers)
            full = parse_topic(name).full
            settings = LogSettings(segment_bytes=4096)
            log = self.directory.create_partitions(
                [NewPartition(number, full, index)], settings, self.committer
            )[0]
            self.logs[name, index] = log

    def append(self, name, values, index=0, body_format=BodyFormat.KAFKA, *, publish_us=None):
        log = self.logs[name, index]
        base = log.log_end_offset
        records = [record(value=value, publish_us=publish_us) for value in values]
        for number, appended in enumerate(records):
            appended.offset = base + number
        codec = codec_for(body_format)
        body = codec.encode(records, base)
        log.append([body], codec.inspect(body), body_format=body_format, append_us=5)
        self.committer.commit()

    def export(self, *topics, pattern=None, **changes):
        names = tuple(parse_topic(name) for name in topics)
        source = ExportSource(str(self.path / "data"), names, pattern)
        return run_export(ExportJob(source, self.root, **changes), InThisProcess())

    def rows(self):
        """Return (topic folder, partition, offset, value) of every row that readers of the folder
        see.
        """
        all_rows = []
        for path in self.root.glob("topic=*/**/*.parquet"):
            table = parquet.ParquetFile(path).read(columns=["partition", "offset", "value"])
            topic = path.relative_to(self.root).parts[0]
            all_rows += [(topic, *row.values()) for row in table.to_pylist()]
        return sorted(all_rows)


@pytest.fixture
def house(tmp_path):
    return ExportedTopics(tmp_path)


def values(count, start=0):
    return [b"%d" % number for number in range(start, start + count)]


def test_many_topics_or_a_pattern_are_a_single_run(house):
    for name in ("orders", "tenant/space/deep", "00123"):
        house.topic(name, 2)
        house.append(name, values(3))
        house.append(name, values(2), index=1)
    summary = house.export("orders", "tenant/space/deep")
    assert (summary.runs, summary.rows) == ([1], 10)
    assert summary.topics == {"public/default/orders": 5, "tenant/space/deep": 5}
    assert house.export(pattern=".*").rows == 5
    folders = {row[0] for row in house.rows()}
    assert folders == {
        "topic=public%2Fdefault%2Forders",
        "topic=tenant%2Fspace%2Fdeep",
        "topic=public%2Fdefault%2F00123",
    }
    assert len(set(house.rows())) == 15


@pytest.mark.parametrize("name", ["_schemas", ".hidden"])
def test_readers_see_each_record_once_after_an_export_of_an_earlier_release(house, name):
    house.topic(name)
    house.append(name, values(3))
    house.export(name)
    for path in house.root.glob("topic=*/**/*.parquet"):
        path.rename(path.with_name(path.name.removeprefix("records+")))
    house.append(name, values(2, start=3))
    assert house.export(name).rows == 2
    seen = parquet.read_table(house.root, columns=["value"]).column("value").to_pylist()
    assert sorted(seen) == values(5)
    assert house.export(name).rows == 0


def test_a_pattern_matches_whole_names_and_a_bad_pattern_is_an_error(house):
    house.topic("orders")
    house.append("orders", values(1))
    assert house.export(pattern="order").rows == 0
    with pytest.raises(ExportFailed, match="regular expression"):
        house.export(pattern="(")
    with pytest.raises(ExportTopicMissing, match="public/default/nothing"):
        house.export("nothing")


def test_an_empty_topic_is_no_run(house):
    house.topic("orders")
    assert house.export("orders").runs == []


def test_bounded_runs_continue_in_turn(house):
    house.topic("orders")
    house.append("orders", values(10))
    rows = [house.export("orders", bounds=Bounds(rows_max=4)).rows for _ in range(4)]
    assert rows == [4, 4, 2, 0]
    assert [row[2] for row in house.rows()] == list(range(10))


def test_a_run_ends_before_the_first_record_of_a_time(house):
    house.topic("orders")
    for time_us in (1_000_000, 2_000_000, 3_000_000):
        house.append("orders", values(2), 0, BodyFormat.PULSAR, publish_us=time_us)
    assert house.export("orders", until_us=3_000_000).rows == 4
    assert house.export("orders", until_us=2_000_000).rows == 0, "an earlier run went further"
    assert house.export("orders", until_us=3_000_001).rows == 2
    assert [row[2] for row in house.rows()] == list(range(6))


def test_an_export_from_the_latest_skips_older_records(house):
    house.topic("orders")
    house.append("orders", values(5))
    assert house.export("orders", start="latest").rows == 0
    house.append("orders", values(3))
    assert house.export("orders", start="latest").rows == 3
    assert [row[2] for row in house.rows()] == [5, 6, 7]


def test_a_recreated_topic_is_exported_beside_the_old_rows(house):
    house.topic("orders")
    house.append("orders", [b"old"])
    house.export("orders")
    house.directory.retire_partition(1)
    house.directory.remove_retired()
    house.topic("orders")
    house.append("orders", [b"new"])
    assert house.export("orders").rows == 1
    assert sorted(row[3] for row in house.rows()) == [b"new", b"old"]


def test_a_remaining_intent_is_resumed_unchanged(house):
    house.topic("orders")
    house.append("orders", values(10))
    part = Range(1, 0, 0, 6, "public/default/orders")
    ExportFolder(house.root).write_intent(Intent(1, [part]))
    summary = house.export("orders")
    assert (summary.runs, summary.rows) == ([1, 2], 10)
    assert len(list(house.root.glob("topic=*/**/*.parquet"))) == 2


def test_expired_records_are_a_stop_or_a_gap_in_the_commit(house):
    house.topic("orders")
    for _ in range(4):
        house.append("orders", [bytes(3000)] * 2)
    ExportFolder(house.root).write_intent(Intent(1, [Range(1, 0, 0, 4, "public/default/orders")]))
    log = house.logs["orders", 0]
    log.settings = LogSettings(segment_bytes=4096, retention_bytes=0)
    log.retain(0)
    house.committer.commit()
    start = log.log_start_offset
    assert start > 4
    summary = house.export("orders")  # The first export of the topic begins at the log start.
    assert (summary.rows, summary.lost) == (8 - start, 0)
    house.append("orders", [bytes(3000)] * 2)
    house.append("orders", [bytes(3000)] * 2)
    log.retain(0)
    house.committer.commit()
    with pytest.raises(RecordsLost, match="--lost skip"):
        house.export("orders")
    skipped = house.export("orders", fail_on_loss=False)
    assert skipped.lost == log.log_start_offset - 8
    assert ExportFolder(house.root).last_commit().gaps[0].start == 8


def test_a_silent_broker_does_not_change_the_export(house):
    house.topic("orders")
    house.append("orders", values(2))
    summary = house.export("orders", progress=Progress("http://127.0.0.1:1", "export:lake"))
    assert summary.rows == 2
    assert "no broker answers" in summary.untold


@pytest.mark.slow
def test_runs_beside_a_live_writer_export_each_record_once(house):
    house.topic("orders", 2)
    count = 3000
    ended = threading.Event()

    def write():
        for number in range(0, count, 10):
            house.append("orders", values(10, number), index=number // 10 % 2)
        ended.set()

    writer = threading.Thread(target=write)
    writer.start()
    runs = 0
    while not ended.is_set() or runs < 20:
        house.export("orders")
        runs += 1
    writer.join()
    house.export("orders")
    exported = [int(row[3]) for row in house.rows()]
    assert sorted(exported) == list(range(count))
