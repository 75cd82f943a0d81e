import os
import random
import shutil

import pytest

from braidlog.storage.errors import DamagedLog
from braidlog.storage.formats.api import BodyInfo
from braidlog.storage.formats.batch import HEADER_BYTES
from braidlog.storage.log.segment_header import SEGMENT_HEADER_BYTES
from braidlog.storage.log.watermark import read_watermark
from tests.storage.files_twins import RecordingDisk
from tests.storage.log.logs import FORMAT, OneLog, flip, segment_names

FIRST = "00000000000000000000.log"


def path_of(opened, base=0, suffix=".log"):
    return opened.file(f"{base:020d}{suffix}")


def cut_file(path, size):
    with open(path, "r+b") as file:
        file.truncate(size)


def copy_of(tmp_path, number):
    path = tmp_path.parent / f"{tmp_path.name}-{number}"
    shutil.copytree(tmp_path, path)
    return path


def crashed(tmp_path, committed, uncommitted, **settings):
    """Return a log with acknowledged and unacknowledged batches, after a crash."""
    opened = OneLog(tmp_path, **settings)
    opened.fill(committed)
    opened.fill(uncommitted, commit=False)
    opened.crash()
    return opened


@pytest.mark.slow
@pytest.mark.parametrize("index", ["kept", "deleted"])
def test_a_last_batch_cut_at_any_byte_is_a_torn_tail(tmp_path, index):
    crashed(tmp_path, [b"a" * 40, b"b" * 30], [b"last" * 5])
    whole = os.path.getsize(tmp_path / "partitions/1" / FIRST)
    start = whole - HEADER_BYTES - 20
    for size in range(start, whole):
        path = copy_of(tmp_path, size)
        cut_file(path / "partitions/1" / FIRST, size)
        if index == "deleted":
            (path / "partitions/1" / FIRST).with_suffix(".index").unlink(missing_ok=True)
        opened = OneLog(path)
        opened.commit()
        report = opened.log.recovery
        assert opened.all_bodies() == [b"a" * 40, b"b" * 30]
        assert (len(report.cuts), report.damages) == (1 if size > start else 0, [])
        assert opened.append(b"next") == 2
        opened.commit()
        assert opened.all_bodies()[2:] == [b"next"]
        opened.crash()
        shutil.rmtree(path)


def test_whole_batches_are_kept_even_without_acknowledgement(tmp_path):
    opened = crashed(tmp_path, [b"a"], [b"b", b"c"]).again()
    assert opened.all_bodies() == [b"a", b"b", b"c"]
    assert opened.log.recovery.is_clean


def test_batches_above_the_slot_are_visible_only_after_a_sync(tmp_path):
    crashed(tmp_path, [b"a"], [b"b", b"c"])
    disk = RecordingDisk()
    opened = OneLog(tmp_path, disk)
    assert (opened.log.log_end_offset, opened.log.high_watermark) == (3, 1)
    del disk.calls[:]
    opened.commit()
    assert opened.log.high_watermark == 3
    assert [name for name in disk.names() if name.startswith("sync")]


def test_a_torn_tail_removes_later_segments_from_the_last(tmp_path):
    opened = OneLog(tmp_path, segment_bytes=700)
    opened.fill([b"a" * 100])
    for _ in range(8):
        opened.append(b"x" * 100)
    opened.crash()
    assert len(segment_names(opened.folder)) == 5
    flip(path_of(opened, 2), SEGMENT_HEADER_BYTES + HEADER_BYTES + 3)
    disk = RecordingDisk()
    again = OneLog(tmp_path, disk)
    cut = [os.path.basename(cut.path)[16:20] for cut in again.log.recovery.cuts]
    assert cut == ["0008", "0006", "0004", "0002"]
    assert segment_names(opened.folder) == [f"{base:020d}.log" for base in (0, 2)]
    assert again.log.log_end_offset == again.log.high_watermark == 2
    names = [(call.name, call.file_name) for call in disk.calls]
    order = [
        ("unlink", f"{8:020d}.log"),
        ("unlink", f"{4:020d}.log"),
        ("truncate", f"{2:020d}.log"),
        ("sync_data", f"{2:020d}.log"),
        ("sync_folder", "1"),
    ]
    assert [names.index(step) for step in order] == sorted(names.index(step) for step in order)


