"""Decodes a Pulsar entry into records, or encodes a record as an entry: checksum, metadata,
payload.

Does not know the storage of entries, nor any command. Layouts: Pulsar binary protocol, "Framing"
and "Batch messages", and PulsarApi.proto.
"""

import base64
import binascii
import re
import struct
from collections.abc import Callable, Iterable, Sequence

from crc32c import crc32c
from google.protobuf.message import DecodeError

from braidlog.storage.errors import CorruptBody, UnreadableBody
from braidlog.storage.formats.api import BYTES_MAX, RECORDS_MAX, BatchFlag, Buffer
from braidlog.storage.formats.compression import INFLATED_BYTES_MAX, decompress_block
from braidlog.storage.formats.headers import header_text, is_text
from braidlog.storage.formats.pulsar.pb.PulsarEntry_pb2 import (
    BatchedMetadata,
    EntryMetadata,
    Property,
)
from braidlog.storage.formats.pulsar.varints import LOW_BITS, LOW_MASK, around, lows
from braidlog.storage.formats.record import Chunk, Header, Record

CHECKSUM_MAGIC = b"\x0e\x01"
CHECKED_MIN = 10  # magic, checksum and metadata size
COMPRESSIONS = {1: "lz4", 2: "zlib", 3: "zstd", 4: "snappy"}

# Largest millisecond time whose microseconds are an int64; a client may send any uint64.
TIME_MS_MAX = (2**63 - 1) // 1000

UINT64_MAX = (1 << 64) - 1

# The producer name for Pulsar readers if a record has no name that they accept.
FOREIGN_PRODUCER = b"braidlog"
# Property that lists, by index, the properties whose name and value are in Base64.
BASE64_PROPERTY = b"braidlog.base64"

# Tags of properties, key and ordering key, plain and in the longer form that protobuf readers also
# accept. Message metadata without any of these bytes has none of the fields; reading each field
# costs more than all else. A chance match costs only that read.
_RICH = re.compile(rb"[\x0a\x12\x3a\x8a\x92\xba]")
_U32 = struct.Struct(">I")
_CHECKED = struct.Struct(">II")  # checksum, metadata size; after the magic


def read_metadata(view: Buffer, *, check: bool) -> tuple[EntryMetadata, int]:
    """Return the metadata of an entry and the position of the payload. Raises CorruptBody."""
    end = len(view)
    start = 4
    if end >= CHECKED_MIN and view[0] == 0x0E and view[1] == 0x01:
        checksum, size = _CHECKED.unpack_from(view, 2)
        start = CHECKED_MIN
        if check and crc32c(view[6:]) != checksum:
            raise CorruptBody("checksum of an entry is wrong")
    elif end < start:
        raise CorruptBody("entry is cut short")
    else:
        (size,) = _U32.unpack_from(view)
    payload_pos = start + size
    if payload_pos > end:
        raise CorruptBody("metadata is longer than its entry")
    try:
        # upb reads any buffer; the stubs know bytes only.
        metadata = EntryMetadata.FromString(view[start:payload_pos])  # type: ignore[arg-type]
    except DecodeError as error:
        raise CorruptBody(f"metadata of an entry: {error}") from error
    return metadata, payload_pos


def us_of(time_ms: int) -> int | None:
    """Return the microseconds of a time in Pulsar metadata, None for 0."""
    return min(time_ms, TIME_MS_MAX) * 1000 if time_ms else None


def publish_us_of(metadata: EntryMetadata) -> int | None:
    """Return the publish time; required in Pulsar, yet Apache's broker stores entries without
    any.
    """
    time_ms = metadata.publish_time
    if time_ms or metadata.HasField("publish_time"):
        return (time_ms if time_ms < TIME_MS_MAX else TIME_MS_MAX) * 1000
    return None


