"""Joins the pieces of chunked messages for the export. Knows codecs and a read-only log, no Spark.

A message that came in pieces is one row, at its last piece's offset, as for every reader of another
format. One whose pieces are not all there is nobody's message, and no row.
"""

from collections import OrderedDict
from collections.abc import Iterator

from storage.codecs.api import BatchFlag, Codec
from storage.codecs.record import Record
from storage.codecs.registry import codec_for
from storage.errors import BodyError, UnreadableBody
from storage.log.batch import Batch
from storage.log.reader import ReadOnlyLog

JOINED_BYTES_MAX = 256 << 20  # A worker holds a message whole.
OPEN_MESSAGES_MAX = 100  # Unfinished messages kept at a time; the oldest is forgotten first.
LOOK_BACK_RECORDS = 10_000  # Before the range, for the pieces that its first messages began with.


class ChunkJoiner:
    """Gathers pieces in offset order and gives the whole message at its last one."""

    def __init__(self, log: ReadOnlyLog, start: int) -> None:
        self._log = log
        self._start = start
        self._open: OrderedDict[bytes, dict[int, Record]] = OrderedDict()
        self._looked_back = False

    def whole(self, codec: Codec, piece: Record) -> Record | None:
        """The joined message if this piece completes one.

        Raises:
            BodyError: it is too large to be joined, or does not unpack.
        """
        assert piece.chunk is not None
        pieces = self._gather(piece)
        if piece.chunk.chunk_id != piece.chunk.chunk_count - 1:
            return None
        if len(pieces) < piece.chunk.chunk_count and not self._looked_back:
            self._look_back()
            pieces = self._open[piece.chunk.uuid]
        self._open.pop(piece.chunk.uuid)
        if len(pieces) < piece.chunk.chunk_count:
            return None
        join = getattr(codec, "join", None)
        if join is None:
            raise UnreadableBody(f"{codec.name} bodies have no chunks to join")
        joined: Record = join([pieces[number] for number in sorted(pieces)], JOINED_BYTES_MAX)
        return joined

    def _gather(self, piece: Record) -> dict[int, Record]:
        assert piece.chunk is not None
        pieces = self._open.setdefault(piece.chunk.uuid, {})
        pieces[piece.chunk.chunk_id] = piece
        if len(self._open) > OPEN_MESSAGES_MAX:
            self._open.popitem(last=False)
        return pieces

    def _look_back(self) -> None:
        """Take the pieces that lie just before the range, but none that the range gave already."""
        self._looked_back = True
        first = max(self._log.log_start_offset, self._start - LOOK_BACK_RECORDS)
        for piece in self._pieces_of(self._log.batches(first, self._start)):
            assert piece.chunk is not None
            if piece.offset < self._start:
                pieces = self._open.setdefault(piece.chunk.uuid, {})
                pieces.setdefault(piece.chunk.chunk_id, piece)

    def _pieces_of(self, batches: Iterator[Batch]) -> Iterator[Record]:
        for batch in batches:
            if not batch.header.flags & BatchFlag.CHUNK:
                continue
            try:
                codec = codec_for(batch.header.body_format)
            except BodyError:
                continue  # Its own range says so; here it only cannot help.
            decoded = codec.decode(batch.body, batch.base_offset, batch.header.append_us)
            yield from (record for record in decoded.records if record.chunk is not None)
