"""Writes a compacted file from the files it replaces, without the records that a scan removes."""

from collections.abc import Iterator, Sequence

from braidlog.storage.errors import BodyError
from braidlog.storage.formats.api import BatchFlag
from braidlog.storage.formats.batch import Batch
from braidlog.storage.formats.registry import codec_for
from braidlog.storage.log.compaction.offset_set import OffsetSet
from braidlog.storage.log.compaction.sources import SegmentSource
from braidlog.storage.log.compaction.writer import CompactedWriter


def rewrite(
    sources: Sequence[SegmentSource],
    removed: OffsetSet,
    writer: CompactedWriter,
    interval_bytes: int,
) -> Iterator[None]:
    """Write the compacted file in steps, and make it durable under its temporary name.

    Raises: Fault, FileGone, StorageFull, StorageFailed.
    """
    for source in sources:
        for batches in source.pieces(interval_bytes):
            for batch in batches:
                write_batch(batch, removed, writer)
            yield
    writer.finish()


def write_batch(batch: Batch, removed: OffsetSet, writer: CompactedWriter) -> None:
    """Write the kept records of a batch. A batch that cannot be opened is kept as it is."""
    header = batch.header
    writer.note_append(header.append_us)
    if header.flags & BatchFlag.GAP:
        return
    if not removed.has_any(header.base_offset, header.next_offset):
        writer.keep(batch)
        return
    try:
        codec = codec_for(header.body_format)
        remaining = codec.without(batch.body, header.base_offset, removed.__contains__)
    except BodyError:
        writer.keep(batch)
        return
    if remaining.record_count:
        writer.keep_some(batch, remaining)
