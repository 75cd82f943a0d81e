"""A log with a plain end is opened by a few small reads; any other log is left to the recovery."""

import os
import random
import resource
import shutil
from collections import Counter
from dataclasses import replace

import pytest

from braidlog.storage.directory.directory import NewPartition
from braidlog.storage.log.disk import Disk
from braidlog.storage.log.local_files import LocalFiles
from braidlog.storage.log.plain_end import BEHIND_BYTES_MAX, plain_end
from braidlog.storage.log.recovery import LogIdentity, recover
from braidlog.storage.log.segment_header import KIND_PARTITION
from braidlog.storage.log.watermark import read_watermark
from tests.storage.files_twins import RecordingDisk
from tests.storage.log.logs import OneLog, flip

INTERVAL_BYTES = 300
SETTINGS = {"segment_bytes": 20_000, "index_interval_bytes": INTERVAL_BYTES}
FIRST = "00000000000000000000"


class CountingDisk(Disk):
    """The real disk, which counts the calls of each kind."""

    def __init__(self):
        self.counts = Counter()

    def open(self, path, flags):
        self.counts["open"] += 1
        return super().open(path, flags)

    def read(self, path, fd, size, pos):
        self.counts["read"] += 1
        return super().read(path, fd, size, pos)

    def read_into(self, path, fd, into, pos):
        self.counts["read"] += 1
        return super().read_into(path, fd, into, pos)

    def write(self, path, fd, parts, pos):
        self.counts["write"] += 1
        return super().write(path, fd, parts, pos)


def ends(folder, mark=None):
    """Return the results of the short check and of the recovery, on copies of a
    partition's folder.
    """
    summaries = []
    for number, look in enumerate((plain_end, recover)):
        path = f"{folder}-{number}"
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(folder, path)
        for name in os.listdir(path):
            shutil.copystat(f"{folder}/{name}", f"{path}/{name}")
        files = LocalFiles(path)
        identity = LogIdentity(path, KIND_PARTITION, 1)
        slot = mark or read_watermark(path, 1)
        recovered = look(files, identity, slot, INTERVAL_BYTES, files.names(path))
        summaries.append(recovered and observable_state(recovered))
        files.close()
    return summaries


def observable_state(recovered):
    """Return everything about a recovered log that later use can observe."""
    last = recovered.segments[-1] if recovered.segments else None
    if last is not None and last.header is None:  # Damaged, or not read.
        last = None
    return {
        "segments": [(segment.base_offset, segment.size) for segment in recovered.segments],
        "ages": [segment.newest_append_us for segment in recovered.segments],
        "offsets": (
            recovered.log_start_offset,
            recovered.log_end_offset,
            recovered.durable_offset,
        ),
        "takes_appends": recovered.takes_appends,
        "to do": (len(recovered.unsynced), len(recovered.below_start), len(recovered.replaced)),
        "report": replace(recovered.report, folder=""),
        "last": last
        and (
            last.salt,
            last.max_time_us,
            last.first_append_us,
            last.indexed_pos,
            bytes(last.index._entries),
            last.index._written,
        ),
    }


def filled(path, rng, ending, **settings):
    """Return the folder of a log with random batches after that ending."""
    opened = OneLog(path, **(SETTINGS | settings))
    for turn in range(rng.randrange(1, 4)):
        for _ in range(rng.randrange(40)):
            opened.append(rng.randbytes(rng.randrange(400)), append_us=rng.randrange(1, 10**9))
            if rng.random() < 0.5:
                opened.commit()
        if turn == 0 and rng.random() < 0.5:
            opened.commit()
            opened.stop()
            opened = OneLog(path, **(SETTINGS | settings))
    if rng.random() < 0.8:
        opened.commit()
    getattr(opened, ending)()
    return opened.folder


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["stop", "crash"])
def test_the_short_check_equals_a_recovery(tmp_path, ending):
    seen = Counter()
    for seed in range(12):
        print("seed", seed)
        folder = filled(tmp_path / str(seed), random.Random(seed), ending)
        plain, whole = ends(folder)
        if plain is not None:
            assert plain == whole
        seen[plain is not None] += 1
    assert seen[True] > 2  # Otherwise nothing was compared.


@pytest.mark.slow
def test_damage_is_left_to_the_recovery_or_harmless(tmp_path):
    """With a flipped byte or a cut in any file, the short check equals the
    recovery, or gives up.
    """
    for seed in range(25):
        print("seed", seed)
        rng = random.Random(seed)
        folder = filled(tmp_path / str(seed), rng, rng.choice(["stop", "crash"]))
        path = os.path.join(folder, rng.choice(sorted(os.listdir(folder))))
        size = os.path.getsize(path)
        if size and rng.random() < 0.5:
            flip(path, rng.randrange(size))
        else:
            os.truncate(path, rng.randrange(size + 1))
        plain, whole = ends(folder)
        if plain is not None:
            assert plain == whole


