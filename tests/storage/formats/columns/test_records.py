"""Column decoders compared with the plain codecs: the same rows for every body, or the plain
decoder.
"""

import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from braidlog.storage.errors import BodyError
from braidlog.storage.formats.api import BodyFormat
from braidlog.storage.formats.batch import Batch, BatchHeader
from braidlog.storage.formats.columns.records import ColumnTarget, records_to_batch, to_batch
from braidlog.storage.formats.columns.vectors import Irregular
from braidlog.storage.formats.compression import gzip
from braidlog.storage.formats.iggy.classic import body_from_send
from braidlog.storage.formats.kafka import message_sets as kafka
from braidlog.storage.formats.kafka.record_batches import APPEND_TIME, KAFKA_BATCHES, prepare
from braidlog.storage.formats.pulsar.columns import places_of
from braidlog.storage.formats.record import Header, Record
from braidlog.storage.formats.registry import codec_for, column_decoder_for
from tests.storage.formats.entries_of import body, entry, metadata, single
from tests.storage.formats.kafka.test_message_sets import wrapper
from tests.storage.formats.kafka.test_record_batches import PACK
from tests.storage.formats.kafka.test_record_batches import batch as record_batch
from tests.storage.formats.strategies import QUICK, record_lists

TARGET = ColumnTarget(7, 3)
FORMATS = [
    *(BodyFormat.PLAIN, BodyFormat.KAFKA, BodyFormat.PULSAR, BodyFormat.IGGY),
    *(BodyFormat.IGGY_TYPED, BodyFormat.KAFKA_BATCHES),
]
APPEND_US = 1_700_000_000_000_000


def batch_of(data, body_format, base=0, count=1, append_us=APPEND_US):
    header = BatchHeader(7, base, count - 1, count, 0, append_us, int(body_format))
    header.body_bytes = len(data)
    return Batch(header, memoryview(b""), memoryview(data), 0)


def fast(batches):
    """Return the rows of the column decoder, or None if they are left to the plain codec."""
    codec = codec_for(batches[0].header.body_format)
    try:
        columns = column_decoder_for(codec)(batches)
        columns = columns.where(columns.offset >= min(batch.base_offset for batch in batches))
        return to_batch(columns, TARGET, codec.name)
    except (Irregular, BodyError, IndexError, struct.error):
        return None


def plain(batches):
    codec = codec_for(batches[0].header.body_format)
    records, places = [], {}
    for batch in batches:
        decoded = codec.decode(batch.body, batch.base_offset, batch.header.append_us)
        assert decoded.failed is None, decoded.failed
        records += [record for record in decoded.records if record.offset < 1 << 63]
        if codec.format == BodyFormat.PULSAR:
            places |= places_of(batch.body, batch.base_offset)
    return records_to_batch(records, TARGET, codec.name, places or None)


def assert_same(batches):
    quick, expected = fast(batches), plain(batches)
    assert quick is not None
    assert quick.schema.equals(expected.schema)
    assert quick == expected


@pytest.mark.parametrize("body_format", FORMATS)
@QUICK
@given(data=st.data())
def test_every_format_has_the_rows_of_its_codec(body_format, data):
    codec = codec_for(body_format)
    batches = []
    for records in data.draw(st.lists(record_lists(), min_size=1, max_size=3)):
        records = [replace(record, chunk=None) for record in records]
        base = records[0].offset
        encoded = codec.encode(records, base)
        batches.append(batch_of(encoded, body_format, base, len(records), records[0].append_us))
    quick = fast(batches)
    if quick is None:  # Allowed for a binary key: Pulsar has the key in Base64.
        assert body_format == BodyFormat.PULSAR
    else:
        assert quick == plain(batches)


@pytest.mark.parametrize("pack", [kafka.KAFKA.readable, gzip])
def test_kafka_sets_of_equal_and_of_mixed_sizes(pack):
    rng = random.Random(1)
    batches, base = [], 0
    for sizes in ([100] * 50, [rng.randrange(300) for _ in range(40)], [0], [5, 5]):
        records = [
            Record(base + i, APPEND_US, key=rng.choice([None, b"", b"key"]), value=bytes(size))
            for i, size in enumerate(sizes)
        ]
        data = kafka.KAFKA.encode(records, base)
        if pack is gzip:
            data = bytes(wrapper(data, 1, offset=base + len(sizes) - 1))
        batches.append(batch_of(data, BodyFormat.KAFKA, base, len(sizes)))
        base += len(sizes)
    assert_same(batches)


@pytest.mark.parametrize("codec", range(5))
def test_kafka_record_batches_of_every_compression(codec):
    rng = random.Random(codec)
    batches, base = [], 100
    for number, count in enumerate((1, 200, 3)):
        records = [
            Record(
                base + i,
                APPEND_US,
                publish_us=APPEND_US + rng.randrange(-9, 9) * 1000,
                key=rng.choice([None, b"", b"key"]),
                value=rng.choice([None, b"", rng.randbytes(rng.randrange(20_000))]),
                headers=[Header(b"name", b"x" * i) for i in range(rng.randrange(3))],
            )
            for i in range(count)
        ]
        plain_records = KAFKA_BATCHES.encode(records, base)[61:]
        data = record_batch(
            PACK[codec](plain_records) if codec else plain_records,
            count,
            attributes=codec | (APPEND_TIME if number == 1 else 0),
            base_ms=records[0].publish_us // 1000 if number < 2 else -1,
            max_ms=records[-1].publish_us // 1000,
        )
        prepared = prepare(data, base, message_bytes_max=1 << 24)
        twice = prepare(bytes(data) * 2, base + count, message_bytes_max=1 << 24)
        batches.append(batch_of(bytes(prepared.body), BodyFormat.KAFKA_BATCHES, base, count))
        base += count
        batches.append(batch_of(bytes(twice.body), BodyFormat.KAFKA_BATCHES, base, 2 * count))
        base += 2 * count
    assert_same(batches)


