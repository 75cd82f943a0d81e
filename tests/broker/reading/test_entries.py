"""Pulsar ids and offsets: reading entries of every format, finding them, resolving ids."""

import gzip
import random
import struct
import zlib

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from braidlog.broker.broker import Broker
from braidlog.broker.config.settings import load
from braidlog.broker.delivery import entry_reads
from braidlog.broker.errors import OffsetOutOfRange, UnreadableRecord
from braidlog.broker.reading import entries
from braidlog.broker.reading.ack_sets import ack_set_of, acked_ranges
from braidlog.broker.reading.entries import EARLIEST, LATEST, CumulativeAck, EntryId, EntrySpan
from braidlog.storage.formats.api import BatchFlag, BodyFormat
from braidlog.storage.formats.pulsar.entry import read_metadata
from braidlog.storage.metadata.names import TopicName
from tests.broker.delivery.conftest import is_warm
from tests.broker.delivery.entry_fakes import FakePartition
from tests.storage.formats.kafka.sets import prepare

__all__ = ["is_warm"]  # A fixture.

pytestmark = pytest.mark.usefixtures("is_warm")

LEDGER = 7


@pytest.fixture
def mixed():
    """Return entries 0-2 3 | records 4 5 6 | gap 7-9 | records 10 (11 removed) 12 | entry 13-17."""
    partition = FakePartition(LEDGER)
    partition.entries(3, 1, time_ms=10)
    partition.records(3, time_ms=20)
    partition.gap(3)
    partition.records(3, keep=[0, 2], time_ms=30)
    partition.entries(5, time_ms=40)
    return partition


SPANS = [(0, 3), (3, 1), (4, 1), (5, 1), (6, 1), (10, 1), (12, 1), (13, 5)]


def spans_of(read):
    return [(entry.offset, entry.record_count) for entry in read.entries]


# Reading.


async def test_entries_of_every_format_are_read_and_gaps_skipped(mixed):
    read = await entry_reads.read_entries(mixed, 0, 1 << 20)
    assert spans_of(read) == SPANS
    assert read.next_offset == 18


@pytest.mark.parametrize("offset", range(18))
async def test_read_begins_with_the_entry_that_contains_or_follows_the_offset(mixed, offset):
    read = await entry_reads.read_entries(mixed, offset, 1 << 20)
    assert spans_of(read) == [span for span in SPANS if sum(span) > offset]


@pytest.mark.parametrize("bytes_max", [1, 100, 1 << 20])
@pytest.mark.parametrize("start", range(18))
async def test_ids_do_not_depend_on_read_position_and_size(mixed, start, bytes_max):
    seen, position = [], start
    while position < mixed.high_watermark:
        read = await entry_reads.read_entries(mixed, position, bytes_max)
        assert read.next_offset > position
        seen += spans_of(read)
        position = read.next_offset
    assert seen == [span for span in SPANS if sum(span) > start]


async def test_many_records_of_another_format_are_read_in_pieces():
    most = entry_reads.FOREIGN_RECORDS_MAX
    partition = FakePartition()
    partition.records(most + 6)
    partition.records(3)
    read = await entry_reads.read_entries(partition, 0, 1 << 20)
    assert (len(read.entries), read.next_offset) == (most, most)
    read = await entry_reads.read_entries(partition, most + 5, 1 << 20)
    assert spans_of(read) == [(most + number, 1) for number in (5, 6, 7, 8)]


async def test_large_bodies_of_other_formats_become_the_same_entries():
    partition, size = FakePartition(), entry_reads.PLAIN_INLINE_BYTES_MAX
    partition.records(3, value=bytes(size) + b"%d")
    assert spans_of(await entry_reads.read_entries(partition, 1, 4 * size)) == [(1, 1), (2, 1)]


async def test_markers_reach_no_client_but_their_neighbours_do():
    partition = FakePartition()
    partition.entries(1, metadata={"marker_type": 1})
    partition.entries(2, 1, flags=BatchFlag.MARKER)
    assert spans_of(await entry_reads.read_entries(partition, 0, 1 << 20)) == [(1, 2), (3, 1)]
    assert await entries.entry_at_or_before(partition, 0) is None


