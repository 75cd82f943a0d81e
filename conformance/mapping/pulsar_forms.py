"""Hand-made Pulsar entries (PulsarApi.proto), without the command of a SEND or a MESSAGE."""

import base64
import struct
import zlib
from collections.abc import Sequence

from crc32c import crc32c

from braidlog.storage.formats.record import Record
from conformance.clients.raw.pulsar import Fields, Value, encode, parse
from conformance.mapping.views import US_PER_MS, Seen, is_text

ZLIB = 2  # PulsarApi.proto, CompressionType
# Numbers of the fields of MessageMetadata, and of SingleMessageMetadata where they differ.
PRODUCER, SEQUENCE, PUBLISH, PROPERTIES, KEY = 1, 2, 3, 4, 6
COMPRESSION, UNPACKED_SIZE, COUNT, EVENT, SCHEMA = 8, 9, 11, 12, 16
KEY_IS_BASE64, ORDERING_KEY, DELIVER_AT, NULL_VALUE, NULL_KEY = 17, 18, 19, 25, 30
IN_BATCH = {PROPERTIES: 1, KEY: 2, EVENT: 5, KEY_IS_BASE64: 6, ORDERING_KEY: 7, SEQUENCE: 8}
IN_BATCH |= {NULL_VALUE: 9, NULL_KEY: 10}
PAYLOAD_SIZE = 3


def entry(record: Record, packed: bool) -> bytes:
    """Return an unbatched message, from the checksum's magic on."""
    fields = [*_of_producer(record), (SEQUENCE, record.sequence_id or 0), *_of_message(record)]
    if record.schema_version is not None:
        fields.append((SCHEMA, record.schema_version))
    return _sealed(fields, record.value or b"", packed)


def batch_entry(records: Sequence[Record], packed: bool) -> bytes:
    """Return a batch: producer, publish time, schema and delivery time are the first message's."""
    first = records[0]
    payload = bytearray()
    for record in records:
        own = [(IN_BATCH[number], value) for number, value in _of_message(record)]
        own += [(PAYLOAD_SIZE, len(record.value or b""))]
        own += [(IN_BATCH[SEQUENCE], record.sequence_id or 0)]
        head = encode(own)
        payload += struct.pack(">I", len(head)) + head + (record.value or b"")
    fields = [*_of_producer(first), (SEQUENCE, first.sequence_id or 0), (COUNT, len(records))]
    if first.schema_version is not None:
        fields.append((SCHEMA, first.schema_version))
    return _sealed(fields, bytes(payload), packed)


def read_entry(offset: int, body: bytes) -> Seen:
    """Return a consumer's view of an entry with a single unbatched message."""
    assert body[:2] == b"\x0e\x01" and crc32c(body[6:]) == struct.unpack_from(">I", body, 2)[0]
    (size,) = struct.unpack_from(">I", body, 6)
    fields = parse(body[10 : 10 + size])
    metadata: dict[int, Value] = dict(fields)
    assert COUNT not in metadata and COMPRESSION not in metadata
    key = metadata.get(KEY)
    if KEY_IS_BASE64 in metadata:
        assert isinstance(key, bytes)
        key = base64.b64decode(key)
    assert (key is None) == bool(metadata.get(NULL_KEY))
    pairs = [dict(parse(value)) for number, value in fields if number == PROPERTIES]  # type: ignore[arg-type]
    return {
        "entryId": offset,
        "payload": body[10 + size :],
        "null_value": bool(metadata.get(NULL_VALUE)),
        "partition_key": key,
        "properties": [(pair[1], pair[2]) for pair in pairs],
        "publish_time": metadata[PUBLISH],
        "event_time": metadata.get(EVENT, 0),
        "deliver_at_time": metadata.get(DELIVER_AT, 0),
        "ordering_key": metadata.get(ORDERING_KEY),
        "producer_name": metadata[PRODUCER],
        "sequence_id": metadata[SEQUENCE],
        "schema_version": metadata.get(SCHEMA),
    }


def read_messages(offset: int, body: bytes) -> list[Seen]:
    """Return place and payload of each message of any entry, packed or batched."""
    (size,) = struct.unpack_from(">I", body, 6)
    metadata: dict[int, Value] = dict(parse(body[10 : 10 + size]))
    payload = body[10 + size :]
    if metadata.get(COMPRESSION) == ZLIB:
        payload = zlib.decompress(payload)
    if COUNT not in metadata:
        return [{"entryId": offset, "payload": payload}]
    entries: list[Seen] = []
    pos = 0
    while pos < len(payload):
        (size,) = struct.unpack_from(">I", payload, pos)
        value_pos = pos + 4 + size
        pos = value_pos + int(dict(parse(payload[pos + 4 : value_pos]))[PAYLOAD_SIZE])
        entries.append({"entryId": offset + len(entries), "payload": payload[value_pos:pos]})
    return entries


def _of_producer(record: Record) -> Fields:
    publish_us = record.append_us if record.publish_us is None else record.publish_us
    fields: Fields = [(PRODUCER, record.producer_name or b"")]
    fields.append((PUBLISH, max(publish_us // US_PER_MS, 0)))
    if record.deliver_at_us is not None:
        fields.append((DELIVER_AT, record.deliver_at_us // US_PER_MS))
    return fields


def _of_message(record: Record) -> Fields:
    fields: Fields = [
        (PROPERTIES, encode([(1, header.name), (2, header.value)])) for header in record.headers
    ]
    if record.key is None:
        fields.append((NULL_KEY, 1))
    elif is_text(record.key):
        fields.append((KEY, record.key))
    else:
        fields += [(KEY, base64.b64encode(record.key)), (KEY_IS_BASE64, 1)]
    if record.event_us is not None:
        fields.append((EVENT, max(record.event_us // US_PER_MS, 0)))
    if record.ordering_key is not None:
        fields.append((ORDERING_KEY, record.ordering_key))
    if record.value is None:
        fields.append((NULL_VALUE, 1))
    return fields


def _sealed(fields: Fields, payload: bytes, packed: bool) -> bytes:
    if packed:
        fields = [*fields, (COMPRESSION, ZLIB), (UNPACKED_SIZE, len(payload))]
        payload = zlib.compress(payload)
    head = encode(fields)
    checked = struct.pack(">I", len(head)) + head + payload
    return b"\x0e\x01" + struct.pack(">I", crc32c(checked)) + checked
