"""Names in the paths of Pulsar's admin API: tenants, namespaces, topics and partitions.

Knows no body.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from starlette.requests import Request

from braidlog.protocols.http.bodies import path_bytes
from braidlog.protocols.http.errors import INVALID_NAME, Refused
from braidlog.storage.metadata.names import (
    InvalidTopicName,
    TopicName,
    check_topic_name,
    split_partition,
    valid_namespace,
)

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.broker.topics.partition import Partition
    from braidlog.broker.topics.topic import Topic


def text_of(request: Request, part: str) -> str:
    """Return a part of the path as text. Raises Refused."""
    try:
        return path_bytes(request, part).decode()
    except UnicodeDecodeError:
        raise Refused(INVALID_NAME, f"the {part} in the path is not UTF-8") from None


def namespace_of(request: Request) -> tuple[str, str]:
    """Return tenant and namespace of the path. Raises Refused."""
    tenant, namespace = text_of(request, "tenant"), text_of(request, "namespace")
    if not valid_namespace(tenant, namespace):
        raise Refused(INVALID_NAME, f"{tenant}/{namespace} is not a namespace")
    return tenant, namespace


def name_of(request: Request) -> tuple[TopicName, int | None]:
    """Return the topic of the path, and the partition's number if the name has a number. Raises
    Refused.
    """
    name = TopicName(*(text_of(request, part) for part in ("tenant", "namespace", "name")))
    try:
        check_topic_name(name)
    except InvalidTopicName as error:
        raise Refused(INVALID_NAME, str(error)) from None
    split = split_partition(name.topic)
    if split is None:
        return name, None
    return TopicName(name.tenant, name.namespace, split[0]), split[1]


def topic_of(broker: Broker, request: Request) -> tuple[Topic, Sequence[Partition]]:
    """Return the topic of the path and its partitions: the named partition, or all.

    Raises Refused, TopicNotFound, PartitionNotFound.
    """
    name, index = name_of(request)
    topic = broker.topics.get(name)
    if index is None:
        return topic, tuple(topic.partitions)
    return topic, (topic.partition(index),)


def full_name(topic: Topic, index: int | None = None) -> str:
    """Return the name of a topic, or of a partition of a partitioned topic, for Pulsar's
    clients.
    """
    full = f"persistent://{topic.name.full}"
    return full if index is None or not topic.partitioned else f"{full}-partition-{index}"


def full_names(topics: Sequence[Topic]) -> list[str]:
    """Return topic names as Pulsar lists them: each partition of a partitioned topic separately."""
    return [
        full_name(topic, index)
        for topic in topics
        for index in range(len(topic.partitions) if topic.partitioned else 1)
    ]