@pytest.mark.parametrize(
    "harm",
    [
        "no segment",
        "0 bytes",
        "foreign",
        "another's salt",
        "left over",
        "behind the slot",
        "body",
        "durable ahead",
    ],
)
def test_unusual_logs_are_left_to_the_recovery(tmp_path, harm):
    opened = OneLog(tmp_path / "data", **SETTINGS)
    opened.fill([b"x" * 100] * 5)
    if harm == "durable ahead":  # A batch has a durable offset beyond the existing batches.
        opened.log.durable_offset = 99
        opened.append(b"x" * 100)
        opened.crash()
    else:
        opened.stop()
    log = opened.file(f"{FIRST}.log")
    if harm == "no segment":
        os.unlink(log)
    elif harm == "0 bytes":
        os.truncate(log, 0)
    elif harm == "foreign":
        flip(log, 17)
    elif harm == "another's salt":
        other = OneLog(tmp_path / "other", **SETTINGS)
        other.fill([b"x" * 100] * 6)
        other.stop()
        with open(other.file(f"{FIRST}.log"), "rb") as file, open(log, "r+b") as into:
            file.seek(64)
            into.seek(64)
            into.write(file.read())
    elif harm == "left over":
        open(opened.file("topic.new"), "wb").close()
    elif harm == "body":  # Of the last batch, which nothing proves.
        os.unlink(opened.file("watermark"))
        flip(log, os.path.getsize(log) - 1)
    elif harm == "behind the slot":
        with open(log, "ab") as file:
            file.write(b"torn")
    assert ends(opened.folder)[0] is None


@pytest.mark.parametrize("slot", ["behind", "missing"])
def test_batches_above_the_slot_are_written_and_synced_again(tmp_path, slot):
    """The short check writes the same bytes at the same places as the recovery."""
    opened = OneLog(tmp_path / "data", **SETTINGS)
    opened.fill([b"x" * 100] * 5)
    opened.append(b"y" * 100)
    opened.append(b"z" * 100)
    opened.crash()
    if slot == "missing":
        os.unlink(opened.file("watermark"))
    plain, whole = ends(opened.folder)
    assert plain == whole
    assert plain["to do"][0] == 1 and plain["offsets"][1:] == (7, 5 if slot == "behind" else 0)
    written = []
    for look in (plain_end, recover):
        disk = RecordingDisk()
        files = LocalFiles(opened.folder, disk)
        slot_now = read_watermark(opened.folder, 1)
        identity = LogIdentity(opened.folder, KIND_PARTITION, 1)
        assert look(files, identity, slot_now, INTERVAL_BYTES, files.names(opened.folder))
        written.append([call for call in disk.calls if call.name == "write"])
        files.close()
    assert written[0] == written[1] and written[0]


@pytest.mark.parametrize("index", ["missing", "empty", "flipped"])
def test_a_small_log_needs_no_index(tmp_path, index):
    opened = OneLog(tmp_path, **SETTINGS)
    opened.fill([b"x" * 100] * 5)
    opened.stop()
    path = opened.file(f"{FIRST}.index")
    if index == "missing":
        os.unlink(path)
    elif index == "empty":
        os.truncate(path, 0)
    else:
        flip(path, 9)
    plain, whole = ends(opened.folder)
    assert plain == whole and plain["report"].batches_walked == 5
    again = opened.again(**SETTINGS)
    assert again.all_bodies() == [b"x" * 100] * 5
    again.stop()
    assert os.path.getsize(path) > 0


def test_a_log_far_beyond_its_index_is_left_to_the_recovery(tmp_path):
    opened = OneLog(tmp_path, index_interval_bytes=1 << 20)
    opened.fill([b"x" * 1000] * (BEHIND_BYTES_MAX // 1000 + 1))
    opened.crash()
    assert ends(opened.folder)[0] is None


def test_a_start_makes_few_calls_for_a_partition(tmp_path):
    """Topic file, slot, index and log are each opened and read once, and nothing is written.

    After a kill, the end of a log that is no longer small is read, too. The directory's id is read
    once.
    """
    opened = OneLog(tmp_path, **SETTINGS)
    opened.fill([b"x" * 1000] * 10)
    opened.stop()
    disk = CountingDisk()
    again = OneLog(tmp_path, disk, **SETTINGS)
    assert (disk.counts["open"], disk.counts["read"], disk.counts["write"]) == (6, 5, 0)  # + root
    again.fill([b"y" * 1000] * 2)
    again.crash()
    disk = CountingDisk()
    again = OneLog(tmp_path, disk, **SETTINGS)
    assert again.log.recovery.batches_walked == 2
    assert (disk.counts["open"], disk.counts["read"], disk.counts["write"]) == (7, 6, 0)
    again.crash()


def test_a_stop_does_nothing_for_an_unused_log(tmp_path):
    opened = OneLog(tmp_path, **SETTINGS)
    opened.fill([b"x"] * 3)
    opened.stop()
    disk = RecordingDisk()
    again = OneLog(tmp_path, disk, **SETTINGS)
    disk.calls.clear()
    again.stop()
    assert disk.calls == []
    assert opened.again(**SETTINGS).all_bodies() == [b"x"] * 3


def test_a_stop_needs_few_descriptors(tmp_path):
    """Every log gets its index, though there are fewer descriptors than logs, and other code holds
    some.
    """
    opened = OneLog(tmp_path, **SETTINGS)
    others = [os.open(os.devnull, os.O_RDONLY) for _ in range(200)]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 60, hard))
    try:
        new = [NewPartition(number, "t", number) for number in range(2, 80)]
        logs = opened.data_dir.create_partitions(new, opened.settings, opened.committer)
        opened.stop()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for other in others:
            os.close(other)
    assert [log.folder for log in logs if not os.path.exists(f"{log.folder}/{FIRST}.index")] == []