async def test_nothing_above_the_watermark_is_read():
    partition = FakePartition()
    partition.entries(2)
    partition.entries(1, visible=False)
    assert spans_of(await entry_reads.read_entries(partition, 0, 1 << 20)) == [(0, 2)]
    assert await entries.last_entry(partition) == EntrySpan(0, 2)


async def test_an_unreadable_record_is_not_skipped():
    partition = FakePartition()
    partition.records(2)
    partition.records(1)
    partition.batches[1].body = memoryview(b"\xff" * 40)
    read = await entry_reads.read_entries(partition, 0, 1 << 20)
    assert (spans_of(read), read.next_offset) == ([(0, 1), (1, 1)], 2)
    with pytest.raises(UnreadableRecord):
        await entry_reads.read_entries(partition, 2, 1 << 20)


async def test_a_body_of_an_unknown_format_is_unreadable():
    partition = FakePartition()
    partition.records(2)
    partition.records(3, keep=[0, 2], body_format=250)
    read = await entry_reads.read_entries(partition, 0, 1 << 20)
    assert (spans_of(read), read.next_offset) == ([(0, 1), (1, 1)], 2)
    for offset in (2, 4):
        with pytest.raises(UnreadableRecord, match=f"record {offset}: no codec"):
            await entry_reads.read_entries(partition, offset, 1 << 20)
    assert (await entries.entry_at_or_before(partition, 4)).offset == 1
    assert await entries.resolve_time(partition, 1) == 5


async def test_read_below_the_log_start_is_out_of_range(mixed):
    mixed.log_start_offset = 4
    with pytest.raises(OffsetOutOfRange):
        await entry_reads.read_entries(mixed, 3, 1)


# Finding.


@pytest.mark.parametrize("offset", range(-1, 20))
async def test_entry_at_or_before_and_after(mixed, offset):
    before = [span for span in SPANS if span[0] <= offset]
    after = [span for span in SPANS if span[0] >= offset]
    nearest = await entries.entry_at_or_before(mixed, offset)
    assert nearest == (EntrySpan(*before[-1]) if before else None)
    nearest = await entries.entry_at_or_after(mixed, offset)
    assert nearest == (EntrySpan(*after[0]) if after else None)
    named = [span for span in SPANS if span[0] == offset]
    assert await entries.entry_at(mixed, offset) == (EntrySpan(*named[0]) if named else None)


@pytest.mark.parametrize("position", range(20))
async def test_mark_delete_is_the_last_entry_that_ends_at_or_below_the_position(mixed, position):
    ended = [span for span in SPANS if sum(span) <= position]
    nearest = await entries.last_ended(mixed, position)
    assert nearest == (EntrySpan(*ended[-1]) if ended else None)


async def test_empty_partition_has_no_entries():
    partition = FakePartition(log_start_offset=0)
    assert await entries.last_entry(partition) is None
    assert await entries.last_ended(partition, 0) is None
    assert await entries.resolve_seek(partition, EntryId(LEDGER, 5)) == 0


# Ids.


@pytest.mark.parametrize("entry", range(18))
async def test_cumulative_ack_resolves_down_to_the_whole_entry(mixed, entry):
    span = [span for span in SPANS if span[0] <= entry][-1]
    covered = await entries.resolve_cumulative(mixed, EntryId(LEDGER, entry))
    assert covered == CumulativeAck(sum(span), [])


async def test_cumulative_ack_with_an_ack_set_leaves_the_rest_of_its_entry(mixed):
    wanted = 0b11000  # The last two of the entry 13-17.
    covered = await entries.resolve_cumulative(mixed, EntryId(LEDGER, 13, (wanted,)))
    assert covered == CumulativeAck(13, [(13, 16)])


