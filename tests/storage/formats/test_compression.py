import gzip as python_gzip
import random
import struct
import tracemalloc
import zlib

import cramjam
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from braidlog.storage.errors import BodyError, RecordTooLarge, UnreadableBody
from braidlog.storage.formats import compression
from tests.storage.formats.strategies import QUICK

KAFKA = {
    "gzip": (compression.gzip, compression.gunzip),
    "snappy": (compression.snappy, compression.unsnappy),
    "lz4": (compression.lz4, compression.unlz4),
}
PULSAR = {
    "lz4": lambda data: bytes(cramjam.lz4.compress_block(data, store_size=False)),
    "zlib": zlib.compress,
    "zstd": lambda data: bytes(cramjam.zstd.compress(data)),
    "snappy": lambda data: bytes(cramjam.snappy.compress_raw(data)),
}
SAMPLES = [b"", b"a", b"hello hello hello", bytes(200_000), random.Random(1).randbytes(200_000)]
HELLO = b"hello hello hello"


@pytest.mark.parametrize("name", KAFKA)
@pytest.mark.parametrize("data", SAMPLES, ids=len)
def test_compressed_data_for_kafka_unpacks_within_its_exact_size(name: str, data: bytes) -> None:
    pack, unpack = KAFKA[name]
    assert bytes(unpack(pack(data), len(data))) == data


@pytest.mark.parametrize("name", KAFKA)
def test_a_byte_above_the_limit_is_too_large(name: str) -> None:
    pack, unpack = KAFKA[name]
    for data in SAMPLES[1:]:
        with pytest.raises(RecordTooLarge):
            unpack(pack(data), len(data) - 1)