@pytest.mark.parametrize("part", ["header", "body"])
def test_a_fault_below_the_slot_is_damage_and_nothing_is_cut(tmp_path, part):
    opened = OneLog(tmp_path)
    opened.fill([b"a" * 50, b"b" * 50, b"c" * 50])
    places = [batch.file_pos for batch in opened.all_batches()]
    opened.crash()
    os.unlink(opened.file("watermark"))  # The next batch proves the same.
    size = os.path.getsize(path_of(opened))
    flip(path_of(opened), places[1] + (30 if part == "header" else HEADER_BYTES + 1))
    again = opened.again()
    (damage,) = again.log.recovery.damages
    assert (damage.file_pos, damage.offset, damage.next_offset) == (places[1], 1, 2)
    assert os.path.getsize(path_of(opened)) == size
    assert [bytes(b.body) for b in again.log.read(0, 1000)] == [b"a" * 50]
    with pytest.raises(DamagedLog):
        again.log.read(1, 1000)
    assert [bytes(b.body) for b in again.log.read(2, 1000)] == [b"c" * 50]
    assert again.append(b"d") == 3


def test_a_fault_below_the_greatest_durable_offset_is_damage(tmp_path):
    """Batch 1 was durable when batch 3 was written, batch 2 was not."""
    opened = OneLog(tmp_path)
    opened.fill([b"a", b"b"])
    opened.append(b"c")
    opened.append(b"d")
    opened.crash()
    places = [SEGMENT_HEADER_BYTES + n * (HEADER_BYTES + 1) for n in range(4)]
    os.unlink(opened.file("watermark"))
    for number, torn in ((2, True), (1, False)):
        path = copy_of(tmp_path, number)
        flip(path / "partitions/1" / FIRST, places[number] + HEADER_BYTES)
        again = OneLog(path)
        again.commit()
        assert bool(again.log.recovery.cuts) == torn
        assert bool(again.log.recovery.damages) == (not torn)
        assert again.log.log_end_offset == (2 if torn else 4)


def test_damage_that_reaches_the_end_refuses_appends(tmp_path):
    opened = OneLog(tmp_path)
    opened.fill([b"a" * 50, b"b" * 50])
    opened.stop()
    cut_file(path_of(opened), os.path.getsize(path_of(opened)) - 1)
    again = opened.again()
    (damage,) = again.log.recovery.damages
    assert (damage.offset, damage.next_offset) == (1, 2)
    assert again.log.log_end_offset == 2
    with pytest.raises(DamagedLog):
        again.append(b"c")
    assert [bytes(b.body) for b in again.log.read(0, 1000)] == [b"a" * 50]
    with pytest.raises(DamagedLog):
        again.log.read(1, 1000)
    again.stop()
    assert opened.again().log.log_end_offset == 2


def test_a_torn_segment_header_is_removed_with_its_segment(tmp_path):
    opened = OneLog(tmp_path, segment_bytes=400)
    opened.fill([b"a" * 200])
    opened.append(b"b" * 200)
    opened.crash()
    for size in (0, 1, SEGMENT_HEADER_BYTES - 1):
        path = copy_of(tmp_path, size)
        cut_file(path / "partitions/1" / f"{1:020d}.log", size)
        again = OneLog(path, segment_bytes=400)
        again.commit()
        assert (again.log.log_end_offset, again.append(b"c" * 200)) == (1, 1)
        again.commit()
        assert again.all_bodies() == [b"a" * 200, b"c" * 200]


def test_a_damaged_segment_header_below_the_slot_is_damage(tmp_path):
    opened = OneLog(tmp_path, segment_bytes=400)
    opened.fill([b"a" * 200, b"b" * 200, b"c" * 200])
    opened.crash()
    flip(path_of(opened, 1), 13)
    again = opened.again(segment_bytes=400)
    assert [bytes(b.body) for b in again.log.read(0, 10)] == [b"a" * 200]
    with pytest.raises(DamagedLog, match="segment header"):
        again.log.read(1, 10)
    assert [bytes(b.body) for b in again.log.read(2, 10)] == [b"c" * 200]


@pytest.mark.parametrize("gone", [0, 1, 2])
def test_a_missing_segment_is_damage(tmp_path, gone):
    opened = OneLog(tmp_path, segment_bytes=400)
    opened.fill([b"a" * 200, b"b" * 200, b"c" * 200])
    opened.crash()
    os.unlink(path_of(opened, gone))
    again = opened.again(segment_bytes=400)
    readable = []
    for offset in range(again.log.log_start_offset, 3):
        try:
            readable.append(bytes(again.log.read(offset, 1)[0].body[:1]))
        except DamagedLog:
            readable.append(None)
    expected = [b"a", b"b", b"c"]
    expected[gone] = None
    assert readable == (expected[1:] if gone == 0 else expected)
    assert again.log.log_end_offset == 3


