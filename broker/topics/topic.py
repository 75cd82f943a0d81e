"""One topic while the broker runs, and the interfaces of what makes, keeps and watches topics.

Knows no file and no protocol; topics are made and changed by `broker/topics/topics.py` alone.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from braidlog.broker import errors
from braidlog.broker.access.rights import Resource
from braidlog.storage.metadata.names import InvalidTopicName, check_topic_name, split_partition

if TYPE_CHECKING:
    from braidlog.broker.cluster.placement import Placement
    from braidlog.broker.delivery.channel import Channel
    from braidlog.broker.topics.partition import Partition
    from braidlog.storage.metadata.catalogue_records import Setting, TopicMeta
    from braidlog.storage.metadata.names import TopicName


class PartitionFactory(Protocol):
    """Makes partitions over their folders. Raises errors of storage."""

    async def create(
        self, topic: Topic, first_index: int, partition_ids: Sequence[int]
    ) -> Sequence[Partition]:
        """Make folders and files, on disk when this returns, and open them: all, or none is left.

        A new topic has its name and settings, no number yet. Making one takes milliseconds, so
        other clients are served meanwhile.
        """

    def in_turn(self, partition_ids: Sequence[int]) -> Iterator[int]:
        """These numbers, for a caller who opens each before asking for the next."""

    def open(self, topic: Topic, index: int, partition_id: int) -> Partition:
        """Open the partition that is there."""

    def alter(self, topic: Topic, changed: Mapping[str, Setting]) -> None:
        """Apply these settings to the partitions. Raises InvalidRequest, with nothing changed."""

    def check(self, settings: Mapping[str, Setting]) -> None:
        """Check settings that topics are to have. Raises InvalidRequest, UnwritableChange."""

    async def alter_one(self, partition: Partition, changed: Mapping[str, Setting]) -> None:
        """Apply these settings to one partition. Raises as `alter`."""

    def discard(self, partition: Partition) -> None:
        """Close the partition and queue its folder for deletion."""

    async def prepare_names(self, topics: Sequence[tuple[Topic, TopicName]]) -> None:
        """Write these names into the topics' folders, on disk when this returns, not in force yet.
        Raises FileGone if a topic was deleted meanwhile.
        """

    async def take_names(self, topics: Sequence[tuple[Topic, TopicName]]) -> None:
        """Make the prepared names those of the folders, once the catalogue has them on disk."""

    def is_open(self, partition: Partition) -> bool:
        """Whether its records are kept by this broker."""


class TopicEvent(enum.Enum):
    """What happened to a topic."""

    CREATED = "created"
    GROWN = "grown"
    SHRUNK = "shrunk"
    DELETED = "deleted"
    TERMINATED = "terminated"
    RENAMED = "renamed"  # For its clients it is gone; another one has its partitions' logs.
    MOVED = "moved"  # Another broker owns it from now on: its clients have to go there.


class TopicListener(Protocol):
    """Hears of changes of topics. Called within the change, so it must not change topics itself."""

    def topic_changed(self, topic: Topic, event: TopicEvent) -> None:
        """The change is already made; a deleted one still has its name and partitions."""


class Topic:
    """One topic while the broker runs."""

    is_persistent = True  # Its records are stored.

    def __init__(self, meta: TopicMeta) -> None:
        self.meta = meta
        self.inherited: Mapping[str, Setting] = {}  # Its namespace's settings.
        self.resource = Resource.of_topic(meta.name)  # As access control knows it.
        self.partitions: list[Partition] = []
        self.ticket = 0
        """Once this is durable, so is what the last call did to the topic."""
        self.deleted = False
        self.layout_users = 0
        """Clients that count on the topic staying unpartitioned: those that reached it by its own
        name through Pulsar's listener (`hold_layout`, `release_layout`)."""

    @property
    def figures_name(self) -> str:
        """What it is called in figures."""
        return self.name.full

    @property
    def channels(self) -> Sequence[Channel]:
        """The partitions, towards producers."""
        return self.partitions

    @property
    def name(self) -> TopicName:
        """Tenant, namespace and name."""
        return self.meta.name

    @property
    def partitioned(self) -> bool:
        """Whether it is a partitioned topic in Pulsar's sense (one partition or more)."""
        return self.meta.partitioned

    @property
    def settings(self) -> Mapping[str, Setting]:
        """The settings in force: its own, and its namespace's where it has none."""
        return {**self.inherited, **self.meta.settings}

    @property
    def is_terminated(self) -> bool:
        """Whether it takes no more records, for ever."""
        return self.meta.is_terminated

    def hold_layout(self) -> None:
        """Keep the topic unpartitioned, until as many calls of `release_layout`."""
        self.layout_users += 1

    def release_layout(self) -> None:
        """End a `hold_layout`."""
        self.layout_users -= 1

    def describe(self, meta: TopicMeta, ticket: int) -> None:
        """Take the catalogue's record of the topic, durable with `ticket`, here and in the
        partitions.
        """
        self.meta = meta
        self.ticket = ticket
        for partition in self.partitions:
            partition.topic = meta

    def check_here(self) -> None:
        """Raises NotOwner for a topic of another broker; here there is none."""

    def kept(self) -> tuple[int, int, int]:
        """Messages that may be read (gaps counted in), bytes and segments of all partitions; none
        where another broker owns the topic.
        """
        parts = self.partitions
        return (
            sum(one.high_watermark - one.log_start_offset for one in parts),
            sum(one.size_bytes for one in parts),
            sum(len(one.segments()) for one in parts),
        )

    def partition(self, index: int) -> Partition:
        """The partition of that number, from 0, if this broker owns it.

        Raises PartitionNotFound, NotOwner.
        """
        if not 0 <= index < len(self.partitions):
            raise errors.PartitionNotFound(f"{self.name} has no partition {index}")
        return self.partitions[index]


