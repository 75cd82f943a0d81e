"""Compaction compared with a model: the latest record of each key, at its offset, in order."""

import os
import random

import pytest

from braidlog.storage.formats.record import Record
from braidlog.storage.formats.registry import codec_named
from braidlog.storage.log.compaction.runs import LogCompaction, ViewCompaction
from braidlog.storage.log.reader import open_folder
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


def append(one, records, name, append_us):
    """Append these (key, value) pairs in a format, as a batch; return them with their offsets."""
    base = one.log.log_end_offset
    made = [
        Record(base + n, append_us, publish_us=append_us, key=key, value=value)
        for n, (key, value) in enumerate(records)
    ]
    codec = codec_named(name)
    body = codec.encode(made, base)
    one.log.append([body], codec.inspect(body), body_format=codec.format, append_us=append_us)
    found = codec.decode(body, base, append_us).records
    return [(record.offset, record.key, record.value) for record in found]


def fill(one, chosen, batches, *, formats=FORMATS, keys=12):
    records = []
    for number in range(batches):
        name = chosen.choice(formats)
        some = []
        for _ in range(chosen.randint(1, 6)):
            key = b"key-%d" % chosen.randrange(keys)
            value = chosen.choice((None, b"", b"v" * chosen.randint(1, 60)))
            if chosen.random() < 0.15:
                key = None
            if name == "iggy_typed":  # This format has no null.
                value = value or b"x"
            some.append((key, value))
        records += append(one, some, name, 1_000_000 + number)
        if chosen.random() < 0.3:
            one.commit()
    one.commit()
    return records


@pytest.mark.parametrize("seed", range(12))
def test_a_compacted_log_holds_the_latest_record_of_each_key(tmp_path, seed):
    chosen = random.Random(seed)
    one = OneLog(tmp_path, **SMALL)
    records = fill(one, chosen, 150)
    for keys_max in (3, 1000):
        end = one.log.compacted.closed_offset(1 << 62)
        compaction = compact_log(one, keys_max=keys_max)
        assert (compaction.done.walks > 1) == (keys_max == 3)
        records = latest_of(records, end)
        assert read_all(one.log) == records, seed
        assert read_all(one.log, 1) == records, seed
        records += fill(one, chosen, 60)
        assert read_all(one.log) == records, seed
    one.stop()
    again = OneLog(tmp_path, **SMALL)
    assert again.log.recovery.is_clean
    assert read_all(again.log) == records, seed
    for offset in range(again.log.log_end_offset):
        (first, *_) = again.log.read(offset, 1)
        assert first.base_offset <= offset < first.next_offset


@pytest.mark.parametrize("seed", range(12))
def test_a_view_holds_the_latest_and_the_log_holds_all(tmp_path, seed):
    chosen = random.Random(seed)
    one = OneLog(tmp_path, **SMALL)
    records, wanted = [], []
    for keys_max in (1000, 3, 1000):
        new = fill(one, chosen, chosen.randint(1, 80), formats=("plain", "pulsar", "kafka"))
        records += new
        end = one.log.durable_offset
        compact_view(one, keys_max=keys_max)
        wanted = latest_of(wanted + new, end, empties_delete=True, drops_keyless=True)
        assert read_view(one.log) == wanted, seed
        assert read_all(one.log) == records, seed
        assert one.log.compacted.view.horizon == end
    behind = fill(one, chosen, 5)
    assert read_view(one.log) == wanted + behind
    one.stop()
    again = OneLog(tmp_path, **SMALL)
    assert read_view(again.log) == wanted + behind
    assert len([name for name in os.listdir(again.folder) if name.endswith(".view")]) == 1


def test_a_view_keeps_records_dropped_by_retention(tmp_path):
    one = OneLog(tmp_path, **SMALL)
    records = append(one, [(b"a", b"1"), (b"b", b"2"), (b"a", b"3")], "plain", 1)
    one.commit()
    compact_view(one)
    one.log.drop()
    one.commit()
    assert one.log.log_start_offset == 3
    assert read_view(one.log) == records[1:]
    more = append(one, [(b"b", b"4")], "plain", 2)
    one.commit()
    compact_view(one)
    assert read_view(one.log) == [records[2], *more]


def test_an_unread_view_of_an_earlier_life_is_continued(tmp_path):
    """Records that retention dropped from the log are only in the view."""
    one = OneLog(tmp_path, **SMALL)
    kept = append(one, [(b"a", b"only in the view")], "plain", 1)
    for number in range(10):
        append(one, [(b"b", b"%d" % number * 1000)], "plain", 1)
        one.commit()
    compact_view(one)
    one.log.drop(1)
    one.commit()
    one.stop()
    again = OneLog(tmp_path, **SMALL)
    again.commit()
    append(again, [(b"c", b"new")], "plain", 1)
    again.commit()
    compact_view(again)
    assert read_view(again.log)[0] == kept[0]


def test_a_view_created_during_a_deletion_is_not_shown(tmp_path):
    """The records may still be in the view, and all its files may exist: no read
    fails by itself.
    """
    one = OneLog(tmp_path)
    append(one, [(b"a", b"deleted"), (b"b", b"kept")], "plain", 1)
    one.commit()
    compaction = ViewCompaction(one.log, one.files)
    steps = compaction.steps()
    writer = next(step for step in steps if step is not None)
    one.log.compacted.drop_view()
    one.log.delete_below(1)
    one.commit()
    assert not compaction.publish(writer)
    steps.close()
    assert one.log.compacted.view is None
    assert not [name for name in os.listdir(one.folder) if ".view" in name]


