"""PARTITIONED_METADATA, LOOKUP and GET_TOPICS_OF_NAMESPACE.

"Service discovery" in Apache Pulsar's binary protocol document.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from braidlog.broker.access.rights import Action, Resource
from braidlog.broker.errors import (
    NotAuthorized,
    NotOwner,
    PartitionNotFound,
    TopicNotFound,
)
from braidlog.broker.runtime.endings import ProtocolError
from braidlog.broker.server.connection import address_text
from braidlog.broker.server.opened import listener_of
from braidlog.protocols.pulsar import messages
from braidlog.protocols.pulsar.errors import CommandRefused
from braidlog.protocols.pulsar.names import (
    full_names,
    is_coordinator,
    is_missing,
    is_non_persistent,
    is_system,
    is_unknown,
)
from braidlog.protocols.pulsar.resolving import (
    await_owner,
    find,
    is_unowned,
    make_missing,
    resolve,
)
from braidlog.protocols.pulsar.topic_lists import topics_hash
from braidlog.storage.formats.pulsar.pb.PulsarApi_pb2 import (
    CommandGetTopicsOfNamespace,
    CommandLookupTopic,
    CommandPartitionedTopicMetadata,
    ServerError,
)

if TYPE_CHECKING:
    from braidlog.broker.cluster.placement import Owner
    from braidlog.protocols.pulsar.client import PulsarClient
    from braidlog.storage.metadata.names import TopicName

LANE = "discovery"


def partitioned_metadata(client: PulsarClient, command: CommandPartitionedTopicMetadata) -> None:
    """Answer how many partitions a topic has; 0 if it has none, or does not exist yet."""
    if is_coordinator(command.topic):
        client.outbox.put([messages.partitions(command.request_id, 0)])
    elif _is_to_be_made(client, command):
        work = partial(_make_and_tell_partitions, client, command)
        client.lanes.in_order((LANE, command.request_id), work)
    elif is_unknown(client.broker.topics, command.topic) and not client.broker.peers.is_alone:
        work = partial(_find_and_tell_partitions, client, command)
        client.lanes.in_order((LANE, command.request_id), work)
    else:
        _tell_partitions(client, command)


async def _find_and_tell_partitions(
    client: PulsarClient, command: CommandPartitionedTopicMetadata
) -> None:
    with client.refusing(command.request_id, messages.partitions_failed):
        await find(client, Action.DESCRIBE, command.topic)
        _tell_partitions(client, command)


def _is_to_be_made(client: PulsarClient, command: CommandPartitionedTopicMetadata) -> bool:
    """Return True if the topic must be created to know its partitions: new topics have several."""
    topics = client.broker.topics
    if not topics.defaults.auto_create or topics.defaults.num_partitions == 1:
        return False
    if not _may_create(command) or not is_missing(topics, command.topic):
        return False
    return topics.resolve_pulsar(command.topic)[1] is None


def _may_create(command: CommandPartitionedTopicMetadata) -> bool:
    return (
        not command.HasField("metadata_auto_creation_enabled")
        or command.metadata_auto_creation_enabled
    )


async def _make_and_tell_partitions(
    client: PulsarClient, command: CommandPartitionedTopicMetadata
) -> None:
    with client.refusing(command.request_id, messages.partitions_failed):
        missing = await make_missing(client, Action.DESCRIBE, command.topic)
        _tell_partitions(client, command, missing.ticket)


def _tell_partitions(
    client: PulsarClient, command: CommandPartitionedTopicMetadata, ticket: int = 0
) -> None:
    topics = client.broker.topics
    with client.refusing(command.request_id, messages.partitions_failed):
        name, index = resolve(client, Action.DESCRIBE, command.topic)
        if is_non_persistent(command.topic):
            _tell_non_persistent_partitions(client, command, name, index)
            return
        topic = topics.find(name)
        if topic is None and not _may_create(command):
            raise TopicNotFound("")
        if topic is not None and index is not None and index >= len(topic.partitions):
            raise PartitionNotFound(f"{name} has no partition {index}")
        is_partitioned = topic is not None and topic.partitioned and index is None
        count = len(topic.partitions) if topic is not None and is_partitioned else 0
        client.outbox.answer([messages.partitions(command.request_id, count)], ticket)


def _tell_non_persistent_partitions(
    client: PulsarClient,
    command: CommandPartitionedTopicMetadata,
    name: TopicName,
    index: int | None,
) -> None:
    """The same of a non-persistent topic. Raises TopicNotFound, PartitionNotFound."""
    topics = client.broker.non_persistent
    if not topics.exists(name) and not _may_create(command):
        raise TopicNotFound("")
    count = topics.partitions(name)
    if count and index is not None and index >= count:
        raise PartitionNotFound(f"{name} has no partition {index}")
    answer = messages.partitions(command.request_id, count if index is None else 0)
    client.outbox.answer([answer])


def lookup(client: PulsarClient, command: CommandLookupTopic) -> None:
    """Answer where a topic's owner is. The topic need not exist yet."""
    if is_unowned(client, command.topic):
        work = partial(_look_up_later, client, command)
        client.lanes.in_order((LANE, command.request_id), work)
    else:
        _tell_address(client, command)


