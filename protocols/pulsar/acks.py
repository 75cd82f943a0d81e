"""ACK and REDELIVER_UNACKNOWLEDGED_MESSAGES.

"Consumer" in Apache Pulsar's binary protocol document.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from braidlog.broker.errors import BrokerError
from braidlog.protocols.pulsar import messages
from braidlog.protocols.pulsar.errors import CommandRefused, refusal
from braidlog.protocols.pulsar.positions import entry_id, whole_entries
from braidlog.storage.formats.pulsar.pb.PulsarApi_pb2 import (
    CommandAck,
    CommandRedeliverUnacknowledgedMessages,
    ServerError,
)

if TYPE_CHECKING:
    from braidlog.broker.delivery.delivery import Delivery
    from braidlog.protocols.pulsar.client import PulsarClient
    from braidlog.protocols.pulsar.consumer import PulsarConsumer


def ack(client: PulsarClient, command: CommandAck) -> Awaitable[None] | None:
    """Acknowledge; return an awaitable if that has to wait. Only a request with an id is answered,
    once it is on disk.
    """
    consumer = client.consumers.get(command.consumer_id)
    if consumer is None or consumer.dispatcher is None:
        return None
    dispatcher, lazy = consumer.dispatcher, not command.HasField("request_id")
    try:
        if command.HasField("txnid_most_bits"):
            raise CommandRefused(ServerError.NotAllowedError, "Transactions are not enabled.")
        ticket = None
        if command.ack_type == CommandAck.Individual:
            entries, others = whole_entries(command.message_id, dispatcher.partition.partition_id)
            if not others:
                ticket = dispatcher.acknowledge_at_once(consumer, entries, lazy=lazy)
    except (BrokerError, CommandRefused) as error:
        _refuse(client, command, error)
        return None
    if ticket is None:
        return _ack(client, command, consumer, dispatcher)
    _answer(client, command, ticket)
    return None


async def _ack(
    client: PulsarClient, command: CommandAck, consumer: PulsarConsumer, dispatcher: Delivery
) -> None:
    try:
        lazy = not command.HasField("request_id")
        ticket = await _acknowledge(consumer, dispatcher, command, lazy)
    except BrokerError as error:
        _refuse(client, command, error)
        return
    _answer(client, command, ticket)


def _answer(client: PulsarClient, command: CommandAck, ticket: int) -> None:
    if command.HasField("request_id"):
        answer = messages.ack_response(command.consumer_id, command.request_id)
        client.outbox.answer([answer], ticket)


def _refuse(client: PulsarClient, command: CommandAck, error: BrokerError | CommandRefused) -> None:
    refused = refusal(error)
    client.connection.log.warning("ack_refused", reason=refused.text)
    if command.HasField("request_id"):
        answer = messages.ack_response(
            command.consumer_id, command.request_id, (refused.code, refused.text)
        )
        client.outbox.answer([answer])


async def _acknowledge(
    consumer: PulsarConsumer, dispatcher: Delivery, command: CommandAck, lazy: bool
) -> int:
    named = command.message_id
    if command.ack_type == CommandAck.Individual:
        entries, others = whole_entries(named, dispatcher.partition.partition_id)
        return await dispatcher.acknowledge(consumer, others, lazy=lazy, entries=entries)
    if len(named) != 1:  # Apache answers without error, and does nothing.
        return 0
    return await dispatcher.acknowledge_to(consumer, entry_id(named[0]), lazy=lazy)


def redeliver(client: PulsarClient, command: CommandRedeliverUnacknowledgedMessages) -> None:
    """Redeliver unacknowledged entries of the consumer: the named entries, or all."""
    consumer = client.consumers.get(command.consumer_id)
    if consumer is None or consumer.dispatcher is None:
        return
    if not consumer.dispatcher.redelivers:
        return
    if command.HasField("consumer_epoch") and not command.message_ids:
        # A lower epoch redelivers too, but the consumer keeps the higher epoch.
        consumer.set_epoch(max(consumer.epoch or 0, command.consumer_epoch))
    ids = [entry_id(data) for data in command.message_ids]
    consumer.dispatcher.redeliver(consumer, ids)