@pytest.mark.parametrize(
    "message_id",
    [
        EntryId(LEDGER, 18),
        EntryId(LEDGER, LATEST),
        EntryId(LEDGER, -1),
        EntryId(LEDGER - 1, 3),
        EntryId(LEDGER + 1, 3),
        EntryId(EARLIEST, EARLIEST),
        EntryId(LATEST, LATEST),
    ],
)
async def test_ids_without_entry_acknowledge_nothing(mixed, message_id):
    assert await entries.resolve_cumulative(mixed, message_id) is None
    assert await entries.resolve_individual(mixed, message_id) is None


@pytest.mark.parametrize("entry", range(18))
async def test_individual_ack_has_to_name_an_entry(mixed, entry):
    named = [EntrySpan(*span) for span in SPANS if span[0] == entry]
    resolved = await entries.resolve_individual(mixed, EntryId(LEDGER, entry))
    assert resolved == (named[0] if named else None)


@pytest.mark.parametrize("entry", range(-1, 22))
async def test_seek_resolves_up_to_the_next_entry_start(mixed, entry):
    starts = [start for start, _ in SPANS if start >= entry]
    expected = starts[0] if starts else 18
    assert await entries.resolve_seek(mixed, EntryId(LEDGER, entry)) == expected


@pytest.mark.parametrize(
    ("message_id", "expected"),
    [
        (EntryId(EARLIEST, EARLIEST), 4),
        (EntryId(LATEST, LATEST), 18),
        (EntryId(LEDGER - 1, 16), 4),
        (EntryId(LEDGER + 1, 0), 18),
        (EntryId(LEDGER, 0), 4),  # Trimmed: the next existing entry.
        (EntryId(LEDGER, 13, (0b11100,)), 15),  # Into the batch.
        (EntryId(LEDGER, 13, (0b11111,)), 13),
    ],
)
async def test_seek_to_the_ends_and_to_other_ledgers(mixed, message_id, expected):
    mixed.log_start_offset = 4
    assert await entries.resolve_seek(mixed, message_id) == expected


@pytest.mark.parametrize(
    ("time_ms", "expected"), [(0, 0), (10, 0), (11, 4), (20, 4), (21, 10), (40, 13), (41, 18)]
)
async def test_seek_by_time_finds_the_first_entry_of_that_time_or_later(mixed, time_ms, expected):
    assert await entries.resolve_time(mixed, time_ms * 1000) == expected


# Ack sets.


@given(st.integers(1, 200), st.sets(st.integers(0, 199)), st.integers(0, 1 << 40))
def test_an_ack_set_has_exactly_the_acknowledged_messages(count, acked, offset):
    span = EntrySpan(offset, count)
    acked = {place for place in acked if place < count}
    words = ack_set_of(span, [(offset + place, offset + place + 1) for place in acked])
    assert all(-(1 << 63) <= word < 1 << 63 for word in words)
    if not acked:
        assert words == ()
        return
    offsets = {at - offset for start, end in acked_ranges(span, words) for at in range(start, end)}
    assert offsets == acked


def test_ack_set_examples_of_the_protocol_document():
    span = EntrySpan(0, 10)
    assert acked_ranges(span, (1022,)) == [(0, 1)]
    assert acked_ranges(span, (1014,)) == [(0, 1), (3, 4)]
    assert acked_ranges(span, (992,)) == [(0, 5)]
    assert acked_ranges(span, ()) == [(0, 10)]
    assert acked_ranges(span, (0,)) == [(0, 10)]
    assert ack_set_of(span, [(0, 1), (3, 4)]) == (1014,)
    assert ack_set_of(EntrySpan(0, 64), [(0, 1)]) == (-2,)


def test_omitted_words_of_an_ack_set_are_acknowledged():
    assert acked_ranges(EntrySpan(0, 130), (-1,)) == [(64, 130)]


# Any layout.


