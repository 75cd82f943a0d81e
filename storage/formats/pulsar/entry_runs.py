"""Stored runs of Pulsar entries, the form of both SEND and MESSAGE.

Each entry is unchanged from its magic (or metadata size) on, after a prefix with its length, first
offset delta and record count. `entry.py` handles the inside of an entry. Knows no command,
producer or subscription.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from braidlog.storage.errors import CorruptBody, RecordTooLarge
from braidlog.storage.formats.api import (
    BatchFlag,
    BodyFormat,
    BodyInfo,
    Buffer,
    Decoded,
    RemainingBody,
)
from braidlog.storage.formats.base import Codec, WantedRecords, decoded_by
from braidlog.storage.formats.pulsar.entry import (
    chunk_of,
    decode_entry,
    flags_of,
    publish_us_of,
    read_metadata,
    record_to_entry,
    unpack,
)
from braidlog.storage.formats.pulsar.rebatch import holes_of, without_messages
from braidlog.storage.formats.record import Chunk, Record

__all__ = [
    "ENTRY_PREFIX",
    "PULSAR",
    "EntryRef",
    "PulsarCodec",
    "SendInfo",
    "entries",
    "join_chunks",
    "parse_send",
    "record_to_entry",
]

ENTRY_PREFIX = struct.Struct("<III")  # length, first offset delta, record count

# A frame of Pulsar's default size holds fewer, even of the smallest messages.
BATCH_RECORDS_MAX = 1 << 20
# Metadata size and a payload size of one byte: no message of a batch is smaller.
BATCHED_MIN = 6


@dataclass(slots=True)
class SendInfo:
    """The broker's facts of a SEND; the time in microseconds, None if absent."""

    record_count: int
    publish_us: int | None
    flags: int
    chunk: Chunk | None


@dataclass(slots=True)
class EntryRef:
    """A stored entry: its first offset, and its position in the body, magic included."""

    offset: int
    record_count: int
    start: int
    end: int


def parse_send(metadata_and_payload: Buffer) -> SendInfo:  # hot: see make bench
    """Check the bytes after the command of a SEND, without opening the payload.

    Raises:
        CorruptBody: wrong checksum, broken metadata, or an impossible batch count.
    """
    metadata, payload_pos = read_metadata(metadata_and_payload, check=True)
    count = 1
    if metadata.HasField("num_messages_in_batch"):
        count = metadata.num_messages_in_batch
        size = len(metadata_and_payload) - payload_pos
        if metadata.compression:
            size = metadata.uncompressed_size
        if not 1 <= count <= BATCH_RECORDS_MAX or count * BATCHED_MIN > size:
            raise CorruptBody(f"batch of {count} messages in {size} bytes")
    flags = flags_of(metadata)
    chunk = chunk_of(metadata) if flags & BatchFlag.CHUNK else None
    return SendInfo(count, publish_us_of(metadata), flags, chunk)


def entries(body: Buffer, base_offset: int) -> list[EntryRef]:
    """Return the position of each entry of a stored body.

    Raises:
        CorruptBody: the prefixes do not fill the body.
    """
    refs = []
    unpack, head = ENTRY_PREFIX.unpack_from, ENTRY_PREFIX.size
    pos, body_end = 0, len(body)
    while pos < body_end:  # hot: see make bench
        if body_end - pos < head:
            raise CorruptBody("entry prefix is cut short")
        size, delta, count = unpack(body, pos)
        start = pos + head
        pos = start + size
        if pos > body_end:
            raise CorruptBody(f"entry of {size} bytes does not fit its body")
        refs.append(EntryRef(base_offset + delta, count, start, pos))
    return refs


def join_chunks(pieces: Sequence[Record], joined_bytes_max: int) -> Record:
    """Join all pieces of a message, given in order, at the offset of the last piece.

    Raises:
        RecordTooLarge: the message is above joined_bytes_max.
        UnreadableBody: the message does not unpack.
    """
    last = pieces[-1]
    chunk = last.chunk
    assert chunk is not None, "only pieces of a chunked message are joined"
    if (size := max(chunk.uncompressed_bytes, chunk.total_bytes)) > joined_bytes_max:
        raise RecordTooLarge(size, joined_bytes_max)
    value: Buffer = b"".join(piece.value or b"" for piece in pieces)
    if len(value) > joined_bytes_max:
        raise RecordTooLarge(len(value), joined_bytes_max)
    if chunk.compression:
        value = unpack(chunk.compression, value, chunk.uncompressed_bytes, joined_bytes_max)
    return replace(last, value=bytes(value), chunk=None)


