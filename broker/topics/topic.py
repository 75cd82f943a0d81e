"""A topic while the broker runs, and the interface of topic listeners.

Knows no file and no protocol; only `broker/topics/topics.py` creates and changes topics.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from braidlog.broker import errors
from braidlog.broker.access.rights import Resource
from braidlog.broker.topics.client_limits import ClientLimits, KnownLimits, client_limits
from braidlog.broker.topics.settings import check_subscriptions
from braidlog.storage.metadata.names import InvalidTopicName, check_topic_name, split_partition

if TYPE_CHECKING:
    from braidlog.broker.cluster.placement import Placement
    from braidlog.broker.delivery.channel import Channel
    from braidlog.broker.topics.partition import Partition
    from braidlog.storage.metadata.catalogue_records import Setting, TopicMeta
    from braidlog.storage.metadata.names import TopicName


class TopicEvent(enum.Enum):
    """Change of a topic."""

    CREATED = "created"
    GROWN = "grown"
    SHRUNK = "shrunk"
    DELETED = "deleted"
    TERMINATED = "terminated"
    RENAMED = "renamed"  # Clients see a deletion; a new topic has the partitions' logs.
    ALTERED = "altered"  # The settings in force may differ.
    MOVED = "moved"  # Another broker is now the owner: clients must connect there.


class TopicListener(Protocol):
    """Receives changes of topics. Called within the change, so it must not change topics itself."""

    def topic_changed(self, topic: Topic, event: TopicEvent) -> None:
        """Handle a change that is already made; a deleted topic still has its name and
        partitions.
        """


class Topic:
    """A topic while the broker runs."""

    is_persistent = True  # True if records are stored.

    def __init__(self, meta: TopicMeta) -> None:
        self.meta = meta
        self.inherited: Mapping[str, Setting] = {}  # Its namespace's, else the broker's settings.
        self._known_limits = KnownLimits()
        self.resource = Resource.of_topic(meta.name)  # Name of the topic in access control.
        self.partitions: list[Partition] = []
        self.ticket = 0
        """Once this is durable, so is what the last call did to the topic."""
        self.deleted = False
        self.layout_users = 0
        """Clients that count on the topic staying unpartitioned: those that reached it by its own
        name through Pulsar's listener (`hold_layout`, `release_layout`)."""

    @property
    def metrics_name(self) -> str:
        """Name of the topic in metrics."""
        return self.name.full

    @property
    def channels(self) -> Sequence[Channel]:
        """The partitions, as producers use them."""
        return self.partitions

    @property
    def name(self) -> TopicName:
        """Tenant, namespace and name."""
        return self.meta.name

    @property
    def partitioned(self) -> bool:
        """True for a partitioned topic in Pulsar's sense (with any number of partitions)."""
        return self.meta.partitioned

    @property
    def settings(self) -> Mapping[str, Setting]:
        """Settings in force: the topic's own, else the namespace's."""
        return {**self.inherited, **self.meta.settings}

    @property
    def client_limits(self) -> ClientLimits:
        """Limits of the topic's clients in force."""
        return self._known_limits.of(self.inherited, self.meta.settings)

    @property
    def is_terminated(self) -> bool:
        """True if the topic never accepts records again."""
        return self.meta.is_terminated

    def hold_layout(self) -> None:
        """Keep the topic unpartitioned until each call has a matching `release_layout`."""
        self.layout_users += 1

    def release_layout(self) -> None:
        """End a `hold_layout`."""
        self.layout_users -= 1

    def hold_appends(self, *, held: bool) -> None:
        """Let every partition refuse appends, or take them again (`Partition.hold_appends`)."""
        for partition in self.partitions:
            partition.hold_appends(held=held)

    @contextmanager
    def without_appends(self) -> Iterator[None]:
        """Refuse appends in the block, which deletes the topic; after an error take them again. In
        a cluster a deletion takes a while: a record that was stored and acknowledged meanwhile
        would be lost.
        """
        self.hold_appends(held=True)
        try:
            yield
        except BaseException:  # Includes cancellation.
            self.hold_appends(held=False)
            raise

    def note_ticket(self, ticket: int) -> None:
        """Note the ticket of a change of the topic."""
        self.ticket = ticket

    def inherit(self, settings: Mapping[str, Setting]) -> None:
        """Use these settings of the namespace."""
        self.inherited = settings

    def mark_deleted(self) -> None:
        """Note that the topic is deleted: holders of the object find nothing any more."""
        self.deleted = True

    def describe(self, meta: TopicMeta, ticket: int) -> None:
        """Adopt the catalogue's record of the topic, durable with `ticket`, here and in the
        partitions.
        """
        self.meta = meta
        self.ticket = ticket
        for partition in self.partitions:
            partition.describe(meta)

    def check_here(self) -> None:
        """Raise NotOwner for a topic of another broker; never without a cluster."""

    def stored_sizes(self) -> tuple[int, int, int]:
        """Return readable messages (gaps included), bytes and segments of all partitions; zeros if
        another broker owns the topic.
        """
        parts = self.partitions
        return (
            sum(part.high_watermark - part.log_start_offset for part in parts),
            sum(part.size_bytes for part in parts),
            sum(len(part.segments()) for part in parts),
        )

    def partition(self, index: int) -> Partition:
        """Return the partition of that number, from 0, if this broker owns the topic.

        Raises PartitionNotFound, NotOwner.
        """
        if not 0 <= index < len(self.partitions):
            raise errors.PartitionNotFound(f"{self.name} has no partition {index}")
        return self.partitions[index]


