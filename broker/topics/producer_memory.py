"""Producer sequences of a broker's partitions, by which protocols recognise repeated records.

A partition's table (`storage/log/sequences.py`) is loaded on first use, and follows each append
from then on. Snapshots of the table hold only durable batches, so a start never counts a batch that
a power cut removed. Knows no protocol's rule.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

import structlog
import trio

from braidlog.broker.runtime.threads import run_in_thread
from braidlog.storage.errors import StorageFull, reason_of
from braidlog.storage.log.files import FileGone
from braidlog.storage.log.sequence_store import BadSnapshot, catch_up, load, pack_table, save
from braidlog.storage.log.sequences import ProducerState, SequenceTable, StoredBatch

if TYPE_CHECKING:
    from braidlog.storage.formats.api import BodyInfo
    from braidlog.storage.log.files import Files
    from braidlog.storage.log.log import Log

# Protocols import the types of the table from here.
__all__ = ["ProducerMemories", "ProducerMemory", "ProducerState", "SequenceTable", "StoredBatch"]

# A start after a crash walks the headers of at most about this many offsets, plus the appends
# between two checks.
SNAPSHOT_OFFSETS: Final = 50_000
LOOK_S: Final = 5.0
# Batches noted in the loop at the end of a load, where no append comes between: a few ms.
INLINE_OFFSETS: Final = 200

log = structlog.get_logger()


class ProducerMemory:
    """The producer sequences of a partition."""

    def __init__(self, partition_log: Log, memories: ProducerMemories) -> None:
        self._log = partition_log
        self._memories = memories
        self.table: SequenceTable | None = None  # Set by `loaded`.
        self._loading: trio.Lock | None = None
        self._saved_offset = 0
        # A snapshot to be written once it is durable.
        self._captured: tuple[int, bytes] | None = None

    async def loaded(self) -> SequenceTable:
        """Return the table, which is current until the next wait.

        Raises StorageFull, StorageFailed, FileGone if the partition was deleted.
        """
        if self.table is None:
            self._loading = self._loading or trio.Lock()
            async with self._loading:
                if self.table is None:
                    self.table = await self._load()
                    self._memories.add(self)
        return self.table

    async def _load(self) -> SequenceTable:
        partition_log = self._log
        try:
            table = await run_in_thread(load, self._memories.files, partition_log)
        except (BadSnapshot, OSError) as error:
            log.error("sequences_lost", folder=partition_log.folder, reason=reason_of(error))
            table = SequenceTable(partition_log.log_start_offset)  # Walk the whole log.
        self._saved_offset = table.next_offset
        while partition_log.log_end_offset - table.next_offset > INLINE_OFFSETS:
            await run_in_thread(catch_up, table, partition_log)
        catch_up(table, partition_log)  # Atomic: later appends call `note`.
        return table

    def note(self, info: BodyInfo, base_offset: int, append_us: int) -> None:
        """Add an appended batch of a producer to the table."""
        stored = StoredBatch(info.first_sequence, info.last_sequence, base_offset)
        self.note_stored(info.producer_id, info.producer_epoch, stored, append_us)

    def note_stored(
        self, producer_id: int, epoch: int, stored: StoredBatch, append_us: int
    ) -> None:
        if self.table is not None:
            self.table.note(producer_id, epoch, stored, append_us)

    async def keep(self) -> None:
        """Write a snapshot if the last snapshot lacks many batches, or contains batches that
        retention has since removed. Raises StorageFailed, FileGone if the partition was deleted.
        """
        if self._log.is_closed:
            raise FileGone(self._log.folder)
        if self._captured is None:
            is_cut = self._log.log_start_offset > self._saved_offset
            self._capture(1 if is_cut else self._memories.snapshot_offsets)
        if self._captured is not None and self._captured[0] <= self._log.durable_offset:
            with suppress(StorageFull):  # The next check tries again.
                files, (offset, packed) = self._memories.files, self._captured
                await run_in_thread(save, files, self._log, packed)
                self._saved_offset = offset
            self._captured = None

    def keep_now(self) -> None:
        """Write a snapshot before a clean stop, when everything is durable."""
        self._capture(self._memories.snapshot_offsets // 10)
        if self._captured is not None:
            with suppress(StorageFull, FileGone):  # The next start reads more of the log.
                save(self._memories.files, self._log, self._captured[1])

    def _capture(self, offsets_min: int) -> None:
        end_offset = self._log.log_end_offset
        if self.table is not None and end_offset - self._saved_offset >= offsets_min:
            self.table.covers_to(end_offset)
            self._captured = (end_offset, pack_table(self.table, self._log.partition_id))


class ProducerMemories:
    """The producer sequences of all partitions."""

    def __init__(
        self, files: Files, *, snapshot_offsets: int = SNAPSHOT_OFFSETS, look_s: float = LOOK_S
    ) -> None:
        """Every `look_s`, write a snapshot of each table that has grown by `snapshot_offsets`."""
        self.files = files
        self.snapshot_offsets = snapshot_offsets
        self._look_s = look_s
        self._loaded: dict[ProducerMemory, None] = {}

    def add(self, memory: ProducerMemory) -> None:
        """Add a loaded memory, so that snapshots preserve the table over restarts."""
        self._loaded[memory] = None

    async def run(self) -> None:
        """Write snapshots until cancelled. Raises StorageFailed."""
        while True:
            await trio.sleep(self._look_s)
            for memory in tuple(self._loaded):
                try:
                    await memory.keep()
                except FileGone:
                    del self._loaded[memory]

    def keep_now(self) -> None:
        """Write snapshots before a clean stop. Raises StorageFailed."""
        for memory in self._loaded:
            memory.keep_now()
