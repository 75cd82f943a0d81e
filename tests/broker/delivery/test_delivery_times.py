"""Delivery times of stored records."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.broker.delivery.delivery_times import (
    HEADER,
    SEARCHED_BYTES_MAX,
    TOGETHER_MAX,
    delay_steps,
    header_ms,
)
from braidlog.broker.delivery.entry_reads import read_entries
from braidlog.broker.runtime.steps import run
from braidlog.storage.formats.api import BatchFlag, BodyFormat
from braidlog.storage.formats.plain.codec import PLAIN
from braidlog.storage.formats.pulsar.entry_runs import ENTRY_PREFIX
from braidlog.storage.formats.record import Header, HeaderKind, Record
from braidlog.storage.formats.registry import codec_for
from tests.broker.delivery.entry_fakes import FakePartition
from tests.storage.formats.entries_of import body, entry, metadata, single

pytestmark = pytest.mark.usefixtures("is_warm")

DELAYED = int(BatchFlag.DELAYED)


def add_plain(partition, *due_ms, flags=DELAYED):
    """Add records of another format with these delivery times; 0: none."""
    base = partition.next_offset
    body = PLAIN.encode(
        [
            Record(base + at, 0, value=b"x", deliver_at_us=1000 * due + 999 if due else None)
            for at, due in enumerate(due_ms)
        ],
        base,
    )
    partition._add(body, BodyFormat.PLAIN, len(due_ms), len(due_ms), flags, 0, True)


async def delays(partition, start=0, end=None, *, reads_header=False):
    end = partition.high_watermark if end is None else end
    return await run(delay_steps(partition, start, end, reads_header=reads_header))


async def test_records_of_each_format_have_the_times_that_they_ask_for():
    partition = FakePartition()
    partition.entries(1, 2, metadata={"deliver_at_time": 50})
    partition.entries(1)
    partition.gap(2)
    add_plain(partition, 0, 70, 60)
    partition.records(2)
    assert await delays(partition) == [(0, 3, 50), (7, 8, 70), (8, 9, 60)]
    assert await delays(partition, 8, 9) == [(8, 9, 60)]
    assert await delays(partition, 1, 2) == [(1, 3, 50)]
    assert await delays(partition, 3, 6) == []


async def test_records_in_a_row_with_the_same_time_are_a_delay():
    partition = FakePartition()
    count = TOGETHER_MAX + 5
    add_plain(partition, *[80] * count, 0, 80)
    expected = [(0, TOGETHER_MAX, 80), (TOGETHER_MAX, count, 80), (count + 1, count + 2, 80)]
    assert await delays(partition) == expected


async def test_a_thread_reads_compressed_bodies():
    partition = FakePartition()
    add_plain(partition, 90, flags=DELAYED | int(BatchFlag.COMPRESSED))
    assert await delays(partition) == [(0, 1, 90)]


async def test_an_entry_that_cannot_be_read_has_no_delay():
    partition = FakePartition()
    partition.entries(1, metadata={"deliver_at_time": 50})
    body = bytearray(partition.batches[0].body)
    body[ENTRY_PREFIX.size + 10] = 0xFF  # The first tag of the metadata.
    partition.batches[0].body = memoryview(bytes(body))
    assert await delays(partition) == []


# The header `braidlog.deliver_at`.


@given(st.integers(0, 10**15 - 1))
def test_a_number_of_at_most_15_digits_is_a_time(due_ms):
    assert header_ms([Header(HEADER, b"%d" % due_ms)]) == due_ms
    assert header_ms([Header(HEADER, b"%015d" % due_ms)]) == due_ms


@given(st.binary())
def test_any_other_value_is_no_time(value):
    is_time = value.isdigit() and len(value) <= 15
    assert header_ms([Header(HEADER, value)]) == (int(value) if is_time else 0)


@pytest.mark.parametrize(
    "value",
    [
        *(b"", b"-5", b"+5", b" 5", b"5 ", b"5.0", b"1e3", b"0x5", b"1_000", b"soon", b"\xff\x00"),
        *("\u0665".encode(), b"1" * 16, b"9" * 10_000),
    ],
)
def test_a_record_without_a_valid_number_has_no_delay(value):
    assert header_ms([Header(HEADER, value)]) == 0


def test_the_last_header_counts_and_numbers_of_iggy_are_numbers():
    twice = [Header(HEADER, b"5"), Header(b"other", b"9"), Header(HEADER, b"7")]
    assert header_ms(twice) == 7
    assert header_ms([*twice, Header(HEADER, b"no")]) == 0
    assert header_ms([Header(b"braidlog.deliver_at.x", b"5")]) == 0
    number = (1_900_000_000_000).to_bytes(8, "little")
    assert header_ms([Header(HEADER, number, HeaderKind.UINT64)]) == 1_900_000_000_000
    assert header_ms([Header(HEADER, b"\xff" * 8, HeaderKind.INT64)]) == 0


def headed(due_ms):
    return [Header(b"a", b"b"), Header(HEADER, b"%d" % due_ms)] if due_ms else []


FORMATS = [
    BodyFormat.PLAIN,
    BodyFormat.KAFKA_BATCHES,
    BodyFormat.IGGY,
    BodyFormat.IGGY_TYPED,
    BodyFormat.PULSAR,
]


@pytest.mark.parametrize("body_format", FORMATS)
@pytest.mark.parametrize("flags", [0, int(BatchFlag.COMPRESSED)])
async def test_the_header_counts_in_every_format(body_format, flags):
    partition = FakePartition()
    partition.records(2)
    records = [
        Record(2 + at, 0, value=b"x", headers=headed(due), message_id=at + 1)
        for at, due in enumerate((0, 70, 70, 60))
    ]
    encoded = codec_for(body_format).encode(records, 2)
    partition._add(encoded, body_format, 4, 4, flags, 0, True)
    assert await delays(partition, reads_header=True) == [(3, 5, 70), (5, 6, 60)]
    assert await delays(partition) == []
    read = await read_entries(partition, 0, 1 << 20, reads_header=True)
    by_offset = {entry.offset: entry.delays for entry in read.entries if entry.delays}
    assert by_offset == {3: ((3, 4, 70),), 4: ((4, 5, 70),), 5: ((5, 6, 60),)}
    read = await read_entries(partition, 0, 1 << 20)
    assert not any(entry.delays or entry.flags & DELAYED for entry in read.entries)


@pytest.mark.parametrize("compression", [0, 2])
async def test_messages_of_a_pulsar_batch_have_their_own_times(compression):
    times = (50, 0, 70)
    payload = b"".join(
        single(b"x", properties=[{"key": HEADER.decode(), "value": str(due)}] if due else [])
        for due in times
    )
    packed = zlib.compress(payload) if compression else payload
    fields = {"compression": compression, "uncompressed_size": len(payload)} if compression else {}
    partition = FakePartition()
    for more in ({}, {"deliver_at_time": 60}):
        meta = metadata(num_messages_in_batch=3, **fields, **more)
        stored = body((entry(meta, packed), 3))
        flags = codec_for(BodyFormat.PULSAR).inspect(stored).flags
        partition._add(stored, BodyFormat.PULSAR, 3, 3, flags, 0, True)
    expected = [(0, 1, 50), (2, 3, 70), (3, 5, 60), (5, 6, 70)]
    assert await delays(partition, reads_header=True) == expected
    assert await delays(partition) == [(3, 6, 60)]
    read = await read_entries(partition, 0, 1 << 20, reads_header=True)
    assert [entry.delays for entry in read.entries] == [
        ((0, 1, 50), (2, 3, 70)),
        ((3, 5, 60), (5, 6, 70)),
    ]


async def test_a_thread_searches_large_bodies_for_the_header():
    partition = FakePartition()
    for due in (0, 80):
        record = Record(partition.next_offset, 0, value=b"x" * SEARCHED_BYTES_MAX)
        record.headers = headed(due)
        encoded = PLAIN.encode([record], record.offset)
        partition._add(encoded, BodyFormat.PLAIN, 1, 1, 0, 0, True)
    assert await delays(partition, reads_header=True) == [(1, 2, 80)]


async def test_an_encrypted_entry_has_its_own_time_only():
    partition = FakePartition()
    keys = [{"key": "k", "value": b"v"}]
    for fields in (
        {"num_messages_in_batch": 2},
        {"properties": [{"key": HEADER.decode(), "value": "9"}]},
    ):
        meta = metadata(encryption_keys=keys, **fields)
        count = fields.get("num_messages_in_batch", 1)
        stored = body((entry(meta, b"secret" + HEADER), count))
        partition._add(stored, BodyFormat.PULSAR, count, count, 0, 0, True)
    assert await delays(partition, reads_header=True) == [(2, 3, 9)]
