"""The batch header: 128 bytes before every stored body (FORMAT.md section 3). Knows no file."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from struct import Struct

from crc32c import crc32c

from braidlog.storage.formats.api import BatchFlag, BodyInfo
from braidlog.storage.formats.quick import CRC32C_BYTES_MAX, SPEEDUPS

Buffer = bytes | bytearray | memoryview
Fields = tuple[int | None, ...]

MAGIC = b"\xf3BA\xd7"
VERSION = 1
HEADER_BYTES = 128

# How an absent time is written.
ABSENT_US = -(1 << 63)

# Offsets that a batch can cover; a longer gap takes several.
BATCH_OFFSETS_MAX = 1 << 32

FLAGS_UNKNOWN = ~sum(BatchFlag)

# magic, header crc
PREFIX = Struct("<4sI")

# From byte 8 on: version, body version, body format, flags, partition_id, owner_epoch, base_offset,
# last_offset_delta, record_count, durable_offset, first_publish_us, max_publish_us, append_us,
# producer_id, producer_epoch, first_sequence, last_sequence, positions_bytes, body_bytes, body_crc,
# reserved.
REST = Struct("<BBHI QQq IIq qqq Qqqq IIII")

assert PREFIX.size + REST.size == HEADER_BYTES


class BadHeader(ValueError):
    """These bytes are not a batch header of this segment; the text says why."""


@dataclass(slots=True)
class BatchHeader:
    """The known facts of a batch with an unopened body. Times in microseconds, None: absent."""

    partition_id: int
    base_offset: int
    last_offset_delta: int
    record_count: int
    durable_offset: int
    append_us: int
    body_format: int
    body_version: int = 1
    flags: int = 0
    owner_epoch: int = 0
    first_publish_us: int | None = None
    max_publish_us: int | None = None
    producer_id: int = 0
    producer_epoch: int = 0
    first_sequence: int = 0
    last_sequence: int = 0
    positions_bytes: int = 0
    body_bytes: int = 0
    body_crc: int = 0

    @property
    def next_offset(self) -> int:
        """Offset right after the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def time_us(self) -> int:
        """Greatest time of the batch's records: publish time if present, else append time."""
        return self.append_us if self.max_publish_us is None else self.max_publish_us

    @property
    def stored_bytes(self) -> int:
        """Bytes of header, positions table and body together."""
        return HEADER_BYTES + self.positions_bytes + self.body_bytes


@dataclass(slots=True)
class Batch:
    """A stored batch as read; all batches of a read are views of a single buffer."""

    header: BatchHeader
    positions: memoryview
    body: memoryview
    file_pos: int

    @property
    def is_cut(self) -> bool:
        """True if the body is only the beginning of the stored body (`reading.Trusted`)."""
        return len(self.body) < self.header.body_bytes

    @property
    def base_offset(self) -> int:
        """Offset of the first record."""
        return self.header.base_offset

    @property
    def next_offset(self) -> int:
        """Offset right after the batch."""
        return self.header.base_offset + self.header.last_offset_delta + 1


def body_checksum(parts: Iterable[Buffer]) -> int:
    """CRC-32C over the parts in order: positions table, then body."""
    crc = 0
    for part in parts:
        crc = crc32c(part, crc)
    return crc


def header_of(
    body: Buffer,
    info: BodyInfo,
    place: tuple[int, int, int, int],
    *,
    base_offset: int,
    append_us: int,
) -> BatchHeader:
    """The header of a body without holes or positions. `place` has partition id, owner epoch,
    durable offset and body format.
    """
    if not 0 < info.record_count <= BATCH_OFFSETS_MAX:
        raise ValueError(f"a batch cannot cover {info.record_count} offsets")
    partition_id, owner_epoch, durable_offset, body_format = place
    return BatchHeader(
        partition_id=partition_id,
        base_offset=base_offset,
        last_offset_delta=info.record_count - 1,
        record_count=info.record_count,
        durable_offset=durable_offset,
        append_us=append_us,
        body_format=body_format,
        flags=info.flags,
        owner_epoch=owner_epoch,
        first_publish_us=info.first_publish_us,
        max_publish_us=info.max_publish_us,
        producer_id=info.producer_id,
        producer_epoch=info.producer_epoch,
        first_sequence=info.first_sequence,
        last_sequence=info.last_sequence,
        body_bytes=len(body),
        body_crc=body_checksum([body]),
    )


