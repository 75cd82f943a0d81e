"""Commits of several partitions under a name, written together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from braidlog.broker.commit.storage_errors import Report, as_broker_errors
from braidlog.broker.positions import cursor_moves
from braidlog.broker.positions.subscription_limits import check_cursors, check_new
from braidlog.storage.metadata.cursors import KafkaCommit, Moved, Subscribed, new_subscription

if TYPE_CHECKING:
    from braidlog.broker.limits import StateLimits
    from braidlog.broker.positions.cursor_moves import CursorEvent
    from braidlog.broker.topics.topic import Topic
    from braidlog.storage.metadata.positions import Positions


class HeldSubscriptions(Protocol):
    """The subscriptions that commits change."""

    cursors: Positions
    limits: StateLimits
    report: Report

    @property
    def are_held(self) -> bool:
        """True if any subscription is in use."""

    def tell(self, moved: Moved, event: CursorEvent) -> None:
        """Notify the listeners of a subscription, if the subscription is in use."""


class Commits:
    """Commits under the same name, on any topics, that share a record of the journal.

    Each commit follows `Subscription.commit`. All commits happen, or none if the record cannot be
    written.
    """

    def __init__(self, subscriptions: HeldSubscriptions, name: bytes) -> None:
        self._subscriptions = subscriptions
        self.name = name
        self._making: dict[int, Subscribed] = {}
        self._moves: list[tuple[Moved, CursorEvent | None]] = []
        self._new_cursors = 0

    def add(
        self, topic: Topic, index: int, position: int, *, kafka: KafkaCommit | None = None
    ) -> None:
        """Add a commit for a partition without a commit in this object.

        Raises InvalidName, TopicNotFound, PartitionNotFound, NotOwner, PolicyViolated,
        LimitExceeded: then the commit is left out.
        """
        topic.partition(index)
        cursors, name = self._subscriptions.cursors, self.name
        topic_id = topic.meta.topic_id
        stored = None if topic.deleted else cursors.find(topic_id, name)
        cursor = stored.cursors.get(index) if stored else None
        is_new = stored is None and topic_id not in self._making
        if is_new:
            check_new(topic, name, cursors, self._subscriptions.limits)
        if cursor is None:
            check_cursors(cursors, self._new_cursors + 1, self._subscriptions.limits)
            self._new_cursors += 1
        if is_new:
            self._making[topic_id] = new_subscription(topic_id, name, len(topic.partitions))
        key = (topic_id, name, index)
        self._moves.append(cursor_moves.committed(key, cursor, position, kafka))

    def write(self) -> int:
        """Make all commits; return the ticket, 0 for none. Raises StorageFull, StorageFailed."""
        if not self._moves:
            return 0
        subscriptions = self._subscriptions
        with as_broker_errors(subscriptions.report):
            ticket = subscriptions.cursors.move_all(
                (moved for moved, _ in self._moves), making=self._making.values()
            )
        if subscriptions.are_held:
            for moved, event in self._moves:
                if event is not None:
                    subscriptions.tell(moved, event)
        return ticket
