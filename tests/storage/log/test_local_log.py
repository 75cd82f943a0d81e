import errno
import os
import random
import threading

import pytest

from braidlog.storage.errors import (
    DamagedLog,
    LogClosed,
    OffsetOutOfRange,
    StorageFailed,
    StorageFull,
    WouldBlock,
)
from braidlog.storage.formats.api import BatchFlag, BodyInfo
from braidlog.storage.formats.batch import HEADER_BYTES
from braidlog.storage.log.settings import Durability
from tests.storage.files_twins import FailingDisk, RecordingDisk
from tests.storage.log.logs import FORMAT, OneLog, before_and_after_restart, flip, segment_names


def test_offsets_count_records(tmp_path):
    opened = OneLog(tmp_path)
    assert opened.append(b"a", 3) == 0
    assert opened.append(b"b", 1) == 3
    assert opened.append(b"c", 10) == 4
    assert opened.log.log_end_offset == 14


def test_a_batch_round_trips(tmp_path):
    opened = OneLog(tmp_path)
    info = BodyInfo(
        3, 11, 22, BatchFlag.COMPRESSED, producer_id=5, producer_epoch=6, first_sequence=7,
        last_sequence=9,
    )  # fmt: skip
    opened.log.append(
        [b"he", bytearray(b"ll"), memoryview(b"o")],
        info,
        body_format=2,
        body_version=4,
        append_us=99,
        last_offset_delta=4,
        positions=[0, 2, 4],
    )
    opened.commit()
    (batch,) = opened.log.read(0, 100)
    header = batch.header
    assert bytes(batch.body) == b"hello"
    assert batch.positions.tobytes() == b"".join(n.to_bytes(4, "little") for n in (0, 2, 4))
    assert (batch.base_offset, batch.next_offset, header.record_count) == (0, 5, 3)
    assert (header.body_format, header.body_version, header.append_us) == (2, 4, 99)
    assert (header.first_publish_us, header.max_publish_us) == (11, 22)
    assert (header.producer_id, header.producer_epoch) == (5, 6)
    assert (header.first_sequence, header.last_sequence) == (7, 9)
    assert (header.flags, header.partition_id) == (BatchFlag.COMPRESSED, 1)


def test_an_append_is_a_single_write(tmp_path):
    disk = RecordingDisk()
    opened = OneLog(tmp_path, disk)
    del disk.calls[:]
    opened.log.append([b"a", b"b", b"c"], BodyInfo(3), body_format=FORMAT, append_us=1)
    (call,) = disk.calls
    assert (call.name, len(call.data)) == ("write", HEADER_BYTES + 3)


def test_a_batch_must_cover_an_offset(tmp_path):
    opened = OneLog(tmp_path)
    with pytest.raises(ValueError, match="cover 0 offsets"):
        opened.append(b"a", 0)
    assert opened.log.log_end_offset == 0


def test_nothing_above_the_durable_offset_is_read_in_synced_mode(tmp_path):
    opened = OneLog(tmp_path)
    opened.append(b"a", 2)
    assert opened.log.high_watermark == 0
    assert opened.log.read(0, 100) == []
    with pytest.raises(OffsetOutOfRange):
        opened.log.read(1, 100)
    running = opened.committer.begin()
    opened.append(b"b", 2)
    opened.committer.sync(running)
    opened.committer.finish(running)
    assert opened.log.high_watermark == 2
    assert [bytes(batch.body) for batch in opened.log.read(0, 100)] == [b"a"]
    assert opened.log.read(2, 100) == []


def test_headers_have_the_durable_offset_of_their_write(tmp_path):
    opened = OneLog(tmp_path)
    opened.fill([b"a", b"b"], 5)
    opened.append(b"c")
    opened.append(b"d")
    opened.commit()
    assert [batch.header.durable_offset for batch in opened.all_batches()] == [0, 5, 10, 10]


def test_a_failed_sync_publishes_nothing(tmp_path):
    disk = FailingDisk()
    opened = OneLog(tmp_path, disk)
    opened.append(b"a")
    disk.fail("sync_data", errno.EIO)
    disk.fail("sync_file_system", errno.EIO)
    with pytest.raises(StorageFailed):
        opened.commit()
    assert (opened.log.durable_offset, opened.log.high_watermark) == (0, 0)
    assert opened.committer.durable_ticket == 0


