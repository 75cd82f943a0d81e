"""Bodies with false fields: every codec raises its own error, for any bytes."""

import gc
import mmap
import random
import tracemalloc
from pathlib import Path

import pytest

from braidlog.storage.errors import BodyError
from braidlog.storage.formats.record import Header, Record
from braidlog.storage.formats.registry import codec_named
from tests.storage.formats.entries_of import body, entry, metadata

CODECS = ["plain", "kafka", "pulsar", "iggy"]
SEEDS = range(20)


def records() -> list[Record]:
    return [
        Record(
            offset,
            5,
            publish_us=7000,
            key=b"key",
            value=b"value %d" % offset,
            headers=[Header(b"name", b"text"), Header(b"n", b"\x07\x00\x00\x00", 11)],
        )
        for offset in range(10, 13)
    ]


def look_at(name: str, body: bytes) -> None:
    codec = codec_named(name)
    decoded = codec.decode(body, 10, 5)
    if decoded.failed is not None:
        assert isinstance(decoded.failed, BodyError)
        assert decoded.failed_offset is not None
    for look in (codec.inspect, codec.readable, lambda b: codec.split(b, 10)):
        try:
            look(body)
        except BodyError:
            pass


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("seed", SEEDS)
def test_random_bytes_raise_only_body_errors(name: str, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(40):
        look_at(name, rng.randbytes(rng.randrange(120)))


@pytest.mark.parametrize("name", CODECS)
def test_a_body_cut_anywhere_yields_its_whole_records_or_an_error(name: str) -> None:
    codec = codec_named(name)
    body = codec.encode(records(), 10)
    whole = codec.decode(body, 10, 5).records
    for end in range(len(body)):
        look_at(name, body[:end])
        decoded = codec.decode(body[:end], 10, 5)
        assert decoded.records == whole[: len(decoded.records)]
        assert len(decoded.records) < len(whole)


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("seed", SEEDS)
def test_changed_bytes_are_an_error_or_other_values(name: str, seed: int) -> None:
    rng = random.Random(seed)
    body = codec_named(name).encode(records(), 10)
    for _ in range(40):
        changed = bytearray(body)
        for _ in range(rng.randrange(1, 4)):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        look_at(name, bytes(changed))


@pytest.mark.parametrize("name", CODECS)
def test_lengths_of_all_ones_take_no_memory(name: str) -> None:
    body = codec_named(name).encode(records(), 10)
    tracemalloc.start()
    try:
        for pos in range(len(body) - 4):
            look_at(name, body[:pos] + b"\xff\xff\xff\x7f" + body[pos + 4 :])
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


LIE = 1 << 26  # the claimed unpacked size of the garbage: the maximum


def garbage(compression: int) -> bytes:
    """Return a stored Pulsar entry of a few bytes with a large claimed size."""
    payload = {4: b"\x80\x80\x80\x20garbage!"}.get(compression, b"garbage!")
    return body((entry(metadata(compression=compression, uncompressed_size=LIE), payload), 1))


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


@pytest.mark.parametrize("compression", [1, 2, 3, 4], ids=["lz4", "zlib", "zstd", "snappy"])
def test_a_failure_keeps_no_memory_for_the_declared_size(compression: int) -> None:
    stored = garbage(compression)
    codec = codec_named("pulsar")
    gc.disable()
    try:
        before = resident_bytes()
        decodings = [codec.decode(stored, 0, 1) for _ in range(8)]
        assert resident_bytes() - before < LIE // 2
    finally:
        gc.enable()
    for decoded in decodings:
        assert isinstance(decoded.failed, BodyError)
        assert decoded.failed.__traceback__ is decoded.failed.__context__ is None
