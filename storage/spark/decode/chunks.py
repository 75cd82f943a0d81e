"""Joins the pieces of chunked messages for tables. Knows codecs and a log reader, no Spark.

A message that came in pieces is one row, at its last piece's offset, as for every reader of another
format. Its first pieces may lie in an earlier range, or far back: they are looked for.
"""

from collections import defaultdict
from collections.abc import Iterator

from storage.codecs.api import BatchFlag, Codec
from storage.codecs.record import Record
from storage.codecs.registry import codec_for
from storage.errors import BodyError, DamagedLog, OffsetOutOfRange, UnreadableBody
from storage.log.batch import Batch
from storage.spark.readers import PartitionReader

JOINED_BYTES_MAX = 128 << 20  # A worker holds a message whole, and Arrow a copy of it.
HELD_BYTES_MAX = 64 << 20  # Pieces kept in memory; others are read again when they are needed.
PIECES_MAX = 200_000  # Pieces whose places are known: some 20 MB.
LOOK_BACK_RECORDS = 10_000  # First step back; each further one is twice as long.
LOOK_BACK_BYTES_MAX = 1 << 30  # How far back pieces are looked for, in stored bytes.


class Incomplete(Exception):
    """The last piece of a message whose other pieces are not in the log."""


class ChunkJoiner:
    """Notes pieces in offset order and gives the whole message at its last one."""

    def __init__(self, reader: PartitionReader, start: int) -> None:
        self._reader = reader
        self._places: defaultdict[bytes, dict[int, int]] = defaultdict(dict)
        self._count = 0
        self._held: dict[int, Record] = {}
        self._held_bytes = 0
        self._scanned_from = start
        self._scanned_bytes = 0
        self._step = LOOK_BACK_RECORDS

    def whole(self, codec: Codec, piece: Record) -> Record | None:
        """The joined message if this piece is its last.

        Raises:
            Incomplete: some of its pieces are not in the log.
            BodyError: it is too large to be joined, does not unpack, or has too many pieces.
        """
        chunk = piece.chunk
        assert chunk is not None
        if chunk.chunk_id != chunk.chunk_count - 1:
            self._note(piece)
            return None
        places = self._places_of(piece)
        join = getattr(codec, "join", None)
        if join is None:
            raise UnreadableBody(f"{codec.name} bodies have no chunks to join")
        if max(chunk.total_bytes, chunk.uncompressed_bytes) <= JOINED_BYTES_MAX:
            pieces = [self._piece(places[number]) for number in range(chunk.chunk_count - 1)]
        else:
            pieces = []  # The codec says that it is too large.
        joined: Record = join([*pieces, piece], JOINED_BYTES_MAX)
        return joined

    def _note(self, piece: Record) -> None:
        assert piece.chunk is not None
        if self._count < PIECES_MAX:
            self._places[piece.chunk.uuid][piece.chunk.chunk_id] = piece.offset
        self._count += 1
        self._held[piece.offset] = piece
        self._held_bytes += len(piece.value or b"")
        while self._held_bytes > HELD_BYTES_MAX:
            oldest = self._held.pop(next(iter(self._held)))
            self._held_bytes -= len(oldest.value or b"")

    def _places_of(self, last: Record) -> dict[int, int]:
        """Where each piece but the last is."""
        chunk = last.chunk
        assert chunk is not None
        if chunk.chunk_count > PIECES_MAX:
            raise UnreadableBody(f"message of {chunk.chunk_count} pieces")
        places = self._places[chunk.uuid]
        wanted = chunk.chunk_count - 1
        while (missing := sum(number not in places for number in range(wanted))) and (
            self._scanned_from > self._reader.log_start_offset
        ):
            if self._scanned_bytes > LOOK_BACK_BYTES_MAX:
                raise UnreadableBody(
                    f"{missing} of {chunk.chunk_count} pieces of the chunked message are not "
                    f"within {LOOK_BACK_BYTES_MAX} bytes before this task's records"
                )
            self._look_back()
        if not missing:
            return places
        if self._count > PIECES_MAX:
            raise UnreadableBody(f"more than {PIECES_MAX} pieces of chunked messages in one task")
        raise Incomplete(
            f"{missing} of {chunk.chunk_count} pieces of the chunked message are not in the log"
        )

    def _look_back(self) -> None:
        """Note the pieces of one more step before what was looked at; later ones win."""
        end = self._scanned_from
        self._scanned_from = max(self._reader.log_start_offset, end - self._step)
        self._step *= 2
        found: dict[tuple[bytes, int], int] = {}
        try:
            for batch in self._reader.batches(self._scanned_from, end):
                self._scanned_bytes += batch.header.stored_bytes
                for piece in _pieces_in(batch):
                    assert piece.chunk is not None
                    if piece.offset < end:
                        found[piece.chunk.uuid, piece.chunk.chunk_id] = piece.offset
        except OffsetOutOfRange:
            pass  # Retention was faster: what it dropped is not in the log.
        except DamagedLog as error:
            raise UnreadableBody(f"pieces of the chunked message: {error}") from error
        self._count += len(found)
        if self._count <= PIECES_MAX:
            for (uuid, number), offset in found.items():
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
        return  # Its own range says so; here it only cannot help.
    decoded = codec.decode(batch.body, batch.base_offset, batch.header.append_us)
    yield from (record for record in decoded.records if record.chunk is not None)
