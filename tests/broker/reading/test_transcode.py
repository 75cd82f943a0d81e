"""Reads of a partition in the reader's own format, for records of any format."""

import random
import zlib

import cramjam
import pytest

from braidlog.broker.errors import DamagedLog, OffsetOutOfRange, UnreadableRecord
from braidlog.broker.limits import DECODE_BYTES_MAX, DECODE_RECORDS_MIN, READ_PIECE_BYTES
from braidlog.broker.reading.transcode import read_as, read_steps
from braidlog.broker.runtime.steps import run
from braidlog.storage.formats import compression
from braidlog.storage.formats.api import BatchFlag, BodyInfo
from braidlog.storage.formats.kafka.message_sets import KafkaCodec
from braidlog.storage.formats.kafka.set_layout import ENTRY
from braidlog.storage.formats.kafka.set_prepare import Messages, pack
from braidlog.storage.formats.pulsar.pb.PulsarApi_pb2 import EncryptionKeys
from braidlog.storage.formats.quick import SPEEDUPS
from braidlog.storage.formats.record import Record
from braidlog.storage.formats.registry import codec_named
from braidlog.storage.log.gaps import append_gap
from tests.broker.records import (
    append,
    append_unreadable,
    chunk,
    make_partition,
    read_values,
    store,
)
from tests.storage.formats.entries_of import body, entry, metadata, single

KAFKA, PULSAR, IGGY = codec_named("kafka"), codec_named("pulsar"), codec_named("iggy")
ALL = 1 << 20


@pytest.fixture
async def partition(broker):
    return await make_partition(broker)


class CountingPartition:
    """A partition that counts the reads of its log."""

    def __init__(self, partition):
        self._partition = partition
        self.reads = 0

    def __getattr__(self, name):
        return getattr(self._partition, name)

    def read_warm(self, offset, bytes_max, *more):
        self.reads += 1
        return self._partition.read_warm(offset, bytes_max, *more)


async def test_the_same_format_is_returned_as_stored(broker, partition):
    await append(broker, partition, "kafka", [b"a", b"b"])
    await append(broker, partition, "kafka", [b"c"])
    result = await read_as(partition, KAFKA, 0, bytes_max=ALL)
    bodies = [batch.body for batch in await partition.read(0, ALL)]
    assert result.parts == bodies
    assert (result.first_offset, result.next_offset, result.record_count) == (0, 3, 3)
    assert result.as_stored


async def test_a_read_respects_the_limit_of_parts_per_answer(broker, partition):
    for _ in range(5):
        await append(broker, partition, "kafka", [b"a", b"b"])
    first = await run(read_steps(partition, KAFKA, 0, bytes_max=ALL, parts_max=3))
    assert (len(first.parts), first.record_count, first.next_offset) == (3, 6, 6)
    second = await run(read_steps(partition, KAFKA, 6, bytes_max=ALL, parts_max=3))
    assert (len(second.parts), second.record_count, second.next_offset) == (2, 4, 10)


async def test_a_read_begins_in_the_middle_of_a_batch_and_stops_at_records_max(broker, partition):
    await append(broker, partition, "iggy", [b"v%d" % number for number in range(10)])
    records, result = await read_values(partition, "iggy", 4, bytes_max=ALL, records_max=3)
    assert records == [(offset, b"v%d" % offset) for offset in (4, 5, 6)]
    assert (result.first_offset, result.next_offset, result.record_count) == (4, 7, 3)
    records, result = await read_values(partition, "iggy", 7, bytes_max=ALL, records_max=100)
    assert [offset for offset, _ in records] == [7, 8, 9]
    assert result.next_offset == 10


@pytest.mark.parametrize("start", range(5))
async def test_a_batch_with_holes_is_cut_to_its_remaining_records(broker, partition, start):
    """The batch after compaction has five offsets and three records."""
    left = [0, 1, 4]
    iggy = codec_named("iggy")
    stored = iggy.encode([Record(at, 1, value=b"%d" % at) for at in left], 0)
    partition.log.append(
        [stored], BodyInfo(3), body_format=iggy.format, append_us=1, last_offset_delta=4
    )
    await broker.durability.all_durable()
    records, result = await read_values(partition, "iggy", start, bytes_max=ALL, records_max=2)
    expected = [(at, b"%d" % at) for at in left if at >= start][:2]
    assert records == expected
    assert result.record_count == len(expected)


