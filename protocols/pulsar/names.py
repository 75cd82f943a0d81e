"""What a topic name in a Pulsar command leads to, and whether the client may go there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.access.rights import Action, Resource
from broker.errors import BrokerError, InvalidRequest, NamespaceNotFound, TopicNotFound
from protocols.pulsar.errors import Refused
from storage.codecs.pb.PulsarApi_pb2 import ServerError
from storage.metadata.names import TopicName

if TYPE_CHECKING:
    from broker.topics.partition import Partition
    from broker.topics.topic import Topic
    from broker.topics.topics import Topics
    from protocols.pulsar.session import PulsarSession

UNPARTITIONED = -1  # Partition number in message ids of a topic that has no partitions.
# Where clients look for the transaction coordinator. They are told that it is here, so that their
# next command ends with "Transactions are not enabled" instead of a missing namespace.
COORDINATOR = "persistent://pulsar/system/transaction_coordinator_assign"


def is_coordinator(text: str) -> bool:
    """Whether the name is that of the transaction coordinator, or of a partition of it."""
    return text == COORDINATOR or text.startswith(COORDINATOR + "-partition-")


def resolve(session: PulsarSession, action: Action, text: str) -> tuple[TopicName, int | None]:
    """The topic that is meant, for that action, and the partition's number if the name has one.

    Raises InvalidName; NotAuthorized; NamespaceNotFound; Refused for non-persistent topics, which
    are not served.
    """
    name, index = _parsed(session.broker.topics, text)
    session.connection.check(action, Resource.of_topic(name))
    try:
        session.broker.namespaces.get(name.tenant, name.namespace)
    except NamespaceNotFound:
        raise NamespaceNotFound("Namespace not found") from None  # Apache's words.
    return name, index


def is_missing(topics: Topics, text: str) -> bool:
    """Whether the name is that of a topic that is not there."""
    try:
        return topics.find(_parsed(topics, text)[0]) is None
    except (BrokerError, Refused):
        return False


async def make_missing(session: PulsarSession, action: Action, text: str) -> Topic:
    """The topic that a producer or consumer means, made if it is missing and may be made.

    Raises what `resolve` and creating raise; TopicNotFound.
    """
    topics = session.broker.topics
    name, index = resolve(session, action, text)
    topic = topics.find(name)
    if topic is not None:
        return topic
    session.connection.check(Action.CREATE, Resource.of_topic(name))
    if index:
        raise TopicNotFound(f"Topic not found: {name}")
    return await topics.auto_create(name)


def open_partition(session: PulsarSession, action: Action, text: str) -> tuple[Partition, bool]:
    """The partition that a producer or consumer means, and whether it was named as a topic without
    partitions, which it then has to stay.

    Raises what `resolve` raises; TopicNotFound, PartitionNotFound, Refused.
    """
    topics = session.broker.topics
    name, index = resolve(session, action, text)
    topic = topics.find(name)
    if topic is None:
        raise TopicNotFound(f"Topic not found: {name}")
    try:
        partition = topics.pulsar_partition(name, index)
    except InvalidRequest as error:
        raise Refused(ServerError.NotAllowedError, str(error)) from error
    return partition, index is None and not topic.partitioned


def _parsed(topics: Topics, text: str) -> tuple[TopicName, int | None]:
    if text.startswith("non-persistent://"):
        raise Refused(ServerError.NotAllowedError, "non-persistent topics are not served")
    return topics.resolve_pulsar(text)


def partition_number(partition: Partition) -> int:
    """The partition's number in message ids."""
    return partition.index if partition.topic.partitioned else UNPARTITIONED


def full_names(partition_count: int, name: TopicName, *, partitioned: bool) -> list[str]:
    """What clients call the topic: its partitions one by one, if it has any."""
    full = f"persistent://{name.full}"
    if not partitioned:
        return [full]
    return [f"{full}-partition-{index}" for index in range(partition_count)]
