"""Checks that a stored batch with right checksums also makes sense: header, positions, body.

A fault found here was written by a program, not caused by a disk. Knows codecs, and no file.
"""

from struct import error as StructError
from struct import iter_unpack

from braidlog.storage.errors import BodyError, UnreadableBody
from braidlog.storage.formats.api import BatchFlag, BodyFormat, Buffer
from braidlog.storage.formats.batch import BatchHeader
from braidlog.storage.formats.pulsar.entry_runs import entries
from braidlog.storage.formats.pulsar.rebatch import holes_of
from braidlog.storage.formats.registry import codec_for
from braidlog.storage.journal.log import unpack_records


class BadContent(ValueError):
    """The batch is not valid; the text gives the reason."""


def check_content(header: BatchHeader, positions: memoryview, body: memoryview) -> bool:
    """Check a batch against its own header; False if there is no codec for its body.

    Raises: BadContent.
    """
    check_header(header)
    if header.flags & BatchFlag.GAP or header.body_format == BodyFormat.GAP:
        if body or positions or header.record_count or not header.flags & BatchFlag.GAP:
            raise BadContent("a gap that holds something")
        return True
    if header.body_format == BodyFormat.JOURNAL:
        check_count(header, count_journal_records(body))
        return True
    try:
        codec = codec_for(header.body_format)
    except UnreadableBody:
        return False
    if header.body_version > codec.version:
        return False
    try:
        count = codec.inspect(body).record_count
        if header.flags & BatchFlag.COMPACTED and header.body_format == BodyFormat.PULSAR:
            count -= holes_in(body)
        check_count(header, count)
        starts = codec.split(body, header.base_offset)
    except BodyError as error:
        raise BadContent(f"not a body of format {codec.name}: {error}") from error
    check_starts(header, starts)
    table = [pos for (pos,) in iter_unpack("<I", positions)]
    if table and table != [pos for _, pos in starts]:
        raise BadContent("its positions table does not fit its body")
    return True


def check_header(header: BatchHeader) -> None:
    """Check the rules within a header (FORMAT.md section 3). Raises BadContent."""
    if header.durable_offset > header.base_offset:
        raise BadContent(f"its durable_offset {header.durable_offset} is above its own offset")
    if header.record_count > header.last_offset_delta + 1:
        raise BadContent(f"{header.record_count} records on {header.last_offset_delta + 1} offsets")
    if header.positions_bytes % 4:
        raise BadContent(f"a positions table of {header.positions_bytes} bytes")


def check_count(header: BatchHeader, count: int) -> None:
    """Check that the body holds as many records as the header says. Raises BadContent."""
    if count != header.record_count:
        raise BadContent(f"{count} records in the body, {header.record_count} in the header")


def holes_in(body: memoryview) -> int:
    """Messages that compaction took out of PULSAR entries, which still count them. Raises
    CorruptBody.
    """
    batched = [ref for ref in entries(body, 0) if ref.record_count > 1]
    return sum(sum(holes_of(body[ref.start : ref.end], ref.record_count)) for ref in batched)


def check_starts(header: BatchHeader, starts: list[tuple[int, int]]) -> None:
    """Check that records or entries are at offsets of the batch, ascending. Raises BadContent."""
    before = header.base_offset - 1
    for offset, _ in starts:
        if not before < offset < header.next_offset:
            raise BadContent(f"a record at offset {offset}, outside or out of order")
        before = offset


def count_journal_records(body: Buffer) -> int:
    """Return the number of records in a JOURNAL body. Raises BadContent."""
    try:
        return sum(1 for _ in unpack_records(memoryview(body)))
    except StructError as error:
        raise BadContent(f"a record is cut short: {error}") from error
