"""Joins the chunks of a message that its producer sent in pieces, for readers of other formats.

The pieces lie before the last piece, mostly next to it, with other producers' records between them.
Knows formats only through the codec interface.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from braidlog.broker.commit.storage_errors import to_broker_error
from braidlog.broker.limits import JOINED_BYTES_MAX, JOINED_SCAN_BYTES_MAX
from braidlog.broker.reading.look import look_at
from braidlog.broker.reading.unpacking import run_unpacking
from braidlog.storage.errors import BodyError, RecordTooLarge, StorageError
from braidlog.storage.formats.api import BatchFlag
from braidlog.storage.formats.base import Codec
from braidlog.storage.formats.record import Record
from braidlog.storage.formats.registry import codec_for
from braidlog.storage.large import check_large

if TYPE_CHECKING:
    from braidlog.broker.topics.partition import Partition
    from braidlog.storage.formats.batch import Batch
    from braidlog.storage.log.log import Log


async def join_chunks(
    partition: Partition,
    codec: Codec,
    batch: Batch,
    last: Record,
    *,
    before_large: Callable[[int], Awaitable[None]] | None = None,
) -> Record | None:
    """Return the whole message if `last`, a record of `batch`, is its last piece; else None.

    Also None if a piece is missing: Pulsar's own consumers drop such a message. A large message is
    joined after `before_large` is called with its size in bytes. Raises BodyError if the message is
    too large to join or does not unpack, DamagedLog.
    """
    chunk = last.chunk
    assert chunk is not None
    if chunk.chunk_id != chunk.chunk_count - 1 or not codec.joins_chunks:
        return None
    try:
        return await run_unpacking(
            lambda: _join(partition.log, codec, batch, last), before_large=before_large
        )
    except BodyError:
        raise
    except StorageError as error:
        raise to_broker_error(error) from error


def _join(log: Log, codec: Codec, batch: Batch, last: Record) -> Record | None:
    assert last.chunk is not None
    declared = max(last.chunk.total_bytes, last.chunk.uncompressed_bytes)
    check_large(min(declared, JOINED_BYTES_MAX))
    pieces = {last.chunk.chunk_id: last}
    size, scanned = len(last.value or b""), 0
    before: Batch | None = batch
    while before is not None and scanned <= JOINED_SCAN_BYTES_MAX:
        for piece in _pieces_in(codec, before, last):
            assert piece.chunk is not None
            # Of a piece that was sent twice, the later copy.
            if piece.chunk.chunk_id not in pieces:
                pieces[piece.chunk.chunk_id] = piece
                size += len(piece.value or b"")
        check_large(size)  # The pieces may be larger than the message claims.
        if size > JOINED_BYTES_MAX:
            raise RecordTooLarge(size, JOINED_BYTES_MAX)
        if len(pieces) == last.chunk.chunk_count:
            return codec.join([pieces[number] for number in sorted(pieces)], JOINED_BYTES_MAX)
        scanned += len(before.body)
        before = log.batch_before(before.base_offset)
    return None


def _pieces_in(codec: Codec, batch: Batch, last: Record) -> Sequence[Record]:
    """Return earlier pieces of the same message in a batch, the latest first."""
    header = batch.header
    if header.body_format != codec.format or not header.flags & BatchFlag.CHUNK:
        return ()
    assert last.chunk is not None
    uuid = last.chunk.uuid
    records = codec.decode(batch.body, batch.base_offset, header.append_us).records
    return [
        record
        for record in reversed(records)
        if record.offset < last.offset
        and record.chunk is not None
        and record.chunk.uuid == uuid
        and record.chunk.chunk_id < last.chunk.chunk_id
    ]


async def piece_offsets(partition: Partition, offset: int, *, of_any: bool = False) -> list[int]:
    """Return offsets of the earlier pieces of the chunked message whose last piece is at `offset`.

    With `of_any`, `offset` may be any piece of the message. A reader that receives the whole
    message names the message by its last piece alone. Raises DamagedLog, UnreadableRecord.
    """
    async with look_at(partition, offset) as look:
        if not look.batches or not look.batches[0].header.flags & BatchFlag.CHUNK:
            return []
        batch = look.batches[0]
        codec = codec_for(batch.header.body_format)
        try:
            return await run_unpacking(
                lambda: _piece_offsets(partition.log, codec, batch, offset, of_any),
                before_large=look.memory.grow,
            )
        except StorageError as error:
            raise to_broker_error(error) from error


def _piece_offsets(log: Log, codec: Codec, batch: Batch, offset: int, of_any: bool) -> list[int]:
    records = codec.decode(batch.body, batch.base_offset, batch.header.append_us).records
    last = next((record for record in records if record.offset == offset), None)
    if last is None or last.chunk is None:
        return []
    if last.chunk.chunk_id != last.chunk.chunk_count - 1 and not of_any:
        return []
    offsets: dict[int, int] = {}
    scanned = 0
    before: Batch | None = batch
    while before is not None and scanned <= JOINED_SCAN_BYTES_MAX:
        for piece in _pieces_in(codec, before, last):
            if piece.chunk is not None:
                offsets.setdefault(piece.chunk.chunk_id, piece.offset)
        if len(offsets) == last.chunk.chunk_id:
            break
        scanned += len(before.body)
        before = log.batch_before(before.base_offset)
    return sorted(offsets.values())