def flags_of(metadata: EntryMetadata) -> int:
    """Return the flags for the header of a batch with this entry."""
    flags = 0
    if metadata.compression:
        flags |= BatchFlag.COMPRESSED
        if metadata.compression not in COMPRESSIONS:
            flags |= BatchFlag.OPAQUE
    if metadata.HasField("encryption_keys"):
        flags |= BatchFlag.OPAQUE
    if metadata.num_chunks_from_msg > 1:
        flags |= BatchFlag.CHUNK
    if metadata.deliver_at_time > 0:
        flags |= BatchFlag.DELAYED
    if metadata.HasField("marker_type"):
        flags |= BatchFlag.MARKER
    return flags


def chunk_of(metadata: EntryMetadata) -> Chunk | None:
    """Return the entry's piece of a chunked message, None for other entries."""
    if metadata.num_chunks_from_msg <= 1:  # A single chunk is an ordinary message.
        return None
    return Chunk(
        metadata.uuid,
        metadata.chunk_id,
        metadata.num_chunks_from_msg,
        metadata.total_chunk_msg_size,
        metadata.compression,
        metadata.uncompressed_size,
    )


def unpack(compression: int, data: Buffer, size: int, size_max: int) -> Buffer:
    """Undo Pulsar's compression, given by number.

    Raises UnreadableBody, or RecordTooLarge if size is above size_max.
    """
    if compression not in COMPRESSIONS:
        raise UnreadableBody(f"compression {compression} is unknown")
    return decompress_block(COMPRESSIONS[compression], data, size, size_max)


def decode_entry(
    entry: bytes,
    offset: int,
    record_count: int,
    append_us: int,
    start_offset: int,
    *,
    records_max: int = RECORDS_MAX,
    bytes_max: int = BYTES_MAX,
) -> list[Record]:
    """Return the records of an entry at or above start_offset, up to the record that reaches a
    limit.

    Markers, which brokers write for each other, and messages removed by compaction are omitted.
    Nothing after the last returned record is read: a small batch may unpack to a million records.

    Raises:
        CorruptBody: the entry does not hold record_count messages.
        UnreadableBody: encrypted, or compressed in a way that cannot be undone.
        RecordTooLarge: the entry would unpack to more than INFLATED_BYTES_MAX.
    """
    metadata, payload_pos = read_metadata(entry, check=False)
    if metadata.HasField("marker_type"):
        return []
    if metadata.HasField("encryption_keys"):
        raise UnreadableBody("entry is encrypted")
    payload: Buffer = entry[payload_pos:]
    if (chunk := chunk_of(metadata)) is None and metadata.compression:
        size = metadata.uncompressed_size
        payload = unpack(metadata.compression, payload, size, INFLATED_BYTES_MAX)
    if metadata.HasField("num_messages_in_batch"):
        if metadata.num_messages_in_batch != record_count:
            raise CorruptBody("entry was stored with another count than its metadata has")
        batch = range(offset, offset + record_count)
        return _decode_batch(
            bytes(payload), metadata, batch, append_us, start_offset, (records_max, bytes_max)
        )
    if record_count != 1:
        raise CorruptBody(f"unbatched entry stored as {record_count} records")
    return [
        Record(
            offset,
            append_us,
            publish_us_of(metadata),
            us_of(metadata.event_time),
            _key(metadata),
            None if metadata.null_value else bytes(payload),
            _headers(metadata.properties) if _has_properties(entry, payload_pos) else (),
            metadata.ordering_key if metadata.HasField("ordering_key") else None,
            metadata.producer_name if metadata.HasField("producer_name") else None,
            metadata.sequence_id if metadata.HasField("sequence_id") else None,
            0,
            metadata.schema_version if metadata.HasField("schema_version") else None,
            chunk,
            us_of(metadata.deliver_at_time) if metadata.deliver_at_time > 0 else None,
        )
    ]


