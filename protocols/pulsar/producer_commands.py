"""PRODUCER and CLOSE_PRODUCER: "Producer" in Apache Pulsar's binary protocol document."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from braidlog.broker.access.rights import Action, Resource
from braidlog.broker.delivery.channel import Channel
from braidlog.broker.delivery.open_producers import AccessMode, Producer
from braidlog.broker.errors import BrokerError
from braidlog.protocols.pulsar import messages, names, resolving, schemas
from braidlog.protocols.pulsar.client import metadata_of
from braidlog.protocols.pulsar.errors import CommandRefused
from braidlog.storage.formats.pulsar.pb.PulsarApi_pb2 import (
    CommandCloseProducer,
    CommandProducer,
    ServerError,
)

if TYPE_CHECKING:
    from braidlog.broker.topics.producer_memory import SequenceTable
    from braidlog.broker.topics.topic import Topic
    from braidlog.protocols.pulsar.client import PulsarClient

LANE = "producer"


def producer(client: PulsarClient, command: CommandProducer) -> None:
    """Open a producer, at once if possible. Opening waits while the topic is created or moves, the
    stored sequences of the topic's producers are read, or an older producer of the same name is
    probed.
    """
    lane = (LANE, command.producer_id)
    topics, topic = client.broker.topics, command.topic
    if names.is_unknown(topics, topic) or resolving.is_unowned(client, topic):
        client.lanes.in_order(lane, partial(_open_with_topic, client, command))
    elif resolving.is_deduplicated(client, topic):
        client.lanes.in_order(lane, partial(_open_remembered, client, command))
    else:
        client.lanes.promptly(lane, partial(_open, client, command))


async def _open_with_topic(client: PulsarClient, command: CommandProducer) -> None:
    with client.refusing(command.request_id):
        await resolving.await_owner(client, command.topic)
        await resolving.make_missing(client, Action.PRODUCE, command.topic)
        if resolving.is_deduplicated(client, command.topic):
            await _open_remembered(client, command)
        else:
            _open(client, command)


async def _open_remembered(client: PulsarClient, command: CommandProducer) -> None:
    """Open a producer with deduplicated messages."""
    with client.refusing(command.request_id):
        named = resolving.named_partition(client, Action.PRODUCE, command.topic)
        await named.partition.check_room()
        await named.partition.sequences()
        _open(client, command, is_remembered=True, has_room=True)


async def _open_with_room(
    client: PulsarClient, command: CommandProducer, partition: Channel, *, is_remembered: bool
) -> None:
    with client.refusing(command.request_id):
        await partition.check_room()
        _open(client, command, is_remembered=is_remembered, has_room=True)


def _open(
    client: PulsarClient,
    command: CommandProducer,
    *,
    is_remembered: bool = False,
    has_room: bool = False,
) -> None:
    """Open a producer. `is_remembered`: deduplication is on, and the stored sequences of the
    partition's producers are loaded. `has_room`: disk space was checked.
    """
    known = client.producers.get(command.producer_id)
    if known is not None:
        if command.epoch <= known.epoch:
            known.request_id = command.request_id
            client.answer_producer(known, known.partition.appended_ticket)
            return
        client.drop_producer(known)  # The client reconnected, and the broker missed the disconnect.
    with client.refusing(command.request_id):
        most = client.shared.limits.producers
        if len(client.producers) >= most:
            text = f"a connection has at most {most} producers"
            raise CommandRefused(ServerError.NotAllowedError, text)
        place = _place(client, command.topic)
        partition = place[1]
        # A client with a refused SEND reconnects, and each success restarts the client's own
        # timeout (C++ and all clients built on C++): the client would never report a full disk.
        if not has_room and partition.lacked_room:
            work = partial(_open_with_room, client, command, partition, is_remembered=is_remembered)
            client.lanes.in_order((LANE, command.producer_id), work)
            return
        if is_remembered and partition.known_sequences is None:  # The topic was recreated.
            work = partial(_open_remembered, client, command)
            client.lanes.in_order((LANE, command.producer_id), work)
            return
        opened, ticket = _prepare(client, command, *place)
        if client.shared.producers.in_the_way(opened) is not None:
            work = partial(_open_after_probe, client, command, opened, is_remembered=is_remembered)
            client.lanes.in_order((LANE, command.producer_id), work)
            return
        stored = partition.known_sequences if is_remembered else None
        ticket = max(ticket, _admit(client, command, opened, stored))
        client.answer_producer(opened, ticket)


async def _open_after_probe(
    client: PulsarClient, command: CommandProducer, opened: Producer, *, is_remembered: bool
) -> None:
    with client.refusing(command.request_id):
        await client.shared.producers.probe(opened)
        _open(client, command, is_remembered=is_remembered)


def _prepare(
    client: PulsarClient,
    command: CommandProducer,
    topic: Topic,
    partition: Channel,
    holds_layout: bool,
) -> tuple[Producer, int]:
    """Return the requested producer, not admitted yet, and the ticket that the answer waits for."""
    partition.check_open()
    client.broker.client_policies.check_producer(topic, partition, encrypts=command.encrypted)
    opened = Producer(
        client,
        topic,
        partition,
        command.producer_id,
        command.producer_name or client.shared.producer_name(),
        command.epoch,
        AccessMode(command.producer_access_mode),
        command.request_id,
        client.broker.now_us(),
        metadata_of(command),
        holds_layout=holds_layout,
    )
    ticket = topic.ticket
    if not command.HasField("schema"):
        schemas.check_needed(topic)
    else:
        opened.schema_version, schema_ticket = schemas.of_producer(client, topic, command.schema)
        ticket = max(ticket, schema_ticket)
    return opened, ticket


def _place(client: PulsarClient, text: str) -> tuple[Topic, Channel, bool]:
    """Return the topic that a name means, and the channel; the flag is set if the topic must
    stay unpartitioned meanwhile. Raises the errors of resolving.
    """
    if names.is_non_persistent(text):
        channel = resolving.non_persistent_channel(client, Action.PRODUCE, text, make=True)
        return channel.topic, channel, False
    named = resolving.named_partition(client, Action.PRODUCE, text)
    return named.topic, named.partition, named.holds_layout


def _admit(
    client: PulsarClient, command: CommandProducer, opened: Producer, stored: SequenceTable | None
) -> int:
    """Admit or queue the producer. Returns a ticket."""
    topic_epoch = command.topic_epoch if command.HasField("topic_epoch") else None
    client.shared.producers.admit(opened, topic_epoch)
    if opened.holds_layout:
        opened.topic.hold_layout()
    opened.partition.producer_joined()
    client.producers[opened.producer_id] = opened
    client.connection.written_topics.note(opened.topic.resource)
    client.producers_on(opened.partition).inc()
    try:
        ticket = _register(client, command, opened, is_remembered=stored is not None)
        if stored is not None:
            state = stored.find(opened.number)
            opened.last_sequence = messages.NO_ENTRY if state is None else state.last_sequence
            ticket = max(ticket, opened.partition.appended_ticket)
        return ticket
    except (BrokerError, CommandRefused):
        client.drop_producer(opened)
        raise


def _register(
    client: PulsarClient, command: CommandProducer, opened: Producer, *, is_remembered: bool
) -> int:
    """Record the producer, and the requested subscription, in the catalogue. Returns a ticket."""
    ticket = 0
    if not opened.partition.is_persistent:
        return ticket
    if is_remembered or (command.producer_name and command.user_provided_producer_name):
        opened.number, ticket = client.broker.producers.number(opened.name.encode(), opened.topic)
        opened.holds_number = True
    elif opened.topic_epoch is not None:
        ticket = client.broker.producers.ticket
    if command.initial_subscription_name:
        ticket = max(ticket, _make_subscription(client, command, opened))
    return ticket


def _make_subscription(client: PulsarClient, command: CommandProducer, opened: Producer) -> int:
    """Create the subscription that a dead letter producer requests, from the first entry on."""
    partition = opened.partition.stored()
    name = command.initial_subscription_name.encode()
    client.connection.check(Action.CONSUME, Resource.of_group(name, opened.topic.name))
    subscription = client.broker.subscriptions.open(opened.topic, name)
    return subscription.start(partition.index, partition.log_start_offset)


def close_producer(client: PulsarClient, command: CommandCloseProducer) -> None:
    """Close a producer; closing an unknown producer succeeds too (some clients close twice)."""
    client.lanes.promptly((LANE, command.producer_id), partial(_close, client, command))


def _close(client: PulsarClient, command: CommandCloseProducer) -> None:
    known = client.producers.get(command.producer_id)
    if known is not None:
        if not known.is_ready:  # The client gave up waiting; the pending PRODUCER is answered now.
            fenced = CommandRefused(ServerError.ProducerFenced, "Closed before its turn came")
            client.refuse(known.request_id, fenced)
        client.drop_producer(known)
    client.outbox.answer([messages.success(command.request_id)])