def test_a_folder_without_any_segment_is_damage(tmp_path):
    opened = OneLog(tmp_path)
    opened.fill([b"a"])
    opened.crash()
    os.unlink(path_of(opened))
    again = opened.again()
    assert again.log.recovery.damages
    with pytest.raises(DamagedLog):
        again.append(b"b")
    with pytest.raises(DamagedLog):
        again.log.read(0, 10)


def test_a_clients_bytes_never_count_as_a_batch(tmp_path):
    """A body that is itself a whole segment with a later durable offset proves nothing."""
    source = OneLog(tmp_path / "source")
    source.fill([b"x" * 20] * 5)
    source.crash()
    with open(path_of(source), "rb") as file:
        stolen = file.read()
    opened = OneLog(tmp_path / "victim")
    opened.fill([b"a"])
    opened.append(stolen)
    opened.crash()
    flip(path_of(opened), SEGMENT_HEADER_BYTES + HEADER_BYTES + 1 + 30)
    again = opened.again()
    assert (len(again.log.recovery.cuts), again.log.recovery.damages) == (1, [])
    assert again.log.log_end_offset == 1


def test_a_start_after_a_clean_stop_walks_nothing(tmp_path):
    opened = OneLog(tmp_path, segment_bytes=10_000, index_interval_bytes=500)
    opened.fill([b"x" * 100] * 200)
    opened.stop()
    again = opened.again(segment_bytes=10_000, index_interval_bytes=500)
    assert again.log.recovery.batches_walked == 0
    assert (again.log.log_end_offset, again.log.durable_offset) == (200, 200)
    again.fill([b"y"])
    assert again.all_bodies() == [b"x" * 100] * 200 + [b"y"]


@pytest.mark.slow
def test_a_start_after_a_crash_walks_only_behind_the_index(tmp_path):
    opened = OneLog(tmp_path, index_interval_bytes=250)
    opened.fill([b"x" * 100] * 1000)
    opened.crash()
    again = opened.again(index_interval_bytes=250)
    assert again.log.recovery.batches_walked < 2 * 64 * 2 + 5
    assert again.all_bodies() == [b"x" * 100] * 1000


@pytest.mark.parametrize("harm", ["deleted", "empty", "cut", "flipped", "foreign", "old"])
@pytest.mark.parametrize("ending", ["stop", "crash"])
def test_a_missing_or_wrong_index_does_no_harm(tmp_path, harm, ending):
    opened = OneLog(tmp_path, segment_bytes=20_000, index_interval_bytes=300)
    opened.fill([b"%03d" % n + b"x" * 100 for n in range(300)], 3, commit=False)
    opened.commit()
    bodies = opened.all_bodies()
    old = {}
    for name in os.listdir(opened.folder):
        if name.endswith(".index"):
            with open(opened.file(name), "rb") as file:
                old[name] = file.read()
    opened.fill([b"%03d" % n + b"x" * 100 for n in range(300, 310)], 3)
    bodies = opened.all_bodies()
    getattr(opened, ending)()
    for name in sorted(os.listdir(opened.folder)):
        if name.endswith(".index"):
            harm_index(opened.file(name), harm, old.get(name, b""))
    again = opened.again(segment_bytes=20_000, index_interval_bytes=300)
    assert again.all_bodies() == bodies
    for offset in range(0, 930, 7):
        assert again.log.read(offset, 0)[0].base_offset == offset // 3 * 3
    again.fill([b"more"])
    again.stop()
    final = opened.again(segment_bytes=20_000, index_interval_bytes=300)
    assert final.all_bodies() == [*bodies, b"more"]


