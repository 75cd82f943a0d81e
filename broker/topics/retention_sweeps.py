"""Deletes records that topics need not retain. The rules are in storage/log/retention_rules.py.

Knows the schedule and the subscriptions' positions; no file.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import structlog
import trio

from braidlog.broker.commit.storage_errors import Report, as_broker_errors
from braidlog.broker.errors import TopicNotFound
from braidlog.broker.limits import COMPACTION_PIECE_S, COMPACTION_REST_S_MAX
from braidlog.broker.runtime.threads import run_in_thread
from braidlog.broker.topics.catalogue import UseReserve
from braidlog.storage.errors import StorageFull
from braidlog.storage.log.dating import append_times
from braidlog.storage.log.files import FileGone
from braidlog.storage.log.retention_rules import asks_for_positions, drops_anything, longest_age_us
from braidlog.storage.log.scan import BadBatch

if TYPE_CHECKING:
    from braidlog.broker.positions.subscriptions import Subscriptions
    from braidlog.broker.topics.partition import Partition
    from braidlog.broker.topics.registry import TopicRegistry
    from braidlog.broker.topics.topic import Topic
    from braidlog.storage.log.age_clock import AgeClock
    from braidlog.storage.log.segment import Segment


log = structlog.get_logger()

# Partitions without retention limits between two checkpoints: about 0.1 ms.
PASSED_OVER = 500


class Retention:
    """Applies retention to every topic each `interval_ms`, and to a single topic on request."""

    def __init__(
        self,
        topics: TopicRegistry,
        subscriptions: Subscriptions,
        *,
        interval_ms: int,
        ages: AgeClock,
        use_reserve: UseReserve,
        report: Report,
        hold_lost: Callable[[str, str, int], None] = lambda *_: None,
    ) -> None:
        """`use_reserve` may let a change that frees space use a full disk's reserve. `report` is
        called with each storage error before the broker error is raised; `hold_lost` with topic,
        subscription and number of records when a hold reaches its cap.
        """
        self._topics = topics
        self._subscriptions = subscriptions
        self._interval_ms = interval_ms
        self._ages = ages
        self._use_reserve = use_reserve
        self._report = report
        self._hold_lost = hold_lost

    async def run(self) -> None:
        """Apply retention at intervals until cancelled. Raises StorageFailed."""
        while True:
            await trio.sleep(self._interval_ms / 1000)
            for topic in self._topics.all():
                await self._retain(topic)

    async def apply(self, topic: Topic) -> None:
        """Apply retention to a topic now. Raises NotOwner, the broker's StorageFailed."""
        topic.check_here()
        with as_broker_errors(self._report):
            await self._retain(topic)

    async def purge(self, topic: Topic) -> None:
        """Delete all durable records of a topic; offsets continue. The topic's name cannot change
        meanwhile.

        Raises NotOwner, TopicNotFound, the broker's StorageFull, StorageFailed.
        """
        topic.check_here()
        async with self._topics.altering:
            if topic.deleted:
                raise TopicNotFound(f"{topic.name} was deleted or renamed")
            index = 0
            while index < len(topic.partitions):  # Other tasks may change the list.
                self.drop_segments(topic.partition(index), None)  # NotOwner once moved.
                await trio.lowlevel.checkpoint()
                if topic.deleted:
                    raise TopicNotFound(f"{topic.name} was deleted or renamed")
                index += 1

    def drop_segments(self, partition: Partition, count: int | None) -> None:
        """Delete the `count` oldest segments of a partition, except the active segment; None
        deletes all durable records. Raises the broker's StorageFull, StorageFailed.
        """
        with as_broker_errors(self._report):
            partition.log.compacted.drop_view()
            self._use_reserve(partial(partition.log.drop, count))

    def keeps_each_key(self, partition: Partition) -> bool:
        """Return True if the log is compacted and no limit drops records, as for a changelog."""
        return not partition.log.settings.deletes

    def delete_below(self, partition: Partition, offset: int) -> None:
        """Delete the durable records below an offset. Raises the broker's StorageFull,
        StorageFailed.
        """
        with as_broker_errors(self._report):
            partition.log.compacted.drop_view()
            self._use_reserve(partial(partition.log.delete_below, offset))

    async def _retain(self, topic: Topic) -> None:
        for index, partition in enumerate(tuple(topic.partitions)):
            if drops_anything(partition.log.settings) and not partition.removed:
                await self._retain_partition(topic, partition)
                await trio.lowlevel.checkpoint()
            elif index % PASSED_OVER == 0:
                await trio.lowlevel.checkpoint()

    async def _retain_partition(self, topic: Topic, partition: Partition) -> None:
        while True:
            acknowledged = held = None
            if asks_for_positions(partition.log.settings):
                acknowledged = await self._subscriptions.lowest_position(topic, partition.index)
                if partition.removed:
                    return
            # Atomic: no wait between reading the positions and acting on them.
            if (name := partition.log.settings.retention_hold) is not None:
                held = self._position(topic, name.encode(), partition.index)
            now_us = self._ages.now_us(longest_age_us(partition.log.settings))
            undated = partition.log.undated(now_us, acknowledged, held)
            if undated is None:
                break
            await _date(undated)
            if partition.removed:
                return
        wall_us = self._ages.wall_us()
        try:
            dropped = self._use_reserve(
                partial(partition.log.retain, now_us, acknowledged, held, wall_us=wall_us)
            )
            if dropped and held is not None and partition.log.log_start_offset > held:
                self._tell_lost(partition, held)
        except StorageFull as full:
            self._report(full)  # Affects this log alone: the next round tries again.

    def _tell_lost(self, partition: Partition, held: int) -> None:
        """Report that a hold reached its cap: the subscription has lost these offsets."""
        start, name = partition.log.log_start_offset, partition.log.settings.retention_hold or ""
        self._hold_lost(partition.topic.name.full, name, start - held)
        log.warning(
            "retention_hold_passed",
            topic=str(partition.topic.name),
            partition=partition.index,
            subscription=name,
            first_offset=held,
            next_offset=start,
        )

    def _position(self, topic: Topic, name: bytes, index: int) -> int | None:
        """Return a subscription's position; None if the subscription does not exist or has no
        position.
        """
        subscription = self._subscriptions.find(topic, name)
        return subscription.position(index) if subscription else None


async def _date(segment: Segment) -> None:
    """Read the append times of a segment from before this start, in at most half of the time."""
    times, newest_us, is_over = append_times(segment), 0, False
    with suppress(BadBatch, FileGone):  # The file's modification time is used instead.
        while not is_over:
            began_s = time.perf_counter()
            newest_us, is_over = await run_in_thread(_date_piece, times, newest_us)
            await trio.sleep(min(time.perf_counter() - began_s, COMPACTION_REST_S_MAX))
    segment.take_date(newest_us)


def _date_piece(times: Iterator[int], newest_us: int) -> tuple[int, bool]:
    """Run for a short while: (greatest append time so far, True if all are read)."""
    until_s = time.perf_counter() + COMPACTION_PIECE_S
    for newest_us in times:
        if time.perf_counter() >= until_s:
            return newest_us, False
    return newest_us, True
