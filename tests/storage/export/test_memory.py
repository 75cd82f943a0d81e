"""The memory limit of an export worker, for any content of the log.

The worker exports the worst batch of each kind in its own process, and the kernel reports the peak.
"""

import subprocess
import sys

import pytest

from braidlog.storage.formats import compression
from braidlog.storage.formats.api import BodyFormat
from braidlog.storage.formats.kafka.record_batches import HEAD, KAFKA_BATCHES, rebase
from braidlog.storage.formats.record import Record
from braidlog.storage.formats.registry import codec_for
from tests.storage.export.test_worker import TOPIC, Data
from tests.storage.formats.kafka.test_record_batches import batch

WORKER_BYTES_MAX = 400_000_000
ZSTD = 4
MILLION = 1 << 20  # The limit of records in a batch.

WORKER = """
import sys
from braidlog.storage.export.ranges import Range
from braidlog.storage.export.worker import Job, write_range

place, root, end, topic = sys.argv[1:]
files = write_range(Job(root, place, 1), Range(1, 0, 0, int(end), topic))
status = dict(line.split(":") for line in open("/proc/self/status"))
print(sum(file.rows for file in files), int(status["VmHWM"].split()[0]) * 1024)
"""


def records(count, size):
    return [Record(number, 0, value=bytes(size)) for number in range(count)]


def zstd_batch(count, plain):
    """Return a compressed record batch of `count` records."""
    return batch(compression.zstd(plain), count, attributes=ZSTD, base_ms=0, max_ms=0)


def small_values():
    """Return a batch with the maximum number of records; their deltas have three bytes each."""
    plain = bytearray()
    for number in range(MILLION):
        zigzag = number << 1
        delta = bytes((zigzag & 0x7F | 0x80, zigzag >> 7 & 0x7F | 0x80, zigzag >> 14))
        plain += b"\x12\x00\x00" + delta + b"\x01\x02v\x00"
    return zstd_batch(MILLION, bytes(plain))


def small_records(body_format, count):
    """Return the maximum number of records of a byte each, as the codec stores them."""
    return bytes(codec_for(body_format).encode(records(count, 1), 0))


# Content and format of each batch, and the number of such batches.
WORST = {
    "a million records in a batch": (small_values, BodyFormat.KAFKA_BATCHES, 1),
    "60 MB in a batch": (
        lambda: zstd_batch(600, KAFKA_BATCHES.encode(records(600, 100_000), 0)[HEAD.size :]),
        BodyFormat.KAFKA_BATCHES,
        3,
    ),
    "small records in batches": (
        lambda: small_records(BodyFormat.KAFKA_BATCHES, 20_000),
        BodyFormat.KAFKA_BATCHES,
        20,
    ),
    "small messages in entries": (
        lambda: small_records(BodyFormat.PULSAR, 5000),
        BodyFormat.PULSAR,
        60,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", WORST)
def test_a_worker_stays_below_its_memory(tmp_path, kind):
    make, body_format, count = WORST[kind]
    data, body, codec = Data(tmp_path), bytearray(make()), codec_for(body_format)
    for _ in range(count):
        if body_format is BodyFormat.KAFKA_BATCHES:
            rebase(body, data.log.log_end_offset)
        data.append_body(bytes(body), codec.inspect(body), body_format, 1)
    end = data.log.log_end_offset
    command = [sys.executable, "-c", WORKER, data.directory.path, str(data.root), str(end), TOPIC]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rows, peak = map(int, done.stdout.split())
    print(kind, rows, peak // 1_000_000, "MB")
    assert rows == end
    assert peak < WORKER_BYTES_MAX