def harm_index(path, harm, old):
    size = os.path.getsize(path)
    if harm == "deleted":
        os.unlink(path)
    elif harm == "empty":
        cut_file(path, 0)
    elif harm == "cut":
        cut_file(path, size // 2 + 5)
    elif harm == "flipped":
        for pos in range(40, size, 100):
            flip(path, pos)
    elif harm == "foreign":
        flip(path, 13)
    else:
        with open(path, "wb") as file:
            file.write(old)


@pytest.mark.parametrize("harm", ["deleted", "empty", "garbage", "too low"])
def test_a_missing_or_wrong_slot_only_costs_time(tmp_path, harm):
    opened = OneLog(tmp_path, segment_bytes=5_000)
    opened.fill([b"x" * 100] * 60)
    path = opened.file("watermark")
    opened.stop()
    if harm == "deleted":
        os.unlink(path)
    elif harm == "empty":
        cut_file(path, 0)
    elif harm == "garbage":
        with open(path, "wb") as file:
            file.write(random.Random(7).randbytes(1024))
    else:
        flip(path, 30 + 512 * (read_watermark(opened.folder, 1).sequence % 2))
    again = opened.again(segment_bytes=5_000)
    assert again.log.recovery.is_clean
    assert again.all_bodies() == [b"x" * 100] * 60
    assert again.log.log_start_offset == 0


def test_index_entries_of_a_cut_tail_do_not_return(tmp_path):
    """The index knows batches that are cut off; new batches at other places follow; then another
    crash.
    """
    opened = OneLog(tmp_path, index_interval_bytes=1)
    opened.fill([b"a" * 100] * 3)
    for _ in range(70):
        opened.append(b"b" * 100)
    opened.log.segment_set.last.index.flush()
    opened.crash()
    flip(path_of(opened), SEGMENT_HEADER_BYTES + 4 * (HEADER_BYTES + 100) + HEADER_BYTES)
    again = opened.again(index_interval_bytes=1)
    assert again.log.log_end_offset == 4
    again.fill([b"c" * 33] * 20)
    again.crash()
    final = opened.again(index_interval_bytes=1)
    assert final.log.recovery.is_clean
    assert final.all_bodies() == [b"a" * 100] * 3 + [b"b" * 100] + [b"c" * 33] * 20


def test_left_over_new_files_are_removed(tmp_path):
    opened = OneLog(tmp_path)
    opened.stop()
    with open(opened.file("something.new"), "wb") as file:
        file.write(b"half")
    opened.again()
    assert not os.path.exists(opened.file("something.new"))


@pytest.mark.parametrize("seed", range(40))
def test_random_damage_yields_no_wrong_record(tmp_path, seed):
    """After a flipped bit or a cut anywhere in the folder, every served record is a
    written record.
    """
    rng = random.Random(seed)
    settings = {"segment_bytes": 1500, "index_interval_bytes": 200}
    opened = OneLog(tmp_path, **settings)
    written = {}
    for _ in range(30):
        body = rng.randbytes(rng.randint(0, 300))
        count = rng.randint(1, 5)
        written[opened.log.append([body], BodyInfo(count), body_format=FORMAT, append_us=1)] = body
        if rng.random() < 0.7:
            opened.commit()
    durable = opened.log.durable_offset
    if rng.random() < 0.5:
        opened.stop()
        durable = opened.log.log_end_offset
    else:
        opened.crash()
    name = rng.choice([n for n in sorted(os.listdir(opened.folder)) if n != "topic"])
    size = os.path.getsize(opened.file(name))
    if rng.random() < 0.7:
        flip(opened.file(name), rng.randrange(size), 1 << rng.randrange(8))
    else:
        cut_file(opened.file(name), rng.randrange(size))
    again = opened.again(**settings)
    missing = []
    for offset, body in written.items():
        try:
            (batch, *_) = again.log.read(offset, 0) or [None]
        except Exception as error:
            assert type(error).__name__ in ("DamagedLog", "OffsetOutOfRange"), (seed, error)
            batch = None
        if batch is None:
            missing.append(offset)
        else:
            assert (batch.base_offset, bytes(batch.body)) == (offset, body), seed
    reported = again.log.recovery.cuts or again.log.recovery.damages
    for offset in missing:
        if offset < durable:
            with pytest.raises(DamagedLog):
                again.log.read(offset, 0)
        else:
            assert reported, seed


@pytest.mark.slow
@pytest.mark.parametrize("harm", ["deleted", "cut"])
def test_a_start_walks_little_of_a_large_file_without_index(tmp_path, harm):
    opened = OneLog(tmp_path)
    body = bytes(32 * 1024)
    for number in range(1500):
        opened.append(body, append_us=1_000_000 + number)
        if number % 100 == 0:
            opened.commit()
    opened.commit()
    opened.append(b"not acknowledged")
    opened.log.segment_set.last.index.flush()
    opened.crash()
    path = path_of(opened, suffix=".index")
    if harm == "deleted":
        os.unlink(path)
    else:
        cut_file(path, 4096)
    again = opened.again()
    assert again.log.recovery.is_clean
    assert again.log.recovery.batches_walked < 10
    assert again.log.log_end_offset == 1501
    for offset in (0, 1, 700, 1499, 1500):
        assert again.log.read(offset, 0)[0].base_offset == offset
    again.fill([b"more"])
    assert again.log.offset_at_or_after(1_000_700) == 700
    again.stop()
    assert opened.again().log.recovery.batches_walked == 0
