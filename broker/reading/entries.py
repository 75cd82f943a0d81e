"""Conversion between Pulsar's ids and offsets; no other module converts them. Ids depend on the
offset alone.

ledgerId is the partition's id. A stored Pulsar entry has the offset of its first record as entryId;
the batch index of a message is its distance from there. Every record of another body format is a
separate, unbatched entry.

Pulsar's clients subtract 1 from entry ids. So a cumulative acknowledgement resolves down, a seek
resolves up, and only an individual acknowledgement must name an entry exactly. Knows no connection,
consumer or command.
"""

from __future__ import annotations

import base64
import binascii
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec

from braidlog.broker.errors import CorruptBatch, OffsetOutOfRange, UnreadableRecord
from braidlog.broker.reading.ack_sets import acked_ranges, wanted_count
from braidlog.broker.reading.look import Look, look_at
from braidlog.broker.reading.times import search
from braidlog.broker.reading.unopened import cannot_decode
from braidlog.broker.reading.unpacking import run_unpacking
from braidlog.storage.errors import CorruptBody, RecordTooLarge, UnreadableBody
from braidlog.storage.formats import registry
from braidlog.storage.formats.api import (
    BYTES_MAX,
    RECORDS_MAX,
    BatchFlag,
    BodyFormat,
    Buffer,
    Decoded,
)
from braidlog.storage.formats.compression import INFLATED_BYTES_MAX
from braidlog.storage.formats.pulsar.entry import (
    chunk_of,
    decode_entry,
    publish_us_of,
    read_metadata,
    unpack,
)
from braidlog.storage.formats.pulsar.entry_runs import entries as stored_entries
from braidlog.storage.formats.pulsar.pb.PulsarEntry_pb2 import EntryMetadata
from braidlog.storage.formats.quick import SPEEDUPS
from braidlog.storage.formats.record import Chunk, Record

if TYPE_CHECKING:
    from braidlog.broker.runtime.output_budget import OutputReservation
    from braidlog.broker.topics.partition import Partition
    from braidlog.storage.formats.batch import Batch

Found = TypeVar("Found")

EARLIEST = -1  # ledgerId and entryId of MessageId.earliest, as signed numbers.
LATEST = 2**63 - 1  # ledgerId and entryId of MessageId.latest.

# Ints: an operator of a flag class costs a microsecond, too slow for each entry.
_CHUNK = int(BatchFlag.CHUNK)
_GAP = int(BatchFlag.GAP)
_MARKER = int(BatchFlag.MARKER)


@dataclass(slots=True)
class EntrySpan:
    """The records that one entry covers: `[offset, end)`. `offset` is the entry id."""

    offset: int
    record_count: int

    @property
    def end(self) -> int:
        return self.offset + self.record_count


class Entry(msgspec.Struct, gc=False):
    """An entry to deliver, with its delivery state.

    There are thousands at a time, so the class is a C struct that the garbage collector ignores.
    """

    offset: int
    record_count: int
    body: Buffer  # From the checksum's magic (or the metadata's size) to the end of the payload.
    flags: int  # The batch's flags: its entries may be chunks or delayed.
    redelivery_count: int = 0
    ack_set: tuple[int, ...] = ()  # Empty: every message of the entry is wanted.
    slot: int = 0  # Slot of the entry's key, on a Key_Shared subscription.
    append_us: int = 0  # Time at which the broker stored the entry.
    # First offsets, ends and times (ms) of delayed records, if a header names the times.
    delays: tuple[tuple[int, int, int], ...] = ()

    @property
    def end(self) -> int:
        return self.offset + self.record_count

    @property
    def wanted(self) -> int:
        """Number of wanted messages in the entry."""
        return wanted_count(self.ack_set) if self.ack_set else self.record_count


class EntryId(NamedTuple):
    """An id as a client sends it, numbers signed; `ack_set` has a bit for each wanted message."""

    ledger: int
    entry: int
    ack_set: tuple[int, ...] = ()


@dataclass(slots=True)
class CumulativeAck:
    """The effect of a cumulative acknowledgement: all offsets below `position`, and `ranges` of the
    entry that begins there.
    """

    position: int
    ranges: list[tuple[int, int]]


