"""Finds the records that later records of the same key replace, in one or several walks.

A walk remembers its keys by a digest, up to a limit. If there are more, the walk goes on with half
of the keys, and another walk looks at the other half. Writes no file.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, Protocol

from braidlog.storage.errors import UnreadableBody
from braidlog.storage.formats.api import BatchFlag
from braidlog.storage.formats.batch import Batch
from braidlog.storage.formats.record import Record
from braidlog.storage.formats.registry import codec_for
from braidlog.storage.log.compaction.offset_set import OffsetSet
from braidlog.storage.log.compaction.sources import SegmentSource

# Keys of a walk: some 150 bytes each, 75 MB while the table grows. Kafka's cleaner has 128 MiB.
KEYS_MAX: Final = 500_000
# Two keys with the same digest would replace each other: not to be expected with this many bytes.
DIGEST_BYTES: Final = 16
# Decoded at once, some 20 ms of a thread: a compressed body is unpacked again for each such piece.
RECORDS_PER_STEP: Final = 10_000
DECODED_BYTES_PER_STEP: Final = 4 << 20


class KeyRules(Protocol):
    """The handling of tombstones, and of records without a key."""

    drops_keyless: bool
    """True if records without a key are removed too."""

    def is_tombstone(self, record: Record) -> bool:
        """Return True if a record deletes its key."""

    def drops_tombstone(self, offset: int) -> bool:
        """Return True if a tombstone that is the latest record of its key is removed too."""


@dataclass(slots=True)
class ScanResult:
    """Result of a scan: offsets of records to remove, and of tombstones that stay."""

    removed: OffsetSet
    tombstones: OffsetSet
    has_unreadable: bool = False

    @property
    def keeps_tombstones(self) -> bool:
        """True if something older than a tombstone may remain, so that the tombstone
        has to stay.
        """
        return self.has_unreadable or self.removed.is_full


class KeyScan:
    """A scan over all records of a compaction."""

    def __init__(
        self,
        sources: Sequence[SegmentSource],
        rules: KeyRules,
        interval_bytes: int,
        keys_max: int = KEYS_MAX,
    ) -> None:
        self.result = ScanResult(OffsetSet(), OffsetSet())
        self.walks = 0
        self._sources = sources
        self._rules = rules
        self._interval_bytes = interval_bytes
        self._keys_max = keys_max
        # So that no client can make two keys with the same digest.
        self._seed = os.urandom(DIGEST_BYTES)
        self._latest: dict[bytes, int] = {}  # Twice the offset, plus 1 for a tombstone.
        self._parts = [(0, 0)]  # Of walks that are still to come.
        self._part = (0, 0)  # Of this walk: (low bits of its keys' digests, mask of those bits).

    def run(self) -> Iterator[None]:
        """Scan, in steps. Raises Fault, FileGone."""
        while self._parts:
            self._part = self._parts.pop()
            self._latest.clear()
            self.walks += 1
            for source in self._sources:
                for batches in source.pieces(self._interval_bytes):
                    for batch in batches:
                        self._leave_out_below(batch, source.start)
                        yield from self._look_at(batch)
                    yield
            yield from self._finish_walk()
        self._latest.clear()

    def _leave_out_below(self, batch: Batch, start: int) -> None:
        """Records were deleted up to an offset within the batch: no reader may have them."""
        for offset in range(batch.base_offset, min(start, batch.next_offset)):
            self.result.removed.add(offset)

    def _look_at(self, batch: Batch) -> Iterator[None]:
        header, offset = batch.header, batch.base_offset
        if header.flags & BatchFlag.GAP:
            return
        try:
            codec = codec_for(header.body_format)
        except UnreadableBody:
            self.result.has_unreadable = True
            return
        while offset < batch.next_offset:
            decoded = codec.decode(
                batch.body,
                batch.base_offset,
                header.append_us,
                start_offset=offset,
                records_max=RECORDS_PER_STEP,
                bytes_max=DECODED_BYTES_PER_STEP,
            )
            self._note(decoded.records)
            self._halve()
            if decoded.failed is not None:
                self.result.has_unreadable = True
                return
            if not decoded.records:
                return
            offset = decoded.next_offset
            if offset < batch.next_offset:
                yield

    def _note(self, records: Sequence[Record]) -> None:
        latest, seed, removed = self._latest, self._seed, self.result.removed
        low, mask = self._part
        rules = self._rules
        for record in records:
            if record.chunk is not None:
                self.result.has_unreadable = True  # Its message is in several records.
                continue
            if record.key is None:
                if rules.drops_keyless:
                    removed.add(record.offset)
                continue
            digest = blake2b(record.key, digest_size=DIGEST_BYTES, key=seed).digest()
            if mask and int.from_bytes(digest[:8], "little") & mask != low:
                continue
            before = latest.get(digest)
            if before is not None:
                removed.add(before >> 1)
            latest[digest] = record.offset << 1 | rules.is_tombstone(record)

    def _halve(self) -> None:
        """Leave half of the keys to another walk, again and again, until the others fit."""
        while len(self._latest) > self._keys_max:
            low, mask = self._part
            bit = mask + 1
            self._parts.append((low | bit, mask | bit))
            self._part = low, mask | bit
            for digest in [
                candidate
                for candidate in self._latest
                if int.from_bytes(candidate[:8], "little") & bit
            ]:
                del self._latest[digest]

    def _finish_walk(self) -> Iterator[None]:
        """Decide which tombstones go and which stay."""
        scan, rules = self.result, self._rules
        for number, at in enumerate(self._latest.values()):
            if at & 1:
                offset = at >> 1
                if scan.keeps_tombstones or not rules.drops_tombstone(offset):
                    scan.tombstones.add(offset)
                else:
                    scan.removed.add(offset)
            if number % RECORDS_PER_STEP == 0:
                yield
