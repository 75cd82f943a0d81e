"""Pulsar entries as clients of any language make them: built with the published messages."""

import struct

from crc32c import crc32c

from braidlog.storage.formats.pulsar.entry_runs import ENTRY_PREFIX
from braidlog.storage.formats.pulsar.pb.PulsarApi_pb2 import MessageMetadata, SingleMessageMetadata


def metadata(**fields: object) -> MessageMetadata:
    required = {"producer_name": "p", "sequence_id": 4, "publish_time": 9}
    return MessageMetadata(**(required | fields))  # type: ignore[arg-type]


def entry(meta: MessageMetadata | bytes, payload: bytes, *, checksum: bool = True) -> bytes:
    packed = meta if isinstance(meta, bytes) else meta.SerializePartialToString()
    checked = struct.pack(">I", len(packed)) + packed + payload
    return b"\x0e\x01" + struct.pack(">I", crc32c(checked)) + checked if checksum else checked


def single(payload: bytes, **fields: object) -> bytes:
    fields = {"payload_size": len(payload)} | fields
    packed = SingleMessageMetadata(**fields).SerializeToString()  # type: ignore[arg-type]
    return struct.pack(">I", len(packed)) + packed + payload


def body(*entries: tuple[bytes, int]) -> bytes:
    """Return a stored run of (entry, record count)."""
    parts, delta = [], 0
    for raw, count in entries:
        parts += [ENTRY_PREFIX.pack(len(raw), delta, count), raw]
        delta += count
    return b"".join(parts)