# Contents of a batch.


def entries_in(batch: Batch, offset: int) -> list[Entry]:
    """Return the entries of a batch that Pulsar stored, from the entry that contains
    `offset` on.
    """
    body, flags, append_us = batch.body, batch.header.flags, batch.header.append_us
    entries = [
        Entry(ref.offset, ref.record_count, body[ref.start : ref.end], flags, 0, (), 0, append_us)
        for ref in stored_entries(body, batch.base_offset)
        if ref.offset + ref.record_count > offset
    ]
    if flags & _MARKER:  # Replication or transaction markers of another cluster: never delivered.
        return [e for e in entries if not entry_metadata(e.body).HasField("marker_type")]
    return entries


def decoded(
    batch: Batch,
    start_offset: int = 0,
    records_max: int = RECORDS_MAX,
    bytes_max: int = BYTES_MAX,
) -> Decoded:
    """Decode records of a batch of another format; `failed` is set if no codec knows the format."""
    header, base_offset = batch.header, batch.base_offset
    try:
        codec = registry.codec_for(header.body_format)
    except UnreadableBody as error:
        return cannot_decode(batch, start_offset, error)
    return codec.decode(
        batch.body,
        base_offset,
        header.append_us,
        start_offset=start_offset,
        records_max=records_max,
        bytes_max=bytes_max,
    )


def entry_metadata(body: Buffer) -> EntryMetadata:
    """Return the metadata at the head of an entry. Raises CorruptBatch."""
    try:
        return read_metadata(body, check=False)[0]
    except CorruptBody as error:
        raise CorruptBatch(str(error)) from error


def entry_key(body: Buffer) -> bytes:
    """Return the `sticky_key` of an entry. Raises CorruptBatch."""
    if SPEEDUPS is not None:  # hot: see make bench
        key: bytes | None = SPEEDUPS.entry_key(body)
        if key is not None:
            return key
    return sticky_key(entry_metadata(body))


def entry_chunk(entry: Entry) -> Chunk | None:
    """Return the entry's place in a chunked message, or None."""
    return chunk_of(entry_metadata(entry.body)) if entry.flags & _CHUNK else None


def sticky_key(metadata: EntryMetadata) -> bytes:
    """Return the key that selects the consumer of an entry. A batch has the key of its first
    message.
    """
    key = metadata.ordering_key  # hot: see make bench. HasField is the slowest part.
    if key or metadata.HasField("ordering_key"):
        return key
    key = metadata.partition_key
    if key or metadata.HasField("partition_key"):
        if metadata.partition_key_b64_encoded:
            try:
                return base64.b64decode(key, validate=True)
            except binascii.Error:
                return key
        return key
    return b"%b-%d" % (metadata.producer_name, metadata.sequence_id)


def entry_messages(entry: Entry) -> list[Record]:
    """Return the messages of an entry; a compressed entry needs a thread. Raises BodyError."""
    return decode_entry(bytes(entry.body), entry.offset, entry.record_count, 0, 0)


def is_batched(body: Buffer) -> bool:
    """Return True if the entry is a batch in Pulsar's sense, even of a single message."""
    return entry_metadata(body).HasField("num_messages_in_batch")


def record_places(batch: Batch, offsets: Sequence[int]) -> list[tuple[int, int]]:
    """Return entry id and batch index (-1: not in a batched entry) of records of a batch; `offsets`
    must ascend. Raises CorruptBatch.
    """
    if batch.header.body_format != BodyFormat.PULSAR:
        return [(offset, -1) for offset in offsets]
    refs = stored_entries(batch.body, batch.base_offset)
    starts = [ref.offset for ref in refs]
    places: list[tuple[int, int]] = []
    last, batched = -1, False
    for offset in offsets:
        at = bisect_right(starts, offset) - 1
        if at != last:
            last, ref = at, refs[at]
            batched = ref.record_count > 1 or is_batched(batch.body[ref.start : ref.end])
        places.append((starts[at], offset - starts[at] if batched else -1))
    return places


