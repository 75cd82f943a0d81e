"""The producers of a partition over restarts: a snapshot file, and a walk of the batches after it.

Without a snapshot nothing was ever compared with the table: the table begins empty at the log's
end, and an empty snapshot is on disk before the first comparison. FORMAT.md section 10. Any thread.
"""

import os
from contextlib import closing
from struct import Struct
from typing import Final

import msgspec
from crc32c import crc32c

from braidlog.storage.log.files import Files
from braidlog.storage.log.log import Log
from braidlog.storage.log.removed_folder import may_be_gone
from braidlog.storage.log.scan import NO_OFFSET, BadBatch, find_good, load_checked, walk
from braidlog.storage.log.segment import Segment
from braidlog.storage.log.sequences import ProducerState, SequenceTable, StoredBatch

SEQUENCES_NAME: Final = "sequences"
SEQUENCES_MAGIC: Final = b"BRAIDSEQ"
VERSION: Final = 2
VERSION_MIN: Final = 1  # Without each producer's first sequence.

# magic, version, reserved, partition_id, next_offset, body_bytes, body_crc
HEAD: Final = Struct("<8sHHIQqII")
CRC: Final = Struct("<I")

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(list[ProducerState])


class BadSnapshot(ValueError):
    """The file is no good snapshot of this partition; the text says why."""


def pack_table(table: SequenceTable, partition_id: int) -> bytes:
    """Return the snapshot file's bytes: the state after all batches below the table's
    `next_offset`.
    """
    body = _ENCODER.encode(list(table))
    head = HEAD.pack(
        SEQUENCES_MAGIC, VERSION, 0, 0, partition_id, table.next_offset, len(body), crc32c(body)
    )
    return head + CRC.pack(crc32c(head)) + body


def unpack_table(data: bytes, partition_id: int) -> SequenceTable:
    """The table that a snapshot file holds. Raises BadSnapshot."""
    start = HEAD.size + CRC.size
    if len(data) < start or CRC.unpack_from(data, HEAD.size)[0] != crc32c(data[: HEAD.size]):
        raise BadSnapshot("the header's checksum is wrong")
    magic, version, *known, next_offset, body_bytes, body_crc = HEAD.unpack_from(data)
    if magic != SEQUENCES_MAGIC or known != [0, 0, partition_id]:
        raise BadSnapshot(f"not a snapshot of partition {partition_id}")
    if not VERSION_MIN <= version <= VERSION:
        raise BadSnapshot(f"version {version}, expected {VERSION_MIN} to {VERSION}")
    body = data[start:]
    if len(body) != body_bytes or crc32c(body) != body_crc:
        raise BadSnapshot("the body's checksum is wrong")
    try:
        return SequenceTable(next_offset, _DECODER.decode(body))
    except msgspec.DecodeError as error:
        raise BadSnapshot(str(error)) from error


def save(files: Files, log: Log, packed: bytes) -> None:
    """Replace the snapshot, durably. The batches that it covers must be on disk already.

    Raises: StorageFull, StorageFailed, FileGone where the partition was deleted.
    """
    path = os.path.join(log.folder, SEQUENCES_NAME)
    files.unlink(f"{path}.new")
    with closing(files.create(f"{path}.new")) as file:
        file.write_at([packed], 0)
        file.datasync()
    with may_be_gone(log.folder):
        files.rename(f"{path}.new", path)
    files.sync_folder(log.folder)


def load(files: Files, log: Log) -> SequenceTable:
    """Load the table as of the broker's stop; `catch_up` brings it up to date.

    Raises: BadSnapshot; StorageFull, StorageFailed, FileGone; OSError if the disk cannot read.
    """
    try:
        data = files.read_whole(os.path.join(log.folder, SEQUENCES_NAME))
    except FileNotFoundError:
        table = SequenceTable(log.log_end_offset)
        save(files, log, pack_table(table, log.partition_id))
        return table
    table = unpack_table(data, log.partition_id)
    # An empty snapshot was written for a log end that a power cut may have taken back since.
    table.covers_to(min(table.next_offset, log.log_end_offset))
    return table


def catch_up(table: SequenceTable, log: Log) -> None:
    """Note every batch from the table's `next_offset` to the log's end. Only headers are read.

    Unreadable batches are skipped: nothing can be compared with them. Raises: FileGone, OSError.
    """
    while table.next_offset < log.log_end_offset:
        end_offset = log.log_end_offset
        offset = max(table.next_offset, log.log_start_offset)
        for segment, file_pos, at in log.places_from(offset):
            _note_all(table, segment, file_pos, at)
        table.covers_to(max(table.next_offset, end_offset))


def _note_all(table: SequenceTable, segment: Segment, file_pos: int, offset: int) -> None:
    """Note the batches of a segment from a place on."""
    end_pos = segment.size
    while file_pos < end_pos:
        try:
            load_checked(segment)
            for _, header in walk(
                segment, file_pos, offset, check_bodies_from=NO_OFFSET, end_pos=end_pos
            ):
                if header.producer_id and header.base_offset >= table.next_offset:
                    stored = StoredBatch(
                        header.first_sequence, header.last_sequence, header.base_offset
                    )
                    table.note(header.producer_id, header.producer_epoch, stored, header.append_us)
                table.covers_to(max(table.next_offset, header.next_offset))
            return
        except BadBatch as fault:
            behind = next(find_good(segment, fault.file_pos + 1, fault.offset, end_pos), None)
            if behind is None:
                return
            file_pos, offset = behind[0], behind[1].base_offset
