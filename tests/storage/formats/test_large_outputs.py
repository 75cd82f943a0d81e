"""What unpacks to many bytes: whole, in memory once, and by one thread at a time."""

import gzip
import mmap
import random
import threading
import zlib

import cramjam
import pytest

from braidlog.storage.errors import BodyError, RecordTooLarge, UnreadableBody
from braidlog.storage.formats import compression
from braidlog.storage.formats.compression import LARGE_BYTES_MIN, gunzip, sliceable, taking_turns
from braidlog.storage.formats.kafka.message_sets import KAFKA
from tests.storage.formats.kafka.test_message_sets import entry, message, wrapper

PIECE = random.Random(1).randbytes(100_000)
LARGE = PIECE * (LARGE_BYTES_MIN // len(PIECE) + 40)

PACKED = {
    "gzip": (gzip.compress(LARGE, 1), gunzip),
    "lz4": (compression.lz4_frame(LARGE), compression.unlz4),
    "zstd": (bytes(cramjam.zstd.compress(LARGE)), compression.unzstd),
    "snappy": (bytes(cramjam.snappy.compress_raw(LARGE)), compression.unsnappy),
}


@pytest.mark.parametrize("name", PACKED)
def test_large_outputs_are_whole_and_their_slices_are_bytes(name: str) -> None:
    packed, unpack = PACKED[name]
    unpacked = sliceable(unpack(packed, 64 << 20))
    assert isinstance(unpacked, mmap.mmap)  # And not copied.
    assert len(unpacked) == len(LARGE)
    assert unpacked[:] == LARGE
    assert isinstance(unpacked[5:10], bytes)
    assert unpacked[5] == LARGE[5]


def test_small_outputs_are_bytes() -> None:
    assert isinstance(sliceable(gunzip(gzip.compress(PIECE), 1 << 20)), bytes)
    assert isinstance(sliceable(compression.unlz4(compression.lz4_frame(PIECE), 1 << 20)), bytes)


@pytest.mark.parametrize("size_max", [0, LARGE_BYTES_MIN - 1, LARGE_BYTES_MIN, len(LARGE) - 1])
def test_more_than_is_allowed_is_refused(size_max: int) -> None:
    with pytest.raises(RecordTooLarge):
        gunzip(PACKED["gzip"][0], size_max)


@pytest.mark.parametrize("size", [LARGE_BYTES_MIN - 1, LARGE_BYTES_MIN, LARGE_BYTES_MIN + 1])
def test_outputs_of_about_that_size_are_whole(size: int) -> None:
    assert bytes(gunzip(gzip.compress(LARGE[:size], 1), size)) == LARGE[:size]
    block = compression.decompress_block("zlib", zlib.compress(LARGE[:size], 1), size, size)
    assert bytes(block) == LARGE[:size]


def test_members_are_joined_also_large_ones() -> None:
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
def test_records_of_a_large_set_hold_bytes_of_their_own(codec: int) -> None:
    values = [PIECE[:50_000]] * 250
    inner = b"".join(entry(at, message(b"key", value)) for at, value in enumerate(values))
    decoded = KAFKA.decode(wrapper(inner, codec, 249), 0, 0, start_offset=245, records_max=3)
    assert [record.offset for record in decoded.records] == [245, 246, 247]
    assert [record.value for record in decoded.records] == values[:3]
    assert all(type(record.value) is bytes for record in decoded.records)


def test_one_thread_at_a_time_unpacks_to_many_bytes() -> None:
    packed, unpack = PACKED["lz4"]
    done = threading.Event()

    def work() -> None:
        with taking_turns():
            unpack(packed, 64 << 20)
            unpack(packed, 64 << 20)  # Its turn is still its own.
        done.set()

    with taking_turns():
        unpack(packed, 64 << 20)
        other = threading.Thread(target=work)
        other.start()
        gunzip(gzip.compress(PIECE), 1 << 20)
        assert not done.wait(0.1)
    other.join()
    assert done.is_set()


def test_who_fails_lets_others_go_on_and_who_takes_no_turns_waits_for_nobody() -> None:
    packed, unpack = PACKED["zstd"]
    with pytest.raises(BodyError), taking_turns():
        unpack(packed[:-100], 64 << 20)
    with taking_turns():
        unpack(packed, 64 << 20)
        alone = threading.Thread(target=unpack, args=(packed, 64 << 20))
        alone.start()
        alone.join()
