"""The topics that members of a group subscribe to, as the broker has them. Knows no group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from braidlog.broker.access.rights import Resource
from braidlog.broker.errors import InvalidName
from braidlog.protocols.kafka.consumer_member import GroupTopics
from braidlog.protocols.kafka.names import visible
from braidlog.protocols.kafka.topic_ids import id_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from braidlog.broker.topics.topic import Topic
    from braidlog.protocols.kafka.context import KafkaContext


def topics_of(context: KafkaContext, names: Iterable[bytes]) -> GroupTopics:
    """Return the topics of these names that exist now."""
    topics: dict[bytes, Topic] = {}
    for name in names:
        try:
            topic = context.broker.topics.find(context.names.topic_name(name))
        except InvalidName:
            continue
        if topic is not None and not topic.deleted and visible(topic.name):
            topics[name] = topic
    ids = {name: id_of(topic) for name, topic in topics.items()}
    counts = {ids[name]: len(topic.partitions) for name, topic in topics.items()}
    return GroupTopics(ids, counts)


def may_name(context: KafkaContext, name: bytes) -> bool:
    """Return True if the client is allowed the request's action on the topic of that name."""
    try:
        resource = Resource.of_topic(context.names.topic_name(name))
    except InvalidName:
        return True  # There is no such topic.
    access, principal = context.broker.access, context.connection.principal
    return access.allows(principal, context.action, resource)
