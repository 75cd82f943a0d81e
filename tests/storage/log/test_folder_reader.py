import os

import pytest

from braidlog.storage.directory.directory import NewPartition
from braidlog.storage.errors import DamagedLog, OffsetOutOfRange
from braidlog.storage.formats.batch import HEADER_BYTES
from braidlog.storage.log.folder_reader import list_partitions, open_folder
from tests.storage.log.logs import OneLog, flip


def bodies(log, *limits):
    return [bytes(batch.body) for batch in log.batches(*limits)]


def test_partitions_are_listed_by_topic_and_index(tmp_path):
    opened = OneLog(tmp_path)
    new = [NewPartition(2, "public/default/clicks", 1), NewPartition(3, "public/default/clicks", 0)]
    opened.data_dir.create_partitions(new, opened.settings, opened.committer)
    os.mkdir(tmp_path / "partitions" / "9")
    partitions = list_partitions(tmp_path)
    assert [(part.partition_id, part.topic, part.index) for part in partitions] == [
        (3, "public/default/clicks", 0),
        (2, "public/default/clicks", 1),
        (1, "public/default/orders", 0),
    ]
    assert partitions[2].folder == opened.folder


def test_reading_beside_a_running_broker_stops_at_the_watermark_slot(tmp_path):
    opened = OneLog(tmp_path)
    opened.fill([b"a", b"b"], 2)
    opened.append(b"c")
    with open_folder(opened.folder) as log:
        assert (log.log_start_offset, log.high_watermark) == (0, 4)
        assert bodies(log, 0) == [b"a", b"b"]
        assert bodies(log, 0, 100) == [b"a", b"b"]
        opened.commit()
        assert bodies(log, 0) == [b"a", b"b"]
        log.refresh()
        assert bodies(log, 0) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("interval", [1, 100_000])
def test_any_range_over_any_segments(tmp_path, interval):
    opened = OneLog(tmp_path, segment_bytes=3000, index_interval_bytes=interval)
    opened.fill([b"%02d" % n + b"x" * 100 for n in range(60)], 3, commit=False)
    opened.commit()
    before = sorted(os.listdir(opened.folder))
    with open_folder(opened.folder) as log:
        for start in range(0, 181, 7):
            for end in range(start, 181, 11):
                numbers = [int(body[:2]) for body in bodies(log, start, end)]
                wanted = range(start // 3, -(-end // 3)) if end > start else []
                assert numbers == list(wanted), (start, end)
        assert log.size_bytes == opened.log.size_bytes
    assert sorted(os.listdir(opened.folder)) == before


def test_offsets_outside_are_refused(tmp_path):
    opened = OneLog(tmp_path)
    opened.fill([b"a"], 5)
    with open_folder(opened.folder) as log:
        assert bodies(log, 5) == []
        for offset in (-1, 6):
            with pytest.raises(OffsetOutOfRange):
                bodies(log, offset)


def test_a_reader_overtaken_by_retention_is_out_of_range(tmp_path):
    opened = OneLog(tmp_path, segment_bytes=300, retention_bytes=0)
    opened.fill([b"x" * 100] * 5)
    with open_folder(opened.folder) as log:
        opened.log.retain(now_us=0)
        opened.commit()
        with pytest.raises(OffsetOutOfRange) as caught:
            bodies(log, 0)
        assert caught.value.log_start_offset == 4
        assert bodies(log, 4) == [b"x" * 100]


def test_damage_is_an_error_with_its_place(tmp_path):
    opened = OneLog(tmp_path)
    opened.fill([b"a", b"b"])
    place = opened.all_batches()[1].file_pos
    flip(opened.file("00000000000000000000.log"), place + HEADER_BYTES)
    with open_folder(opened.folder) as log:
        batches = log.batches(0)
        assert bytes(next(batches).body) == b"a"
        with pytest.raises(DamagedLog) as caught:
            next(batches)
        assert caught.value.file_pos == place


def test_a_partition_without_a_slot_shows_nothing(tmp_path):
    opened = OneLog(tmp_path)
    opened.fill([b"a"])
    opened.crash()
    os.unlink(opened.file("watermark"))
    with open_folder(opened.folder) as log:
        assert (log.high_watermark, bodies(log, 0)) == (0, [])
