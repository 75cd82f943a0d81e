"""A consumer on a connection: what it is sent, FLOW, CLOSE_CONSUMER and UNSUBSCRIBE.

"Consumer" in Apache Pulsar's binary protocol document.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from broker.access.rights import Action, Resource
from broker.delivery.consumer import Consumer
from broker.delivery.cursor import SubscriptionCursor
from broker.delivery.entries import Entry
from broker.errors import BrokerError
from broker.server.endings import ProtocolError
from protocols.pulsar import messages
from protocols.pulsar.errors import Refused
from protocols.pulsar.machine import FRAME_BYTES_MAX
from protocols.pulsar.names import partition_number
from protocols.pulsar.oversize import pieces
from storage.codecs.api import Buffer
from storage.codecs.pb.PulsarApi_pb2 import (
    CommandCloseConsumer,
    CommandFlow,
    CommandUnsubscribe,
    ServerError,
)

if TYPE_CHECKING:
    from broker.delivery.dispatcher import Dispatcher
    from protocols.pulsar.session import PulsarSession

LANE = "consumer"

# What a client must know to be sent: `ProtocolVersion` in Apache's PulsarApi.proto.
BATCH_VERSION = 4
ACTIVE_CHANGE_VERSION = 12
CHECKSUM_VERSION = 11

# Of a MESSAGE before the entry: its ack set may be long, but not for one so large.
HEAD_BYTES_MAX = 1024
ENTRY_BYTES_MAX = FRAME_BYTES_MAX - HEAD_BYTES_MAX


@dataclass(slots=True, eq=False, kw_only=True)
class PulsarConsumer(Consumer):
    """A consumer from its SUBSCRIBE on; it has a dispatcher once it is attached."""

    session: PulsarSession
    consumer_id: int
    dispatcher: Dispatcher | None = None
    writer: messages.MessageWriter | None = None
    epoch: int | None = None  # Java's: its messages carry it, so that it can tell old ones.
    holds_layout: bool = False  # It was opened by the name of a topic without partitions.
    connected_at_us: int = 0

    def attached_to(self, dispatcher: Dispatcher) -> None:
        """It is served from here on."""
        partition = dispatcher.partition
        self.dispatcher = dispatcher
        self.writer = messages.MessageWriter(
            self.consumer_id, partition.partition_id, partition_number(partition)
        )
        self.set_epoch(self.epoch)

    def set_epoch(self, epoch: int | None) -> None:
        """Messages carry this epoch from now on."""
        self.epoch = epoch
        if epoch is not None and self.writer is not None:
            self.writer.set_epoch(epoch)

    def send(self, entries: Sequence[Entry], size: int) -> None:
        """Put MESSAGE frames on their way."""
        session = self.session
        assert self.writer is not None
        if session.protocol_version < BATCH_VERSION and has_batch(entries):
            session.end("a batch for a client that knows none")
            return
        session.outbox.put(frames(self, self.writer, entries))
        count(self, entries, size)

    def takes_more(self) -> bool:
        """Whether the socket takes what is sent; the session wakes the dispatcher when it does."""
        outbox = self.session.outbox
        if outbox.over_limit:
            self.session.watch_room()
            return False
        return not outbox.is_broken

    def active_changed(self, *, is_active: bool) -> None:
        """Tell the client, behind the answer to its SUBSCRIBE."""
        if self.session.protocol_version >= ACTIVE_CHANGE_VERSION:
            change = messages.active_consumer_change(self.consumer_id, is_active=is_active)
            self.session.outbox.answer([change])

    def let_go(self) -> None:
        """Detached by the dispatcher: the client is to look up the topic and come again."""
        self.leave()
        session = self.session
        if session.protocol_version >= messages.CLOSING_VERSION:
            session.outbox.put([messages.close_consumer(self.consumer_id)])
        else:
            session.end("its consumer was closed")

    def lost(self, reason: str) -> None:
        """The client has lost its connection without a sign: end it here too."""
        self.leave()
        self.session.end(reason)

    async def is_alive(self) -> bool:
        """Whether the client answers."""
        return await self.session.is_alive()

    def leave(self) -> None:
        """End the consumer; what it holds goes back."""
        session = self.session
        if session.consumers.get(self.consumer_id) is self:
            del session.consumers[self.consumer_id]
        if self.dispatcher is not None:
            if self.holds_layout:
                self.holds_layout = False
                self.dispatcher.partition.topic.layout_users -= 1
            session.listener.dispatchers.detach(self.dispatcher, self)


def frames(
    consumer: PulsarConsumer, writer: messages.MessageWriter, entries: Sequence[Entry]
) -> list[Buffer]:
    """MESSAGE frames: heads, and the entries as they are stored."""
    parts: list[Buffer] = []
    has_checksums = consumer.session.protocol_version >= CHECKSUM_VERSION
    head = writer.head
    for entry in entries:  # hot: see make bench
        body = entry.body
        if has_checksums and len(body) <= ENTRY_BYTES_MAX:
            parts.append(head(entry.offset, entry.redelivery_count, entry.ack_set, len(body)))
            parts.append(body)
        else:
            parts += _unusual(consumer, writer, entry, has_checksums)
    return parts


def _unusual(
    consumer: PulsarConsumer, writer: messages.MessageWriter, entry: Entry, has_checksums: bool
) -> Iterator[Buffer]:
    """The same of an entry too large for one frame, or for a client that knows no checksum."""
    bodies: Sequence[Buffer] = (entry.body,)
    if len(entry.body) > ENTRY_BYTES_MAX:
        bodies = pieces(entry, consumer.name)
        consumer.permits -= len(bodies) - 1  # Each chunk costs its permit.
    for whole in bodies:
        body = whole if has_checksums else messages.without_checksum(whole)
        yield writer.head(entry.offset, entry.redelivery_count, entry.ack_set, len(body))
        yield body


def has_batch(entries: Sequence[Entry]) -> bool:
    """Whether an entry of several messages is among them."""
    return any(entry.record_count > 1 for entry in entries)


def count(consumer: PulsarConsumer, entries: Sequence[Entry], size: int) -> None:
    """Count what was handed over, `size` bytes."""
    session, dispatcher = consumer.session, consumer.dispatcher
    assert dispatcher is not None
    session.broker.metrics.records_out(
        session.connection.protocol,
        dispatcher.partition.topic.name.full,
        sum([entry.record_count for entry in entries]),
        size,
    )


def flow(session: PulsarSession, command: CommandFlow) -> None:
    """Permits for more messages; for an unknown consumer they are ignored."""
    if not command.messagePermits:
        raise ProtocolError("FLOW without permits")
    consumer = session.consumers.get(command.consumer_id)
    if consumer is not None:
        if consumer.dispatcher is not None and consumer.is_attached:
            consumer.dispatcher.flow(consumer, command.messagePermits)
        else:
            consumer.permits += command.messagePermits


def close_consumer(session: PulsarSession, command: CommandCloseConsumer) -> None:
    """Close a consumer; one that is not there is closed too (some clients say it twice)."""
    session.promptly((LANE, command.consumer_id), partial(_close, session, command))


def _close(session: PulsarSession, command: CommandCloseConsumer) -> None:
    consumer = session.consumers.get(command.consumer_id)
    if consumer is not None:
        consumer.leave()
    session.outbox.answer([messages.success(command.request_id)])


def unsubscribe(session: PulsarSession, command: CommandUnsubscribe) -> None:
    """Delete the subscription's cursor on this partition, and its consumer with it."""
    session.promptly((LANE, command.consumer_id), partial(_unsubscribe, session, command))