def test_reads_return_whole_batches_up_to_the_requested_bytes(tmp_path):
    opened = OneLog(tmp_path)
    opened.fill([b"x" * 100] * 10)

    def count(bytes_max):
        return len(opened.log.read(0, bytes_max))

    assert [count(n) for n in (0, 1, 199, 200, 299, 300, 10_000)] == [1, 1, 1, 2, 2, 3, 10]


def test_a_batch_above_the_requested_bytes_is_returned_whole(tmp_path):
    opened = OneLog(tmp_path)
    opened.fill([b"a", b"x" * 300_000, b"b"])
    assert [len(batch.body) for batch in opened.log.read(1, 10)] == [300_000]


def test_batches_of_a_read_are_views_of_the_same_buffer(tmp_path):
    opened = OneLog(tmp_path)
    opened.fill([b"a", b"b", b"c"])
    batches = opened.log.read(0, 100)
    assert {id(batch.body.obj) for batch in batches} == {id(batches[0].body.obj)}
    assert all(batch.body.readonly for batch in batches)


def test_a_read_begins_with_the_batch_that_contains_the_offset(tmp_path):
    opened = OneLog(tmp_path)
    opened.fill([b"a", b"b", b"c"], 10)
    for offset in range(30):
        assert opened.log.read(offset, 0)[0].base_offset == offset // 10 * 10


def test_offsets_outside_the_log_are_refused(tmp_path):
    opened = OneLog(tmp_path)
    opened.fill([b"a"], 5)
    for offset in (-1, 6, 1 << 62):
        with pytest.raises(OffsetOutOfRange) as caught:
            opened.log.read(offset, 100)
        assert (caught.value.log_start_offset, caught.value.log_end_offset) == (0, 5)


@pytest.mark.parametrize("seed", range(5))
def test_any_offset_is_found_over_segments_and_indexes(tmp_path, seed):
    rng = random.Random(seed)
    opened = OneLog(tmp_path, segment_bytes=20_000, index_interval_bytes=rng.choice([1, 300, 5000]))
    bodies = [rng.randbytes(rng.randint(0, 2000)) for _ in range(150)]
    bases = [opened.append(body, rng.randint(1, 9)) for body in bodies]
    opened.commit()
    assert len(opened.log.segments()) > 5
    for log in before_and_after_restart(opened):
        for _ in range(300):
            offset = rng.randrange(log.log_end_offset)
            number = max(n for n, base in enumerate(bases) if base <= offset)
            batches = log.read(offset, rng.choice([0, 1000, 50_000]))
            expected = bodies[number : number + len(batches)]
            assert [bytes(batch.body) for batch in batches] == expected


def test_segments_roll_by_size(tmp_path):
    opened = OneLog(tmp_path, segment_bytes=1000)
    opened.fill([b"x" * 300] * 6, 10)
    assert segment_names(opened.folder) == [f"{base:020d}.log" for base in (0, 20, 40)]
    assert [base for base, _, _ in opened.log.segments()] == [0, 20, 40]
    assert max(size for _, _, size in opened.log.segments()) <= 1000
    assert opened.all_bodies() == [b"x" * 300] * 6


def test_a_batch_larger_than_a_segment_has_its_own_segment(tmp_path):
    opened = OneLog(tmp_path, segment_bytes=1000)
    opened.fill([b"a", b"x" * 5000, b"b"])
    assert [base for base, _, _ in opened.log.segments()] == [0, 1, 2]
    assert opened.all_bodies() == [b"a", b"x" * 5000, b"b"]


def test_segments_roll_by_the_age_of_their_first_record(tmp_path):
    opened = OneLog(tmp_path, segment_ms=10)
    for append_us in (0, 9_999, 10_000, 15_000, 20_000):
        opened.append(b"x", append_us=append_us)
        opened.commit()
    assert [base for base, _, _ in opened.log.segments()] == [0, 2, 4]
    opened.stop()
    again = OneLog(tmp_path, segment_ms=10)
    again.append(b"x", append_us=29_999)
    again.append(b"x", append_us=30_000)
    assert [base for base, _, _ in again.log.segments()] == [0, 2, 4, 6]