async def _look_up_later(client: PulsarClient, command: CommandLookupTopic) -> None:
    await await_owner(client, command.topic)
    _tell_address(client, command)


def _tell_address(client: PulsarClient, command: CommandLookupTopic) -> None:
    connection, owner = client.connection, None
    address: tuple[str, int] = connection.advertised
    with client.refusing(command.request_id, messages.lookup_failed):
        if not is_coordinator(command.topic):
            name, _ = resolve(client, Action.DESCRIBE, command.topic)
            owner = client.broker.placement.owner(name)
            address = _address(client, owner, name)
        if command.advertised_listener_name not in ("", connection.listener_name):
            listener = command.advertised_listener_name  # Apache's words; its code is retried.
            raise CommandRefused(
                ServerError.NotAllowedError, f"the broker do not have {listener} listener"
            )
        is_encrypted = connection.is_encrypted
        urls = {is_encrypted: service_url(*address, is_encrypted=is_encrypted)}
        other = _other_address(client, owner)
        if other is not None:
            urls[not is_encrypted] = service_url(*other, is_encrypted=not is_encrypted)
        answer = messages.lookup(command.request_id, urls.get(False, ""), urls.get(True, ""))
        client.outbox.put([answer])


def _other_address(client: PulsarClient, owner: Owner | None) -> tuple[str, int] | None:
    """Return the owner's address for clients with TLS if this client has none, and the reverse;
    None without such a listener.
    """
    connection, listeners = client.connection, client.broker.listeners.values()
    is_encrypted = not connection.is_encrypted
    listener = listener_of(listeners, connection.protocol, is_encrypted=is_encrypted)
    if listener is None:
        return None
    if owner is not None:
        return owner.addresses.get(listener.name)
    return listener.advertised_to((connection.advertised[0], listener.bound[1]))


def _address(client: PulsarClient, owner: Owner | None, name: TopicName) -> tuple[str, int]:
    """Return the address of the owner's listener of the same name. Raises NotOwner without one."""
    if owner is None:
        return client.connection.advertised
    address = owner.addresses.get(client.connection.listener_name)
    if address is None:
        raise NotOwner(f"no broker serves {name} now")
    return address


def service_url(host: str, port: int, *, is_encrypted: bool = False) -> str:
    """The address as clients are told it."""
    scheme = "pulsar+ssl" if is_encrypted else "pulsar"
    return f"{scheme}://{address_text((host, port))}"


def topics_of_namespace(client: PulsarClient, command: CommandGetTopicsOfNamespace) -> None:
    """Answer with every topic of a namespace that the client may see.

    A pattern is left to the client: Java's regular expressions are not Python's, and one can be
    written to run for ever.
    """
    parts = namespace_of(command.namespace)
    try:
        client.connection.check_within(Resource.of_namespace(*parts))
    except NotAuthorized as error:
        client.refuse(command.request_id, error)
        return
    client.lanes.in_order((LANE, command.request_id), partial(_tell_topics, client, command, parts))


async def _tell_topics(
    client: PulsarClient, command: CommandGetTopicsOfNamespace, parts: tuple[str, str]
) -> None:
    names: list[str] = []
    if command.mode != CommandGetTopicsOfNamespace.NON_PERSISTENT:
        topics = client.broker.topics.list(*parts)
        for topic in await client.connection.seen(parts, topics, lambda topic: topic.resource):
            if not is_system(topic.name) and not topic.deleted:
                partitions = len(topic.partitions)
                names += full_names(partitions, topic.name, partitioned=topic.partitioned)
    if command.mode != CommandGetTopicsOfNamespace.PERSISTENT:
        channels = client.broker.non_persistent.list(*parts)
        seen = await client.connection.seen(parts, channels, lambda channel: channel.topic.resource)
        names += [channel.full for channel in seen]
        named = [*(await client.broker.peers.non_persistent(parts)).items()]
        theirs = await client.connection.seen(
            parts, named, lambda candidate: Resource.of_topic(candidate[1])
        )
        names = [*dict.fromkeys([*names, *(full for full, _ in theirs)])]
    digest = topics_hash(names)
    changed = not (command.HasField("topics_hash") and command.topics_hash == digest)
    answer = messages.topics_of_namespace(
        command.request_id, names if changed else (), digest, filtered=False, changed=changed
    )
    client.outbox.put([answer])


def namespace_of(text: str) -> tuple[str, str]:
    """Tenant and namespace of `tenant/namespace`. Raises ProtocolError for anything else."""
    tenant, _, namespace = text.partition("/")
    if not tenant or not namespace or "/" in namespace:
        raise ProtocolError(f"{text!r} is not a namespace")
    return tenant, namespace