def _unsubscribe(session: PulsarSession, command: CommandUnsubscribe) -> None:
    try:
        consumer, dispatcher = attached(session, command.consumer_id)
        others = [other for other in dispatcher.consumers if other is not consumer]
        if others and not command.force:
            raise Refused(
                ServerError.MetadataError,
                "Unconnected or shared consumer attempting to unsubscribe",
            )
        consumer.leave()
        for other in others:
            dispatcher.detach(other)
            other.let_go()
        session.listener.dispatchers.release(dispatcher)
        ticket = 0
        if isinstance(dispatcher.cursor, SubscriptionCursor):
            cursor = dispatcher.cursor
            ticket = cursor.subscription.delete_cursor(cursor.index)
    except (BrokerError, Refused) as error:
        session.refuse(command.request_id, error)
    else:
        session.outbox.answer([messages.success(command.request_id)], ticket)


def attached(session: PulsarSession, consumer_id: int) -> tuple[PulsarConsumer, Dispatcher]:
    """The consumer of that number and its dispatcher, if the client may still consume there.

    Raises Refused if it is not attached, NotAuthorized.
    """
    consumer = session.consumers.get(consumer_id)
    if consumer is None or consumer.dispatcher is None:
        raise Refused(ServerError.MetadataError, "Consumer not found")
    dispatcher = consumer.dispatcher
    topic = dispatcher.partition.topic.name
    session.connection.check(Action.CONSUME, Resource.of_group(dispatcher.name, topic))
    return consumer, dispatcher