def test_a_roll_syncs_the_folder_and_both_segments(tmp_path):
    disk = RecordingDisk()
    opened = OneLog(tmp_path, disk, segment_bytes=600)
    opened.files.adopt("/proc")  # From here on, each file is synced separately.
    opened.append(b"x" * 200)
    opened.commit()
    del disk.calls[:]
    opened.append(b"y" * 200)
    opened.commit()
    synced = [call.file_name for call in disk.calls if call.name.startswith("sync")]
    assert sorted(synced) == ["00000000000000000001.log", "1"]
    opened.append(b"a")
    opened.append(b"z" * 200)
    del disk.calls[:]
    opened.commit()
    synced = [call.file_name for call in disk.calls if call.name.startswith("sync")]
    assert synced == ["00000000000000000001.log", "00000000000000000003.log", "1"]


def test_no_space_refuses_the_append_and_changes_nothing(tmp_path):
    disk = FailingDisk()
    opened = OneLog(tmp_path, disk, segment_bytes=1000)
    opened.fill([b"a" * 500])
    disk.fail("write", errno.ENOSPC, bytes_first=77)
    with pytest.raises(StorageFull):
        opened.append(b"b" * 100)
    disk.fail("create", errno.EROFS)
    with pytest.raises(StorageFull):
        opened.append(b"c" * 900)
    assert (opened.log.log_end_offset, opened.all_bodies()) == (1, [b"a" * 500])
    disk.heal()
    opened.fill([b"d", b"e" * 900])
    assert opened.all_bodies() == [b"a" * 500, b"d", b"e" * 900]
    opened.crash()
    assert opened.again().all_bodies() == [b"a" * 500, b"d", b"e" * 900]


PIECES = [(b"%d" % number * 300, BodyInfo(5, max_publish_us=number)) for number in range(4)]


@pytest.mark.parametrize("durability", list(Durability))
def test_several_batches_are_stored_atomically(tmp_path, durability):
    disk = FailingDisk()
    settings = {"segment_bytes": 1000, "index_interval_bytes": 300, "durability": durability}
    opened = OneLog(tmp_path, disk, **settings)
    opened.fill([b"a" * 500])
    for bytes_first in (0, 200, 700, 1500):  # In the header, and in each piece.
        disk.fail("write", errno.ENOSPC, bytes_first=bytes_first)
        with pytest.raises(StorageFull):
            opened.log.append_all(PIECES, body_format=1, append_us=1)
        assert (opened.log.log_end_offset, opened.all_bodies()) == (1, [b"a" * 500])
        disk.heal()
    assert opened.log.append_all(PIECES, body_format=1, append_us=1) == 1
    opened.fill([b"z"])
    for _ in range(2):
        batches = opened.all_batches()
        assert [bytes(batch.body) for batch in batches[1:-1]] == [body for body, _ in PIECES]
        assert [batch.base_offset for batch in batches] == [0, 1, 6, 11, 16, 21]
        for offset in range(22):
            holding = opened.log.read(offset, 1)[0]
            assert holding.base_offset <= offset < holding.next_offset
        assert len(segment_names(opened.folder)) == 3, "together in one segment, larger than others"
        opened.stop()
        opened = opened.again(**settings)


def test_several_batches_are_a_single_disk_call(tmp_path):
    disk = RecordingDisk()
    opened = OneLog(tmp_path, disk)
    del disk.calls[:]
    opened.log.append_all(PIECES, body_format=1, append_us=1)
    assert disk.names() == ["write"]
    with pytest.raises(ValueError, match="a batch cannot cover"):
        opened.log.append_all([(b"", BodyInfo(0))], body_format=1, append_us=1)


def test_a_failed_roll_leaves_no_file(tmp_path):
    disk = FailingDisk()
    opened = OneLog(tmp_path, disk, segment_bytes=1000)
    opened.fill([b"a" * 900])
    disk.fail("write", errno.ENOSPC, bytes_first=10)
    with pytest.raises(StorageFull):
        opened.append(b"b" * 900)
    assert segment_names(opened.folder) == ["00000000000000000000.log"]


