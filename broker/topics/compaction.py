"""Compacts topics: at intervals if their settings ask for compaction, and others on request.

The whole broker runs a single compaction at a time, in short pieces in a worker thread, with an
equally long pause after each piece. The algorithm is in storage/log/compaction; this module
schedules compactions and reports their outcome. Knows no protocol.
"""

from __future__ import annotations

import enum
import time
from collections import deque
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog
import trio

from braidlog.broker.errors import Conflict, NotSupported
from braidlog.broker.limits import COMPACTION_PIECE_S, COMPACTION_REST_S_MAX
from braidlog.broker.runtime.threads import run_in_thread
from braidlog.storage.errors import StorageFailed, StorageFull
from braidlog.storage.log.compaction.runs import Compaction, LogCompaction, ViewCompaction
from braidlog.storage.log.files import FileGone
from braidlog.storage.log.scan import BadBatch

if TYPE_CHECKING:
    from braidlog.broker.commit.durability import CommitRounds
    from braidlog.broker.metrics import Metrics
    from braidlog.broker.topics.partition import Partition
    from braidlog.broker.topics.registry import TopicRegistry
    from braidlog.broker.topics.topic import Topic
    from braidlog.storage.log.age_clock import AgeClock
    from braidlog.storage.log.compaction.writer import CompactedWriter
    from braidlog.storage.log.files import Files

log = structlog.get_logger()

US_PER_MS: Final = 1000
PASSED_OVER: Final = 500  # Partitions without compaction between two checkpoints: about 0.1 ms.


class CompactionState(enum.Enum):
    """Outcome of the last requested compaction; the value is Pulsar's word."""

    NOT_RUN = "NOT_RUN"
    RUNNING = "RUNNING"
    SUCCESS = "SUCCESS"
    ERROR = "ERROR"


@dataclass(slots=True)
class CompactionStatus:
    """State of a partition's view, or of a topic's views."""

    state: CompactionState = CompactionState.NOT_RUN
    last_error: str = ""


