"""Record batches: literal bytes of Kafka's own clients, properties, and all invalid forms."""

import random
import struct

import cramjam
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from braidlog.storage.errors import BodyError, CorruptBody, RecordTooLarge, UnreadableBody
from braidlog.storage.formats import compression
from braidlog.storage.formats.api import BatchFlag, BodyInfo
from braidlog.storage.formats.kafka import messages_v1 as kafka_timed
from braidlog.storage.formats.kafka.record_batches import KAFKA_BATCHES, PRODUCER_BIT, prepare
from braidlog.storage.formats.kafka.records import read_varint, varint_bytes
from braidlog.storage.formats.record import Header, Record

LIMIT = 1 << 20
# Base offset 5, two records: (null, "a", 1000 ms), ("k", "b", 1001 ms, header h=x).
LITERAL = bytes.fromhex(
    "0000000000000005 00000046 00000000 02 f67c1771 0000 00000001 00000000000003e8"
    " 00000000000003e9 ffffffffffffffff ffff ffffffff 00000002"
    " 0e00000001026100 18000202026b026202026 80278".replace(" ", "")
)
RECORDS = [
    Record(5, 9, 1_000_000, None, None, b"a"),
    Record(6, 9, 1_001_000, None, b"k", b"b", [Header(b"h", b"x")]),
]
PACK = {
    1: compression.gzip,
    2: compression.snappy,
    3: lambda data: bytes(cramjam.lz4.compress(data)),
    4: lambda data: bytes(cramjam.zstd.compress(data)),
}


def batch(records: bytes, count: int, *, attributes: int = 0, **fields: int) -> bytes:
    """Return a batch of packed records; `fields` change the fields of its head."""
    about = {"delta": count - 1, "base_ms": 0, "max_ms": 0, "pid": -1, "epoch": -1, "seq": -1}
    about |= fields
    checked = struct.pack(">hiqqqhii", attributes, *about.values(), count) + records
    head = struct.pack(">qiib", 0, 9 + len(checked), -1, 2)
    return head + struct.pack(">I", crc32c(checked)) + checked


def packed(codec: int) -> bytes:
    plain = KAFKA_BATCHES.encode(RECORDS, 5)[61:]
    records = PACK[codec](plain) if codec else plain
    return batch(records, 2, attributes=codec, base_ms=1000, max_ms=1001)


def test_a_literal_batch_equals_its_records() -> None:
    assert KAFKA_BATCHES.decode(LITERAL, 5, 9).records == RECORDS
    assert KAFKA_BATCHES.encode(RECORDS, 5) == LITERAL


@pytest.mark.parametrize("codec", range(5))
def test_a_produced_batch_is_stored_unchanged_except_its_offset(codec: int) -> None:
    sent = packed(codec)
    prepared = prepare(sent, 100, message_bytes_max=LIMIT)
    flags = BatchFlag.COMPRESSED if codec else 0
    assert prepared.info == BodyInfo(2, 1_000_000, 1_001_000, flags)
    assert bytes(prepared.body)[16:] == sent[16:]
    assert KAFKA_BATCHES.inspect(prepared.body) == prepared.info
    decoded = KAFKA_BATCHES.decode(prepared.body, 100, 9)
    assert [(record.offset, record.key, record.value) for record in decoded.records] == [
        (100, None, b"a"),
        (101, b"k", b"b"),
    ]
    assert decoded.next_offset == 102
    assert [
        record.offset
        for record in KAFKA_BATCHES.decode(prepared.body, 100, 9, start_offset=101).records
    ] == [101]


def test_several_batches_get_consecutive_offsets_and_are_split() -> None:
    body = prepare(packed(0) + packed(1) + packed(0), 10, message_bytes_max=LIMIT).body
    assert KAFKA_BATCHES.split(body, 10) == [
        (10, 0),
        (12, len(packed(0))),
        (14, len(packed(0) + packed(1))),
    ]
    assert [offset for offset, _ in KAFKA_BATCHES.split(body, 10, start_offset=13)] == [12, 14]
    decoded = KAFKA_BATCHES.decode(body, 10, 9, start_offset=11, records_max=4)
    assert [record.offset for record in decoded.records] == [11, 12, 13, 14]
    assert decoded.next_offset == 15


def test_a_single_batch_has_its_producer_and_sequences() -> None:
    sent = batch(KAFKA_BATCHES.encode(RECORDS, 5)[61:], 2, pid=77, epoch=3, seq=40)
    info = prepare(sent, 0, message_bytes_max=LIMIT).info
    assert (info.producer_id, info.producer_epoch) == (77 | PRODUCER_BIT, 3)
    assert (info.first_sequence, info.last_sequence) == (40, 41)


def test_times_set_by_the_broker_apply_to_every_record() -> None:
    records = KAFKA_BATCHES.encode(RECORDS, 5)[61:]
    body = batch(records, 2, attributes=8, base_ms=1000, max_ms=7000)
    decoded = KAFKA_BATCHES.decode(body, 0, 9).records
    assert [record.publish_us for record in decoded] == [7_000_000] * 2
    without = KAFKA_BATCHES.decode(batch(records, 2, base_ms=-1, max_ms=-1), 0, 9).records
    assert without[0].publish_us is None


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        (LITERAL[:-1], CorruptBody),
        (LITERAL[:30], CorruptBody),
        (LITERAL[:-1] + b"y", CorruptBody),
        (LITERAL[:16] + b"\x01" + LITERAL[17:], CorruptBody),
        (batch(bytes(14), 3, delta=1), CorruptBody),
        (batch(bytes(14), 0, delta=-1), CorruptBody),
        (batch(bytes(14), 3), CorruptBody),
        (batch(bytes(14), 1 << 30, attributes=1), CorruptBody),
        (batch(bytes(14), 1, pid=-2), CorruptBody),
        (batch(bytes(14), 1, attributes=5), UnreadableBody),
        (batch(bytes(14), 1, attributes=16), UnreadableBody),
        (batch(bytes(14), 1, attributes=32), UnreadableBody),
        (batch(bytes(LIMIT), 1), RecordTooLarge),
    ],
)
def test_invalid_batches_are_refused(sent: bytes, error: type[BodyError]) -> None:
    with pytest.raises(error):
        prepare(sent, 0, message_bytes_max=LIMIT)


