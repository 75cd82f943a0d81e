"""Compaction compared with a model: the latest record of each key, at its offset, in order."""

import os
import random

import pytest

from braidlog.storage.formats.record import Record
from braidlog.storage.formats.registry import codec_named
from braidlog.storage.log.compaction.runs import LogCompaction, ViewCompaction
from braidlog.storage.log.folder_reader import open_folder
from tests.storage.files_twins import RecordingDisk
from tests.storage.log.compaction.compacting import (
    HOUR_US,
    compact_log,
    compact_view,
    latest_of,
    read_all,
    read_view,
)
from tests.storage.log.logs import OneLog, flip, segment_names

FORMATS = ("plain", "kafka", "kafka_batches", "pulsar", "iggy_typed")
SMALL = {"segment_bytes": 4096, "index_interval_bytes": 256}


def append(opened, records, name, append_us):
    """Append these (key, value) pairs in a format, as a batch; return them with their offsets."""
    base = opened.log.log_end_offset
    new_records = [
        Record(base + n, append_us, publish_us=append_us, key=key, value=value)
        for n, (key, value) in enumerate(records)
    ]
    codec = codec_named(name)
    body = codec.encode(new_records, base)
    opened.log.append([body], codec.inspect(body), body_format=codec.format, append_us=append_us)
    decoded = codec.decode(body, base, append_us).records
    return [(record.offset, record.key, record.value) for record in decoded]


def fill(opened, chosen, batches, *, formats=FORMATS, keys=12):
    records = []
    for number in range(batches):
        name = chosen.choice(formats)
        pairs = []
        for _ in range(chosen.randint(1, 6)):
            key = b"key-%d" % chosen.randrange(keys)
            value = chosen.choice((None, b"", b"v" * chosen.randint(1, 60)))
            if chosen.random() < 0.15:
                key = None
            if name == "iggy_typed":  # This format has no null.
                value = value or b"x"
            pairs.append((key, value))
        records += append(opened, pairs, name, 1_000_000 + number)
        if chosen.random() < 0.3:
            opened.commit()
    opened.commit()
    return records


@pytest.mark.parametrize("seed", range(12))
def test_a_compacted_log_holds_the_latest_record_of_each_key(tmp_path, seed):
    chosen = random.Random(seed)
    opened = OneLog(tmp_path, **SMALL)
    records = fill(opened, chosen, 150)
    for keys_max in (3, 1000):
        end = opened.log.compacted.closed_offset(1 << 62)
        compaction = compact_log(opened, keys_max=keys_max)
        assert (compaction.done.walks > 1) == (keys_max == 3)
        records = latest_of(records, end)
        assert read_all(opened.log) == records, seed
        assert read_all(opened.log, 1) == records, seed
        records += fill(opened, chosen, 60)
        assert read_all(opened.log) == records, seed
    opened.stop()
    again = OneLog(tmp_path, **SMALL)
    assert again.log.recovery.is_clean
    assert read_all(again.log) == records, seed
    for offset in range(again.log.log_end_offset):
        (first, *_) = again.log.read(offset, 1)
        assert first.base_offset <= offset < first.next_offset


@pytest.mark.parametrize("seed", range(12))
def test_a_view_holds_the_latest_and_the_log_holds_all(tmp_path, seed):
    chosen = random.Random(seed)
    opened = OneLog(tmp_path, **SMALL)
    records, wanted = [], []
    for keys_max in (1000, 3, 1000):
        new = fill(opened, chosen, chosen.randint(1, 80), formats=("plain", "pulsar", "kafka"))
        records += new
        end = opened.log.durable_offset
        compact_view(opened, keys_max=keys_max)
        wanted = latest_of(wanted + new, end, empties_delete=True, drops_keyless=True)
        assert read_view(opened.log) == wanted, seed
        assert read_all(opened.log) == records, seed
        assert opened.log.compacted.view.horizon == end
    behind = fill(opened, chosen, 5)
    assert read_view(opened.log) == wanted + behind
    opened.stop()
    again = OneLog(tmp_path, **SMALL)
    assert read_view(again.log) == wanted + behind
    assert len([name for name in os.listdir(again.folder) if name.endswith(".view")]) == 1