def test_damaged_bytes_are_never_served(tmp_path):
    opened = OneLog(tmp_path)
    opened.fill([b"a" * 50, b"b" * 50, b"c" * 50])
    batches = opened.all_batches()
    flip(opened.file("00000000000000000000.log"), batches[1].file_pos + HEADER_BYTES + 7)
    assert [bytes(batch.body) for batch in opened.log.read(0, 1000)] == [b"a" * 50]
    with pytest.raises(DamagedLog) as caught:
        opened.log.read(1, 1000)
    assert (caught.value.file_pos, caught.value.offset) == (batches[1].file_pos, 1)
    assert [bytes(batch.body) for batch in opened.log.read(2, 1000)] == [b"c" * 50]


def test_behind_a_damaged_header_later_offsets_are_still_found(tmp_path):
    opened = OneLog(tmp_path)
    opened.fill([b"a" * 50, b"b" * 50, b"c" * 50], 10)
    batches = opened.all_batches()
    opened.stop()
    flip(opened.file("00000000000000000000.log"), batches[1].file_pos + 41)
    again = opened.again()
    with pytest.raises(DamagedLog, match="header checksum"):
        again.log.read(15, 1000)
    assert [bytes(batch.body) for batch in again.log.read(25, 1000)] == [b"c" * 50]


def test_good_batches_near_damage_are_read_without_an_error(tmp_path):
    """This also holds in the loop: reads that need a search through the file request a thread."""
    opened = OneLog(tmp_path)
    opened.fill([b"%d" % number * 50 for number in range(9)], 10)
    damaged = opened.all_batches()[4]
    opened.stop()
    flip(opened.file("00000000000000000000.log"), damaged.file_pos + 41)
    again = opened.again()
    log = again.log
    assert [batch.base_offset for batch in log.read(0, 10_000, wait=False)] == [0, 10, 20, 30]
    for offset in range(90):
        for wait in (True, False):
            if 40 <= offset < 50:
                with pytest.raises((DamagedLog, WouldBlock)):
                    log.read(offset, 10_000, wait=wait)
                continue
            try:
                assert log.read(offset, 1, wait=wait)[0].base_offset == offset // 10 * 10
            except WouldBlock:
                assert not wait and offset >= 50
    with pytest.raises(DamagedLog):
        log.read(40, 10_000, wait=False)


def test_a_disk_that_cannot_read_is_damage_with_its_place(tmp_path):
    disk = FailingDisk()
    opened = OneLog(tmp_path, disk)
    opened.fill([b"a"])
    disk.fail("read", errno.EIO)
    with pytest.raises(DamagedLog, match="cannot be read"):
        opened.log.read(0, 100)


def test_a_read_without_waiting_raises_would_block(tmp_path):
    disk = FailingDisk()
    opened = OneLog(tmp_path, disk)
    opened.fill([b"a", b"b"])
    assert len(opened.log.read(0, 100, wait=False)) == 2
    disk.fail("read_cached", errno.EAGAIN)
    with pytest.raises(WouldBlock):
        opened.log.read(0, 100, wait=False)
    assert len(opened.log.read(0, 100)) == 2


def test_batch_before_an_offset(tmp_path):
    opened = OneLog(tmp_path, segment_bytes=400)
    opened.fill([b"x" * 100] * 5, 10)
    assert opened.log.batch_before(0) is None
    for offset in range(1, 51):
        assert opened.log.batch_before(offset).base_offset == (offset - 1) // 10 * 10


@pytest.mark.parametrize("interval", [1, 500, 100_000])
def test_first_batch_at_or_after_a_time(tmp_path, interval):
    opened = OneLog(tmp_path, segment_bytes=700, index_interval_bytes=interval)
    times = [100, 200, 150, 400, 300, 500, 500, 450, 600]
    for time_us in times:
        opened.append(b"x" * 100, max_publish_us=time_us, append_us=7)
    opened.append(b"y" * 100, append_us=700)
    opened.commit()
    times.append(700)

    def expected(time_us):
        return next((n for n, time in enumerate(times) if time >= time_us), len(times))

    for log in before_and_after_restart(opened):
        for time_us in range(50, 800, 25):
            assert log.offset_at_or_after(time_us) == expected(time_us), time_us


