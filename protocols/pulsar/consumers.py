"""FLOW, CLOSE_CONSUMER and UNSUBSCRIBE.

"Consumer" in Apache Pulsar's binary protocol document.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from braidlog.broker.access.rights import Action, Resource
from braidlog.broker.runtime.endings import ProtocolError
from braidlog.protocols.pulsar import messages
from braidlog.protocols.pulsar.errors import CommandRefused
from braidlog.storage.formats.pulsar.pb.PulsarApi_pb2 import (
    CommandCloseConsumer,
    CommandFlow,
    CommandUnsubscribe,
    ServerError,
)

if TYPE_CHECKING:
    from braidlog.broker.delivery.delivery import Delivery
    from braidlog.protocols.pulsar.client import PulsarClient
    from braidlog.protocols.pulsar.consumer import PulsarConsumer

LANE: Final = "consumer"


def flow(client: PulsarClient, command: CommandFlow) -> None:
    """Grant permits for more messages; for an unknown consumer they are ignored."""
    if not command.messagePermits:
        raise ProtocolError("FLOW without permits")
    consumer = client.consumers.get(command.consumer_id)
    if consumer is not None:
        if consumer.dispatcher is not None and consumer.is_attached:
            consumer.dispatcher.flow(consumer, command.messagePermits)
        else:
            consumer.flowed(command.messagePermits, client.broker.now_us())


def close_consumer(client: PulsarClient, command: CommandCloseConsumer) -> None:
    """Close a consumer; for an unknown consumer that succeeds too (some clients send it twice)."""
    client.lanes.promptly((LANE, command.consumer_id), partial(_close, client, command))


def _close(client: PulsarClient, command: CommandCloseConsumer) -> None:
    consumer = client.consumers.get(command.consumer_id)
    if consumer is not None:
        consumer.leave()
    client.outbox.answer([messages.success(command.request_id)])


def unsubscribe(client: PulsarClient, command: CommandUnsubscribe) -> None:
    """Delete the subscription's cursor on this partition, and close the consumer."""
    client.lanes.promptly((LANE, command.consumer_id), partial(_unsubscribe, client, command))


def _unsubscribe(client: PulsarClient, command: CommandUnsubscribe) -> None:
    with client.refusing(command.request_id):
        consumer, dispatcher = attached(client, command.consumer_id)
        others = [other for other in dispatcher.consumers if other is not consumer]
        if others and not command.force:
            raise CommandRefused(
                ServerError.MetadataError,
                "Unconnected or shared consumer attempting to unsubscribe",
            )
        consumer.leave()
        for other in others:
            dispatcher.leave(other)
            other.disconnect()
        ticket = dispatcher.unsubscribe()
        client.outbox.answer([messages.success(command.request_id)], ticket)


def attached(client: PulsarClient, consumer_id: int) -> tuple[PulsarConsumer, Delivery]:
    """Return the consumer of that number and its dispatcher, if the client may still consume there.

    Raises CommandRefused if it is not attached, NotAuthorized.
    """
    consumer = client.consumers.get(consumer_id)
    if consumer is None or consumer.dispatcher is None:
        raise CommandRefused(ServerError.MetadataError, "Consumer not found")
    dispatcher = consumer.dispatcher
    topic = dispatcher.partition.topic.name
    client.connection.check(Action.CONSUME, Resource.of_group(dispatcher.name, topic))
    return consumer, dispatcher