def test_a_view_keeps_records_dropped_by_retention(tmp_path):
    opened = OneLog(tmp_path, **SMALL)
    records = append(opened, [(b"a", b"1"), (b"b", b"2"), (b"a", b"3")], "plain", 1)
    opened.commit()
    compact_view(opened)
    opened.log.drop()
    opened.commit()
    assert opened.log.log_start_offset == 3
    assert read_view(opened.log) == records[1:]
    more = append(opened, [(b"b", b"4")], "plain", 2)
    opened.commit()
    compact_view(opened)
    assert read_view(opened.log) == [records[2], *more]


def test_an_unread_view_of_an_earlier_life_is_continued(tmp_path):
    """Records that retention dropped from the log are only in the view."""
    opened = OneLog(tmp_path, **SMALL)
    first = append(opened, [(b"a", b"only in the view")], "plain", 1)
    for number in range(10):
        append(opened, [(b"b", b"%d" % number * 1000)], "plain", 1)
        opened.commit()
    compact_view(opened)
    opened.log.drop(1)
    opened.commit()
    opened.stop()
    again = OneLog(tmp_path, **SMALL)
    again.commit()
    append(again, [(b"c", b"new")], "plain", 1)
    again.commit()
    compact_view(again)
    assert read_view(again.log)[0] == first[0]


def test_a_view_created_during_a_deletion_is_not_shown(tmp_path):
    """The records may still be in the view, and all its files may exist: no read
    fails by itself.
    """
    opened = OneLog(tmp_path)
    append(opened, [(b"a", b"deleted"), (b"b", b"kept")], "plain", 1)
    opened.commit()
    compaction = ViewCompaction(opened.log, opened.files)
    steps = compaction.steps()
    writer = next(step for step in steps if step is not None)
    opened.log.compacted.drop_view()
    opened.log.delete_below(1)
    opened.commit()
    assert not compaction.publish(writer)
    steps.close()
    assert opened.log.compacted.view is None
    assert not [name for name in os.listdir(opened.folder) if ".view" in name]


def test_a_view_of_deleted_records_is_removed_after_the_deletion(tmp_path):
    disk = RecordingDisk()
    opened = OneLog(tmp_path, disk)
    for number in range(2):  # The second view has replaced the first, which is not removed yet.
        append(opened, [(b"a", b"%d" % number)], "plain", 1)
        opened.commit()
        compaction = ViewCompaction(opened.log, opened.files)
        steps = compaction.steps()
        assert compaction.publish(next(step for step in steps if step is not None))
        steps.close()
    opened.log.compacted.drop_view()
    opened.log.delete_below(2)
    running = opened.committer.begin()
    opened.committer.sync(running)
    gone = [call.path for call in disk.calls if call.name == "unlink" and ".view" in call.path]
    assert len([path for path in gone if path.endswith(".view")]) == 2
    last = max(number for number, call in enumerate(disk.calls) if call.name == "unlink")
    assert {"sync_folder", "sync_file_system"} & {call.name for call in disk.calls[last:]}
    opened.committer.finish(running)
    opened.crash()
    assert opened.again().log.compacted.view is None


@pytest.mark.parametrize("name", FORMATS[:4])  # Iggy's keys are those of whole batches.
def test_a_view_has_no_records_deleted_within_a_batch(tmp_path, name):
    opened = OneLog(tmp_path)
    records = append(opened, [(b"%d" % n, b"value") for n in range(5)], name, 1)
    opened.commit()
    opened.log.delete_below(3)
    opened.commit()
    compact_view(opened)
    assert read_view(opened.log) == records[3:]


def test_small_segments_are_joined_and_old_files_removed(tmp_path):
    opened = OneLog(tmp_path, segment_bytes=2000)
    for number in range(200):
        append(opened, [(b"k", b"%d" % number)], "kafka", number + 1)
    opened.commit()
    before = opened.log.size_bytes
    assert len(segment_names(opened.folder)) > 10
    compact_log(opened)
    compact_log(opened)  # The first compaction left files far smaller than a segment.
    assert len(segment_names(opened.folder)) <= 3
    assert opened.log.size_bytes < before / 8
    last = read_all(opened.log)
    assert last[-1] == (199, b"k", b"199")
    segments = opened.log.segments()
    assert segments[0][1] > 100  # Retention by age uses the last append of the joined segments.
    opened.stop()
    again = OneLog(tmp_path, segment_bytes=2000)
    assert again.log.segments()[0][1] == segments[0][1]
    assert read_all(again.log) == last


