"""A batched Pulsar entry without some of its messages, in the form of Apache's compaction.

Each removed message leaves a hole, so that the others keep their batch indexes: metadata with
`compacted_out` and no payload, which clients and our own decoding skip. Knows no offsets.
"""

import struct
from collections.abc import Sequence

from crc32c import crc32c

from braidlog.storage.errors import CorruptBody, RecordTooLarge, UnreadableBody
from braidlog.storage.formats.api import Buffer
from braidlog.storage.formats.compression import INFLATED_BYTES_MAX, compress_block
from braidlog.storage.formats.pulsar.entry import (
    CHECKSUM_MAGIC,
    COMPRESSIONS,
    read_metadata,
    unpack,
)
from braidlog.storage.formats.pulsar.pb.PulsarEntry_pb2 import BatchedMetadata

_U32 = struct.Struct(">I")


def without_messages(entry: bytes, gone: Sequence[bool]) -> bytes:
    """Return the entry with holes in place of the messages that `gone` marks.

    Raises: CorruptBody, UnreadableBody, RecordTooLarge.
    """
    metadata, payload_pos = read_metadata(entry, check=False)
    payload = bytes(entry[payload_pos:])
    if metadata.compression:
        size = metadata.uncompressed_size
        payload = bytes(unpack(metadata.compression, payload, size, INFLATED_BYTES_MAX))
    packed = BatchedMetadata(payload_size=0, compacted_out=True).SerializeToString()
    hole = _U32.pack(len(packed)) + packed
    parts: list[bytes] = []
    pos = 0
    for is_gone in gone:
        start, pos = pos, _message_at(payload, pos)[1]
        parts.append(hole if is_gone else payload[start:pos])
    payload = b"".join(parts)
    if metadata.compression:
        metadata.uncompressed_size = len(payload)
        payload = compress_block(COMPRESSIONS[metadata.compression], payload)
    head = metadata.SerializeToString()
    checked = b"".join((_U32.pack(len(head)), head, payload))
    return b"".join((CHECKSUM_MAGIC, _U32.pack(crc32c(checked)), checked))


def holes_of(entry: Buffer, record_count: int) -> list[bool]:
    """Return True for each removed message of a batched entry; all False if the entry cannot be
    opened.

    Raises: CorruptBody.
    """
    metadata, payload_pos = read_metadata(entry, check=False)
    payload = bytes(entry[payload_pos:])
    if metadata.encryption_keys:
        return [False] * record_count
    if metadata.compression:
        size = metadata.uncompressed_size
        try:
            payload = bytes(unpack(metadata.compression, payload, size, INFLATED_BYTES_MAX))
        except (UnreadableBody, RecordTooLarge):
            return [False] * record_count
    holes = []
    pos = 0
    for _ in range(record_count):
        single, pos = _message_at(payload, pos)
        holes.append(single.compacted_out)
    return holes


def _message_at(payload: bytes, pos: int) -> tuple[BatchedMetadata, int]:
    if len(payload) - pos < _U32.size:
        raise CorruptBody("batch holds fewer messages than it says")
    start = pos + _U32.size + _U32.unpack_from(payload, pos)[0]
    if start > len(payload):
        raise CorruptBody("message metadata is longer than its batch")
    single = BatchedMetadata.FromString(payload[pos + _U32.size : start])
    end: int = start + single.payload_size
    if single.payload_size < 0 or end > len(payload):
        raise CorruptBody("message is longer than its batch")
    return single, end