async def unpacked_entry(
    body: Buffer, before_large: Callable[[int], Awaitable[None]]
) -> tuple[EntryMetadata, bytes]:
    """Return the metadata and the uncompressed payload of an entry. Encrypted payloads, and pieces
    of chunked messages, are returned as stored: only the whole can be unpacked.

    Raises CorruptBatch, UnreadableRecord.
    """
    try:
        metadata, start = read_metadata(body, check=False)
        payload = body[start:]
        is_piece = chunk_of(metadata) is not None
        if metadata.compression and not is_piece and not metadata.HasField("encryption_keys"):
            work = partial(
                unpack,
                metadata.compression,
                payload,
                metadata.uncompressed_size,
                INFLATED_BYTES_MAX,
            )
            payload = await run_unpacking(work, before_large=before_large)
    except CorruptBody as error:
        raise CorruptBatch(str(error)) from error
    except (UnreadableBody, RecordTooLarge) as error:
        raise UnreadableRecord(str(error)) from error
    return metadata, bytes(payload)


# Lookup of entries.


async def entry_at(partition: Partition, offset: int) -> EntrySpan | None:
    """Return the entry whose first record is `offset`, or None."""
    span = await entry_at_or_before(partition, offset)
    return span if span is not None and span.offset == offset else None


async def entry_at_or_before(
    partition: Partition, offset: int, *, compacted: bool = False
) -> EntrySpan | None:
    """Return the entry that contains `offset`, else the last entry before it; None if there is none
    below the watermark. `compacted`: look in the compacted view, as `entry_reads.read_entries`
    does.
    """
    below = min(offset, partition.high_watermark - 1)
    while below >= (0 if compacted else partition.log_start_offset):
        try:
            async with look_at(partition, below, compacted=compacted) as look:
                if not look.batches:
                    return None
                entry = await find_in_sight(
                    look, lambda batch: _last_starting_at_or_below(batch, offset)
                )
                below = look.batches[0].base_offset - 1
        except OffsetOutOfRange:
            return None  # Below the log start, and the view was removed meanwhile.
        if entry is not None:
            return entry
    return None


async def entry_at_or_after(partition: Partition, offset: int) -> EntrySpan | None:
    """Return the first entry that starts at or above `offset`, below the watermark; else None."""
    offset = max(offset, partition.log_start_offset)
    position, end = offset, partition.high_watermark
    while position < end:
        async with look_at(partition, position) as look:
            if not look.batches:
                return None
            entry = await find_in_sight(
                look, lambda batch: _first_starting_at_or_above(batch, offset)
            )
            position = look.batches[0].next_offset
        if entry is not None:
            return entry
    return None


async def find_in_sight(look: Look, find: Callable[[Batch], Found]) -> Found:
    """Return the result of `find` for the batch in sight, from a thread if the body is decoded."""
    batch = look.batches[0]
    is_gap, is_pulsar = batch.header.flags & _GAP, batch.header.body_format == BodyFormat.PULSAR
    if is_gap or is_pulsar or is_dense(batch):
        return find(batch)
    return await run_unpacking(partial(find, batch), before_large=look.memory.grow)


async def last_entry(partition: Partition, *, compacted: bool = False) -> EntrySpan | None:
    """Return the last entry that may be delivered; None in an empty partition."""
    last = partition.high_watermark - 1
    return await entry_at_or_before(partition, last, compacted=compacted)


async def last_ended(partition: Partition, position: int) -> EntrySpan | None:
    """Return the last entry that ends at or below `position`: Pulsar's mark-delete for a cursor
    there.
    """
    span = await entry_at_or_before(partition, position - 1)
    if span is not None and span.end > position:
        span = await entry_at_or_before(partition, span.offset - 1)
    return span


def spans_in(batch: Batch) -> Sequence[EntrySpan]:
    """Return the entries of a batch without their bytes; a large body needs a thread."""
    header = batch.header
    if header.flags & _GAP:
        return ()
    if header.body_format == BodyFormat.PULSAR:
        entries = entries_in(batch, batch.base_offset)
        return [EntrySpan(entry.offset, entry.record_count) for entry in entries]
    return [EntrySpan(record.offset, 1) for record in decoded(batch).records]


def is_dense(batch: Batch) -> bool:
    """Return True if every offset of the batch is a separate entry, so that the body need not be
    opened.
    """
    header = batch.header
    return (
        not header.flags & _GAP
        and header.body_format != BodyFormat.PULSAR
        and header.record_count == header.last_offset_delta + 1
    )