class PlacedTopic(Topic):
    """One topic in a cluster, where another broker may own it.

    A class of its own, so that a single broker asks nothing about owners for each request.
    """

    def __init__(self, meta: TopicMeta, placement: Placement) -> None:
        super().__init__(meta)
        self.placement = placement

    def check_here(self) -> None:
        """As `Topic.check_here`."""
        self.placement.check(self.meta.name)

    def partition(self, index: int) -> Partition:
        """As `Topic.partition`."""
        self.placement.check(self.meta.name)
        return super().partition(index)


class NonPersistentTopic(PlacedTopic):
    """A topic without partitions, or a partition of a partitioned topic, that stores nothing.

    Has no `partitions`, but one channel (`broker/delivery/non_persistent/topic.py`).
    """

    is_persistent = False

    def __init__(
        self,
        meta: TopicMeta,
        placement: Placement,
        inherited: Mapping[str, Setting],
        channel: Channel,
    ) -> None:
        """`inherited` are the namespace's settings."""
        super().__init__(meta, placement)
        self.inherited = inherited
        self._channel = channel

    @property
    def figures_name(self) -> str:
        """As `Topic.figures_name`; each partition has figures of its own."""
        return self._channel.figures_name

    @property
    def channels(self) -> Sequence[Channel]:
        """As `Topic.channels`."""
        return [self._channel]


def check_new_name(name: TopicName) -> None:
    """Check that a topic can be given that name. Raises InvalidName."""
    try:
        check_topic_name(name)
    except InvalidTopicName as error:
        raise errors.InvalidName(str(error)) from error
    if split_partition(name.topic):
        raise errors.InvalidName(f"{name.topic!r} would be a partition's name")


def check_count(topic: Topic, seen: int | None) -> None:
    """Check that a topic has the number of partitions that a change is based on. Raises
    Conflict.
    """
    count = len(topic.partitions)
    if seen not in (None, count):
        raise errors.Conflict(f"{topic.name} has {count} partitions now, not {seen}")


def changed_settings(
    settings: Mapping[str, Setting], changes: Mapping[str, Setting | None]
) -> dict[str, Setting]:
    """Settings with some changed; None unsets one."""
    return {name: value for name, value in {**settings, **changes}.items() if value is not None}
