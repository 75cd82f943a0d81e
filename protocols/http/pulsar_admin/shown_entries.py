"""Stored entries as Pulsar's admin API shows them: the payload as body, the metadata in headers.

As in Apache, a batch comes whole, with the header `X-Pulsar-num-batch-message`: clients take the
messages out themselves. An entry is uncompressed. Records of other protocols are entries of their
own.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.responses import Response

from braidlog.broker.delivery.entry_reads import read_entries
from braidlog.broker.limits import OUTPUT_LAST_BYTES
from braidlog.broker.reading.entries import unpacked_entry
from braidlog.protocols.http.errors import MESSAGE_NOT_FOUND, RequestRefused

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.broker.topics.partition import Partition
    from braidlog.protocols.http.requests import Exchange
    from braidlog.storage.formats.pulsar.pb.PulsarEntry_pb2 import EntryMetadata

LAST_MS: Final = int(datetime(9999, 12, 31, tzinfo=UTC).timestamp()) * 1000
COMPRESSIONS: Final = ("NONE", "LZ4", "ZLIB", "ZSTD", "SNAPPY")  # By Pulsar's numbers.


async def shown_entry(
    broker: Broker, request: Request, partition: Partition, offset: int
) -> Response:
    """Return the entry that contains the offset. Raises RequestRefused, and as `read_entries`."""
    if not partition.log_start_offset <= offset < partition.high_watermark:
        raise RequestRefused(MESSAGE_NOT_FOUND, "Message not found")
    room = await broker.output.reserve(OUTPUT_LAST_BYTES)
    exchange: Exchange = request.scope["exchange"]
    exchange.at_end.append(partial(room.keep, 0))
    read = await read_entries(partition, offset, 1, memory=room)
    if not read.entries or read.entries[0].offset > offset:
        raise RequestRefused(MESSAGE_NOT_FOUND, "Message not found")
    entry = read.entries[0]
    metadata, payload = await unpacked_entry(entry.body, room.grow)
    batch_bytes = len(entry.body) - metadata.ByteSize()  # As Apache counts.
    response = Response(payload, media_type="application/octet-stream")
    # Capitalised as in Apache: Java's admin client looks for exactly `X-Pulsar-PROPERTY`.
    names = {"X-Pulsar-Message-ID": f"{partition.partition_id}:{entry.offset}"}
    names |= dict(_headers(metadata, batch_bytes))
    response.raw_headers += [(name.encode(), text.encode()) for name, text in names.items()]
    return response


def _headers(metadata: EntryMetadata, batch_bytes: int) -> Iterator[tuple[str, str]]:
    properties = {_text(row.key): _text(row.value) for row in metadata.properties}
    yield "X-Pulsar-PROPERTY", json.dumps(properties, separators=(",", ":"))
    yield "X-Pulsar-publish-time", _time(metadata.publish_time)
    if metadata.event_time:
        yield "X-Pulsar-event-time", _time(metadata.event_time)
    if metadata.deliver_at_time > 0:
        yield "X-Pulsar-deliver-at-time", _time(metadata.deliver_at_time)
    if metadata.HasField("num_messages_in_batch"):
        yield "X-Pulsar-num-batch-message", str(metadata.num_messages_in_batch)
        yield "X-Pulsar-batch-size", str(batch_bytes)
    if metadata.null_value:
        yield "X-Pulsar-null-value", "true"
    yield "X-Pulsar-Is-Encrypted", "true" if metadata.HasField("encryption_keys") else "false"
    yield "X-Pulsar-producer-name", _ascii(metadata.producer_name)
    yield "X-Pulsar-sequence-id", str(metadata.sequence_id)
    if metadata.HasField("highest_sequence_id"):
        yield "X-Pulsar-highest-sequence-id", str(metadata.highest_sequence_id)
    yield from _keys(metadata)
    if metadata.HasField("schema_version"):
        yield "X-Pulsar-Base64-schema-version-b64encoded", _base64(metadata.schema_version)
    if metadata.compression:
        is_known = metadata.compression < len(COMPRESSIONS)
        name = COMPRESSIONS[metadata.compression] if is_known else str(metadata.compression)
        yield "X-Pulsar-compression", name
        yield "X-Pulsar-uncompressed-size", str(metadata.uncompressed_size)
    if metadata.num_chunks_from_msg:
        yield "X-Pulsar-uuid", _ascii(metadata.uuid)
        yield "X-Pulsar-num-chunks-from-msg", str(metadata.num_chunks_from_msg)
        yield "X-Pulsar-total-chunk-msg-size", str(metadata.total_chunk_msg_size)
        yield "X-Pulsar-chunk-id", str(metadata.chunk_id)


def _keys(metadata: EntryMetadata) -> Iterator[tuple[str, str]]:
    if metadata.HasField("partition_key"):
        yield "X-Pulsar-partition-key", _ascii(metadata.partition_key)
        if metadata.partition_key_b64_encoded:
            yield "X-Pulsar-partition-key-b64-encoded", "true"
    if metadata.null_partition_key:
        yield "X-Pulsar-null-partition-key", "true"
    if metadata.HasField("ordering_key"):
        yield "X-Pulsar-Base64-ordering-key", _base64(metadata.ordering_key)


def _time(time_ms: int) -> str:
    """Return a time in the form of Apache and Java's admin client; clamped to the year 9999."""
    time_ms = min(max(time_ms, 0), LAST_MS)
    at = datetime.fromtimestamp(time_ms // 1000, UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{time_ms % 1000:03}Z"


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _text(value: bytes) -> str:
    return value.decode(errors="backslashreplace")


def _ascii(value: bytes) -> str:
    """Return a value as printable ASCII for a header, with escapes if needed."""
    text = _text(value)
    is_plain = text.isascii() and text.isprintable()
    return text if is_plain else text.encode("unicode_escape").decode("ascii")
