"""Compactions for tests: run to their end beside a log, and the expected content of the log."""

from braidlog.storage.formats.registry import codec_for
from braidlog.storage.log.compaction.runs import LogCompaction, ViewCompaction

HOUR_US = 3_600_000_000


def finish(compaction, opened):
    """Run every step, publish each result, and commit."""
    steps = compaction.steps()
    for step in steps:
        if step is not None:
            if not compaction.publish(step):
                steps.close()
                return False
            opened.commit()
    opened.commit()
    return True


def compact_log(opened, *, now_us=0, **more):
    """Compact all closed segments."""
    end_offset = opened.log.compacted.closed_offset(1 << 62)
    compaction = LogCompaction(opened.log, opened.files, now_us, end_offset, **more)
    assert finish(compaction, opened)
    return compaction


def compact_view(opened, **more):
    """Create the compacted view of all durable records."""
    compaction = ViewCompaction(opened.log, opened.files, **more)
    assert finish(compaction, opened)
    return compaction


def records_of(batches, from_offset=0):
    """Return the records of batches, as (offset, key, value)."""
    records = []
    for batch in batches:
        header = batch.header
        if header.flags & 64:
            assert not header.body_bytes
            continue
        decoded = codec_for(header.body_format).decode(
            batch.body, batch.base_offset, header.append_us, start_offset=from_offset
        )
        assert decoded.failed is None
        assert decoded.next_offset == batch.next_offset
        assert len(decoded.records) == header.record_count
        records += [(record.offset, record.key, record.value) for record in decoded.records]
    return records


def read_all(log, bytes_max=1 << 20):
    """Return all records by plain reads; batches must follow each other without a hole."""
    return records_of(batches_of(log.read, log.log_start_offset, log.high_watermark, bytes_max))


def read_view(log, offset=0, bytes_max=1 << 20):
    """Return all records as readers of the compacted view see them."""
    return records_of(batches_of(log.read_compacted, offset, log.high_watermark, bytes_max))


def batches_of(read, offset, end, bytes_max=1 << 20):
    every_batch = []
    while offset < end:
        batches = read(offset, bytes_max)
        for batch in batches:
            assert batch.base_offset <= offset < batch.next_offset
            offset = batch.next_offset
        every_batch += batches
    return every_batch


def latest_of(records, end_offset, *, empties_delete=False, drops_keyless=False, drops=()):
    """Return the model: the (offset, key, value) records after a compaction of all below
    `end_offset`.

    `drops` are offsets of tombstones that may be removed.
    """
    latest = {key: offset for offset, key, _ in records if key is not None and offset < end_offset}
    newest = []
    for offset, key, value in records:
        if offset >= end_offset:
            newest.append((offset, key, value))
        elif key is None:
            if not drops_keyless:
                newest.append((offset, key, value))
        elif latest[key] == offset:
            is_tombstone = value is None or (empties_delete and not value)
            if not (is_tombstone and (empties_delete or offset in drops)):
                newest.append((offset, key, value))
    return newest
