"""SEEK, GET_LAST_MESSAGE_ID and CONSUMER_STATS: a subscription's position, and how to move it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from braidlog.broker.delivery import entry_reads
from braidlog.broker.delivery.holes import last_batch_index
from braidlog.broker.errors import NotAuthorized
from braidlog.broker.limits import OUTPUT_LAST_BYTES
from braidlog.broker.reading import entries
from braidlog.broker.reading.entries import EntryId
from braidlog.broker.reading.unpacking import run_unpacking
from braidlog.broker.runtime.endings import ProtocolError
from braidlog.protocols.pulsar import messages
from braidlog.protocols.pulsar.consumers import LANE, attached
from braidlog.protocols.pulsar.errors import CommandRefused
from braidlog.protocols.pulsar.names import partition_number
from braidlog.storage.formats.pulsar.pb.PulsarApi_pb2 import (
    CommandConsumerStats,
    CommandGetLastMessageId,
    CommandSeek,
    MessageIdData,
    ServerError,
)

if TYPE_CHECKING:
    from braidlog.broker.topics.partition import Partition
    from braidlog.protocols.pulsar.client import PulsarClient

NOTHING = messages.message_id(entries.EARLIEST, entries.EARLIEST, -1, -1)  # Of an empty topic.


def entry_id(data: MessageIdData) -> EntryId:
    """The id that a client names; its batch index is ignored, as in Apache."""
    ack_set = tuple(data.ack_set) if data.ack_set else ()
    return EntryId(messages.signed(data.ledgerId), messages.signed(data.entryId), ack_set)


def whole_entries(named: Sequence[MessageIdData], ledger: int) -> tuple[list[int], list[EntryId]]:
    """Entry ids of the whole entries of this ledger that are named, and apart all other ids."""
    entries = [  # hot: see make bench
        data.entryId for data in named if data.ledgerId == ledger and not data.ack_set
    ]
    if len(entries) == len(named):
        return entries, []
    others = [entry_id(data) for data in named if data.ledgerId != ledger or data.ack_set]
    return entries, others


def seek(client: PulsarClient, command: CommandSeek) -> None:
    """Close the subscription's consumers, drop its acknowledgements and move its position."""
    client.lanes.in_order((LANE, command.consumer_id), partial(_seek, client, command))


async def _seek(client: PulsarClient, command: CommandSeek) -> None:
    with client.refusing(command.request_id):
        consumer, dispatcher = attached(client, command.consumer_id)
        if not dispatcher.partition.is_persistent:  # As Apache answers: there is nothing to seek.
            client.outbox.answer([messages.success(command.request_id)])
            return
        partition, compacted = dispatcher.partition.stored(), consumer.reads_compacted
        if command.HasField("message_id"):
            place = entry_id(command.message_id)
            resolve = partial(entries.resolve_seek, partition, place, compacted=compacted)
        elif command.HasField("message_publish_time"):
            time_us = command.message_publish_time * 1000
            resolve = partial(entries.resolve_time, partition, time_us)
        else:
            raise CommandRefused(
                ServerError.MetadataError, "Message id and message publish time were not present"
            )
        ticket = await dispatcher.seek(resolve)
        client.outbox.answer([messages.success(command.request_id)], ticket)


def last_message_id(client: PulsarClient, command: CommandGetLastMessageId) -> None:
    """Answer with the partition's last message and the subscription's mark-delete position."""
    client.lanes.in_order((LANE, command.consumer_id), partial(_last_message_id, client, command))


async def _last_message_id(client: PulsarClient, command: CommandGetLastMessageId) -> None:
    with client.refusing(command.request_id):
        consumer, delivery = attached(client, command.consumer_id)
        dispatcher = delivery.stored()
        partition = dispatcher.partition
        last = await _last_id(client, partition, compacted=consumer.reads_compacted)
        deleted = await entries.last_ended(partition, dispatcher.cursor.position)
        entry = messages.NO_ENTRY if deleted is None else deleted.offset
        number = partition_number(partition)
        index = None if number < 0 else number
        mark_delete = messages.message_id(partition.partition_id, entry, index)
        client.outbox.put([messages.last_message_id(command.request_id, last, mark_delete)])


async def _last_id(client: PulsarClient, partition: Partition, *, compacted: bool) -> MessageIdData:
    span = await entries.last_entry(partition, compacted=compacted)
    if span is None:
        return NOTHING
    batch_index = -1
    with await client.broker.output.reserve(OUTPUT_LAST_BYTES) as room:
        read = await entry_reads.read_entries(
            partition, span.offset, 1, compacted=compacted, memory=room
        )
        if read.entries and entries.is_batched(read.entries[0].body):
            work = partial(last_batch_index, read.entries[0])
            batch_index = await run_unpacking(work, before_large=room.grow)
    number = partition_number(partition)
    return messages.message_id(partition.partition_id, span.offset, number, batch_index)


def consumer_stats(client: PulsarClient, command: CommandConsumerStats) -> None:
    """Return counters of a consumer. Apache closes the connection for an unknown consumer."""
    try:
        consumer, dispatcher = attached(client, command.consumer_id)
    except NotAuthorized as error:
        client.refuse(command.request_id, error)
        return
    except CommandRefused as error:
        raise ProtocolError(f"CONSUMER_STATS: {error}") from None
    connected_at = datetime.fromtimestamp(consumer.connected_us / 1_000_000, UTC)
    rates = consumer.rates(client.broker.now_us())
    stats: dict[str, float | int | str | bool] = {
        "consumerName": consumer.name,
        "availablePermits": messages.unsigned(consumer.permits),
        "unackedMessages": consumer.unacked,
        "blockedConsumerOnUnackedMsgs": consumer.is_blocked,
        "address": f"/{client.connection.peer}",
        "connectedSince": connected_at.isoformat().replace("+00:00", "Z"),
        "type": dispatcher.kind.value,
        "msgBacklog": dispatcher.backlog,
        "msgRateOut": rates.messages_out,
        "msgThroughputOut": rates.bytes_out,
        "msgRateRedeliver": rates.redelivered,
        "msgRateExpired": 0.0,  # Not measured.
        "messageAckRate": rates.acked,
    }
    client.outbox.put([messages.consumer_stats(command.request_id, stats)])
