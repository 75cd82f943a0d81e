"""The stored body of a producer's SENDs: the single entry of producers.

An `EntryRun` collects the checked SENDs of one receive (`entry_runs.parse_send`) and the facts of
the batch header; `prepare` returns the entries as a body. Entries are stored as they came, from
their magic (or metadata size) on, behind a prefix. Knows no command, no rules of sequences and no
log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from braidlog.storage.formats.api import BatchWriter, BodyFormat, BodyInfo, Buffer, WriteAtOnce
from braidlog.storage.formats.pulsar.entry_runs import ENTRY_PREFIX, SendInfo
from braidlog.storage.formats.quick import SPEEDUPS

BODY_FORMAT: Final = int(BodyFormat.PULSAR)
# Entries of this size or less are copied together before they are written: a thousand pieces cost
# more than their bytes.
JOINED_ENTRY_BYTES: Final = 4096
US_PER_MS: Final = 1000
WRITE: BatchWriter | None = None if SPEEDUPS is None else SPEEDUPS.pulsar_append


def write_at_once() -> WriteAtOnce | None:
    """Return the call that stores the entry of an ordinary SEND; None without the extension. In its
    `ProducerNext` the id of no producer is 0.
    """
    if WRITE is None:
        return None
    return WriteAtOnce(WRITE, JOINED_ENTRY_BYTES, prefix_bytes=ENTRY_PREFIX.size)


@dataclass(slots=True)
class EntryRun:
    """Entries that are stored together: pieces of the body, and facts for the batch header."""

    pieces: list[Buffer] = field(default_factory=list)
    info: BodyInfo = field(default_factory=lambda: BodyInfo(0))

    def add(
        self, payload: memoryview, send: SendInfo, first: int, last: int
    ) -> None:  # hot: see make bench
        """Append an entry with these first and last sequences; the payload is not copied yet."""
        delta = self.info.record_count
        self.pieces += (ENTRY_PREFIX.pack(len(payload), delta, send.record_count), payload)
        self._count(send.record_count, first, last, send.publish_us, send.flags)

    def extend(
        self, entries: bytes, count: int, sequences: tuple[int, int], times_ms: tuple[int, int]
    ) -> None:
        """Append entries of one record each, with their prefixes: first and last sequence, first
        and latest publish time (-1 for none).
        """
        first_ms, latest_ms = times_ms
        latest_us = None if latest_ms < 0 else latest_ms * US_PER_MS
        info = self.info
        if latest_us is not None and info.first_publish_us is None:
            info.first_publish_us = info.max_publish_us = first_ms * US_PER_MS
        self._count(count, *sequences, latest_us, 0)
        self.pieces.append(entries)

    def _count(
        self, records: int, first: int, last: int, publish_us: int | None, flags: int
    ) -> None:
        """Add an entry's figures to those of the batch header."""
        info = self.info
        if not info.record_count:
            info.first_sequence = first
        info.last_sequence = last
        info.record_count += records
        info.flags |= flags
        if publish_us is not None:
            if info.max_publish_us is None:
                info.first_publish_us = info.max_publish_us = publish_us
            elif publish_us > info.max_publish_us:
                info.max_publish_us = publish_us

    def prepare(self, sends: int) -> tuple[Sequence[Buffer], int]:
        """Return the body in parts, and its size. `sends` is the number of SENDs, refused ones
        included.
        """
        size = sum(map(len, self.pieces))
        if size <= sends * JOINED_ENTRY_BYTES:
            return [b"".join(self.pieces)], size
        return self.pieces, size
