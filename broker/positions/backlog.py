"""Bounds backlogs by message TTL and backlog quota.

A message TTL acknowledges too old messages for every subscription. A backlog quota refuses
producers or moves the slowest subscriptions forward. As Apache Pulsar's
PersistentMessageExpiryMonitor and BacklogQuotaManager; both are settings of topics and namespaces.

Checks every topic from time to time. Knows no protocol: listeners close the producers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog
import trio

from braidlog.broker.errors import BrokerError, LimitExceeded
from braidlog.broker.reading import entries
from braidlog.broker.topics.settings import choice_of, limit_of
from braidlog.broker.topics.settings_table import QuotaPolicy

if TYPE_CHECKING:
    from braidlog.broker.positions.subscriptions import Subscription, Subscriptions
    from braidlog.broker.topics.partition import Partition
    from braidlog.broker.topics.registry import TopicRegistry
    from braidlog.broker.topics.topic import Topic
    from braidlog.storage.log.age_clock import AgeClock

log = structlog.get_logger()

SECOND_US: Final = 1_000_000
# Part of the quota that an eviction leaves, so that the next message does not exceed the quota.
LEFT_OVER: Final = 0.9
# Topics without limits, skipped between two checkpoints: some 0.3 ms.
PASSED_OVER: Final = 200


class BacklogFull(LimitExceeded):
    """The backlog quota is used up, and the policy of the quota keeps producers out."""

    def __init__(self, policy: QuotaPolicy) -> None:
        # Apache's words.
        super().__init__("Cannot create producer on topic with backlog quota exceeded")
        self.policy = policy


@dataclass(frozen=True, slots=True)
class BacklogLimits:
    """The limits that a topic's settings put on its backlog; None: no limit."""

    ttl_s: int | None
    bytes_max: int | None
    bytes_policy: QuotaPolicy
    age_s_max: int | None
    age_policy: QuotaPolicy

    @property
    def is_quota(self) -> bool:
        """True if a quota of bytes or age is set."""
        return self.bytes_max is not None or self.age_s_max is not None


def limits_of(topic: Topic) -> BacklogLimits:
    """Return the limits in force for a topic."""
    settings = topic.settings
    return BacklogLimits(
        limit_of(settings, "message_ttl_s"),
        limit_of(settings, "backlog_bytes"),
        choice_of(settings, "backlog_bytes_policy", QuotaPolicy),
        limit_of(settings, "backlog_age_s"),
        choice_of(settings, "backlog_age_policy", QuotaPolicy),
    )