def _last_starting_at_or_below(batch: Batch, offset: int) -> EntrySpan | None:
    if batch.base_offset > offset:
        return None
    if is_dense(batch):
        return EntrySpan(min(offset, batch.next_offset - 1), 1)
    spans = spans_in(batch)
    at = bisect_right(spans, offset, key=_offset_of)
    return spans[at - 1] if at else None


def _first_starting_at_or_above(batch: Batch, offset: int) -> EntrySpan | None:
    if batch.next_offset <= offset:
        return None
    if is_dense(batch):
        return EntrySpan(max(offset, batch.base_offset), 1)
    return next((span for span in spans_in(batch) if span.offset >= offset), None)


def _offset_of(span: EntrySpan) -> int:
    return span.offset


# Ids.


async def resolve_cumulative(partition: Partition, message_id: EntryId) -> CumulativeAck | None:
    """Return the effect of a cumulative acknowledgement of an id; None if it
    acknowledges nothing.
    """
    if not _is_within(partition, message_id):
        return None
    span = await entry_at_or_before(partition, message_id.entry)
    if span is None:
        return None
    if message_id.ack_set and span.offset == message_id.entry:
        return CumulativeAck(span.offset, acked_ranges(span, message_id.ack_set))
    return CumulativeAck(span.end, [])


async def resolve_individual(partition: Partition, message_id: EntryId) -> EntrySpan | None:
    """Return the entry that an individual acknowledgement names; None if there is no such entry."""
    if not _is_within(partition, message_id):
        return None
    return await entry_at(partition, message_id.entry)


async def resolve_seek(
    partition: Partition, message_id: EntryId, *, compacted: bool = False
) -> int:
    """Return the position of a seek to an id, or of a reader's start: the start of the next entry,
    or the end if there is none. `compacted`: for readers of the compacted view, which may begin
    below the log.
    """
    ledger, entry = message_id.ledger, message_id.entry
    if ledger != partition.partition_id:
        is_older = ledger < partition.partition_id
        return earliest(partition, compacted=compacted) if is_older else partition.high_watermark
    if compacted and entry < partition.compacted_offset:
        return max(entry, 0)  # A read continues at the next remaining entry.
    span = await entry_at_or_after(partition, entry)
    if span is None:
        return partition.high_watermark
    if message_id.ack_set and span.offset == entry:
        acked = acked_ranges(span, message_id.ack_set)
        # A position inside a batch: bits of earlier messages are 0.
        if acked and acked[0][0] == span.offset:
            return acked[0][1]
    return span.offset


def earliest(partition: Partition, *, compacted: bool = False) -> int:
    """Return the first position of the log, or of the compacted view."""
    return 0 if compacted and partition.compacted_offset else partition.log_start_offset


async def resolve_time(partition: Partition, time_us: int) -> int:
    """Return the position of the first entry published at or after `time_us`; else the end."""

    async def find(batch: Batch, _: int, memory: OutputReservation) -> int | None:
        work = partial(_first_published_at_or_after, batch, time_us)
        if batch.header.body_format == BodyFormat.PULSAR:
            return work()
        return await run_unpacking(work, before_large=memory.grow)

    offset = await search(partition, time_us, find)
    return partition.high_watermark if offset is None else offset


def _first_published_at_or_after(batch: Batch, time_us: int) -> int | None:
    header = batch.header
    if header.flags & _GAP:
        return None
    if header.body_format == BodyFormat.PULSAR:
        for entry in entries_in(batch, batch.base_offset):
            publish_us = publish_us_of(entry_metadata(entry.body))
            if (header.append_us if publish_us is None else publish_us) >= time_us:
                return entry.offset
        return None
    for record in decoded(batch).records:
        publish_us = record.append_us if record.publish_us is None else record.publish_us
        if publish_us >= time_us:
            return record.offset
    return None


def _is_within(partition: Partition, message_id: EntryId) -> bool:
    """Return True if this partition can have delivered an entry with the id."""
    return (
        message_id.ledger == partition.partition_id
        and 0 <= message_id.entry < partition.high_watermark
    )
