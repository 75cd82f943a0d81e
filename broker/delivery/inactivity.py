"""Deletes topics and groups that no client has used for a while, where the settings ask for that.

As Apache's `inactiveTopicPolicies` and `subscriptionExpirationTime`, for clients of every protocol:
a topic is in use while a producer, consumer or member is connected, and while records are stored or
a position moves. Times count from the first check that found the topic unused, so a restart begins
them again. Knows no protocol.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Hashable
from typing import TYPE_CHECKING, Final

import structlog
import trio

from braidlog.broker.errors import BrokerError
from braidlog.broker.topics.settings import choice_of, limit_of
from braidlog.broker.topics.settings_table import InactiveMode
from braidlog.broker.topics.unused_topics import delete_unused, keep_unused

if TYPE_CHECKING:
    from braidlog.broker.delivery.registry import Dispatchers
    from braidlog.broker.positions.members import Members
    from braidlog.broker.positions.subscriptions import Subscriptions
    from braidlog.broker.topics.registry import TopicRegistry
    from braidlog.broker.topics.shown_producers import ShownProducers
    from braidlog.broker.topics.topic import Topic

log = structlog.get_logger()

# Topics without such settings between two checkpoints: some 0.3 ms.
PASSED_OVER: Final = 200
MINUTE_S: Final = 60

Key = tuple[int, bytes | None]  # A topic, and a group of the topic.
# A value that every use changes, and the time since which the value is unchanged.
State = tuple[Hashable, float]


class Inactivity:
    """The unused topics and groups of a broker."""

    def __init__(
        self,
        topics: TopicRegistry,
        subscriptions: Subscriptions,
        dispatchers: Dispatchers,
        members: Members,
        producers: ShownProducers,
        *,
        interval_ms: int,
        clock_s: Callable[[], float] = trio.current_time,
    ) -> None:
        self._topics = topics
        self._subscriptions = subscriptions
        self._dispatchers = dispatchers
        self._members = members
        self._producers = producers
        self._interval_ms = interval_ms
        self._clock_s = clock_s
        self._before: dict[Key, State] = {}  # By the last check.
        self._now: dict[Key, State] = {}

    async def run(self) -> None:
        """Check all topics every `interval_ms` until cancelled."""
        while True:
            await trio.sleep(self._interval_ms / 1000)
            await self.check()

    async def check(self) -> None:
        """Check all topics now, and delete those that were unused for long enough."""
        self._now = {}
        for number, topic in enumerate(self._topics.all()):
            settings = topic.settings
            minutes = limit_of(settings, "subscription_expiration_minutes")
            is_deleted = bool(settings.get("inactive_topics_deleted"))
            is_doubtful = topic.meta.is_being_deleted and not topic.is_held
            if minutes is None and not is_deleted and not is_doubtful:
                if number % PASSED_OVER == 0:
                    await trio.lowlevel.checkpoint()
                continue
            await trio.lowlevel.checkpoint()
            try:
                topic.check_here()
                if is_doubtful:
                    await keep_unused(self._topics, topic)
                if minutes is not None:
                    await self._expire_groups(topic, minutes * MINUTE_S)
                if is_deleted:
                    await self._delete_unused(topic)
            except BrokerError as error:  # Another broker's topic, or gone, or a full disk.
                log.debug("inactivity_not_checked", topic=topic.name.full, reason=str(error))
        self._before = self._now

    async def _expire_groups(self, topic: Topic, after_s: float) -> None:
        for name in self._subscriptions.names(topic):
            await trio.lowlevel.checkpoint()
            if (
                self._unused_s((topic.meta.topic_id, name), self._group_state(topic, name))
                < after_s
            ):
                continue
            self._subscriptions.delete(topic, name)
            text = name.decode(errors="backslashreplace")
            log.info("group_expired", topic=topic.name.full, group=text)

    async def _delete_unused(self, topic: Topic) -> None:
        epoch = topic.owner_epoch
        wait_s = limit_of(topic.settings, "inactive_topic_s") or 0
        if self._unused_s((topic.meta.topic_id, None), self._topic_state(topic)) < wait_s:
            return
        with topic.without_appends():  # Atomic: no await since the state was read.
            await delete_unused(self._topics, topic, epoch=epoch)
        log.info("inactive_topic_deleted", topic=topic.name.full)

    async def delete_unused(self, topic: Topic, check: Callable[[], Awaitable[None]]) -> int:
        """Delete a topic unless `check` raises because a client uses the topic; return the ticket.
        The topic takes no records from before the check on. Raises the errors of `check`, and
        BrokerError.
        """
        epoch = topic.owner_epoch
        with topic.without_appends():
            await check()
            return await delete_unused(self._topics, topic, epoch=epoch)

    def _unused_s(self, key: Key, state: Hashable | None) -> float:
        """Return the seconds since the state last changed; negative while in use (None)."""
        if state is None:
            return -math.inf
        now = self._clock_s()
        before = self._before.get(key)
        since = before[1] if before is not None and before[0] == state else now
        self._now[key] = (state, since)
        return now - since

    def _group_state(self, topic: Topic, name: bytes) -> Hashable | None:
        """Return the positions of a group; None if a client uses the group."""
        if self._members.of(topic, name):
            return None
        subscription = self._subscriptions.get(topic, name)
        indexes = range(len(topic.partitions))
        return tuple(subscription.position(index) for index in indexes)

    def _topic_state(self, topic: Topic) -> Hashable | None:
        """Return the ends and positions of a topic; None if the topic is in use."""
        names = self._subscriptions.names(topic)
        mode = choice_of(topic.settings, "inactive_topic_mode", InactiveMode)
        if names and mode is InactiveMode.NO_SUBSCRIPTIONS:
            return None
        for partition in topic.partitions:
            is_read = any(dispatcher.consumers for dispatcher in self._dispatchers.on(partition))
            if is_read or self._producers.of(partition.partition_id):
                return None
        groups = tuple(self._group_state(topic, name) for name in names)
        if None in groups or not all(self._is_caught_up(topic, name) for name in names):
            return None
        return tuple(partition.next_offset for partition in topic.partitions), groups

    def _is_caught_up(self, topic: Topic, name: bytes) -> bool:
        subscription = self._subscriptions.get(topic, name)
        return not any(subscription.backlog(index) for index in range(len(topic.partitions)))
