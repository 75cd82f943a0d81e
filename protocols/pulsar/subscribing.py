"""SUBSCRIBE: "Consumer" in Apache Pulsar's binary protocol document.

Where a new subscription begins, who may join it, and what a new consumer waits for: a seek under
way, the probe of an older consumer, the disk.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from braidlog.broker.access.rights import Action, Resource
from braidlog.broker.delivery import entry_reads
from braidlog.broker.delivery.cursor import DispatchCursor, reader_cursor
from braidlog.broker.delivery.key_shared import KeySharedDispatcher
from braidlog.broker.errors import (
    BrokerError,
    DamagedLog,
    InvalidRequest,
    NotAuthorized,
    NotOwner,
    OffsetOutOfRange,
    PartitionNotFound,
    ProducerBusy,
    SubscriptionBusy,
)
from braidlog.broker.limits import OUTPUT_LAST_BYTES
from braidlog.broker.reading import entries
from braidlog.protocols.pulsar import messages, names, non_persistent, resolving, schemas
from braidlog.protocols.pulsar.client import metadata_of
from braidlog.protocols.pulsar.consumer import PulsarConsumer
from braidlog.protocols.pulsar.consumers import LANE
from braidlog.protocols.pulsar.errors import CommandRefused
from braidlog.protocols.pulsar.limits import METADATA_BYTES_MAX
from braidlog.protocols.pulsar.positions import entry_id
from braidlog.protocols.pulsar.resolving import ResolvedTopic
from braidlog.protocols.pulsar.subscribe_rules import (
    KINDS,
    check_key_mode,
    check_kind,
    holder_lives,
    key_sharing,
)
from braidlog.storage.formats.pulsar.pb.PulsarApi_pb2 import CommandSubscribe, ServerError

if TYPE_CHECKING:
    from braidlog.broker.delivery.dispatcher import Dispatcher
    from braidlog.broker.topics.partition import Partition
    from braidlog.protocols.pulsar.client import PulsarClient

SubType = CommandSubscribe.SubType

MICROSECONDS: Final = 1_000_000

# Clients that look a topic up again when SUBSCRIBE is refused for now. C++ (Python, Node) tries to,
# but believes itself still connected (HandlerBase::grabCnx in apache/pulsar-client-cpp 4.2) and
# waits for ever; a CLOSE_CONSUMER makes it look.
LOOKS_AGAIN: Final = ("Pulsar-Java", "Pulsar-Go")


def subscribe(client: PulsarClient, command: CommandSubscribe) -> None:
    """Attach a consumer. Permits that come before the answer are kept."""
    consumer = client.consumers.get(command.consumer_id)
    if consumer is not None and consumer.dispatcher is None:
        error = CommandRefused(
            ServerError.ServiceNotReady, "Consumer is already present on the connection"
        )
        client.refuse(command.request_id, error)
        return
    if consumer is None:
        most = client.shared.limits.consumers
        if len(client.consumers) >= most:
            text = f"a connection has at most {most} consumers"
            client.refuse(command.request_id, CommandRefused(ServerError.NotAllowedError, text))
            return
        consumer = _consumer(client, command)
    work = partial(_subscribe, client, command, consumer)
    client.lanes.in_order((LANE, command.consumer_id), work)


def _consumer(client: PulsarClient, command: CommandSubscribe) -> PulsarConsumer:
    epoch = command.consumer_epoch if command.HasField("consumer_epoch") else None
    consumer = PulsarConsumer(
        command.consumer_name,
        command.priority_level,
        [(key_range.start, key_range.end) for key_range in command.keySharedMeta.hashRanges],
        owner=client,
        consumer_id=command.consumer_id,
        epoch=epoch,
        connected_us=client.broker.now_us(),
        metadata=metadata_of(command),
    )
    client.consumers[command.consumer_id] = consumer
    return consumer


async def _subscribe(
    client: PulsarClient, command: CommandSubscribe, consumer: PulsarConsumer
) -> None:
    if client.consumers.get(command.consumer_id) is not consumer:  # Closed meanwhile.
        consumer = _consumer(client, command)
    elif consumer.dispatcher is not None:  # Apache answers so, whatever else the request says.
        client.outbox.put([messages.success(command.request_id)])
        return
    try:
        await _attach(client, command, consumer)
    except (BrokerError, CommandRefused) as error:
        consumer.leave()
        client.refuse(command.request_id, error)
        if isinstance(error, NotOwner) and not client.version_text.startswith(LOOKS_AGAIN):
            client.outbox.answer([messages.close_consumer(command.consumer_id)])
    else:
        client.outbox.answer([messages.success(command.request_id)])
        client.serve_consumers()


async def _attach(
    client: PulsarClient, command: CommandSubscribe, consumer: PulsarConsumer
) -> None:
    """Join the subscription. Raises BrokerError, CommandRefused."""
    _check(command)
    await resolving.await_owner(client, command.topic)
    if names.is_non_persistent(command.topic):
        await non_persistent.attach(client, command, consumer)
        return
    if command.force_topic_creation:
        await resolving.make_missing(client, Action.CONSUME, command.topic)
    else:
        await resolving.find(client, Action.CONSUME, command.topic)
    named = _named(client, command)
    topic, partition = named.topic, named.partition
    subscriber = (partition.partition_id, client.peer, consumer.name, consumer.consumer_id)
    kind, name = KINDS[command.subType], command.subscription.encode()
    policies, dispatchers = client.broker.client_policies, client.shared.dispatchers
    policies.count_subscribe(topic, subscriber)
    policies.check_consumer(topic, name, kind, is_durable=command.durable)
    while True:
        dispatcher = await _existing(client, command, partition, consumer)
        if dispatcher is not None and dispatcher.consumers:
            break
        cursor, ticket = await _cursor(client, command, named, dispatcher)
        await client.broker.durability.reached(max(ticket, topic.ticket))
        await _check_readable(client, partition, cursor.position, command.read_compacted)
        dispatcher = dispatchers.find(partition, name)
        if dispatcher is not None and (dispatcher.consumers or dispatcher.resetting is not None):
            continue  # Another consumer was quicker.
        partition.check_here()
        if not cursor.is_set:
            continue  # Another client has ended the subscription: it begins anew.
        if dispatcher is None or dispatcher.cursor is not cursor or dispatcher.kind is not kind:
            keys = key_sharing(command)
            dispatcher = dispatchers.make(partition, name, kind, cursor, keys=keys)
        break
    # Atomic: no await since the last look at the dispatcher. Rights may have changed meanwhile.
    consumer.reads_compacted = command.read_compacted
    try:
        client.connection.check(Action.CONSUME, Resource.of_group(name, topic.name))
        dispatchers.attach(dispatcher, consumer)
    except NotAuthorized:
        dispatchers.release(dispatcher)
        raise
    except InvalidRequest as error:
        dispatchers.release(dispatcher)
        raise CommandRefused(ServerError.ConsumerAssignError, str(error)) from error
    consumer.attached_to(dispatcher)
    if named.holds_layout:
        consumer.holds_layout = topic
        topic.hold_layout()


def _check(command: CommandSubscribe) -> None:
    if not command.subscription:
        raise ProducerBusy("Empty subscription name")  # This is Apache's error.
    if sum(len(item.key) + len(item.value) for item in command.metadata) > METADATA_BYTES_MAX:
        # With Apache's MetadataError, C++ (Python, Node) would retry until its timeout.
        raise CommandRefused(ServerError.NotAllowedError, "metadata has a max size of 1024 bytes")
    if command.read_compacted and command.subType in (SubType.Shared, SubType.Key_Shared):
        raise CommandRefused(
            ServerError.NotAllowedError,
            "readCompacted only allowed on failover or exclusive subscriptions",
        )


def _named(client: PulsarClient, command: CommandSubscribe) -> ResolvedTopic:
    topics = client.broker.topics
    try:
        named = resolving.named_partition(client, Action.CONSUME, command.topic)
    except PartitionNotFound as error:
        name, _ = topics.resolve_pulsar(command.topic)
        if topics.get(name).partitioned:
            raise
        raise CommandRefused(ServerError.NotAllowedError, str(error)) from error
    group = Resource.of_group(command.subscription.encode(), named.topic.name)
    client.connection.check(Action.CONSUME, group)
    if command.HasField("schema"):
        schemas.of_consumer(client, named.topic, command.schema)
    return named


async def _existing(
    client: PulsarClient,
    command: CommandSubscribe,
    partition: Partition,
    consumer: PulsarConsumer,
) -> Dispatcher | None:
    """The subscription's dispatcher, once a new consumer may join it; None if it has none.

    Raises SubscriptionBusy, CommandRefused.
    """
    name = command.subscription.encode()
    while True:
        dispatcher = client.shared.dispatchers.find(partition, name)
        if dispatcher is None:
            return None
        if dispatcher.resetting is not None:
            await dispatcher.resetting.wait()
            continue
        if not dispatcher.consumers:
            return dispatcher
        _check_same(dispatcher, command)
        try:
            dispatcher.check_room(consumer)
        except InvalidRequest as error:
            raise CommandRefused(ServerError.ConsumerAssignError, str(error)) from error
        except SubscriptionBusy:
            if await holder_lives(client, dispatcher):
                raise
            continue
        return dispatcher


def _check_same(dispatcher: Dispatcher, command: CommandSubscribe) -> None:
    check_kind(dispatcher.kind, command)
    if dispatcher.cursor.is_durable != command.durable:
        raise CommandRefused(
            ServerError.NotAllowedError, "A durable and a non-durable subscription of one name"
        )
    if isinstance(dispatcher, KeySharedDispatcher):
        check_key_mode(dispatcher.policy, command)
        if dispatcher.in_order != key_sharing(command).in_order:
            raise SubscriptionBusy("Subscription has another setting of out-of-order delivery")


async def _cursor(
    client: PulsarClient,
    command: CommandSubscribe,
    named: ResolvedTopic,
    dispatcher: Dispatcher | None,
) -> tuple[DispatchCursor, int]:
    """The position to deliver from, and the ticket after which it is on disk."""
    partition = named.partition
    position: int | None = None
    if command.start_message_rollback_duration_sec:
        back_us = command.start_message_rollback_duration_sec * MICROSECONDS
        position = await entries.resolve_time(partition, client.broker.now_us() - back_us)
    if not command.durable:
        return await _reader_cursor(command, named, dispatcher, position), 0
    properties = {item.key: item.value for item in command.subscription_properties}
    partition.check_here()  # Another one may have its number by now.
    subscription = client.broker.subscriptions.open(
        named.topic, command.subscription.encode(), properties
    )
    if position is not None:
        ticket = subscription.seek(partition.index, position)
    else:
        ticket = subscription.start(partition.index, _initial(command, partition))
    if dispatcher is not None and dispatcher.cursor.is_durable:
        return dispatcher.cursor, ticket
    return DispatchCursor(subscription, partition.index), ticket


async def _reader_cursor(
    command: CommandSubscribe,
    named: ResolvedTopic,
    dispatcher: Dispatcher | None,
    position: int | None,
) -> DispatchCursor:
    """A reader's position: where its own seek has put it, else where it asks to start. After a seek
    by time Java asks for the first message.
    """
    partition = named.partition
    if position is None and dispatcher is not None and not dispatcher.cursor.is_durable:
        return dispatcher.cursor
    if position is None and command.HasField("start_message_id"):
        start = entry_id(command.start_message_id)
        # Both "after the last entry" and "earliest" were asked for: Apache starts at the first.
        is_latest = start.ledger == start.entry == entries.LATEST
        if not (is_latest and command.initialPosition == CommandSubscribe.Earliest):
            position = await entries.resolve_seek(
                partition, start, compacted=command.read_compacted
            )
    if position is None:
        position = _initial(command, partition)
    return reader_cursor(named.topic, command.subscription.encode(), partition.index, position)


def _initial(command: CommandSubscribe, partition: Partition) -> int:
    """Return the first offset of a new subscription."""
    if command.initialPosition == CommandSubscribe.Earliest:
        return entries.earliest(partition, compacted=command.read_compacted)
    return partition.high_watermark


async def _check_readable(
    client: PulsarClient, partition: Partition, position: int, compacted: bool
) -> None:
    """Refuse clearly, instead of sending nothing, if the next record is in a damaged part."""
    if position < partition.high_watermark:
        try:
            with await client.broker.output.reserve(OUTPUT_LAST_BYTES) as room:
                await entry_reads.read_entries(
                    partition, position, 1, compacted=compacted, memory=room
                )
        except OffsetOutOfRange:
            pass  # Below the log start: delivery begins there.
        except DamagedLog as error:
            raise CommandRefused(ServerError.NotAllowedError, str(error)) from error
