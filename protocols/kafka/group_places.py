"""The partitions in which a group has a position, for requests that name no partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from braidlog.broker.runtime.turns import in_turns
from braidlog.protocols.kafka.names import visible
from braidlog.storage.metadata.names import parse_topic

if TYPE_CHECKING:
    from braidlog.broker.topics.topic import Topic
    from braidlog.protocols.kafka.context import KafkaContext

TOPICS_PER_TURN = 200  # A look at a topic's subscriptions takes some microseconds.


async def group_places(context: KafkaContext, group: bytes) -> dict[Topic, list[int]]:
    """Return the topics of all brokers in which the group has positions, with the partitions, as
    far as the client may see the topic and the group. Raises NotOwner if another broker does not
    answer.
    """
    names, broker = context.names, context.broker
    places: dict[Topic, list[int]] = {}
    topics = broker.topics.list(names.tenant, names.namespace)
    async for topic in in_turns(topics, TOPICS_PER_TURN):
        if not broker.placement.is_here(topic.name):
            continue
        subscription = broker.subscriptions.find(topic, group)
        if subscription is not None and may_see(context, topic, group):
            indexes = range(len(topic.partitions))
            if held := [index for index in indexes if subscription.position(index) is not None]:
                places[topic] = held
    for full, index in await broker.peers.positions(context.asker, group, context.namespace):
        other = broker.topics.find(parse_topic(full))
        if other is not None and may_see(context, other, group):
            places.setdefault(other, []).append(index)
    return places


def may_see(context: KafkaContext, topic: Topic, group: bytes) -> bool:
    """Return True if the client may know that the group reads the topic."""
    return visible(topic.name) and context.may_see(topic) and context.may_see(topic, group)
