"""Resolve the topic names of Pulsar commands and check the client's rights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from braidlog.broker.access.rights import Action, Resource
from braidlog.broker.cluster.placement import NOBODY, elsewhere
from braidlog.broker.errors import BrokerError, InvalidRequest, NamespaceNotFound, TopicNotFound
from braidlog.protocols.pulsar.errors import CommandRefused
from braidlog.protocols.pulsar.names import is_non_persistent, is_unknown, parse
from braidlog.storage.formats.pulsar.pb.PulsarApi_pb2 import ServerError

if TYPE_CHECKING:
    from braidlog.broker.delivery.non_persistent.channel import NonPersistentChannel
    from braidlog.broker.topics.partition import Partition
    from braidlog.broker.topics.topic import Topic
    from braidlog.protocols.pulsar.client import PulsarClient
    from braidlog.storage.metadata.names import TopicName


def resolve(client: PulsarClient, action: Action, text: str) -> tuple[TopicName, int | None]:
    """Return the topic that a name means, persistent or not, and the partition number in the name,
    if any; check the action. Raises InvalidName, NotAuthorized, NamespaceNotFound.
    """
    name, index = parse(client.broker.topics, text)
    client.connection.check(action, Resource.of_topic(name))
    try:
        client.broker.namespaces.get(name.tenant, name.namespace)
    except NamespaceNotFound:
        raise NamespaceNotFound("Namespace not found") from None  # Apache's words.
    return name, index


def is_deduplicated(client: PulsarClient, text: str) -> bool:
    """Return True for the name of an existing topic with deduplication."""
    topics = client.broker.topics
    if is_non_persistent(text):
        return False
    try:
        topic = topics.find(parse(topics, text)[0])
    except BrokerError:
        return False
    return topic is not None and topics.is_deduplicated(topic)


def is_unowned(client: PulsarClient, text: str) -> bool:
    """Return True if no broker serves the topic now: the topic is moving between brokers."""
    if client.broker.peers.is_alone:
        return False
    try:
        name, _ = parse(client.broker.topics, text)
    except BrokerError:
        return False
    return client.broker.placement.owner(name) is NOBODY


async def await_owner(client: PulsarClient, text: str) -> None:
    """Wait until a broker serves the topic, at most `find_s`: the Go client does not retry after a
    temporary refusal.
    """
    tries = client.broker.peers.tries(client.shared.limits.find_s)
    while is_unowned(client, text) and await tries.again(elsewhere(text, NOBODY)):
        pass


async def find(client: PulsarClient, action: Action, text: str) -> Topic | None:
    """Return the persistent topic that a name means; None if there is none. If the topic or
    partition is unknown here, the catalogue's owner is asked first: another broker with a newer
    catalogue may have named the topic to the client.

    Raises as `resolve`; NotOwner if the owner does not answer.
    """
    topics = client.broker.topics
    name, _ = resolve(client, action, text)
    if is_unknown(topics, text):
        await client.broker.peers.follow()
    return topics.find(name)


async def make_missing(client: PulsarClient, action: Action, text: str) -> Topic:
    """Return the topic of a producer or consumer; a missing topic is created if allowed.

    Raises as `find` and creation; TopicNotFound.
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
class ResolvedTopic:
    """The topic and partition of a producer or consumer."""

    topic: Topic
    partition: Partition
    holds_layout: bool  # Named without a partition: the topic must stay unpartitioned.


def named_partition(client: PulsarClient, action: Action, text: str) -> ResolvedTopic:
    """Return the partition of a persistent topic that a producer or consumer means.

    Raises as `resolve`; TopicNotFound, PartitionNotFound, CommandRefused.
    """
    topics = client.broker.topics
    name, index = resolve(client, action, text)
    topic = topics.find(name)
    if topic is None:
        raise TopicNotFound(f"Topic not found: {name}")
    try:
        partition = topics.pulsar_partition(name, index)
    except InvalidRequest as error:
        raise CommandRefused(ServerError.NotAllowedError, str(error)) from error
    return ResolvedTopic(topic, partition, index is None and not topic.partitioned)


def non_persistent_channel(
    client: PulsarClient, action: Action, text: str, *, make: bool
) -> NonPersistentChannel:
    """Return the non-persistent topic or partition that a name means; created if missing and
    `make`. Raises as `resolve`; TopicNotFound, PartitionNotFound, LimitExceeded, CommandRefused.
    """
    non_persistent = client.broker.non_persistent
    name, index = resolve(client, action, text)
    if make and non_persistent.find(name, index) is None and not non_persistent.partitions(name):
        client.connection.check(Action.CREATE, Resource.of_topic(name))
    try:
        return non_persistent.get(name, index, make=make)
    except InvalidRequest as error:
        raise CommandRefused(ServerError.NotAllowedError, str(error)) from error