def record_to_entry(record: Record) -> bytes:
    """Encode a record of another protocol as an unbatched entry, from the magic on.

    Property names and values, and keys, become Base64 if they are not UTF-8, because clients in
    several languages refuse such bytes. `BASE64_PROPERTY` and `partition_key_b64_encoded` mark
    them.
    """
    metadata = plain_metadata(record)
    if record.headers:
        metadata.properties.extend(_properties(record.headers))
    if record.event_us is not None and record.event_us >= 1000:
        metadata.event_time = record.event_us // 1000
    if record.schema_version is not None:
        metadata.schema_version = record.schema_version
    if record.ordering_key is not None:
        metadata.ordering_key = record.ordering_key
    if record.deliver_at_us is not None and record.deliver_at_us >= 1000:
        metadata.deliver_at_time = record.deliver_at_us // 1000
    _set_key(metadata, record.key)
    if record.chunk is not None:
        _set_chunk(metadata, record.chunk)
    if record.value is None:
        metadata.null_value = True
    packed = metadata.SerializeToString()
    head, value = _U32.pack(len(packed)) + packed, record.value or b""
    return b"".join((CHECKSUM_MAGIC, _U32.pack(crc32c(value, crc32c(head))), head, value))


def plain_metadata(record: Record) -> EntryMetadata:
    """Return the entry metadata that all records of other protocols share."""
    metadata = EntryMetadata()
    name = record.producer_name
    metadata.producer_name = name if name is not None and is_text(name) else FOREIGN_PRODUCER
    sequence_id = record.offset if record.sequence_id is None else record.sequence_id
    metadata.sequence_id = sequence_id & UINT64_MAX
    publish_us = record.append_us if record.publish_us is None else record.publish_us
    metadata.publish_time = max(publish_us // 1000, 0)
    return metadata


def _decode_batch(
    payload: bytes,
    metadata: EntryMetadata,
    offsets: range,
    append_us: int,
    start_offset: int,
    limits: tuple[int, int],
) -> list[Record]:
    """Return the messages of a batch, without the messages removed by compaction."""
    publish_us, no_headers = publish_us_of(metadata), ()
    producer = metadata.producer_name if metadata.HasField("producer_name") else None
    schema = metadata.schema_version if metadata.HasField("schema_version") else None
    batch_sequence = metadata.sequence_id if metadata.HasField("sequence_id") else None
    deliver_at_us = us_of(metadata.deliver_at_time) if metadata.deliver_at_time > 0 else None
    size_at = _U32.unpack_from
    records_max, bytes_max = limits
    records: list[Record] = []
    pos, end = 0, len(payload)
    is_limited, stop_pos = records_max < len(offsets) or bytes_max < end, bytes_max
    size = number = -1
    sequence: int | None
    last = following = None  # Metadata equal to these need not be parsed.
    counted: Callable[[int], bytes | None] = _not_known
    for offset in offsets:  # hot: see make bench
        if end - pos < 4:
            raise CorruptBody("batch holds fewer messages than it says")
        value_pos = pos + 4 + size_at(payload, pos)[0]
        if value_pos > end:
            raise CorruptBody("message metadata is longer than its batch")
        packed = payload[pos + 4 : value_pos]
        if packed == following:
            number += 1
            sequence = number
            last, following = packed, counted(number + 1)
        elif packed != last:
            next_like = (size, number + 1)
            single, size, event_us, number, rich, is_gone, is_null = _read_single(packed)
            last, following = packed, None
            sequence = number if number >= 0 else batch_sequence
            if next_like == (size, number):
                counted = _counted(single)
                following = counted(number + 1)
        pos = value_pos + size
        if size < 0 or pos > end:
            raise CorruptBody("message is longer than its batch")
        if offset < start_offset or is_gone:
            stop_pos = pos + bytes_max
            continue
        records.append(
            Record(
                offset,
                append_us,
                publish_us,
                event_us,
                _key(single) if rich else None,
                None if is_null else payload[value_pos:pos],
                _headers(single.properties) if rich else no_headers,
                single.ordering_key if rich and single.HasField("ordering_key") else None,
                producer,
                sequence,
                0,
                schema,
                None,
                deliver_at_us,
            )
        )
        if is_limited and (len(records) >= records_max or pos >= stop_pos):
            return records
    if pos != end:
        raise CorruptBody("batch holds more than it says")
    return records


def _read_single(
    packed: bytes,
) -> tuple[BatchedMetadata, int, int | None, int, bool, bool, bool]:
    """Parse the metadata of a message in a batch.

    Returns the metadata, then payload size, event time, sequence id (-1: none), and three flags:
    keys or properties are possible, the message was compacted out, the value is null.
    """
    try:
        single = BatchedMetadata.FromString(packed)
    except DecodeError as error:
        raise CorruptBody(f"metadata of a message in a batch: {error}") from error
    event_ms, number = single.event_time, single.sequence_id
    if not number and not single.HasField("sequence_id"):
        number = -1
    return (
        single,
        single.payload_size,
        us_of(event_ms) if event_ms else None,
        number,
        _RICH.search(packed) is not None,
        single.compacted_out,
        single.null_value,
    )


def _counted(single: BatchedMetadata) -> Callable[[int], bytes | None]:
    """Return a function that encodes the metadata with a higher sequence id without protobuf.

    Returns None if that is impossible.
    """
    first = single.sequence_id + 1
    block = first >> LOW_BITS
    if first > UINT64_MAX:
        return _not_known
    like = BatchedMetadata()
    like.CopyFrom(single)

    def serialize(number: int) -> bytes:
        like.sequence_id = number
        return like.SerializeToString()

    before, after = around(serialize, first)
    first_bytes = lows(first)

    def packed_of(number: int) -> bytes | None:
        if number >> LOW_BITS != block:
            return None
        return before + first_bytes[number & LOW_MASK] + after

    return packed_of


def _not_known(number: int) -> bytes | None:
    return None


def _key(metadata: EntryMetadata | BatchedMetadata) -> bytes | None:
    if metadata.null_partition_key or not metadata.HasField("partition_key"):
        return None
    key = metadata.partition_key
    if not metadata.partition_key_b64_encoded:
        return key
    try:
        return base64.b64decode(key, validate=True)
    except binascii.Error:  # A client set the flag by mistake: the key stays unchanged.
        return key


def _has_properties(entry: bytes, metadata_end: int) -> bool:
    """Return False only without properties: their tag, in both forms, is nowhere in the metadata.

    Reading a repeated field of a message costs as much as all its other fields.
    """
    return entry.find(b"\x22", 4, metadata_end) >= 0 or entry.find(b"\xa2", 4, metadata_end) >= 0


def _headers(properties: Sequence[Property]) -> Sequence[Header]:
    return [Header(p.key, p.value) for p in properties] if properties else ()


def _properties(headers: Iterable[Header]) -> list[Property]:
    """Return the properties of a foreign record, and the list of properties in Base64."""
    properties = []
    encoded = []
    for place, header in enumerate(headers):
        name, value = header.name, header_text(header)
        if not (is_text(name) and is_text(value)):
            name, value = base64.b64encode(name), base64.b64encode(value)
            encoded.append(b"%d" % place)
        properties.append(Property(key=name, value=value))
    if encoded:
        properties.append(Property(key=BASE64_PROPERTY, value=b",".join(encoded)))
    return properties


def _set_key(metadata: EntryMetadata, key: bytes | None) -> None:
    if key is None:
        metadata.null_partition_key = True
    elif is_text(key):
        metadata.partition_key = key
    else:
        metadata.partition_key = base64.b64encode(key)
        metadata.partition_key_b64_encoded = True


def _set_chunk(metadata: EntryMetadata, chunk: Chunk) -> None:
    metadata.uuid = chunk.uuid
    metadata.chunk_id = chunk.chunk_id
    metadata.num_chunks_from_msg = chunk.chunk_count
    metadata.total_chunk_msg_size = chunk.total_bytes
    if chunk.compression:
        metadata.compression = chunk.compression
        metadata.uncompressed_size = chunk.uncompressed_bytes
