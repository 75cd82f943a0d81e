"""The export while topics are deleted, recreated, renamed, compacted or truncated."""

import random
from types import SimpleNamespace

import pytest

from braidlog.storage.directory.directory import NewPartition
from braidlog.storage.export.commit import ExportFolder, Intent
from braidlog.storage.export.export import (
    ExportFailed,
    ExportJob,
    ExportSource,
    ExportTopicMissing,
    run_export,
)
from braidlog.storage.export.ranges import Bounds, Range, RecordsLost
from braidlog.storage.formats.record import Record
from braidlog.storage.formats.registry import codec_named
from braidlog.storage.log.settings import LogSettings
from braidlog.storage.metadata.names import parse_topic
from tests.storage.export.test_job import ExportedTopics, InThisProcess, values
from tests.storage.log.compaction.compacting import compact_log, read_all

FORMATS = ("plain", "kafka", "kafka_batches", "pulsar", "iggy_typed")


class Meanwhile(InThisProcess):
    """Changes the log after the first run is planned, before its tasks read the log."""

    def __init__(self, change):
        self.changes = [change]

    def map(self, work, parts, total, report):
        while self.changes:
            self.changes.pop()()
        return super().map(work, parts, total, report)


@pytest.fixture
def house(tmp_path):
    exported = ExportedTopics(tmp_path)
    for topic in ("orders", "bills"):  # Partitions 1 and 2.
        exported.topic(topic)
        exported.append(topic, values(4))
    return exported


def export(house, change, *topics, **more):
    source = ExportSource(
        str(house.path / "data"),
        tuple(parse_topic(name) for name in topics),
        None if topics else ".*",
    )
    return run_export(ExportJob(source, house.root, **more), Meanwhile(change))


def delete(house, number=1):
    house.directory.retire_partition(number)
    house.directory.remove_retired()


def rename(house, name, number=1):
    named = [NewPartition(number, parse_topic(name).full, 0)]
    house.directory.prepare_names(named)
    house.directory.take_names(named)


def offsets(house, topic):
    folder = f"topic=public%2Fdefault%2F{topic}"
    return [row[2] for row in house.rows() if row[0] == folder]


def test_a_topic_deleted_during_a_pattern_run_delays_no_other(house):
    assert export(house, lambda: delete(house)).rows == 4
    assert offsets(house, "bills") == list(range(4)) and not offsets(house, "orders")
    assert ExportFolder(house.root).last_commit().run == 1


def test_a_named_topic_deleted_during_a_run_is_an_error(house):
    with pytest.raises(ExportTopicMissing, match="holds no topic public/default/orders"):
        export(house, lambda: delete(house), "orders", "bills")
    assert house.rows() == []
    house.topic("orders")
    house.append("orders", [b"new"])
    assert house.export("orders", "bills").rows == 5
    assert [row[3] for row in house.rows() if "orders" in row[0]] == [b"new"]


def test_a_topic_recreated_during_a_run_is_exported_from_its_start(house):
    house.export("orders")
    house.append("orders", values(2))

    def made_again():
        delete(house)
        house.topic("orders")
        house.append("orders", [b"new"])

    assert export(house, made_again, "orders").rows == 1
    assert sorted(row[3] for row in house.rows()) == [b"0", b"1", b"2", b"3", b"new"]


def test_a_renamed_topic_continues_under_its_new_name(house):
    house.export("orders")
    house.append("orders", values(3))
    rename(house, "invoices")
    with pytest.raises(ExportTopicMissing):
        house.export("orders")
    assert house.export("invoices").rows == 3
    assert (offsets(house, "orders"), offsets(house, "invoices")) == ([0, 1, 2, 3], [4, 5, 6])
    assert house.export(pattern=".*").rows == 4  # Of bills: no row appears twice.


def test_a_run_left_before_a_rename_restarts_under_the_new_name(house):
    part = Range(1, 0, 0, 3, "public/default/orders")
    ExportFolder(house.root).write_intent(Intent(1, [part]))
    rename(house, "invoices")
    assert house.export("invoices").runs == [1]
    assert offsets(house, "invoices") == [0, 1, 2, 3] and not offsets(house, "orders")


def test_records_expired_during_a_run_are_a_stop_or_a_gap(house):
    for _ in range(4):
        house.append("orders", [bytes(3000)] * 2)
    log = house.logs["orders", 0]

    def drop():
        log.settings = LogSettings(segment_bytes=4096, retention_bytes=0)
        log.retain(0)
        house.committer.commit()

    house.export("orders", bounds=Bounds(rows_max=2))
    with pytest.raises(RecordsLost, match="offsets 2 to"):
        export(house, drop, "orders")
    skipped = export(house, drop, "orders", fail_on_loss=False)
    assert skipped.lost == log.log_start_offset - 2 > 0
    assert offsets(house, "orders") == [0, 1, *range(log.log_start_offset, 12)]


def test_a_permanent_fault_is_reported_and_the_plan_kept(house):
    path = next((house.path / "data" / "partitions" / "1").glob("*.log"))
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(ExportFailed, match="checksum"):
        house.export("orders")
    assert ExportFolder(house.root).open_intent(1) is not None
    path.write_bytes(whole)
    assert house.export("orders").runs == [1]


@pytest.mark.parametrize("seed", range(3))
def test_a_compacted_log_is_exported_and_continues_behind_its_holes(house, seed):
    """Compaction replaces segments before, between and during runs.

    A remaining record is exported once, whichever records around it are removed.
    """
    chosen = random.Random(seed)
    log = house.logs["orders", 0]
    written = set(range(4))

    def write(batches):
        for _ in range(batches):
            base, codec = log.log_end_offset, codec_named(chosen.choice(FORMATS))
            records = [
                Record(base + n, 5, key=b"key %d" % chosen.randrange(8), value=bytes(100))
                for n in range(chosen.randint(1, 6))
            ]
            written.update(record.offset for record in records)
            body = codec.encode(records, base)
            log.append([body], codec.inspect(body), body_format=codec.format, append_us=5)
        house.committer.commit()

    def compact():
        files, commit = house.directory.files, house.committer.commit
        compact_log(SimpleNamespace(log=log, files=files, commit=commit))

    write(60)
    compact()
    first = {offset for offset, _, _ in read_all(log)}
    assert len(first) < len(written)
    assert export(house, lambda: None, "orders").rows == len(first)
    assert set(offsets(house, "orders")) == first
    end = log.high_watermark
    write(60)
    export(house, compact, "orders")
    exported = offsets(house, "orders")
    left = {offset for offset, _, _ in read_all(log) if offset >= end}
    assert len(exported) == len(set(exported))
    assert first | left <= set(exported) <= written
    assert ExportFolder(house.root).last_commit().positions[1] == log.high_watermark