class PlacedTopic(Topic):
    """A topic in a cluster, where another broker may own it.

    A separate class, so that a broker without a cluster makes no check of owners per request.
    """

    def __init__(self, meta: TopicMeta, placement: Placement) -> None:
        super().__init__(meta)
        self.placement = placement

    def check_here(self) -> None:
        self.placement.check(self.meta.name)

    def partition(self, index: int) -> Partition:
        self.placement.check(self.meta.name)
        return super().partition(index)


class NonPersistentTopic(PlacedTopic):
    """A topic without partitions, or a partition of a partitioned topic, that stores nothing.

    Has no `partitions`, but a channel (`broker/delivery/non_persistent/channel.py`).
    """

    is_persistent = False

    def __init__(
        self,
        meta: TopicMeta,
        placement: Placement,
        inherited: Callable[[], Mapping[str, Setting]],
        channel: Channel,
    ) -> None:
        """`inherited` returns the namespace's settings, else the broker's."""
        super().__init__(meta, placement)
        self._source = inherited
        self._channel = channel

    @property
    def settings(self) -> Mapping[str, Setting]:
        return {**self._source(), **self.meta.settings}

    @property
    def client_limits(self) -> ClientLimits:
        return client_limits(self.settings)

    @property
    def metrics_name(self) -> str:
        """As `Topic.metrics_name`; each partition has separate metrics."""
        return self._channel.metrics_name

    @property
    def channels(self) -> Sequence[Channel]:
        return [self._channel]


def check_new_name(name: TopicName) -> None:
    """Check that a topic may have that name. Raises InvalidName."""
    try:
        check_topic_name(name)
    except InvalidTopicName as error:
        raise errors.InvalidName(str(error)) from error
    if split_partition(name.topic):
        raise errors.InvalidName(f"{name.topic!r} would be a partition's name")


def check_count(topic: Topic, seen: int | None) -> None:
    """Check that a topic still has the number of partitions that a change is based on. Raises
    Conflict.
    """
    count = len(topic.partitions)
    if seen not in (None, count):
        raise errors.Conflict(f"{topic.name} has {count} partitions now, not {seen}")


def changed_settings(
    settings: Mapping[str, Setting], changes: Mapping[str, Setting | None]
) -> dict[str, Setting]:
    """Return the settings after some changes; None unsets a setting. Raises InvalidRequest for
    settings of too many subscriptions.
    """
    changed = {name: value for name, value in {**settings, **changes}.items() if value is not None}
    check_subscriptions(changed)
    return changed
