"""Bodies that unpack to many bytes: complete, in memory once, and refused on request."""

import gzip
import mmap
import random
import threading
import tracemalloc
import zlib
from collections.abc import Callable

import cramjam
import pytest

from braidlog.storage.errors import RecordTooLarge, UnreadableBody
from braidlog.storage.formats import compression
from braidlog.storage.formats.api import Buffer
from braidlog.storage.formats.base import Codec
from braidlog.storage.formats.compression import (
    gunzip,
    sliceable,
)
from braidlog.storage.formats.kafka.message_sets import KAFKA
from braidlog.storage.formats.kafka.record_batches import KAFKA_BATCHES
from braidlog.storage.formats.pulsar.entry import record_to_entry
from braidlog.storage.formats.record import Record
from braidlog.storage.large import LARGE_BYTES_MIN, LargeBody, refusing_large
from tests.storage.formats.kafka.test_message_sets import entry, message, wrapper

PIECE = random.Random(1).randbytes(100_000)
LARGE = PIECE * (LARGE_BYTES_MIN // len(PIECE) + 40)

Unpack = Callable[[Buffer, int], Buffer]
PACKED: dict[str, tuple[bytes, Unpack]] = {
    "gzip": (gzip.compress(LARGE, 1), gunzip),
    "lz4": (compression.lz4_frame(LARGE), compression.unlz4),
    "zstd": (bytes(cramjam.zstd.compress(LARGE)), compression.unzstd),
    "snappy": (bytes(cramjam.snappy.compress_raw(LARGE)), compression.unsnappy),
}


@pytest.mark.parametrize("name", PACKED)
def test_large_outputs_are_whole_and_their_slices_are_bytes(name: str) -> None:
    packed, unpack = PACKED[name]
    unpacked = sliceable(unpack(packed, 64 << 20))
    assert isinstance(unpacked, mmap.mmap)  # Not copied either.
    assert len(unpacked) == len(LARGE)
    assert unpacked[:] == LARGE
    assert isinstance(unpacked[5:10], bytes)
    assert unpacked[5] == LARGE[5]


def test_small_outputs_are_bytes() -> None:
    assert isinstance(sliceable(gunzip(gzip.compress(PIECE), 1 << 20)), bytes)
    assert isinstance(sliceable(compression.unlz4(compression.lz4_frame(PIECE), 1 << 20)), bytes)


@pytest.mark.parametrize("size_max", [0, LARGE_BYTES_MIN - 1, LARGE_BYTES_MIN, len(LARGE) - 1])
def test_outputs_above_the_limit_are_refused(size_max: int) -> None:
    with pytest.raises(RecordTooLarge):
        gunzip(PACKED["gzip"][0], size_max)


@pytest.mark.parametrize("size", [LARGE_BYTES_MIN - 1, LARGE_BYTES_MIN, LARGE_BYTES_MIN + 1])
def test_outputs_of_about_that_size_are_whole(size: int) -> None:
    assert bytes(gunzip(gzip.compress(LARGE[:size], 1), size)) == LARGE[:size]
    block = compression.decompress_block("zlib", zlib.compress(LARGE[:size], 1), size, size)
    assert bytes(block) == LARGE[:size]


def test_members_are_joined_including_large_members() -> None:
    packed = PACKED["gzip"][0]
    assert bytes(gunzip(packed + gzip.compress(PIECE), 64 << 20)) == LARGE + PIECE


def test_a_large_stream_that_is_cut_or_broken_is_refused() -> None:
    packed = PACKED["gzip"][0]
    broken = bytearray(packed)
    broken[-5000:-4000] = bytes(1000)
    for hostile in (packed[:-1], packed[: len(packed) // 2], bytes(broken)):
        with pytest.raises(UnreadableBody):
            gunzip(hostile, 64 << 20)


@pytest.mark.parametrize("codec", [1, 2, 3])
def test_records_of_a_large_set_have_their_own_bytes(codec: int) -> None:
    values = [PIECE[:50_000]] * 250
    inner = b"".join(entry(at, message(b"key", value)) for at, value in enumerate(values))
    decoded = KAFKA.decode(wrapper(inner, codec, 249), 0, 0, start_offset=245, records_max=3)
    assert [record.offset for record in decoded.records] == [245, 246, 247]
    assert [record.value for record in decoded.records] == values[:3]
    assert all(type(record.value) is bytes for record in decoded.records)


@pytest.mark.parametrize("name", PACKED)
def test_large_work_can_be_refused_before_it_takes_memory(name: str) -> None:
    packed, unpack = PACKED[name]
    with refusing_large():
        with pytest.raises(LargeBody) as refused:
            unpack(packed, 64 << 20)
        assert len(LARGE) <= refused.value.size <= (64 << 20) + 1
        assert bytes(gunzip(gzip.compress(PIECE), 1 << 20)) == PIECE
    assert bytes(unpack(packed, 64 << 20)) == LARGE


@pytest.mark.parametrize(
    ("packed", "unpack"),
    [
        (gzip.compress(LARGE[: LARGE_BYTES_MIN // 2], 1) * 2, gunzip),
        (compression.snappy(LARGE), compression.unsnappy),
    ],
    ids=["members of gzip", "blocks of snappy"],
)
def test_small_pieces_of_a_large_body_are_counted_together(packed: bytes, unpack: Unpack) -> None:
    with refusing_large(), pytest.raises(LargeBody):
        unpack(packed, 64 << 20)
    assert len(unpack(packed, 64 << 20)) >= LARGE_BYTES_MIN


def test_the_refusal_applies_only_to_its_thread() -> None:
    packed, unpack = PACKED["zstd"]
    unpacked: list[Buffer] = []
    with refusing_large():
        other = threading.Thread(target=lambda: unpacked.append(unpack(packed, 64 << 20)))
        other.start()
        other.join()
    assert bytes(unpacked[0]) == LARGE


@pytest.mark.parametrize(
    "encode",
    [
        lambda record: KAFKA.encode([record], 5),
        lambda record: KAFKA_BATCHES.encode([record], 5),
        record_to_entry,
    ],
    ids=["kafka", "kafka batches", "pulsar"],
)
def test_a_large_record_is_encoded_in_a_single_copy(encode: Callable[[Record], bytes]) -> None:
    record = Record(5, 1_000_000, value=LARGE, headers=(), key=b"k")
    tracemalloc.start()
    try:
        encoded = encode(record)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1.2 * len(encoded)


@pytest.mark.parametrize("codec", [KAFKA, KAFKA_BATCHES])
@pytest.mark.parametrize("key", [None, b"k"])
def test_a_large_record_behind_small_records_is_decoded_whole(codec: Codec, key: bytes) -> None:
    small = [Record(offset, 1_000_000, value=b"v%d" % offset) for offset in (5, 6)]
    large = Record(8, 3_000_000, key=key, value=LARGE)
    encoded = codec.encode([*small, large], 5)
    decoded = codec.decode(encoded, 5, 1_000_000)
    assert [(r.offset, r.key, r.value) for r in decoded.records] == [
        (r.offset, r.key, r.value) for r in (*small, large)
    ]