def test_iggy_sends_with_and_without_keys_and_headers():
    def message(payload, headers=b""):
        head = bytes(16) + struct.pack("<I", len(headers)) + headers
        return head + struct.pack("<I", len(payload)) + payload

    def header(name, kind, value):
        sizes = struct.pack("<I", len(name)), struct.pack("<I", len(value))
        return sizes[0] + name + bytes([kind]) + sizes[1] + value

    two = header(b"a", 2, b"text") + header(b"b", 6, b"\1\0\0\0")
    sends = [
        (b"".join(message(b"x" * 20) for _ in range(30)), None),
        (message(b"p", two) + message(b"qq") + message(b"r", header(b"a", 1, b"\xff")), b"key"),
        (message(b"last"), b"other key"),
    ]
    batches, base = [], 0
    for messages, key in sends:
        prepared = body_from_send(messages, base, APPEND_US, key=key)
        count = prepared.info.record_count
        batches.append(batch_of(bytes(prepared.body), BodyFormat.IGGY, base, count))
        base += count
    assert_same(batches)


def pulsar_batch(count, *, seed=0, rich=False):
    rng = random.Random(seed)
    parts = []
    for number in range(count):
        fields = {"sequence_id": number} if rng.random() < 0.9 else {}
        if rich and rng.random() < 0.5:
            fields["partition_key"] = f"key {number}"
            fields["event_time"] = rng.randrange(3)
            fields["ordering_key"] = b"\x00"
            fields["null_value"] = rng.random() < 0.2
        if rich and rng.random() < 0.1:
            fields["compacted_out"] = True
        payload = rng.randbytes(rng.randrange(200))
        packed = single(payload, **fields)
        if rich and rng.random() < 0.5:
            packed = single_with_properties(payload, fields, {"a": "b" * rng.randrange(200)})
        parts.append(packed)
    return b"".join(parts)


def single_with_properties(payload, fields, properties):
    from braidlog.storage.formats.pulsar.pb.PulsarApi_pb2 import SingleMessageMetadata

    meta = SingleMessageMetadata(payload_size=len(payload), **fields)
    for name, value in properties.items():
        meta.properties.add(key=name, value=value)
    packed = meta.SerializeToString()
    return struct.pack(">I", len(packed)) + packed + payload


@pytest.mark.parametrize("rich", [False, True])
def test_pulsar_batches(rich):
    batches, base = [], 0
    for number, count in enumerate((1, 100, 7)):
        payload = pulsar_batch(count, seed=number, rich=rich)
        meta = metadata(num_messages_in_batch=count, schema_version=b"\x01", sequence_id=50)
        data = body((entry(meta, payload), count), (entry(meta, payload, checksum=False), count))
        batches.append(batch_of(data, BodyFormat.PULSAR, base, 2 * count))
        base += 2 * count
    assert_same(batches)


@pytest.mark.parametrize("compression", [1, 2, 3, 4])
def test_compressed_pulsar_entries(compression):
    import cramjam

    pack = {
        1: lambda data: bytes(cramjam.lz4.compress_block(data, store_size=False)),
        2: lambda data: __import__("zlib").compress(data),
        3: lambda data: bytes(cramjam.zstd.compress(data)),
        4: lambda data: bytes(cramjam.snappy.compress_raw(data)),
    }[compression]
    payload = pulsar_batch(20, seed=compression)
    fields = {"compression": compression, "uncompressed_size": len(payload)}
    batched = entry(metadata(num_messages_in_batch=20, **fields), pack(payload))
    assert_same([batch_of(body((batched, 20)), BodyFormat.PULSAR, 0, 20)])
    alone = entry(metadata(**fields), pack(payload))
    small = entry(metadata(), b"not compressed")
    assert_same([batch_of(body((alone, 1), (small, 1), (alone, 1)), BodyFormat.PULSAR, 20, 3)])


def test_cut_or_flipped_bytes_are_never_read_differently():
    """If the column decoder accepts damaged bytes, the plain codec reads the same rows."""
    seed = 20
    print("seed", seed)
    rng = random.Random(seed)
    records = [
        Record(
            i, APPEND_US, publish_us=5_000, key=b"k", value=bytes(9), headers=[Header(b"n", b"v")]
        )
        for i in range(6)
    ]
    for body_format in FORMATS:
        codec = codec_for(body_format)
        good = codec.encode(records, 0)
        if body_format == BodyFormat.PULSAR:
            payload = pulsar_batch(6, rich=True)
            good = body((entry(metadata(num_messages_in_batch=6), payload), 6))
        for _ in range(300):
            data = bytearray(good)
            if rng.random() < 0.3:
                del data[rng.randrange(len(data)) :]
            for _ in range(rng.randrange(1, 3)):
                if data:
                    data[rng.randrange(len(data))] = rng.choice([0, 1, 127, 128, 255])
            sample = batch_of(bytes(data), body_format, 0, 6)
            quick = fast([sample])
            if quick is not None and len(data):
                assert quick == plain([sample]), bytes(data).hex()
