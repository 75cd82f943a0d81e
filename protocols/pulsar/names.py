"""Topic names as Pulsar writes them. Knows no client and no right."""

from __future__ import annotations

from typing import TYPE_CHECKING

from braidlog.broker.access.rights import Resource
from braidlog.broker.errors import BrokerError
from braidlog.storage.metadata.names import TopicName, split_partition

if TYPE_CHECKING:
    from braidlog.broker.delivery.channel import Channel
    from braidlog.broker.topics.registry import TopicRegistry

PERSISTENT, NON_PERSISTENT = "persistent://", "non-persistent://"
SYSTEM_PREFIX = "__"  # The broker's own topics, left out of listings.
UNPARTITIONED = -1  # Partition number in message ids of a topic that has no partitions.
# Where clients look for the transaction coordinator. The broker answers that it is here, so that
# their next command ends with "Transactions are not enabled" instead of a missing namespace.
COORDINATOR = "persistent://pulsar/system/transaction_coordinator_assign"


def is_coordinator(text: str) -> bool:
    """Return True if the name is that of the transaction coordinator, or of a partition of it."""
    return text == COORDINATOR or text.startswith(COORDINATOR + "-partition-")


def is_non_persistent(text: str) -> bool:
    """Return True if the name is that of a non-persistent topic, which keeps nothing."""
    return text.startswith(NON_PERSISTENT)


def parse(topics: TopicRegistry, text: str) -> tuple[TopicName, int | None]:
    """The topic that a name means, persistent or not, and the partition's number if the name has
    one. Raises InvalidName.
    """
    if is_non_persistent(text):
        text = PERSISTENT + text[len(NON_PERSISTENT) :]
    return topics.resolve_pulsar(text)


def is_missing(topics: TopicRegistry, text: str) -> bool:
    """Return True if the name is that of a persistent topic that does not exist."""
    try:
        return not is_non_persistent(text) and topics.find(parse(topics, text)[0]) is None
    except BrokerError:
        return False


def is_unknown(topics: TopicRegistry, text: str) -> bool:
    """Return True if the name is that of a persistent topic that does not exist, or of a partition
    that a topic does not have.
    """
    if is_missing(topics, text):
        return True
    try:
        name, index = parse(topics, text)
    except BrokerError:
        return False
    topic = topics.find(name)
    return (
        not is_non_persistent(text) and topic is not None and (index or 0) >= len(topic.partitions)
    )


def is_system(name: TopicName) -> bool:
    """Return True if the topic belongs to the broker itself: no list shows it."""
    return name.topic.startswith(SYSTEM_PREFIX)


def partition_number(partition: Channel) -> int:
    """The partition's number in message ids."""
    return partition.index if partition.topic.partitioned else UNPARTITIONED


def full_names(partition_count: int, name: TopicName, *, partitioned: bool) -> list[str]:
    """Return the topic's names for clients: the name of each partition, if there are partitions."""
    full = f"persistent://{name.full}"
    if not partitioned:
        return [full]
    return [f"{full}-partition-{index}" for index in range(partition_count)]


def resource_of(full: str) -> Resource:
    """The topic of a name out of `full_names`, as access control knows it."""
    tenant, namespace, topic = full.removeprefix(PERSISTENT).split("/", 2)
    split = split_partition(topic)
    return Resource.of_topic(TopicName(tenant, namespace, split[0] if split else topic))
