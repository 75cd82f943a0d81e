"""A topic while the broker runs, and the interface of topic listeners.

Knows no file and no protocol; only `broker/topics/topics.py` creates and changes topics.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
    has_one_owner = True  # False if the topic can move to another broker.

    def __init__(self, meta: TopicMeta) -> None:
        self.meta = meta
        self.inherited: Mapping[str, Setting] = {}  # Its namespace's, else the broker's settings.
        self._known_limits = KnownLimits()
        self.resource = Resource.of_topic(meta.name)  # Name of the topic in access control.
        self.partitions: list[Partition] = []
        self.ticket = 0
        """Once this is durable, so is what the last call did to the topic."""
        self.deleted = False
        self._holds = 0  # Blocks of `without_appends` under way.
        self._refuses_appends = meta.is_being_deleted
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

    @property
    def is_held(self) -> bool:
        """True in a block of `without_appends`."""
        return self._holds > 0

    @contextmanager
    def without_appends(self) -> Iterator[None]:
        """Refuse appends in the block, which deletes the topic if no client uses the topic. In a
        cluster a deletion takes a while: a record that was stored and acknowledged meanwhile would
        be lost. Appends are refused until the last of several blocks ends, in partitions that
        the topic gets meanwhile too.
        """
        self._holds += 1
        self._update_hold()
        try:
            yield
        finally:
            self._holds -= 1
            self._update_hold()

    def _update_hold(self) -> None:
        """Let the partitions refuse or take appends, as blocks and the catalogue demand now."""
        refuses = self._holds > 0 or self.meta.is_being_deleted
        if refuses != self._refuses_appends:
            self._refuses_appends = refuses
            for partition in self.partitions:
                partition.hold_appends(held=refuses)

    def add_partitions(self, partitions: Sequence[Partition]) -> None:
        """Add open partitions behind the others."""
        self.partitions.extend(partitions)
        self._pass_hold_on(partitions)

    def replace_partition(self, index: int, partition: Partition) -> None:
        """Use another object for a partition."""
        self.partitions[index] = partition
        self._pass_hold_on([partition])

    def _pass_hold_on(self, partitions: Iterable[Partition]) -> None:
        if self._refuses_appends:
            for partition in partitions:
                partition.hold_appends(held=True)

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
        self._update_hold()

    @property
    def owner_epoch(self) -> int:
        """Number of the topic's present ownership (`Placement.epoch`)."""
        return 0

    async def check_owned_since(self, epoch: int) -> None:
        """Check that this broker has owned the topic without a break since that `owner_epoch`.
        Raises NotOwner; Conflict if the topic was away meanwhile.
        """

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

    has_one_owner = False

    def __init__(self, meta: TopicMeta, placement: Placement) -> None:
        super().__init__(meta)
        self.placement = placement

    @property
    def owner_epoch(self) -> int:
        return self.placement.epoch(self.meta.name)

    async def check_owned_since(self, epoch: int) -> None:
        await self.placement.look()
        self.check_here()
        if self.owner_epoch != epoch:
            raise errors.Conflict(f"{self.name} moved to another broker meanwhile")

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
