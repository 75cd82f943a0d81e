"""Joins the pieces of chunked messages for tables. Knows codecs and a log reader, no Spark.

A chunked message is a single row, at the offset of its last piece, as for readers of other formats.
The first pieces may lie in an earlier range or far back, so the joiner searches backwards for them.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from braidlog.storage.errors import BodyError, DamagedLog, OffsetOutOfRange, UnreadableBody
from braidlog.storage.export.readers import ExportPartition
from braidlog.storage.formats.api import BatchFlag
from braidlog.storage.formats.base import Codec
from braidlog.storage.formats.batch import Batch
from braidlog.storage.formats.record import Record
from braidlog.storage.formats.registry import codec_for

LOOK_BACK_RECORDS = 10_000  # First step back; each further step is twice as long.


@dataclass(frozen=True, slots=True)
class ChunkLimits:
    """Limits on memory and reads of a task for chunked messages.

    `held_bytes_max`: pieces kept in memory; other pieces are read again when needed. `pieces_max`:
    pieces whose offsets are known. `look_back_bytes_max`: distance before the task's records, in
    stored bytes, that the joiner searches for pieces.
    """

    joined_bytes_max: int = 128 << 20  # A worker holds the whole message, and Arrow a copy.
    held_bytes_max: int = 64 << 20
    pieces_max: int = 200_000  # About 20 MB.
    look_back_bytes_max: int = 1 << 30


CHUNK_LIMITS = ChunkLimits()


class Incomplete(Exception):
    """The last piece of a message whose other pieces are not in the log."""


class ChunkJoiner:
    """Notes pieces in offset order and returns the whole message at the last piece."""

    def __init__(
        self, reader: ExportPartition, start: int, limits: ChunkLimits = CHUNK_LIMITS
    ) -> None:
        self._reader = reader
        self._limits = limits
        self._places: defaultdict[bytes, dict[int, int]] = defaultdict(dict)
        self._count = 0
        self._held: dict[int, Record] = {}
        self._held_bytes = 0
        self._scanned_from = start
        self._scanned_bytes = 0
        self._step = LOOK_BACK_RECORDS

    def whole(self, codec: Codec, piece: Record) -> Record | None:
        """Return the joined message if this piece is the last.

        Raises:
            Incomplete: some of the pieces are not in the log.
            BodyError: the message is too large to be joined or does not unpack; or too many pieces.
        """
        chunk = piece.chunk
        assert chunk is not None
        if chunk.chunk_id != chunk.chunk_count - 1:
            self._note(piece)
            return None
        places = self._places_of(piece)
        if max(chunk.total_bytes, chunk.uncompressed_bytes) <= self._limits.joined_bytes_max:
            pieces = [self._piece(places[number]) for number in range(chunk.chunk_count - 1)]
        else:
            pieces = []  # The codec then reports the message as too large.
        return codec.join([*pieces, piece], self._limits.joined_bytes_max)

    def _note(self, piece: Record) -> None:
        assert piece.chunk is not None
        if self._count < self._limits.pieces_max:
            self._places[piece.chunk.uuid][piece.chunk.chunk_id] = piece.offset
        self._count += 1
        self._held[piece.offset] = piece
        self._held_bytes += len(piece.value or b"")
        while self._held_bytes > self._limits.held_bytes_max:
            oldest = self._held.pop(next(iter(self._held)))
            self._held_bytes -= len(oldest.value or b"")

    def _places_of(self, last: Record) -> dict[int, int]:
        """Return the offset of each piece except the last."""
        chunk = last.chunk
        assert chunk is not None
        if chunk.chunk_count > self._limits.pieces_max:
            raise UnreadableBody(f"message of {chunk.chunk_count} pieces")
        places = self._places[chunk.uuid]
        wanted = chunk.chunk_count - 1
        while (missing := sum(number not in places for number in range(wanted))) and (
            self._scanned_from > self._reader.log_start_offset
        ):
            if self._scanned_bytes > self._limits.look_back_bytes_max:
                raise UnreadableBody(
                    f"{missing} of {chunk.chunk_count} pieces of the chunked message are not "
                    f"within {self._limits.look_back_bytes_max} bytes before this task's records"
                )
            self._look_back()
        if not missing:
            return places
        if self._count > self._limits.pieces_max:
            raise UnreadableBody(
                f"more than {self._limits.pieces_max} pieces of chunked messages in one task"
            )
        raise Incomplete(
            f"{missing} of {chunk.chunk_count} pieces of the chunked message are not in the log"
        )

    def _look_back(self) -> None:
        """Note the pieces of one more step back; later pieces win."""
        end = self._scanned_from
        self._scanned_from = max(self._reader.log_start_offset, end - self._step)
        self._step *= 2
        earlier_pieces: dict[tuple[bytes, int], int] = {}
        try:
            for batch in self._reader.batches(self._scanned_from, end):
                self._scanned_bytes += batch.header.stored_bytes
                for piece in _pieces_in(batch):
                    assert piece.chunk is not None
                    if piece.offset < end:
                        earlier_pieces[piece.chunk.uuid, piece.chunk.chunk_id] = piece.offset
        except OffsetOutOfRange:
            pass  # Retention was faster: the dropped pieces are not in the log.
        except DamagedLog as error:
            raise UnreadableBody(f"pieces of the chunked message: {error}") from error
        self._count += len(earlier_pieces)
        if self._count <= self._limits.pieces_max:
            for (uuid, number), offset in earlier_pieces.items():
                self._places[uuid].setdefault(number, offset)

    def _piece(self, offset: int) -> Record:
        if (held := self._held.get(offset)) is not None:
            return held
        try:
            for batch in self._reader.batches(offset, offset + 1):
                for piece in _pieces_in(batch):
                    if piece.offset == offset:
                        return piece
        except (OffsetOutOfRange, DamagedLog) as error:
            raise UnreadableBody(f"a piece of the chunked message: {error}") from error
        raise Incomplete(f"the piece at offset {offset} is no longer in the log")


def _pieces_in(batch: Batch) -> Iterator[Record]:
    if not batch.header.flags & BatchFlag.CHUNK:
        return
    try:
        codec = codec_for(batch.header.body_format)
    except BodyError:
        return  # The task that reads this range reports the error.
    decoded = codec.decode(batch.body, batch.base_offset, batch.header.append_us)
    yield from (record for record in decoded.records if record.chunk is not None)