def test_tombstones_stay_for_their_delay(tmp_path):
    opened = OneLog(tmp_path, segment_bytes=600, delete_retention_ms=3_600_000)

    def roll():
        for _ in range(2):
            append(opened, [(None, b"x" * 500)], "plain", 9)
        opened.commit()

    first = append(opened, [(b"a", b"1"), (b"a", None), (b"b", b"2")], "plain", 1)
    roll()
    compact_log(opened, now_us=0)
    assert read_all(opened.log)[:2] == first[1:]
    second = append(opened, [(b"b", None)], "plain", 1)
    roll()
    compact_log(opened, now_us=HOUR_US - 1)
    unexpired = [record for record in read_all(opened.log) if record[1] is not None]
    assert unexpired == [first[1], *second]
    opened.stop()
    opened = OneLog(tmp_path, segment_bytes=600, delete_retention_ms=3_600_000)
    compact_log(opened, now_us=HOUR_US)
    unexpired = [record for record in read_all(opened.log) if record[1] is not None]
    assert unexpired == second  # The tombstone was the latest for a shorter time.
    compact_log(opened, now_us=3 * HOUR_US)
    assert not [record for record in read_all(opened.log) if record[1] is not None]


def test_a_tombstone_stays_while_an_older_record_is_unreadable(tmp_path):
    opened = OneLog(tmp_path, segment_bytes=300, delete_retention_ms=0)
    append(opened, [(b"a", None)], "plain", 1)
    opened.append(b"not kafka's" * 30, 3)
    opened.append(b"another", 1)
    opened.commit()
    opened.append(b"x" * 500, 1)
    opened.commit()
    before = opened.all_bodies()
    for _ in range(2):
        compact_log(opened, now_us=HOUR_US)
    assert opened.all_bodies() == before


def test_compaction_gives_up_if_retention_removed_its_segments(tmp_path):
    opened = OneLog(tmp_path, segment_bytes=600)
    chosen = random.Random(1)
    fill(opened, chosen, 40, formats=("plain",))
    compaction = LogCompaction(
        opened.log, opened.files, 0, opened.log.compacted.closed_offset(1 << 62)
    )
    steps = compaction.steps()
    writer = next(step for step in steps if step is not None)
    opened.log.drop()
    opened.commit()
    assert not compaction.publish(writer)
    steps.close()
    assert not [name for name in os.listdir(opened.folder) if name.endswith(".new")]


def test_a_damaged_view_is_skipped(tmp_path):
    opened = OneLog(tmp_path)
    records = append(opened, [(b"a", b"1"), (b"a", b"2")], "plain", 1)
    opened.commit()
    compact_view(opened)
    assert read_view(opened.log) == records[1:]
    opened.stop()
    (name,) = [name for name in os.listdir(opened.folder) if name.endswith(".view")]
    flip(opened.file(name), os.path.getsize(opened.file(name)) - 1)
    again = OneLog(tmp_path)
    assert read_view(again.log) == records
    again.log.compacted.drop_view()
    again.commit()
    assert read_view(again.log) == records
    compact_view(again)
    assert read_view(again.log) == records[1:]


def test_a_time_is_found_during_a_compaction(tmp_path):
    """The file with the time is removed during the search."""
    opened = OneLog(tmp_path, **SMALL)
    for number in range(60):
        append(
            opened, [(b"key-%d" % (number % 3), b"v" * 200)], "kafka_batches", 1_000_000 + number
        )
        opened.commit()
    append(opened, [(b"other", b"v")], "kafka_batches", 9_000_000)
    opened.commit()
    with open_folder(opened.folder) as log:
        compact_log(opened)
        latest = read_all(opened.log)[0][0]
        assert log.first_at(1_000_000) == latest