def pack(header: BatchHeader, salt: int) -> bytes:
    """The header's 128 bytes in a segment with that salt."""
    first, latest = header.first_publish_us, header.max_publish_us
    return pack_fields(
        salt,
        VERSION,
        header.body_version,
        header.body_format,
        header.flags,
        header.partition_id,
        header.owner_epoch,
        header.base_offset,
        header.last_offset_delta,
        header.record_count,
        header.durable_offset,
        ABSENT_US if first is None else first,
        ABSENT_US if latest is None else latest,
        header.append_us,
        header.producer_id,
        header.producer_epoch,
        header.first_sequence,
        header.last_sequence,
        header.positions_bytes,
        header.body_bytes,
        header.body_crc,
        0,
    )


def pack_fields(salt: int, *fields: int) -> bytes:
    """As `pack`, from the fields in stored order (`REST`), for callers without a BatchHeader."""
    rest = REST.pack(*fields)
    return PREFIX.pack(MAGIC, crc32c(rest, salt)) + rest


def head_of(salt: int, body: Sequence[Buffer], positions_bytes: int, fields: Fields) -> bytes:
    """As `pack`, for a body in parts, the first of which may be a positions table. `fields`: from
    the version on, up to the last sequence, in stored order (`REST`); None for an absent time.
    """
    is_simple = len(body) == 1 and not positions_bytes  # hot: see make bench
    if SPEEDUPS is not None and is_simple and len(body[0]) <= CRC32C_BYTES_MAX:
        head: bytes | None = SPEEDUPS.batch_head(salt, body[0], *fields)
        if head is not None:
            return head
    stored = [ABSENT_US if value is None else value for value in fields]
    body_bytes = sum(map(len, body)) - positions_bytes
    return pack_fields(salt, *stored, positions_bytes, body_bytes, body_checksum(body), 0)


def unpack(view: Buffer, salt: int, pos: int = 0) -> BatchHeader:
    """The header at `pos`, checked against the salt. Raises BadHeader."""
    end = pos + HEADER_BYTES
    if len(view) < end:
        raise BadHeader(f"only {len(view) - pos} of {HEADER_BYTES} header bytes")
    magic, crc = PREFIX.unpack_from(view, pos)
    if magic != MAGIC:
        raise BadHeader("no batch begins here")
    if crc32c(view[pos + PREFIX.size : end], salt) != crc:
        raise BadHeader("header checksum is wrong")
    fields = REST.unpack_from(view, pos + PREFIX.size)
    if fields[0] != VERSION:
        raise BadHeader(f"version {fields[0]} is not known")
    if fields[20] or fields[3] & FLAGS_UNKNOWN:
        raise BadHeader("reserved bits are set")
    first, latest = fields[10], fields[11]
    return BatchHeader(  # By position, in half the time that names take.
        fields[4],  # partition_id
        fields[6],  # base_offset
        fields[7],  # last_offset_delta
        fields[8],  # record_count
        fields[9],  # durable_offset
        fields[12],  # append_us
        fields[2],  # body_format
        fields[1],  # body_version
        fields[3],  # flags
        fields[5],  # owner_epoch
        None if first == ABSENT_US else first,
        None if latest == ABSENT_US else latest,
        *fields[13:20],  # producer_id to body_crc
    )


def peek(
    view: Buffer, pos: int, salt: int, partition_id: int, base_offset: int
) -> tuple[int, int, int] | None:
    """Peek at the batch expected at `pos`: the offset after it, the bytes of positions table and
    body together, and their checksum.  # hot

    None if the batch is incomplete or bad; `unpack` says why.
    """
    end = pos + HEADER_BYTES
    if len(view) < end:
        return None
    magic, crc = PREFIX.unpack_from(view, pos)
    pos += PREFIX.size
    if magic != MAGIC or crc32c(view[pos:end], salt) != crc:
        return None
    fields = REST.unpack_from(view, pos)
    if fields[0] != VERSION or fields[20] or fields[3] & FLAGS_UNKNOWN:
        return None
    if fields[4] != partition_id or fields[6] != base_offset:
        return None
    return base_offset + fields[7] + 1, fields[17] + fields[18], fields[19]


def unpack_place(
    view: Buffer, salt: int, partition_id: int, base_offset: int, body_format: int
) -> tuple[int, int] | None:
    """Check the batch header expected in these 128 bytes: the offset after the batch, and the size
    of its body, which follows directly.  # hot

    None if the header is not good, or the batch has another format or a positions table.
    """
    magic, crc = PREFIX.unpack_from(view)
    if magic != MAGIC or crc32c(view[PREFIX.size :], salt) != crc:
        return None
    fields = REST.unpack_from(view, PREFIX.size)
    if fields[0] != VERSION or fields[20] or fields[3] & FLAGS_UNKNOWN or fields[17]:
        return None
    if fields[4] != partition_id or fields[6] != base_offset or fields[2] != body_format:
        return None
    return base_offset + fields[7] + 1, fields[18]