def random_partition(rng):
    """Return a partition of random batches, and the spans of its entries."""
    partition, spans = FakePartition(LEDGER), []
    for _ in range(rng.randint(1, 8)):
        kind = rng.choice(["entries", "records", "sparse", "gap"])
        if kind == "entries":
            counts = [rng.choice([1, 1, 2, 7]) for _ in range(rng.randint(1, 5))]
            offsets = partition.entries(*counts)
            spans += list(zip(offsets, counts, strict=True))
        elif kind == "gap":
            partition.gap(rng.randint(1, 5))
        else:
            count = rng.randint(1, 6)
            keep = None
            if kind == "sparse":
                keep = sorted(rng.sample(range(count), rng.randint(0, count)))
            spans += [(offset, 1) for offset in partition.records(count, keep=keep)]
    return partition, spans


@pytest.mark.parametrize("seed", range(60))
async def test_any_layout_resolves_like_a_plain_list(seed):
    rng = random.Random(seed)
    partition, spans = random_partition(rng)
    end = partition.high_watermark
    for offset in range(end + 2):
        before = [span for span in spans if span[0] <= min(offset, end - 1)]
        after = [start for start, _ in spans if start >= offset]
        nearest = await entries.entry_at_or_before(partition, offset)
        assert nearest == (EntrySpan(*before[-1]) if before else None)
        sought = await entries.resolve_seek(partition, EntryId(LEDGER, offset))
        assert sought == (after[0] if after else end)
        if offset < end:
            read = await entry_reads.read_entries(partition, offset, rng.choice([1, 200, 1 << 20]))
            assert spans_of(read)[:1] == [span for span in spans if sum(span) > offset][:1] or (
                not read.entries and read.next_offset > offset
            )


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 1 << 30))
def test_spans_in_memory_equal_spans_of_reads(seed):
    rng = random.Random(seed)
    partition, spans = random_partition(rng)
    walked = [
        (span.offset, span.record_count)
        for batch in partition.batches
        for span in entries.spans_in(batch)
    ]
    assert walked == spans


# On disk.


def kafka_message(value, attributes=0):
    rest = struct.pack(">bbi", 0, attributes, -1) + struct.pack(">i", len(value)) + value
    message = struct.pack(">I", zlib.crc32(rest)) + rest
    return struct.pack(">qi", 0, len(message)) + message


def kafka_set(first, count, *, compressed):
    messages = b"".join(kafka_message(b"v%d" % number) for number in range(first, first + count))
    return kafka_message(gzip.compress(messages), attributes=1) if compressed else messages


async def ids_and_values(partition, start, bytes_max):
    """Return entry id and payload of all entries from `start` on, read in pieces."""
    pairs, position = [], start
    while position < partition.high_watermark:
        read = await entry_reads.read_entries(partition, position, bytes_max)
        for entry in read.entries:
            _, payload = read_metadata(entry.body, check=True)
            pairs.append((entry.offset, bytes(entry.body[payload:])))
        position = read.next_offset
    return pairs


@pytest.mark.slow
async def test_records_of_kafka_keep_their_ids_over_restarts_fetch_sizes_and_starts(tmp_path):
    settings = load(environment={}, file="/dev/null", flags=[("data_dir", str(tmp_path / "d"), "")])
    name = TopicName("public", "default", "t")
    total = 50
    for run in range(2):
        broker = Broker.open(settings)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(broker.run)
            topic = broker.topics.find(name) or (await broker.topics.create(name, 1))
            (partition,) = topic.partitions
            if run == 0:
                for first in range(0, total, 10):
                    produced = prepare(
                        kafka_set(first, 10, compressed=first % 20 == 0),
                        partition.next_offset,
                        message_bytes_max=1 << 20,
                    )
                    partition.append(
                        [produced.body], produced.info, body_format=BodyFormat.KAFKA, append_us=1
                    )
                await broker.durability.all_durable()
            expected = [(number, b"v%d" % number) for number in range(total)]
            for start in range(total):
                for bytes_max in (1, 300, 1 << 20):
                    pairs = await ids_and_values(partition, start, bytes_max)
                    assert pairs == expected[start:]
            broker.stop()
            nursery.cancel_scope.cancel()
        broker.close()