def test_a_view_of_deleted_records_is_removed_after_the_deletion(tmp_path):
    disk = RecordingDisk()
    one = OneLog(tmp_path, disk)
    for number in range(2):  # The second view has replaced the first, which is not removed yet.
        append(one, [(b"a", b"%d" % number)], "plain", 1)
        one.commit()
        compaction = ViewCompaction(one.log, one.files)
        steps = compaction.steps()
        assert compaction.publish(next(step for step in steps if step is not None))
        steps.close()
    one.log.compacted.drop_view()
    one.log.delete_below(2)
    running = one.committer.begin()
    one.committer.sync(running)
    gone = [call.path for call in disk.calls if call.name == "unlink" and ".view" in call.path]
    assert len([path for path in gone if path.endswith(".view")]) == 2
    last = max(number for number, call in enumerate(disk.calls) if call.name == "unlink")
    assert {"sync_folder", "sync_file_system"} & {call.name for call in disk.calls[last:]}
    one.committer.finish(running)
    one.crash()
    assert one.again().log.compacted.view is None


@pytest.mark.parametrize("name", FORMATS[:4])  # Iggy's keys are those of whole batches.
def test_a_view_has_no_records_deleted_within_a_batch(tmp_path, name):
    one = OneLog(tmp_path)
    records = append(one, [(b"%d" % n, b"value") for n in range(5)], name, 1)
    one.commit()
    one.log.delete_below(3)
    one.commit()
    compact_view(one)
    assert read_view(one.log) == records[3:]


def test_small_segments_are_joined_and_old_files_removed(tmp_path):
    one = OneLog(tmp_path, segment_bytes=2000)
    for number in range(200):
        append(one, [(b"k", b"%d" % number)], "kafka", number + 1)
    one.commit()
    before = one.log.size_bytes
    assert len(segment_names(one.folder)) > 10
    compact_log(one)
    compact_log(one)  # The first compaction left files far smaller than a segment.
    assert len(segment_names(one.folder)) <= 3
    assert one.log.size_bytes < before / 8
    last = read_all(one.log)
    assert last[-1] == (199, b"k", b"199")
    segments = one.log.segments()
    assert segments[0][1] > 100  # Retention by age uses the last append of the joined segments.
    one.stop()
    again = OneLog(tmp_path, segment_bytes=2000)
    assert again.log.segments()[0][1] == segments[0][1]
    assert read_all(again.log) == last


def test_tombstones_stay_for_their_delay(tmp_path):
    one = OneLog(tmp_path, segment_bytes=600, delete_retention_ms=3_600_000)

    def roll():
        for _ in range(2):
            append(one, [(None, b"x" * 500)], "plain", 9)
        one.commit()

    first = append(one, [(b"a", b"1"), (b"a", None), (b"b", b"2")], "plain", 1)
    roll()
    compact_log(one, now_us=0)
    assert read_all(one.log)[:2] == first[1:]
    second = append(one, [(b"b", None)], "plain", 1)
    roll()
    compact_log(one, now_us=HOUR_US - 1)
    kept = [record for record in read_all(one.log) if record[1] is not None]
    assert kept == [first[1], *second]
    one.stop()
    one = OneLog(tmp_path, segment_bytes=600, delete_retention_ms=3_600_000)
    compact_log(one, now_us=HOUR_US)
    kept = [record for record in read_all(one.log) if record[1] is not None]
    assert kept == second  # The tombstone was the latest for a shorter time.
    compact_log(one, now_us=3 * HOUR_US)
    assert not [record for record in read_all(one.log) if record[1] is not None]


def test_a_tombstone_stays_while_an_older_record_is_unreadable(tmp_path):
    one = OneLog(tmp_path, segment_bytes=300, delete_retention_ms=0)
    append(one, [(b"a", None)], "plain", 1)
    one.append(b"not kafka's" * 30, 3)
    one.append(b"another", 1)
    one.commit()
    one.append(b"x" * 500, 1)
    one.commit()
    before = one.all_bodies()
    for _ in range(2):
        compact_log(one, now_us=HOUR_US)
    assert one.all_bodies() == before


def test_compaction_gives_up_if_retention_removed_its_segments(tmp_path):
    one = OneLog(tmp_path, segment_bytes=600)
    chosen = random.Random(1)
    fill(one, chosen, 40, formats=("plain",))
    compaction = LogCompaction(one.log, one.files, 0, one.log.compacted.closed_offset(1 << 62))
    steps = compaction.steps()
    writer = next(step for step in steps if step is not None)
    one.log.drop()
    one.commit()
    assert not compaction.publish(writer)
    steps.close()
    assert not [name for name in os.listdir(one.folder) if name.endswith(".new")]


def test_a_damaged_view_is_skipped(tmp_path):
    one = OneLog(tmp_path)
    records = append(one, [(b"a", b"1"), (b"a", b"2")], "plain", 1)
    one.commit()
    compact_view(one)
    assert read_view(one.log) == records[1:]
    one.stop()
    (name,) = [name for name in os.listdir(one.folder) if name.endswith(".view")]
    flip(one.file(name), os.path.getsize(one.file(name)) - 1)
    again = OneLog(tmp_path)
    assert read_view(again.log) == records
    again.log.compacted.drop_view()
    again.commit()
    assert read_view(again.log) == records
    compact_view(again)
    assert read_view(again.log) == records[1:]


def test_a_time_is_found_during_a_compaction(tmp_path):
    """The file with the time is removed during the search."""
    one = OneLog(tmp_path, **SMALL)
    for number in range(60):
        append(one, [(b"key-%d" % (number % 3), b"v" * 200)], "kafka_batches", 1_000_000 + number)
        one.commit()
    append(one, [(b"other", b"v")], "kafka_batches", 9_000_000)
    one.commit()
    with open_folder(one.folder) as log:
        compact_log(one)
        latest = read_all(one.log)[0][0]
        assert log.first_at(1_000_000) == latest
