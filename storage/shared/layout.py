"""The bytes of round and pack objects: header, slices, footer, trailer (FORMAT.md section 11.1).

A slice is a byte range of a segment file; the footer names the file. Knows no store and no ledger,
only names and bytes.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from struct import Struct

from crc32c import crc32c

from braidlog.storage.errors import StorageError

MAGIC = b"BRAIDOBJ"
END_MAGIC = b"BRAIDEND"
VERSION = 1
KIND_ROUND = 1
KIND_PACK = 2

# magic, version, kind, part, session or shard, number, nonce or epoch, zero
HEADER = Struct("<8sHHIQQQI")
# shard, partition, segment base, file position, bytes, first offset, end offset, object position,
# last append time in microseconds
ENTRY = Struct("<QQqQQqqQq")
COUNT = Struct("<I")
CRC = Struct("<I")
HEADER_BYTES = HEADER.size + CRC.size
ENTRY_BYTES = ENTRY.size
TRAILER_BYTES = COUNT.size + CRC.size + len(END_MAGIC)

assert (HEADER_BYTES, ENTRY_BYTES, TRAILER_BYTES) == (48, 72, 16)

Buffer = bytes | bytearray | memoryview


class BadObject(StorageError):
    """An object of the store disagrees with its name or the ledger; the text names the object."""


@dataclass(slots=True, frozen=True)
class ObjectHeader:
    """The first 48 bytes. `owner` is the session (round) or shard (pack), `number` the round or the
    pack's number, `mark` the session's nonce or the shard's epoch.
    """

    kind: int
    owner: int
    number: int
    mark: int
    part: int = 0


@dataclass(slots=True, frozen=True)
class SliceEntry:
    """A footer entry: the segment file, the range of its bytes, and their place in the object.

    `first_offset` and `end_offset` are those of the whole slice, even if a part ends inside it.
    """

    shard: int
    partition_id: int
    segment_base: int
    file_pos: int
    size: int
    first_offset: int
    end_offset: int
    object_pos: int
    last_append_us: int

    @property
    def file_end(self) -> int:
        """End of the entry's bytes in the segment file."""
        return self.file_pos + self.size


def pack_header(header: ObjectHeader) -> bytes:
    """The 48 bytes of an object's header."""
    rest = HEADER.pack(
        MAGIC, VERSION, header.kind, header.part, header.owner, header.number, header.mark, 0
    )
    return rest + CRC.pack(crc32c(rest))


def unpack_header(data: Buffer) -> ObjectHeader:
    """The header that an object begins with. Raises BadObject."""
    if len(data) < HEADER_BYTES:
        raise BadObject(f"only {len(data)} of {HEADER_BYTES} header bytes")
    if CRC.unpack_from(data, HEADER.size)[0] != crc32c(data[: HEADER.size]):
        raise BadObject("the header's checksum is wrong")
    magic, version, kind, part, owner, number, mark, zero = HEADER.unpack_from(data)
    if (magic, version, zero) != (MAGIC, VERSION, 0) or kind not in (KIND_ROUND, KIND_PACK):
        raise BadObject(f"not an object of version {VERSION}")
    return ObjectHeader(kind, owner, number, mark, part)


def pack_footer(header: bytes, entries: Sequence[SliceEntry]) -> bytes:
    """Footer and trailer after the slices of an object with this header."""
    body = b"".join(pack_entry(entry) for entry in entries)
    count = COUNT.pack(len(entries))
    return body + count + CRC.pack(crc32c(count, crc32c(body, crc32c(header)))) + END_MAGIC


