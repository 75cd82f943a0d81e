"""Bytes that a start writes again: the end of a log without proof that it is on disk."""

import errno

from braidlog.storage.log.segment_header import SEGMENT_HEADER_BYTES
from tests.storage.files_twins import FailingDisk, RecordingDisk
from tests.storage.log.logs import OneLog

FIRST_LOG = "00000000000000000000.log"


def written_again(one_path):
    """Return (position, bytes) of the writes to the first segment during the opening of the log."""
    disk = RecordingDisk()
    again = OneLog(one_path, disk)
    writes = [
        (call.pos, call.data)
        for call in disk.calls
        if call.name == "write" and call.file_name == FIRST_LOG
    ]
    return again, writes


def test_nothing_is_written_again_after_a_clean_stop(tmp_path):
    opened = OneLog(tmp_path)
    opened.fill([b"a", b"b"])
    opened.stop()
    assert written_again(tmp_path)[1] == []


def test_batches_without_a_durable_slot_are_rewritten_unchanged(tmp_path):
    opened = OneLog(tmp_path)
    opened.fill([b"a", b"b"])
    known_bytes = opened.log.size_bytes
    opened.fill([b"c", b"d"], commit=False)
    opened.crash()
    before = (tmp_path / "partitions" / "1" / FIRST_LOG).read_bytes()
    again, writes = written_again(tmp_path)
    assert writes == [(known_bytes, before[known_bytes:])]
    again.commit()
    assert again.all_bodies() == [b"a", b"b", b"c", b"d"]


def test_later_batches_prove_the_durable_offset_without_the_slot(tmp_path):
    opened = OneLog(tmp_path)
    opened.fill([b"a", b"b", b"c"])
    last = opened.log.read(2, 0)[0].file_pos
    opened.crash()
    (tmp_path / "partitions" / "1" / "watermark").unlink()
    assert [pos for pos, _ in written_again(tmp_path)[1]] == [last]


def test_a_segment_rewritten_from_its_first_batch_includes_its_header(tmp_path):
    opened = OneLog(tmp_path)
    opened.fill([b"a"], commit=False)
    opened.crash()
    (pos, data), *rest = written_again(tmp_path)[1]
    assert (pos, rest) == (0, [])
    assert len(data) > SEGMENT_HEADER_BYTES


def test_a_read_only_disk_does_not_stop_a_start(tmp_path):
    opened = OneLog(tmp_path)
    opened.fill([b"a"])
    opened.fill([b"b"], commit=False)
    opened.crash()
    disk = FailingDisk()
    disk.fail("write", errno.EROFS)
    again = OneLog(tmp_path, disk)
    again.commit()
    assert again.all_bodies() == [b"a", b"b"]