def test_a_batch_with_a_wrong_count_shifts_no_offset() -> None:
    records = KAFKA_BATCHES.encode(RECORDS, 5)[61:]
    for count in (1, 3):
        body = batch(records, count)
        prepared = prepare(body, 0, message_bytes_max=LIMIT) if count == 1 else None
        decoded = KAFKA_BATCHES.decode(prepared.body if prepared else body, 0, 9)
        assert isinstance(decoded.failed, CorruptBody)
        assert decoded.failed_offset == len(decoded.records) == min(count, 2)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20))
def test_varints_round_trip(values: list[int]) -> None:
    data = b"".join(map(varint_bytes, values))
    pos, values_read = 0, []
    while pos < len(data):
        value, pos = read_varint(data, pos)
        values_read.append(value)
    assert values_read == values


TEXTS = st.none() | st.binary(max_size=200)
HEADERS = st.lists(st.builds(Header, st.binary(max_size=9), st.binary(max_size=9)), max_size=3)


@given(st.lists(st.tuples(TEXTS, TEXTS, HEADERS, st.integers(0, 2**50)), min_size=1, max_size=9))
def test_records_with_holes_between_them_are_unchanged(rows: list) -> None:
    records = [
        Record(3 * at + 7, 5, time_ms * 1000, None, key, value, headers or ())
        for at, (key, value, headers, time_ms) in enumerate(rows)
    ]
    body = KAFKA_BATCHES.encode(records, 0)
    assert KAFKA_BATCHES.decode(body, 0, 5).records == records


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("seed", range(5))
def test_damaged_batches_are_an_error_or_whole_records(codec: int, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(60):
        bad = bytearray(packed(codec))
        for _ in range(rng.randint(1, 3)):
            bad[rng.randrange(12, len(bad))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
        decoded = KAFKA_BATCHES.decode(bytes(bad), 0, 9)
        assert decoded.failed is None or isinstance(decoded.failed, BodyError)
        try:
            prepare(bytes(bad), 0, message_bytes_max=LIMIT)
        except BodyError:
            pass


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_small_batch_that_unpacks_to_much_is_refused_or_split(codec: int) -> None:
    first_record = varint_bytes(8 + 100_000) + b"\x00\x00"
    records = b"".join(
        first_record + varint_bytes(at) + b"\x01" + varint_bytes(100_000) + bytes(100_000) + b"\x00"
        for at in range(30)
    )
    assert len(varint_bytes(100_000)) == 3
    body = batch(PACK[codec](records), 30, attributes=codec)
    decoded = KAFKA_BATCHES.decode(body, 0, 9, bytes_max=1 << 20)
    assert decoded.failed is None
    assert len(decoded.records) == decoded.next_offset == 11
    bomb = PACK[codec](bytes((64 << 20) + 1))
    assert isinstance(
        KAFKA_BATCHES.decode(batch(bomb, 1, attributes=codec), 0, 9).failed, RecordTooLarge
    )


def test_zstd_without_a_declared_size_is_unpacked_by_its_blocks() -> None:
    packer = cramjam.zstd.Compressor()
    packer.compress(b"abc" * 100_000)
    stream = bytes(packer.finish())
    assert bytes(compression.unzstd(stream, LIMIT)) == b"abc" * 100_000
    for end in range(0, len(stream), 3):
        with pytest.raises(BodyError):
            compression.unzstd(stream[:end], LIMIT)


# Format 1.


def timed(value: bytes | None, time_ms: int, *, key: bytes | None = None, codec: int = 0) -> bytes:
    def sized(data: bytes | None) -> bytes:
        return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data

    checked = struct.pack(">bbq", 1, codec, time_ms) + sized(key) + sized(value)
    message = struct.pack(">I", compression.crc32(checked)) + checked
    return struct.pack(">qi", 0, len(message)) + message


@pytest.mark.parametrize("codec", range(4))
def test_messages_of_format_1_become_records_with_times(codec: int) -> None:
    inner = timed(b"a", 1000) + timed(None, -1, key=b"k")
    sent = timed(PACK[codec](inner), 1000, codec=codec) if codec else inner
    records, unpacked = kafka_timed.records(memoryview(sent), LIMIT, LIMIT, LIMIT)
    assert [(record.publish_us, record.key, record.value) for record in records] == [
        (1_000_000, None, b"a"),
        (None, b"k", None),
    ]
    assert unpacked == (len(inner) if codec else 0)
    assert kafka_timed.is_compressed(memoryview(sent)) == bool(codec)


def test_damaged_messages_of_format_1_are_refused() -> None:
    sent = timed(b"value", 1000)
    for pos in range(12, len(sent)):
        bad = bytearray(sent)
        bad[pos] ^= 0x41
        with pytest.raises(BodyError):
            kafka_timed.records(memoryview(bad), LIMIT, LIMIT, LIMIT)
    with pytest.raises(UnreadableBody, match="within"):
        nested = timed(compression.gzip(timed(compression.gzip(sent), 0, codec=1)), 0, codec=1)
        kafka_timed.records(memoryview(nested), LIMIT, LIMIT, LIMIT)
