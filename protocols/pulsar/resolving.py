"""What a topic name in a Pulsar command leads to, and whether the client may go there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import trio

from broker.access.rights import Action, Resource
from broker.cluster.placement import NOBODY
from broker.errors import BrokerError, InvalidRequest, NamespaceNotFound, TopicNotFound
from protocols.pulsar.errors import Refused
from protocols.pulsar.names import is_live, is_unknown, parse
from storage.codecs.pb.PulsarApi_pb2 import ServerError

if TYPE_CHECKING:
    from broker.live.topic import LiveTopic
    from broker.topics.partition import Partition
    from broker.topics.topic import Topic
    from protocols.pulsar.client import Client
    from storage.metadata.names import TopicName

# For a topic to have an owner: one that was killed is followed a lease (5 s) and what taking takes
# later.
FIND_S: Final = 10.0
LOOK_S: Final = 0.05


def resolve(client: Client, action: Action, text: str) -> tuple[TopicName, int | None]:
    """The topic that is meant, persistent or not, for that action, and the partition's number if
    the name has one. Raises InvalidName, NotAuthorized, NamespaceNotFound.
    """
    name, index = parse(client.broker.topics, text)
    client.connection.check(action, Resource.of_topic(name))
    try:
        client.broker.namespaces.get(name.tenant, name.namespace)
    except NamespaceNotFound:
        raise NamespaceNotFound("Namespace not found") from None  # Apache's words.
    return name, index


def is_deduplicated(client: Client, text: str) -> bool:
    """Whether the name is that of a topic that is there, and stores nothing twice."""
    topics = client.broker.topics
    if is_live(text):
        return False
    try:
        topic = topics.find(parse(topics, text)[0])
    except BrokerError:
        return False
    return topic is not None and topics.is_deduplicated(topic)


def is_unowned(client: Client, text: str) -> bool:
    """Whether the topic of that name is on its way from one broker to another: nobody serves it."""
    if client.broker.siblings.is_alone:
        return False
    try:
        name, _ = parse(client.broker.topics, text)
    except BrokerError:
        return False
    return client.broker.placement.owner(name) is NOBODY


async def await_owner(client: Client, text: str) -> None:
    """Wait for a broker to serve the topic, if none does; `FIND_S` at most. Go's client does not
    try again what is refused for now.
    """
    deadline = trio.current_time() + FIND_S
    while is_unowned(client, text) and trio.current_time() < deadline:
        await trio.sleep(LOOK_S)


async def find(client: Client, action: Action, text: str) -> Topic | None:
    """The persistent topic that a name leads to, None where there is none. One that is not known
    here, or not with that partition, may have been told to the client by a broker that is ahead of
    this one in following the catalogue: the catalogue's owner is asked.

    Raises what `resolve` raises; OwnedElsewhere where the owner does not answer.
    """
    topics = client.broker.topics
    name, _ = resolve(client, action, text)
    if is_unknown(topics, text):
        await client.broker.siblings.follow()
    return topics.find(name)


async def make_missing(client: Client, action: Action, text: str) -> Topic:
    """The topic that a producer or consumer means, made if it is missing and may be made.

    Raises what `find` and creating raise; TopicNotFound.
    """
    topics = client.broker.topics
    topic = await find(client, action, text)
    if topic is not None:
        return topic
    name, index = resolve(client, action, text)
    client.connection.check(Action.CREATE, Resource.of_topic(name))
    if index:
        raise TopicNotFound(f"Topic not found: {name}")
    return await topics.auto_create(name)


@dataclass(frozen=True, slots=True)
class Named:
    """What a producer or consumer asks for."""

    topic: Topic
    partition: Partition
    holds_layout: bool  # It was named as a topic without partitions, which it then has to stay.


def named_partition(client: Client, action: Action, text: str) -> Named:
    """The partition of a persistent topic that a producer or consumer means.

    Raises what `resolve` raises; TopicNotFound, PartitionNotFound, Refused.
    """
    topics = client.broker.topics
    name, index = resolve(client, action, text)
    topic = topics.find(name)
    if topic is None:
        raise TopicNotFound(f"Topic not found: {name}")
    try:
        partition = topics.pulsar_partition(name, index)
    except InvalidRequest as error:
        raise Refused(ServerError.NotAllowedError, str(error)) from error
    return Named(topic, partition, index is None and not topic.partitioned)


def live_topic(client: Client, action: Action, text: str, *, make: bool) -> LiveTopic:
    """The non-persistent topic, or the partition of one, that is meant, made if it is missing and
    may be made. Raises what `resolve` raises; TopicNotFound, PartitionNotFound, LimitExceeded,
    Refused.
    """
    live = client.broker.live
    name, index = resolve(client, action, text)
    if make and live.find(name, index) is None and not live.partitions(name):
        client.connection.check(Action.CREATE, Resource.of_topic(name))
    try:
        return live.get(name, index, make=make)
    except InvalidRequest as error:
        raise Refused(ServerError.NotAllowedError, str(error)) from error