@pytest.mark.parametrize("stored", ["plain", "kafka", "pulsar", "iggy"])
@pytest.mark.parametrize("reader", ["kafka", "iggy"])
async def test_every_format_reads_every_other(broker, partition, stored, reader):
    await append(broker, partition, stored, [b"one", b"two", b"three"])
    records, result = await read_values(partition, reader, 1, bytes_max=ALL)
    assert records == [(1, b"two"), (2, b"three")]
    assert result.next_offset == 3
    assert result.as_stored == (stored == reader)


async def test_a_compressed_set_is_whole_for_its_own_readers_and_cut_for_others(broker, partition):
    await append(broker, partition, "kafka", [b"before"])
    inner = KAFKA.encode([Record(offset, 1, value=b"%d" % offset) for offset in (1, 2, 3)], 1)
    packed = compression.gzip(inner)
    message = b"\x00\x01\xff\xff\xff\xff" + len(packed).to_bytes(4, "big") + packed
    stored = ENTRY.pack(3, 4 + len(message)) + zlib.crc32(message).to_bytes(4, "big") + message
    await store(broker, partition, KAFKA.format, stored, BodyInfo(3, flags=BatchFlag.COMPRESSED))
    result = await read_as(partition, KAFKA, 2, bytes_max=ALL)
    assert (result.parts, result.next_offset) == ([stored], 4)
    assert (await read_values(partition, "iggy", 2, bytes_max=ALL))[0] == [(2, b"2"), (3, b"3")]


async def test_nothing_is_read_at_the_watermark_and_outside_is_refused(broker, partition):
    await append(broker, partition, "kafka", [b"a"])
    result = await read_as(partition, KAFKA, 1, bytes_max=ALL)
    assert (result.parts, result.next_offset) == ([], 1)
    with pytest.raises(OffsetOutOfRange) as caught:
        await read_as(partition, KAFKA, 2, bytes_max=ALL)
    assert (caught.value.log_start_offset, caught.value.log_end_offset) == (0, 1)