class Backlogs:
    """The backlogs of a broker's topics."""

    def __init__(
        self,
        topics: TopicRegistry,
        subscriptions: Subscriptions,
        *,
        interval_ms: int,
        ages: AgeClock,
        expired: Callable[[str, str, int], None] = lambda *_: None,
    ) -> None:
        """`expired` is called with topic, subscription and the number of acknowledged offsets."""
        self.full: set[Callable[[Partition], None]] = set()
        """Called with each partition whose producers are to be closed."""
        self._topics = topics
        self._subscriptions = subscriptions
        self._interval_ms = interval_ms
        self._ages = ages
        self._expired = expired
        self._too_old: set[int] = set()  # Partitions whose oldest message exceeds the age limit.

    async def run(self) -> None:
        """Check all topics every `interval_ms` until cancelled."""
        while True:
            await trio.sleep(self._interval_ms / 1000)
            for number, topic in enumerate(self._topics.all()):
                limits = limits_of(topic)
                if limits.ttl_s is not None or limits.is_quota:
                    await self.apply(topic, limits)
                elif number % PASSED_OVER == 0:
                    await trio.lowlevel.checkpoint()

    async def apply(self, topic: Topic, limits: BacklogLimits) -> None:
        """Check a topic now. Read errors are reported, and the next check tries again."""
        for partition in tuple(topic.partitions):
            await trio.lowlevel.checkpoint()
            if partition.removed:
                continue
            try:
                if limits.ttl_s is not None:
                    await self._expire_all(topic, partition, limits.ttl_s)
                if limits.is_quota:
                    await self._hold_to_quota(topic, partition, limits)
            except BrokerError as error:
                log.warning(
                    "backlog_not_looked_at",
                    topic=topic.name.full,
                    partition=partition.index,
                    reason=str(error),
                )

    # Message TTL.

    async def _expire_all(self, topic: Topic, partition: Partition, age_s: int) -> None:
        """Acknowledge entries older than that for every subscription, up to the first newer entry.

        Raises BrokerError.
        """
        lowest = min((p for _, p in self._positions(topic, partition)), default=None)
        if lowest is None or lowest >= partition.high_watermark:
            return
        position = await self._older_than(partition, age_s)
        for subscription, _ in self._positions(topic, partition):
            self._move(subscription, partition, position)

    async def expire(self, subscription: Subscription, partition: Partition, age_s: int) -> int:
        """Acknowledge entries older than that for a subscription; return the number of offsets.

        Uses the wall clock, because a person asked for the expiry. Raises BrokerError.
        """
        time_us = self._ages.wall_us() - age_s * SECOND_US
        position = await entries.resolve_time(partition, time_us)
        partition.check_here()  # Otherwise nothing would be done, and the client told nothing.
        return self._move(subscription, partition, position)

    def _move(self, subscription: Subscription, partition: Partition, position: int) -> int:
        if partition.removed:
            return 0  # Another subscription may have this number by now, with other records.
        before = subscription.position(partition.index)
        if before is None or before >= position:
            return 0
        count = position - max(before, partition.log_start_offset)
        subscription.ack_to(partition.index, position, lazy=True)
        name = subscription.name.decode(errors="backslashreplace")
        self._expired(partition.topic.name.full, name, count)
        return count

    def _positions(self, topic: Topic, partition: Partition) -> Iterator[tuple[Subscription, int]]:
        """Iterate over the subscriptions of a partition and their positions."""
        for name in self._subscriptions.names(topic):
            subscription = self._subscriptions.find(topic, name)
            if subscription is not None:
                position = subscription.position(partition.index)
                if position is not None:
                    yield subscription, position

    # Backlog quota.

    def size(self, topic: Topic, partition: Partition) -> int:
        """Return about how many stored bytes the slowest subscription has not acknowledged.

        0 without subscriptions. Raises DamagedLog, StorageFailed.
        """
        end = partition.next_offset
        slowest = min((p for _, p in self._positions(topic, partition)), default=end)
        start = max(slowest, partition.log_start_offset)
        return partition.bytes_between(start, end) if start < end else 0

    def keeps_out(self, topic: Topic, partition: Partition) -> QuotaPolicy | None:
        """Return why a producer may not be opened now, HOLD or REFUSE; None if allowed.

        Counts the bytes now; the age is that of the last regular check. Raises DamagedLog,
        StorageFailed.
        """
        limits, evict = limits_of(topic), QuotaPolicy.EVICT
        if limits.bytes_policy is not evict and self._is_too_large(topic, partition, limits):
            return limits.bytes_policy
        is_too_old = limits.age_s_max is not None and partition.partition_id in self._too_old
        return limits.age_policy if is_too_old and limits.age_policy is not evict else None

    def check_producer(self, topic: Topic, partition: Partition) -> None:
        """Raise BacklogFull if a producer may not be opened now; DamagedLog, StorageFailed."""
        policy = self.keeps_out(topic, partition)
        if policy is not None:
            raise BacklogFull(policy)

    def _is_too_large(self, topic: Topic, partition: Partition, limits: BacklogLimits) -> bool:
        return limits.bytes_max is not None and self.size(topic, partition) >= limits.bytes_max

    async def _hold_to_quota(
        self, topic: Topic, partition: Partition, limits: BacklogLimits
    ) -> None:
        """Evict, or close the producers. Raises BrokerError."""
        self._too_old.discard(partition.partition_id)
        if limits.age_s_max is not None:
            if limits.age_policy is QuotaPolicy.EVICT:
                await self._expire_all(topic, partition, limits.age_s_max)
            elif await self._is_too_old(topic, partition, limits.age_s_max):
                self._too_old.add(partition.partition_id)
        evicts = limits.bytes_max is not None and limits.bytes_policy is QuotaPolicy.EVICT
        if evicts and self._is_too_large(topic, partition, limits):
            self._evict(topic, partition, int((limits.bytes_max or 0) * LEFT_OVER))
        if self.keeps_out(topic, partition) is not None:
            for close_producers in tuple(self.full):
                close_producers(partition)

    async def _is_too_old(self, topic: Topic, partition: Partition, age_s: int) -> bool:
        """Return True if a subscription has not acknowledged a message older than that."""
        slowest = min((p for _, p in self._positions(topic, partition)), default=None)
        if slowest is None or slowest >= partition.high_watermark:
            return False
        return slowest < await self._older_than(partition, age_s)

    async def _older_than(self, partition: Partition, age_s: int) -> int:
        """Return the offset below which all messages are older. Raises BrokerError."""
        age_us = age_s * SECOND_US
        return await entries.resolve_time(partition, self._ages.now_us(age_us) - age_us)

    def _evict(self, topic: Topic, partition: Partition, bytes_left: int) -> None:
        """Move subscriptions forward until at most `bytes_left` remain; bisects for the offset."""
        low, high = partition.log_start_offset, partition.next_offset
        while low < high:
            middle = (low + high) // 2
            if partition.bytes_between(middle, partition.next_offset) > bytes_left:
                low = middle + 1
            else:
                high = middle
        position = min(low, partition.high_watermark)
        for subscription, _ in self._positions(topic, partition):
            self._move(subscription, partition, position)