class Compactor:
    """All compactions of a broker."""

    def __init__(
        self,
        topics: TopicRegistry,
        durability: CommitRounds,
        files: Files,
        metrics: Metrics,
        *,
        interval_ms: int,
        ages: AgeClock,
        is_possible: bool = True,
    ) -> None:
        """`is_possible`: the log files are on a local disk, not in a shared store."""
        self._is_possible = is_possible
        self._topics = topics
        self._durability = durability
        self._files = files
        self._metrics = metrics
        self._interval_ms = interval_ms
        self._ages = ages
        self._asked: deque[Partition] = deque()
        self._is_asked = trio.Event()
        self._statuses: dict[int, CompactionStatus] = {}  # By partition id, for views only.
        self._failed: dict[int, int] = {}  # Log end when a compaction failed, by partition.

    def ask(self, topic: Topic, index: int | None = None) -> None:
        """Schedule compacted views of a topic, or of a single partition.

        Raises Conflict while such a compaction is under way, NotSupported over a shared store.
        """
        partitions = [
            partition for partition in topic.partitions if index is None or partition.index == index
        ]
        self.check_possible()
        for partition in partitions:
            if self._status(partition).state is CompactionState.RUNNING:
                raise Conflict(f"compaction of {topic.name} is already in progress")
        for partition in partitions:
            self._ask(partition)

    def check_possible(self) -> None:
        """Raise NotSupported over a shared store."""
        if not self._is_possible:
            raise NotSupported("compaction is not possible over a shared store")

    def _ask(self, partition: Partition) -> None:
        self._statuses[partition.partition_id] = CompactionStatus(CompactionState.RUNNING)
        self._asked.append(partition)
        self._is_asked.set()

    def status(self, topic: Topic, index: int | None = None) -> CompactionStatus:
        """Return the state of the views of a topic, or of a single partition."""
        statuses = [
            self._status(partition)
            for partition in topic.partitions
            if index is None or partition.index == index
        ]
        for state in (CompactionState.RUNNING, CompactionState.ERROR, CompactionState.SUCCESS):
            for status in statuses:
                if status.state is state:
                    return status
        return CompactionStatus()

    def _status(self, partition: Partition) -> CompactionStatus:
        return self._statuses.get(partition.partition_id, CompactionStatus())

    async def run(self) -> None:
        """Compact on request, and by the topics' settings, until cancelled. Raises
        StorageFailed.
        """
        if not self._is_possible:
            return
        while True:
            with trio.move_on_after(self._interval_ms / 1000):
                await self._is_asked.wait()
            self._is_asked = trio.Event()
            while self._asked:
                await self._make_view(self._asked.popleft())
            await self._look()
            self._forget()

    async def _look(self) -> None:
        """Compact every log with enough new records. Requests are served in between."""
        for topic in self._topics.all():
            for index, partition in enumerate(tuple(topic.partitions)):
                settings = partition.log.settings
                if settings.compaction_threshold_bytes is not None and self._is_over(partition):
                    self._ask(partition)
                if settings.compacts and not partition.removed:
                    await self._compact_log(partition)
                    await trio.lowlevel.checkpoint()
                elif index % PASSED_OVER == 0:
                    await trio.lowlevel.checkpoint()
                while self._asked:
                    await self._make_view(self._asked.popleft())

    def _is_over(self, partition: Partition) -> bool:
        """Return whether the records since the last view reach the threshold."""
        threshold, opened = partition.log.settings.compaction_threshold_bytes, partition.log
        if threshold is None or partition.removed:
            return False
        if self._status(partition).state is CompactionState.RUNNING or self._has_failed(partition):
            return False
        start = max(partition.compacted_offset, opened.log_start_offset)
        new = start < opened.durable_offset
        return new and partition.bytes_between(start, opened.durable_offset) >= threshold

    def _forget(self) -> None:
        """Forget deleted partitions."""
        if len(self._statuses) + len(self._failed) > PASSED_OVER:
            known = {
                partition.partition_id
                for topic in self._topics.all()
                for partition in topic.partitions
            }
            self._statuses = {n: status for n, status in self._statuses.items() if n in known}
            self._failed = {n: failure for n, failure in self._failed.items() if n in known}

    async def _make_view(self, partition: Partition) -> None:
        status = self._status(partition)
        if partition.removed:
            status.state = CompactionState.NOT_RUN
            return
        compaction = ViewCompaction(partition.log, self._files)
        if not compaction.is_needless:
            status.last_error = await self._run(partition, compaction, "view")
        status.state = CompactionState.ERROR if status.last_error else CompactionState.SUCCESS

    async def _compact_log(self, partition: Partition) -> None:
        opened = partition.log
        lag_us = opened.settings.min_compaction_lag_ms * US_PER_MS
        end_offset = opened.compacted.closed_offset(self._ages.now_us(lag_us) - lag_us)
        is_due = opened.compacted.is_dirty(end_offset) or self._is_overdue(partition, end_offset)
        if is_due and not self._has_failed(partition):
            wall_us = self._ages.wall_us()
            aged_us = self._ages.now_us(opened.settings.delete_retention_ms * US_PER_MS)
            compaction = LogCompaction(opened, self._files, wall_us, end_offset, aged_us=aged_us)
            if not await self._run(partition, compaction, "log"):
                opened.compacted.note_cleaned(end_offset)

    def _is_overdue(self, partition: Partition, end_offset: int) -> bool:
        lag_us = partition.log.settings.max_compaction_lag_ms * US_PER_MS
        before_us = self._ages.now_us(lag_us) - lag_us
        return partition.log.compacted.is_overdue(end_offset, before_us)

    def _has_failed(self, partition: Partition) -> bool:
        """Return whether the last compaction failed and no record is new since: a retry would fail
        too.
        """
        return self._failed.get(partition.partition_id) == partition.next_offset

    async def _run(self, partition: Partition, compaction: Compaction, kind: str) -> str:
        """Run a compaction to the end; return the reason of a failure, or an empty text.

        Raises StorageFailed, after which the broker stops.
        """
        failure = ""
        try:
            await self._run_steps(partition, compaction)
        except BadBatch as fault:
            failure = str(fault)
            view = partition.log.compacted.view
            if view is not None and fault.path == view.segment.path:
                partition.log.compacted.drop_view()  # The next view is built from the log alone.
        except FileGone:
            failure = "the log was changed meanwhile"  # Retention or a deletion changed the log.
        except StorageFull as error:
            self._durability.report_storage_error(error)
            failure = str(error)
        except StorageFailed as error:
            self._durability.report_storage_error(error)
            raise
        except Exception as error:  # A bug ends only this compaction.
            log.exception("compaction_failed", partition=partition.partition_id)
            failure = f"{type(error).__name__}: {error}"
        if failure:
            self._failed[partition.partition_id] = partition.next_offset
        self._tell(partition, compaction, kind, failure)
        return failure

    async def _run_steps(self, partition: Partition, compaction: Compaction) -> None:
        with closing(compaction.steps()) as steps:
            while True:
                began_s = time.perf_counter()
                is_over, writer = await run_in_thread(_piece, steps)
                if is_over:
                    return
                if partition.removed:
                    raise FileGone(partition.log.folder)
                if writer is not None:
                    if not compaction.publish(writer):
                        raise FileGone(writer.path)
                    await self._durability.reached(self._durability.ticket)
                rest_s = min(time.perf_counter() - began_s, COMPACTION_REST_S_MAX)
                await trio.sleep(rest_s)

    def _tell(self, partition: Partition, compaction: Compaction, kind: str, failure: str) -> None:
        done, metrics = compaction.done, self._metrics
        metrics.number("braidlog_compactions", kind, "failed" if failure else "done").inc()
        saved = max(done.read_bytes - done.written_bytes, 0)
        metrics.number("braidlog_compaction_saved_bytes", kind).inc(saved)
        where = {"topic": str(partition.topic.name), "partition": partition.index, "kind": kind}
        if failure:
            log.warning("compaction_failed", **where, reason=failure)
            return
        last = metrics.number("braidlog_compaction_last_seconds", kind)
        last.value = self._ages.wall_us() // 1_000_000
        log.info(
            "compacted",
            **where,
            files=done.published,
            read_bytes=done.read_bytes,
            written_bytes=done.written_bytes,
            walks=done.walks,
        )


def _piece(steps: Iterator[CompactedWriter | None]) -> tuple[bool, CompactedWriter | None]:
    """Run a compaction for a short while, or to the end of a file: (whether all is done, that
    file).
    """
    until_s = time.perf_counter() + COMPACTION_PIECE_S
    for writer in steps:
        if writer is not None or time.perf_counter() >= until_s:
            return False, writer
    return True, None