def unpack_footer(header: Buffer, tail: Buffer) -> list[SliceEntry]:
    """The entries in `tail`, which is exactly footer and trailer. Raises BadObject."""
    if len(tail) < TRAILER_BYTES or bytes(tail[-len(END_MAGIC) :]) != END_MAGIC:
        raise BadObject("it has no trailer")
    count_pos = len(tail) - TRAILER_BYTES
    (count,) = COUNT.unpack_from(tail, count_pos)
    if count * ENTRY_BYTES != count_pos:
        raise BadObject(f"its footer has {count_pos} bytes for {count} slices")
    crc = crc32c(tail[: count_pos + COUNT.size], crc32c(header))
    if CRC.unpack_from(tail, count_pos + COUNT.size)[0] != crc:
        raise BadObject("the footer's checksum is wrong")
    return unpack_entries(tail[:count_pos])


def pack_entry(entry: SliceEntry) -> bytes:
    """The 72 bytes of a footer entry."""
    return ENTRY.pack(
        entry.shard,
        entry.partition_id,
        entry.segment_base,
        entry.file_pos,
        entry.size,
        entry.first_offset,
        entry.end_offset,
        entry.object_pos,
        entry.last_append_us,
    )


def unpack_entries(data: Buffer, partitions: Collection[int] | None = None) -> list[SliceEntry]:
    """Entries back to back: a footer's, or a pack's index in the ledger; if `partitions` are given,
    only theirs. Raises BadObject.
    """
    if len(data) % ENTRY_BYTES:
        raise BadObject(f"{len(data)} bytes are not a list of slices")
    return [
        SliceEntry(*fields)
        for fields in ENTRY.iter_unpack(data)
        if partitions is None or fields[1] in partitions
    ]


def pack_entries(entries: Iterable[SliceEntry]) -> bytes:
    """A pack's index, as the ledger holds it."""
    return b"".join(map(pack_entry, entries))


def joined(entries: Iterable[SliceEntry]) -> list[SliceEntry]:
    """Join each entry that continues the entry before, in file and object, even across a cut."""
    result: list[SliceEntry] = []
    for entry in entries:
        last = result[-1] if result else None
        if (
            last is not None
            and follows(last, entry)
            and last.object_pos + last.size == (entry.object_pos)
        ):
            result[-1] = replace(
                last,
                size=last.size + entry.size,
                end_offset=entry.end_offset,
                last_append_us=max(last.last_append_us, entry.last_append_us),
            )
        else:
            result.append(entry)
    return result


def follows(last: SliceEntry, entry: SliceEntry) -> bool:
    """Return True if `entry` continues in the same segment file where `last` ends."""
    place = (entry.partition_id, entry.segment_base, entry.file_pos)
    return place == (last.partition_id, last.segment_base, last.file_end)


# Names.

CLUSTER_NAME = "cluster"
ROUNDS = "rounds/"
PACKS = "packs/"
SEGMENTS = "segments/"
MARKS = "marks/"


def round_name(session: int, number: int, part: int) -> str:
    return f"{ROUNDS}{session}/{number:020d}.{part}"


def round_place(name: str) -> tuple[int, int] | None:
    """Session and number in the name of a round's part; None for another name."""
    try:
        _, session, rest = name.split("/")
        return int(session), int(rest.split(".")[0])
    except ValueError:
        return None


def mark_name(session: int, number: int, takes: int) -> str:
    """Name of a mark: the ledger has that round of the session, after so many takes of shards."""
    return f"{MARKS}{session}/{number:020d}-{takes}"


def mark_place(name: str) -> tuple[int, int, int] | None:
    """Session, round and takes in the name of a mark; None for another name."""
    try:
        _, session, rest = name.split("/")
        number, takes = rest.split("-")
        return int(session), int(number), int(takes)
    except ValueError:
        return None


def pack_name(shard: int, epoch: int, number: int) -> str:
    return f"{PACKS}{shard}/{epoch}-{number}"


def segment_name(partition_id: int, base: int, epoch: int, generation: int) -> str:
    """Name of a whole segment with its index."""
    return f"{SEGMENTS}{partition_id}/{base:020d}-{epoch}-{generation}"


def shard_of(full_name: str, shards: int) -> int:
    """The shard that a topic belongs to, from 1; shard 0 is the catalogue."""
    return 1 + crc32c(full_name.encode()) % shards
