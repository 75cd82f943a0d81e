"""The first 64 bytes of a segment file (FORMAT.md section 2)."""

import secrets
from dataclasses import dataclass, replace
from struct import Struct

from crc32c import crc32c

from braidlog.storage.formats.batch import Buffer
from braidlog.storage.log.files import Files

MAGIC = b"BRAIDLOG"
NAMED_MAGIC = b"BRLG"  # Of a header that names its data directory.
VERSION = 1
NAMED_VERSION = 2
SEGMENT_HEADER_BYTES = 64

KIND_PARTITION = 1
KIND_CATALOGUE = 2
KIND_CURSORS = 3
KIND_NODES = 4

FLAG_SNAPSHOT = 1
FLAG_COMPACTED = 2
FLAGS = FLAG_SNAPSHOT | FLAG_COMPACTED

# magic, version, kind, salt, partition_id, base_offset, flags, end_offset, tombstones_below,
# tombstones_us, reserved
HEADER = Struct("<8sHHIQqHqqq2s")
# magic, salt, version, kind, flags, directory_id, partition_id, base_offset, end_offset,
# tombstones_below, tombstones_us
NAMED_HEADER = Struct("<4sIHBBQQqqqq")
VERSION_PLACE = Struct("<8xH")
CRC = Struct("<I")

assert HEADER.size + CRC.size == NAMED_HEADER.size + CRC.size == SEGMENT_HEADER_BYTES


class BadSegment(ValueError):
    """The file does not begin with a good segment header; the text says why."""


class ForeignSegment(BadSegment):
    """The header is intact, but says that the file belongs elsewhere: somebody put it here."""


@dataclass(slots=True, frozen=True)
class SegmentHeader:
    """The first 64 bytes of a segment file."""

    kind: int
    salt: int
    partition_id: int
    base_offset: int
    flags: int = 0
    # Only with FLAG_COMPACTED, else 0: where it ends; and tombstones below `tombstones_below` have
    # been the latest records of their keys since `tombstones_us` at the latest.
    end_offset: int = 0
    tombstones_below: int = 0
    tombstones_us: int = 0
    # The data directory that the file belongs to; 0 where the header does not say (version 1).
    directory_id: int = 0


def pack_segment_header(header: SegmentHeader) -> bytes:
    """Return the header's 64 bytes, of version 2 if the header names its data directory."""
    place = (header.partition_id, header.base_offset)
    compacted = (header.end_offset, header.tombstones_below, header.tombstones_us)
    if header.directory_id:
        identity = (header.salt, NAMED_VERSION, header.kind, header.flags, header.directory_id)
        rest = NAMED_HEADER.pack(NAMED_MAGIC, *identity, *place, *compacted)
    else:
        fields = (header.kind, header.salt, *place, header.flags)
        rest = HEADER.pack(MAGIC, VERSION, *fields, *compacted, bytes(2))
    return rest + CRC.pack(crc32c(rest))


def unpack_segment_header(data: Buffer) -> SegmentHeader:
    """The header in the first 64 bytes. Raises BadSegment."""
    if len(data) < SEGMENT_HEADER_BYTES:
        raise BadSegment(f"only {len(data)} of {SEGMENT_HEADER_BYTES} header bytes")
    if CRC.unpack_from(data, HEADER.size)[0] != crc32c(data[: HEADER.size]):
        raise BadSegment("segment header checksum is wrong")
    directory_id, reserved = 0, b""
    (version,) = VERSION_PLACE.unpack_from(data)
    if version == NAMED_VERSION:
        magic, salt, _, kind, flags, directory_id, partition_id, *rest = NAMED_HEADER.unpack_from(
            data
        )
        base_offset, *compacted = rest
    else:
        magic, _, kind, salt, partition_id, base_offset, flags, *rest = HEADER.unpack_from(data)
        *compacted, reserved = rest
    if (magic, version) not in ((MAGIC, VERSION), (NAMED_MAGIC, NAMED_VERSION)):
        raise BadSegment(f"not a segment of version {VERSION} or {NAMED_VERSION}")
    if any(reserved) or flags & ~FLAGS or not salt:
        raise BadSegment("reserved bits are set")
    if version == NAMED_VERSION and not directory_id:
        raise BadSegment("its data directory has no number")
    if not flags & FLAG_COMPACTED and any(compacted):
        raise BadSegment("reserved bytes are set")
    if flags & FLAG_COMPACTED and compacted[0] <= base_offset:
        raise BadSegment("it ends where it begins")
    end_offset, below, since_us = compacted
    place = (kind, salt, partition_id, base_offset, flags)
    return SegmentHeader(*place, end_offset, below, since_us, directory_id)


def named_header(header: SegmentHeader, files: Files) -> SegmentHeader:
    """The header of a new file: it names the data directory, if that has an id."""
    return replace(header, directory_id=files.directory_id)


def new_salt() -> int:
    """A random salt, never 0."""
    return secrets.randbelow((1 << 32) - 1) + 1