class PulsarCodec(Codec):
    """Body format 3. See the module."""

    name = "pulsar"
    format = int(BodyFormat.PULSAR)
    column_decoder = "braidlog.storage.formats.pulsar.columns:columns_of"
    entry_head_bytes = ENTRY_PREFIX.size
    joins_chunks = True

    def inspect(self, body: Buffer) -> BodyInfo:
        """Count by the prefixes; read times and flags from each entry's metadata."""
        info = BodyInfo(0)
        view = memoryview(body)
        for entry in entries(view, 0):
            metadata, _ = read_metadata(view[entry.start : entry.end], check=False)
            info.record_count += entry.record_count
            info.flags |= flags_of(metadata)
            publish_us = publish_us_of(metadata)
            if publish_us is None:
                continue
            if info.first_publish_us is None:
                info.first_publish_us = publish_us
            info.max_publish_us = max(publish_us, info.max_publish_us or publish_us)
        return info

    def starts(
        self, body: Buffer, base_offset: int, start_offset: int
    ) -> Iterator[tuple[int, int]]:
        """Yield entry starts, prefix included."""
        for entry in entries(body, base_offset):
            if entry.offset + entry.record_count > start_offset:
                yield entry.offset, entry.start - ENTRY_PREFIX.size

    def _decoded(self, body: Buffer, appended: tuple[int, int], wanted: WantedRecords) -> Decoded:
        """Decode from the uncopied body: many calls may decode the same body, so copy only wanted
        bytes.
        """
        return decoded_by(self.decode_into, body, appended, wanted)

    def decode_into(
        self, decoded: Decoded, data: Buffer, append_us: int, wanted: WantedRecords
    ) -> None:
        """Decode; split batches, skip markers and messages removed by compaction."""
        start_offset, bytes_max, view = wanted.start_offset, wanted.bytes_max, memoryview(data)
        for entry in entries(data, decoded.next_offset):
            if entry.offset + entry.record_count <= start_offset:
                decoded.next_offset = entry.offset + entry.record_count
                continue
            decoded.next_offset = max(entry.offset, start_offset)
            records = decode_entry(
                bytes(view[entry.start : entry.end]),
                entry.offset,
                entry.record_count,
                append_us,
                start_offset,
                records_max=wanted.records_max - len(decoded.records),
                bytes_max=bytes_max,
            )
            decoded.records += records
            decoded.next_offset = entry.offset + entry.record_count
            bytes_max -= sum([len(record.value or b"") for record in records])
            if len(decoded.records) >= wanted.records_max or bytes_max <= 0:
                decoded.next_offset = decoded.records[-1].offset + 1
                break

    def without(
        self, body: Buffer, base_offset: int, is_removed: Callable[[int], bool]
    ) -> RemainingBody:
        """Remove messages; a batched entry that loses some messages keeps its id and its count,
        with holes in their place, as in Apache Pulsar.
        """
        data, remaining = bytes(body), RemainingBody(b"", 0, base_offset)
        parts: list[bytes] = []
        for ref in entries(data, base_offset):
            entry = data[ref.start : ref.end]
            holes = [False]
            if ref.record_count > 1:
                holes = holes_of(entry, ref.record_count)
            gone = [hole or is_removed(ref.offset + n) for n, hole in enumerate(holes)]
            if all(gone):
                continue
            if gone != holes:
                entry = without_messages(entry, gone)
            prefix = ENTRY_PREFIX.pack(len(entry), ref.offset - base_offset, ref.record_count)
            parts += (prefix, entry)
            remaining.record_count += ref.record_count - sum(gone)
            remaining.end_offset = ref.offset + ref.record_count
        remaining.body = b"".join(parts)
        return remaining

    def join(self, pieces: Sequence[Record], joined_bytes_max: int) -> Record:
        """Join pieces; see `join_chunks`."""
        return join_chunks(pieces, joined_bytes_max)

    def encode(self, records: Sequence[Record], base_offset: int) -> bytes:
        """Encode each record as an unbatched entry of its own."""
        parts = []
        for record in records:
            entry = record_to_entry(record)
            parts.append(ENTRY_PREFIX.pack(len(entry), record.offset - base_offset, 1))
            parts.append(entry)
        return b"".join(parts)


PULSAR = PulsarCodec()
