"""A consumer and its MESSAGE frames: heads are built here, entries are sent as stored.

"Consumer" in Apache Pulsar's binary protocol document. Knows no command.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from braidlog.broker.delivery.consumer import Consumer
from braidlog.broker.delivery.consumer_rates import RateMeter, Rates
from braidlog.broker.reading.entries import Entry
from braidlog.protocols.pulsar import messages
from braidlog.protocols.pulsar.machine import FRAME_BYTES_MAX
from braidlog.protocols.pulsar.names import partition_number
from braidlog.protocols.pulsar.oversize import pieces
from braidlog.storage.formats.api import Buffer
from braidlog.storage.formats.pulsar.varints import LOW_BITS, LOW_MASK

if TYPE_CHECKING:
    from braidlog.broker.delivery.channel import Channel
    from braidlog.broker.delivery.delivery import Delivery
    from braidlog.broker.runtime.outbox import Outbox
    from braidlog.broker.topics.topic import Topic

# The oldest protocol versions with a feature: `ProtocolVersion` in Apache's PulsarApi.proto.
BATCH_VERSION = 4
END_VERSION = 9
ACTIVE_CHANGE_VERSION = 12
CHECKSUM_VERSION = 11

# Limit of the bytes before the entry in a MESSAGE. An ack set may be longer, but not with an entry
# this large.
HEAD_BYTES_MAX = 1024
ENTRY_BYTES_MAX = FRAME_BYTES_MAX - HEAD_BYTES_MAX


class ConsumerOwner(Protocol):
    """The client of a consumer."""

    protocol_version: int
    version_text: str
    takes_entry_metadata: bool
    outbox: Outbox

    def sent(self, channel: Channel, records: int, size_bytes: int) -> None:
        """Count records that were handed to a consumer."""

    def watch_room(self, consumer: PulsarConsumer) -> None:
        """Wake the consumer's dispatcher once the socket has room."""

    def drop_consumer(self, consumer: PulsarConsumer) -> None:
        """Forget a consumer; unacknowledged messages return to the dispatcher."""

    async def is_alive(self) -> bool:
        """Return True if the client answers a PING within some seconds."""

    def end(self, reason: str) -> None:
        """End the connection."""

    @property
    def peer(self) -> str:
        """The client's address."""


@dataclass(slots=True, eq=False, kw_only=True)
class PulsarConsumer(Consumer):
    """A consumer from SUBSCRIBE on; the dispatcher is set when the consumer is attached."""

    protocol = "pulsar"

    owner: ConsumerOwner
    consumer_id: int
    dispatcher: Delivery | None = None
    writer: messages.MessageWriter | None = None
    epoch: int | None = None  # Set by Java clients, which drop messages of an older epoch.
    # The topic that the consumer named without a partition: that topic must stay unpartitioned.
    holds_layout: Topic | None = None
    meter: RateMeter | None = None  # Created when the rates are first read.

    @property
    def address(self) -> str:
        """The client's address."""
        return self.owner.peer

    @property
    def client_version(self) -> str:
        """Name and version of the client library."""
        return self.owner.version_text

    def rates(self, now_us: int) -> Rates:
        """Return the consumer's rates per second."""
        self.meter = self.meter or RateMeter(self.connected_us)
        return self.meter.look(self, now_us)

    def attached_to(self, dispatcher: Delivery) -> None:
        """Set the dispatcher that delivers from here on."""
        partition = dispatcher.partition
        self.dispatcher = dispatcher
        number = partition_number(partition)
        self.writer = messages.MessageWriter(self.consumer_id, partition.ledger_id, number)
        self.set_epoch(self.epoch)

    def set_epoch(self, epoch: int | None) -> None:
        """Set the epoch of the following messages."""
        self.epoch = epoch
        if epoch is not None and self.writer is not None:
            self.writer.set_epoch(epoch)

    def send(self, entries: Sequence[Entry], size: int) -> None:
        """Queue MESSAGE frames for the client."""
        owner, dispatcher = self.owner, self.dispatcher
        assert self.writer is not None and dispatcher is not None
        is_old = owner.protocol_version < BATCH_VERSION
        if is_old and any(entry.record_count > 1 for entry in entries):
            owner.end("a batch for a client that knows none")
            return
        owner.outbox.put(frames(self, self.writer, entries))
        records = sum([entry.record_count for entry in entries])
        owner.sent(dispatcher.partition, records, size)

    def takes_more(self) -> bool:
        """Return True if the socket has room; if not, the owner wakes the dispatcher later."""
        outbox = self.owner.outbox
        if outbox.over_limit:
            self.owner.watch_room(self)
            return False
        return not outbox.is_broken

    def active_changed(self, *, is_active: bool) -> None:
        """Inform the client, after the answer to its SUBSCRIBE."""
        if self.owner.protocol_version >= ACTIVE_CHANGE_VERSION:
            change = messages.active_consumer_change(self.consumer_id, is_active=is_active)
            self.owner.outbox.answer([change])

    def reached_end(self) -> None:
        """Inform a Java client; other clients do not know the command."""
        owner = self.owner
        if owner.version_text.startswith("Pulsar-Java") and owner.protocol_version >= END_VERSION:
            owner.outbox.answer([messages.reached_end(self.consumer_id)])

    def disconnect(self) -> None:
        """Close the consumer for the client, which then looks up the topic and subscribes again."""
        self.leave()
        owner = self.owner
        if owner.protocol_version >= messages.CLOSING_VERSION:
            owner.outbox.put([messages.close_consumer(self.consumer_id)])
        else:
            owner.end("its consumer was closed")

    def lost(self, reason: str) -> None:
        """End the connection of a client that lost the consumer without notice."""
        self.leave()
        self.owner.end(reason)

    async def is_alive(self) -> bool:
        """Return True if the client answers."""
        return await self.owner.is_alive()

    def leave(self) -> None:
        """End the consumer; unacknowledged messages return to the dispatcher."""
        self.owner.drop_consumer(self)