@pytest.mark.parametrize("name", KAFKA)
def test_a_bomb_stops_at_the_limit(name: str) -> None:
    pack, unpack = KAFKA[name]
    bomb = pack(bytes(32 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(RecordTooLarge):
            unpack(bomb, 1 << 20)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", KAFKA)
def test_a_stream_cut_anywhere_is_refused(name: str) -> None:
    pack, unpack = KAFKA[name]
    packed = pack(HELLO)
    for end in range(1, len(packed)):
        if name == "snappy" and end == 16:
            continue  # The framing's head alone: a set without blocks.
        with pytest.raises(BodyError):
            unpack(packed[:end], 1000)


@pytest.mark.parametrize("name", KAFKA)
@QUICK
@given(data=st.binary(max_size=80))
def test_any_bytes_are_unpacked_or_refused(name: str, data: bytes) -> None:
    _, unpack = KAFKA[name]
    for hostile in (data, KAFKA[name][0](HELLO)[:7] + data):
        try:
            assert len(unpack(hostile, 10_000)) <= 10_000
        except BodyError:
            pass


def test_gzip_is_compatible_with_other_implementations() -> None:
    assert python_gzip.decompress(compression.gzip(HELLO)) == HELLO
    named = b"\x1f\x8b\x08\x08\x01\x02\x03\x04\x02\xffname\x00"
    raw = zlib.compressobj(9, zlib.DEFLATED, -15)
    body = raw.compress(HELLO) + raw.flush()
    tail = struct.pack("<II", zlib.crc32(HELLO), len(HELLO))
    assert compression.gunzip(named + body + tail, 100) == HELLO


def test_gzip_members_are_joined_and_padding_ignored() -> None:
    members = python_gzip.compress(b"one,") + python_gzip.compress(b"two") + bytes(9)
    assert compression.gunzip(members, 7) == b"one,two"
    with pytest.raises(RecordTooLarge):
        compression.gunzip(members, 6)


def test_gzip_of_very_many_members_is_refused() -> None:
    many = python_gzip.compress(b"") * (compression.GZIP_MEMBERS_MAX + 1)
    with pytest.raises(UnreadableBody):
        compression.gunzip(many, 1000)


def test_snappy_is_read_framed_and_raw() -> None:
    raw = bytes(cramjam.snappy.compress_raw(HELLO))
    framed = b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, len(raw)) + raw
    assert compression.snappy(HELLO) == framed
    assert bytes(compression.unsnappy(raw, 17)) == HELLO
    assert bytes(compression.unsnappy(framed + framed[16:], 34)) == HELLO + HELLO
    with pytest.raises(RecordTooLarge):
        compression.unsnappy(framed + framed[16:], 33)


def test_snappy_blocks_hold_at_most_32_kib() -> None:
    packed = compression.snappy(bytes(70_000))
    sizes, pos = [], 16
    while pos < len(packed):
        size = struct.unpack_from(">I", packed, pos)[0]
        sizes.append(cramjam.snappy.decompress_raw_len(packed[pos + 4 : pos + 4 + size]))
        pos += 4 + size
    assert sizes == [32768, 32768, 4464]


def test_lz4_is_written_like_the_java_client_of_0_8() -> None:
    """Kafka's Java producer 0.8.2.2, the same text."""
    wanted = "04224d18 60401a 11000080 68656c6c6f2068656c6c6f2068656c6c6f 00000000"
    assert compression.lz4(HELLO) == bytes.fromhex(wanted)


@pytest.mark.parametrize("checksum", ["1a", "82"], ids=["legacy", "standard"])
def test_both_lz4_header_checksums_are_read(checksum: str) -> None:
    block = "11000080" + HELLO.hex() + "00000000"
    assert bytes(compression.unlz4(bytes.fromhex("04224d186040" + checksum + block), 17)) == HELLO


def test_another_lz4_header_checksum_is_refused() -> None:
    frame = bytearray(compression.lz4(HELLO))
    frame[6] ^= 1
    with pytest.raises(UnreadableBody):
        compression.unlz4(frame, 17)


@pytest.mark.parametrize("flags", [0x60, 0x64, 0x68, 0x6C, 0x70, 0x7C, 0x40])
def test_lz4_frames_of_any_descriptor_are_read(flags: int) -> None:
    """Content checksum, content size, block checksums, and linked blocks (0x40)."""
    assert bytes(compression.unlz4(lz4_frame(flags, HELLO), 17)) == HELLO


def lz4_frame(flags: int, data: bytes) -> bytes:
    descriptor = bytes((flags, 0x40))
    if flags & 8:
        descriptor += struct.pack("<Q", len(data))
    check = xxhash.xxh32_intdigest(descriptor) >> 8 & 0xFF
    block = struct.pack("<I", len(data) | 0x80000000) + data
    if flags & 16:
        block += struct.pack("<I", xxhash.xxh32_intdigest(data))
    end = bytes(4) + (struct.pack("<I", xxhash.xxh32_intdigest(data)) if flags & 4 else b"")
    return b"\x04\x22\x4d\x18" + descriptor + bytes((check,)) + block + end


@pytest.mark.parametrize("name", PULSAR)
@pytest.mark.parametrize("data", SAMPLES, ids=len)
def test_pulsar_payloads_unpack_to_their_declared_size(name: str, data: bytes) -> None:
    packed = PULSAR[name](data)
    assert bytes(compression.decompress_block(name, packed, len(data), 1 << 20)) == data


@pytest.mark.parametrize("name", PULSAR)
@pytest.mark.parametrize("declared", [0, 16, 18, 1000])
def test_another_size_than_declared_is_unreadable(name: str, declared: int) -> None:
    with pytest.raises(UnreadableBody):
        compression.decompress_block(name, PULSAR[name](HELLO), declared, 1000)


@pytest.mark.parametrize("name", PULSAR)
def test_a_declared_size_above_the_limit_is_too_large(name: str) -> None:
    with pytest.raises(RecordTooLarge):
        compression.decompress_block(name, PULSAR[name](bytes(2000)), 2000, 1999)


@pytest.mark.parametrize("name", PULSAR)
@QUICK
@given(data=st.binary(max_size=40), size=st.integers(0, 100))
def test_any_payload_is_unpacked_or_refused(name: str, data: bytes, size: int) -> None:
    try:
        assert len(compression.decompress_block(name, data, size, 100)) == size
    except BodyError:
        pass


def test_checksums_equal_zlibs() -> None:
    data = memoryview(b"123456789")
    assert compression.crc32(data) == zlib.crc32(data) == 0xCBF43926
