"""Topics and partitions of the paths of Pulsar's admin API, and their names for Pulsar's clients.

Knows no body.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from starlette.requests import Request

from braidlog.protocols.http.errors import TOPIC_NOT_FOUND, RequestRefused
from braidlog.protocols.http.path_names import name_of

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.broker.topics.partition import Partition
    from braidlog.broker.topics.topic import Topic


def topic_of(broker: Broker, request: Request) -> tuple[Topic, Sequence[Partition]]:
    """Return the topic of the path and its partitions: the named partition, or all.

    Raises RequestRefused, TopicNotFound, PartitionNotFound.
    """
    name, index = name_of(request)
    topic = broker.topics.get(name)
    if index is None:
        return topic, tuple(topic.partitions)
    if not topic.partitioned:
        text = f"persistent://{name.full}-partition-{index} has zero partitions"
        raise RequestRefused(TOPIC_NOT_FOUND, f"Partitioned Topic not found: {text}")
    return topic, (topic.partition(index),)


def full_name(topic: Topic, index: int | None = None) -> str:
    """Return the name of a topic, or of a partition of a partitioned topic, for Pulsar's
    clients.
    """
    full = f"persistent://{topic.name.full}"
    return full if index is None or not topic.partitioned else f"{full}-partition-{index}"


def shown_name(name: bytes) -> str:
    """Return the name of a subscription as text; bytes that are no UTF-8 are escaped."""
    return name.decode(errors="backslashreplace")


def full_names(topics: Sequence[Topic]) -> list[str]:
    """Return topic names as Pulsar lists them: each partition of a partitioned topic separately."""
    return [
        full_name(topic, index)
        for topic in topics
        for index in range(len(topic.partitions) if topic.partitioned else 1)
    ]
