"""Cuts a record that is larger than a Pulsar frame into the pieces of a chunked message.

Only other listeners accept such records. All pieces carry the id of their entry, so that a client
that acknowledges any of them acknowledges the record. Chunks: PIP-37.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Final

from crc32c import crc32c

from braidlog.broker.reading.entries import Entry, entry_metadata
from braidlog.protocols.pulsar.machine import MESSAGE_BYTES_MAX
from braidlog.storage.formats.api import Buffer

CHECKSUM_MAGIC: Final = b"\x0e\x01"
SIZE: Final = struct.Struct(">I")
_CHECKED: Final = len(CHECKSUM_MAGIC) + SIZE.size


def pieces(entry: Entry, uuid_end: str) -> Iterator[Sequence[Buffer]]:
    """Yield the parts of entries that each fit a frame: the payload's bytes are not copied.

    `uuid_end` distinguishes the pieces from those of the same record on another consumer.
    """
    body = memoryview(entry.body)
    metadata = entry_metadata(entry.body)
    (metadata_bytes,) = SIZE.unpack_from(body, _CHECKED)
    payload = body[_CHECKED + SIZE.size + metadata_bytes :]
    room = MESSAGE_BYTES_MAX - metadata_bytes
    metadata.uuid = f"braidlog-{entry.offset}-{uuid_end}".encode()
    metadata.num_chunks_from_msg = -(-len(payload) // room)
    metadata.total_chunk_msg_size = len(payload)
    for number in range(metadata.num_chunks_from_msg):
        metadata.chunk_id = number
        packed = metadata.SerializeToString()
        head = SIZE.pack(len(packed)) + packed
        part = payload[number * room : (number + 1) * room]
        checksum = SIZE.pack(crc32c(part, crc32c(head)))
        yield CHECKSUM_MAGIC + checksum + head, part