async def test_the_log_is_not_read_again_without_room_for_a_batch_like_the_last(broker, partition):
    for _ in range(4):
        await append(broker, partition, "kafka", [b"x" * 1000])
    size = len((await partition.read(0, 1))[0].body)
    counting = CountingPartition(partition)
    result = await read_as(counting, KAFKA, 0, bytes_max=2 * size + size // 2)
    assert (result.next_offset, counting.reads) == (2, 1)
    result = await read_as(counting, KAFKA, 2, bytes_max=2 * size)
    assert (result.next_offset, counting.reads) == (4, 2)


class CountingCodec(KafkaCodec):
    """Kafka's codec with a counter of encoded records."""

    def __init__(self):
        self.made = 0

    def encode(self, records, base_offset):
        self.made += len(records)
        return super().encode(records, base_offset)


async def test_few_messages_without_room_are_encoded(broker, partition):
    for count in (1600, 1400):
        batch = entry(metadata(num_messages_in_batch=count), single(b"x" * 10) * count)
        await store(broker, partition, PULSAR.format, body((batch, count)), BodyInfo(count))
    whole = await read_as(partition, KAFKA, 0, bytes_max=ALL)
    record_size = whole.size // 3000
    for wanted, in_vain_max in ((1500, DECODE_RECORDS_MIN), (1600, 0), (2500, DECODE_RECORDS_MIN)):
        codec = CountingCodec()
        result = await read_as(
            partition, codec, 0, bytes_max=wanted * record_size + record_size // 2
        )
        assert result.record_count == wanted
        assert codec.made <= wanted + in_vain_max


async def test_unsynced_records_are_not_read(broker, partition):
    await append(broker, partition, "kafka", [b"a"])
    body = (await partition.read(0, ALL))[0].body
    partition.append([body], BodyInfo(1), body_format=KAFKA.format, append_us=1)
    # The read does not wait: the commit round of that append has not even begun.
    result = await read_as(partition, KAFKA, 0, bytes_max=ALL)
    assert (result.next_offset, partition.next_offset) == (1, 2)


async def test_records_that_the_reader_cannot_carry_are_skipped(broker, partition):
    await append(broker, partition, "kafka", [b"a", None, b"", b"b"])
    await append(broker, partition, "kafka", [None] * 5)
    await append(broker, partition, "kafka", [b"c"])
    await append(broker, partition, "kafka", [None] * 2)
    records, result = await read_values(partition, "iggy", 0, bytes_max=ALL)
    assert records == [(0, b"a"), (3, b"b"), (9, b"c")]
    assert (result.next_offset, result.left_out) == (12, 9)
    records, result = await read_values(partition, "iggy", 4, bytes_max=1)
    assert records == [(9, b"c")]
    assert (result.first_offset, result.left_out) == (9, 5)
    records, result = await read_values(partition, "iggy", 10, bytes_max=ALL)
    assert (records, result.next_offset, result.left_out) == ([], 12, 2)


async def test_skipped_records_are_counted_by_the_read_that_passes_them(broker, partition):
    """A read that ends before the record, for lack of room, does not count the record."""
    await broker.topics.alter_settings(partition.topic.name, {"unreadable_records": "skip"})
    whole = [single(bytes([letter]) * 1000) for letter in b"ab"]
    locked = entry(metadata(encryption_keys=[EncryptionKeys(key="k", value=b"v")]), b"?")
    stored = body(*((entry, 1) for entry in (*whole, locked)))
    await store(broker, partition, PULSAR.format, stored, PULSAR.inspect(stored))
    counts, next_offset = [], 0
    while next_offset < 3:
        _, result = await read_values(partition, "iggy", next_offset, bytes_max=1100)
        counts.append((result.record_count, result.left_out))
        next_offset = result.next_offset
    assert counts == [(1, 0), (1, 1)]


async def test_the_first_record_is_whole_at_any_size(broker, partition):
    await append(broker, partition, "plain", [b"x" * 5000, b"y"])
    records, result = await read_values(partition, "kafka", 0, bytes_max=100)
    assert records == [(0, b"x" * 5000)]
    assert result.next_offset == 1
    records, _ = await read_values(partition, "kafka", 1, bytes_max=100)
    assert records == [(1, b"y")]


async def test_gaps_are_skipped(broker, partition):
    await append(broker, partition, "kafka", [b"a"])
    append_gap(partition.log, 10, 1)
    await append(broker, partition, "plain", [b"b"])
    for reader in ("kafka", "iggy"):
        records, result = await read_values(partition, reader, 0, bytes_max=ALL)
        assert records == [(0, b"a"), (10, b"b")]
        assert result.left_out == 0
        records, _ = await read_values(partition, reader, 5, bytes_max=ALL)
        assert records == [(10, b"b")]


async def test_a_marker_reaches_no_reader_but_its_neighbours_do(broker, partition):
    entries = entry(metadata(), b"a"), entry(metadata(marker_type=1), b""), entry(metadata(), b"c")
    stored = body(*((entry, 1) for entry in entries))
    await store(broker, partition, PULSAR.format, stored, PULSAR.inspect(stored))
    assert (await partition.read(0, ALL))[0].header.flags & BatchFlag.MARKER
    for reader in ("kafka", "iggy"):
        records, result = await read_values(partition, reader, 0, bytes_max=ALL)
        assert records == [(0, b"a"), (2, b"c")]
        assert (result.next_offset, result.left_out) == (3, 0)


async def test_an_unreadable_body_is_refused_only_at_the_start_of_a_read(broker, partition):
    await append(broker, partition, "kafka", [b"a"])
    await append_unreadable(broker, partition, 3)
    await append(broker, partition, "kafka", [b"b"])
    records, result = await read_values(partition, "iggy", 0, bytes_max=ALL)
    assert records == [(0, b"a")]
    assert result.next_offset == 1
    with pytest.raises(UnreadableRecord, match="offset 1 of public/default/t, partition 0"):
        await read_as(partition, codec_named("iggy"), 1, bytes_max=ALL)
    assert (await read_values(partition, "iggy", 4, bytes_max=ALL))[0] == [(4, b"b")]
    # Kafka's own readers open the set themselves.
    result = await read_as(partition, KAFKA, 0, bytes_max=ALL)
    assert result.next_offset == 5


async def test_a_body_of_an_unknown_format_is_refused_like_an_unreadable_body(broker, partition):
    await append(broker, partition, "kafka", [b"a"])
    await store(broker, partition, 999, b"strange", BodyInfo(1))
    assert (await read_as(partition, KAFKA, 0, bytes_max=ALL)).next_offset == 1
    with pytest.raises(UnreadableRecord, match="no codec for body format 999"):
        await read_as(partition, KAFKA, 1, bytes_max=ALL)


async def test_chunks_are_a_message_at_the_last_chunks_offset(broker, partition):
    await append(broker, partition, "pulsar", [{"value": b"first", "chunk": chunk(0, 3)}])
    await append(broker, partition, "kafka", [b"between"])
    await append(
        broker,
        partition,
        "pulsar",
        [
            {"value": b"other", "chunk": chunk(0, 2, uuid=b"w")},
            {"value": b"secon", "chunk": chunk(1, 3)},
            {"value": b"third", "chunk": chunk(2, 3)},
        ],
    )
    whole = (4, b"firstseconthird")
    records, result = await read_values(partition, "kafka", 0, bytes_max=ALL)
    assert records == [(1, b"between"), whole]
    assert (result.next_offset, result.left_out) == (5, 0)
    for start in (2, 3, 4):
        assert (await read_values(partition, "iggy", start, bytes_max=ALL))[0] == [whole]


async def test_a_message_with_a_missing_chunk_is_skipped(broker, partition):
    await append(broker, partition, "pulsar", [{"value": b"third", "chunk": chunk(2, 3)}])
    await append(broker, partition, "pulsar", [b"next"])
    records, result = await read_values(partition, "kafka", 0, bytes_max=ALL)
    assert records == [(1, b"next")]
    assert result.next_offset == 2


async def test_a_message_too_large_to_join_is_refused_as_unreadable(broker, partition):
    await append(
        broker, partition, "pulsar", [{"value": b"a", "chunk": chunk(0, 2, total=1 << 30)}]
    )
    await append(
        broker, partition, "pulsar", [{"value": b"b", "chunk": chunk(1, 2, total=1 << 30)}]
    )
    with pytest.raises(UnreadableRecord, match="1073741824"):
        await read_as(partition, KAFKA, 0, bytes_max=ALL)


async def test_large_bodies_are_decoded_in_a_thread_and_returned_whole(broker, partition):
    values = [b"%d" % number * 100 for number in range(3000)]
    await append(broker, partition, "plain", values)
    position, got = 0, []
    while position < 3000:
        records, result = await read_values(partition, "kafka", position, bytes_max=100_000)
        got += records
        position = result.next_offset
    assert got == list(enumerate(values))


@pytest.mark.parametrize("seed", range(12))
async def test_consecutive_reads_return_every_record_once_with_any_limits(broker, partition, seed):
    chance = random.Random(seed)
    expected = []
    for _ in range(25):
        stored = chance.choice(["plain", "kafka", "pulsar", "iggy"])
        values = []
        for _ in range(chance.choice([1, 2, 30])):
            empty = stored != "iggy" and chance.random() < 0.2
            values.append(None if empty else chance.randbytes(chance.choice([1, 50, 3000])))
        base_offset = await append(broker, partition, stored, values)
        expected += list(enumerate(values, base_offset))
    for reader in ("kafka", "iggy"):
        wanted = [record for record in expected if reader == "kafka" or record[1]]
        position, got, left_out = 0, [], 0
        while position < partition.high_watermark:
            records, result = await read_values(
                partition,
                reader,
                position,
                bytes_max=chance.choice([1, 500, 20_000]),
                records_max=chance.choice([1, 7, None]) if reader == "iggy" else None,
            )
            assert result.next_offset > position, f"seed {seed}"
            got += records
            left_out += result.left_out
            position = result.next_offset
        assert got == wanted, f"seed {seed}"
        assert left_out == len(expected) - len(wanted), f"seed {seed}"


async def test_an_unreadable_place_is_not_opened_again(broker, partition):
    await append_unreadable(broker, partition)
    counting = CountingPartition(partition)
    messages = set()
    for _ in range(3):
        with pytest.raises(UnreadableRecord) as caught:
            await read_as(counting, PULSAR, 0, bytes_max=ALL)
        messages.add(str(caught.value))
    assert counting.reads == 1
    assert len(messages) == 1
    assert (await read_as(counting, KAFKA, 0, bytes_max=ALL)).record_count == 3


async def test_records_before_a_damaged_place_are_returned_first(broker, partition):
    await append(broker, partition, "kafka", [bytes(READ_PIECE_BYTES), b"b"])
    await append(broker, partition, "kafka", [b"c"])

    class Damaged(CountingPartition):
        def read_warm(self, offset, bytes_max, *more):
            if offset >= 2:
                raise DamagedLog("offset 2 is damaged")
            return super().read_warm(offset, bytes_max, *more)[:1]

    damaged = Damaged(partition)
    result = await read_as(damaged, PULSAR, 0, bytes_max=1 << 24)
    assert (result.record_count, result.next_offset) == (2, 2)
    with pytest.raises(DamagedLog):
        await read_as(damaged, PULSAR, 2, bytes_max=1 << 24)


@pytest.mark.parametrize("codec", ["kafka", "pulsar"])
async def test_a_small_body_that_unpacks_to_much_is_decoded_in_pieces(broker, partition, codec):
    values = [bytes(200_000)] * 50
    if codec == "kafka":
        inner = KAFKA.encode([Record(at, 1, value=value) for at, value in enumerate(values)], 0)
        prepared = pack(Messages(memoryview(bytearray(inner)), 50, 1), 0, 1 << 20)
        info, stored = prepared.info, prepared.body
    else:
        payload = b"".join(single(value) for value in values)
        about = metadata(num_messages_in_batch=50, compression=3, uncompressed_size=len(payload))
        stored = body((entry(about, bytes(cramjam.zstd.compress(payload))), 50))
        info = BodyInfo(50, flags=BatchFlag.COMPRESSED)
    await store(broker, partition, codec_named(codec).format, stored, info)
    decoded = codec_named(codec).decode(stored, 0, 1, bytes_max=DECODE_BYTES_MAX)
    assert 5 <= len(decoded.records) <= 7
    assert decoded.next_offset == len(decoded.records)
    records, result = await read_values(partition, "iggy", 0, bytes_max=1 << 25)
    assert [offset for offset, _ in records] == list(range(50))
    assert result.next_offset == 50


async def both_ways(partition, codec, offset, limits, monkeypatch):
    """Return the result of a read with direct conversion, and of a read by records."""
    converted = await read_as(partition, codec, offset, **limits)
    with monkeypatch.context() as without:
        without.setattr(type(codec), "converted", lambda *_: None)
        return converted, await read_as(partition, codec, offset, **limits)


@pytest.mark.parametrize(("writer", "reader"), [("iggy", "iggy_typed"), ("iggy_typed", "iggy")])
async def test_iggys_two_forms_are_equal_converted_whole_or_by_records(
    broker, partition, writer, reader, monkeypatch
):
    chance = random.Random(7)
    values = [chance.randbytes(chance.randrange(1, 200)) for _ in range(300)]
    for start in range(0, 300, 100):
        await append(broker, partition, writer, values[start : start + 100])
    codec = codec_named(reader)
    for offset, records_max in ((0, None), (0, 100), (0, 150), (50, 100), (250, None), (300, None)):
        limits = {"bytes_max": ALL, "records_max": records_max}
        whole, by_records = await both_ways(partition, codec, offset, limits, monkeypatch)
        assert b"".join(whole.parts) == b"".join(by_records.parts)
        assert (whole.next_offset, whole.record_count) == (
            by_records.next_offset,
            by_records.record_count,
        )


@pytest.mark.skipif(SPEEDUPS is None, reason="the extension in C was not built")
@pytest.mark.parametrize("seed", range(6))
async def test_sets_converted_in_parts_equal_sets_converted_by_records(
    broker, partition, seed, monkeypatch
):
    chance = random.Random(seed)
    keys = (None, b"", b"k", b"\xff" * 255, b"k" * 256)
    values = (None, b"", b"v", bytes(70), chance.randbytes(300))
    while partition.log.log_end_offset < 120:
        count, odd = chance.randrange(1, 30), chance.random() < 0.3
        records = [
            Record(
                partition.log.log_end_offset + at,
                1,
                key=chance.choice(keys),
                value=chance.choice(values if odd else values[2:]),
            )
            for at in range(count)
        ]
        stored = KAFKA.encode(records, records[0].offset)
        await store(broker, partition, KAFKA.format, stored, BodyInfo(count))
    end = partition.log.log_end_offset
    whole = await read_as(partition, IGGY, end - 1, bytes_max=ALL)
    assert whole.next_offset == end
    for _ in range(60):
        offset = chance.randrange(end)
        bytes_max = chance.choice((1, 60, 400, 2000, ALL))
        limits = {"bytes_max": bytes_max, "records_max": chance.choice((None, 1, 10, 50))}
        parts, by_records = await both_ways(partition, IGGY, offset, limits, monkeypatch)
        at = (seed, offset, limits)
        assert b"".join(parts.parts) == b"".join(by_records.parts), at
        assert parts.record_count == by_records.record_count, at
        assert parts.first_offset == by_records.first_offset or not parts.parts, at


@pytest.mark.skipif(SPEEDUPS is None, reason="the extension in C was not built")
@pytest.mark.parametrize("seed", range(4))
async def test_pulsar_batches_converted_in_parts_equal_those_by_records(
    broker, partition, seed, monkeypatch
):
    chance = random.Random(seed)
    while partition.log.log_end_offset < 150:
        values = [chance.randbytes(chance.randrange(200)) for _ in range(chance.randrange(1, 30))]
        odd = {"partition_key_b64_encoded": True} if chance.random() < 0.2 else {}
        payload = b"".join(single(value, partition_key="a2V5", **odd) for value in values)
        stored = body((entry(metadata(num_messages_in_batch=len(values)), payload), len(values)))
        await store(broker, partition, codec_named("pulsar").format, stored, BodyInfo(len(values)))
    end = partition.log.log_end_offset
    for _ in range(60):
        offset, bytes_max = chance.randrange(end), chance.choice((1, 60, 400, 2000, ALL))
        limits = {"bytes_max": bytes_max, "records_max": chance.choice((None, 1, 10, 50))}
        parts, by_records = await both_ways(partition, KAFKA, offset, limits, monkeypatch)
        at = (seed, offset, limits)
        assert b"".join(parts.parts) == b"".join(by_records.parts), at
        assert parts.record_count == by_records.record_count, at
        assert parts.first_offset == by_records.first_offset == offset, at


async def test_converted_bodies_stop_without_room(broker, partition):
    for _ in range(3):
        await append(broker, partition, "iggy", [b"v" * 100] * 100)
    codec = codec_named("iggy_typed")
    first = await read_as(partition, codec, 0, bytes_max=20_000)
    assert 100 <= first.record_count == first.next_offset < 200
    assert first.size <= 20_000
    rest = await read_as(partition, codec, first.next_offset, bytes_max=1 << 20)
    assert (rest.record_count, rest.next_offset) == (300 - first.next_offset, 300)