def test_bytes_between_offsets(tmp_path):
    opened = OneLog(tmp_path, segment_bytes=5_000, index_interval_bytes=1)
    opened.fill([b"x" * 872] * 20, commit=False)
    opened.commit()
    assert opened.log.bytes_between(3, 3) == opened.log.bytes_between(4, 3) == 0
    assert opened.log.bytes_between(0, 20) == 20_000
    assert opened.log.bytes_between(5, 6) == 1000
    assert opened.log.bytes_between(19, 20) == 1000
    assert opened.log.size_bytes == sum(size for _, _, size in opened.log.segments())


def test_bytes_between_is_never_zero_for_a_record(tmp_path):
    opened = OneLog(tmp_path)
    opened.fill([b"x"], 10)
    assert opened.log.bytes_between(2, 3) >= 1


@pytest.mark.slow
def test_a_reader_beside_appends_and_retention_sees_only_good_batches(tmp_path):
    opened = OneLog(
        tmp_path, segment_bytes=20_000, retention_bytes=60_000, index_interval_bytes=512
    )
    stop, errors, seen = threading.Event(), [], []

    def follow():
        offset = 0
        while not stop.is_set() or offset < opened.log.high_watermark:
            try:
                batches = opened.log.read(offset, 5_000)
            except OffsetOutOfRange:
                offset = opened.log.log_start_offset
                continue
            except Exception as error:  # The test fails with the reader's error.
                errors.append(error)
                return
            for batch in batches:
                if bytes(batch.body[:8]) != batch.base_offset.to_bytes(8, "big"):
                    errors.append(AssertionError(batch))
                seen.append(batch.base_offset)
                offset = batch.next_offset

    readers = [threading.Thread(target=follow) for _ in range(2)]
    for reader in readers:
        reader.start()
    for number in range(800):
        opened.append(number.to_bytes(8, "big") + b"x" * (number % 700))
        if number % 5 == 0:
            opened.commit()
        if number % 50 == 0:
            opened.log.retain(now_us=0)
    opened.commit()
    stop.set()
    for reader in readers:
        reader.join()
    assert errors == []
    assert 799 in seen


def test_all_records_are_dropped_and_offsets_continue(tmp_path):
    opened = OneLog(tmp_path)
    opened.append(b"a", 3)
    opened.commit()
    opened.append(b"b", 2)
    assert opened.log.drop() == 0  # Undurable records stay.
    opened.commit()
    assert opened.log.drop() > 0
    opened.commit()
    assert (opened.log.log_start_offset, opened.log.log_end_offset) == (5, 5)
    assert opened.log.drop() == 0  # There are no more records.
    assert opened.append(b"c", 1) == 5
    opened.commit()
    for log in before_and_after_restart(opened):
        assert (log.log_start_offset, log.log_end_offset) == (5, 6)
        with pytest.raises(OffsetOutOfRange):
            log.read(0, 100)


def test_the_oldest_segments_are_dropped_and_the_last_stays(tmp_path):
    opened = OneLog(tmp_path, segment_bytes=300)
    for _ in range(6):
        opened.append(bytes(200), 1)
        opened.commit()
    bases = [base for base, _, _ in opened.log.segments()]
    assert len(bases) > 3
    assert opened.log.drop(2) == 2
    assert opened.log.log_start_offset == bases[2]
    assert opened.log.drop(99) == len(bases) - 3
    assert opened.log.log_start_offset == bases[-1]
    assert opened.log.drop(0) == 0


def test_a_closed_log_raises_a_clear_error(tmp_path):
    opened = OneLog(tmp_path)
    opened.fill([b"a"])
    opened.log.close()
    with pytest.raises(LogClosed):
        opened.append(b"b")
    with pytest.raises(LogClosed):
        opened.log.read(0, 100)
    opened.committer.commit()


def test_a_log_closed_during_a_round_takes_no_harm(tmp_path):
    opened = OneLog(tmp_path)
    opened.append(b"a")
    running = opened.committer.begin()
    opened.data_dir.retire_partition(1)
    opened.committer.sync(running)
    opened.committer.finish(running)
    assert opened.files.open_count <= 1
    assert not os.path.exists(opened.folder)