def frames(
    consumer: PulsarConsumer, writer: messages.MessageWriter, entries: Sequence[Entry]
) -> list[Buffer]:
    """Return MESSAGE frames: heads, and the entries as stored."""
    parts: list[Buffer] = []
    has_checksums = consumer.owner.protocol_version >= CHECKSUM_VERSION
    is_plain = has_checksums and not consumer.owner.takes_entry_metadata
    block, size, before, low, after = writer.block
    pack = messages.SIZES.pack
    for entry in entries:  # hot: see make bench
        body, number = entry.body, entry.offset
        body_bytes = len(body)
        if not is_plain or body_bytes > ENTRY_BYTES_MAX:
            parts += _unusual(consumer, writer, entry, has_checksums)
            continue
        if number >> LOW_BITS == block and not (entry.redelivery_count or entry.ack_set):
            sizes = pack(size + 4 + body_bytes, size)
            parts.append(sizes + before + low[number & LOW_MASK] + after)
        else:
            parts.append(writer.head(number, entry.redelivery_count, entry.ack_set, body_bytes))
            block, size, before, low, after = writer.block
        parts.append(body)
    return parts


def _unusual(
    consumer: PulsarConsumer, writer: messages.MessageWriter, entry: Entry, has_checksums: bool
) -> Iterator[Buffer]:
    """Yield the frames of an entry that exceeds a frame, or for a client that knows no checksums
    or takes broker entry metadata.
    """
    before = b""
    dispatcher = consumer.dispatcher
    is_stored = dispatcher is not None and dispatcher.partition.is_persistent
    if consumer.owner.takes_entry_metadata and is_stored:
        before = messages.entry_metadata(entry.append_us, entry.end - 1)
    bodies: Sequence[Sequence[Buffer]] = ((entry.body,),)
    if len(entry.body) > ENTRY_BYTES_MAX:
        bodies = tuple(pieces(entry, consumer.name))
        consumer.permits -= len(bodies) - 1  # Each chunk costs a permit.
    for first, *rest in bodies:
        body = first if has_checksums else messages.without_checksum(first)
        size = len(before) + len(body) + sum(map(len, rest))
        yield writer.head(entry.offset, entry.redelivery_count, entry.ack_set, size)
        yield before
        yield body
        yield from rest
