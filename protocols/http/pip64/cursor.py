"""PIP-64's cursor: position, acknowledgement, negative acknowledgement and seek of a subscription.

Knows the position that all protocols share, and the dispatchers that may hold records of the
subscription. No consumer is needed. `docs/positions.md` says what a change means to other
protocols.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from braidlog.broker.delivery.consumer import SubscriptionKind
from braidlog.broker.reading import entries
from braidlog.broker.reading.ack_sets import ack_set_of
from braidlog.broker.reading.chunks import piece_offsets
from braidlog.broker.reading.entries import EntryId, EntrySpan
from braidlog.broker.runtime.turns import in_turns
from braidlog.protocols.http.errors import BAD_ACK_TYPE, BAD_MESSAGES, RequestRefused
from braidlog.protocols.http.ids import BadMessageId, MessageId, read_id
from braidlog.protocols.http.limits import MESSAGE_IDS_MAX
from braidlog.protocols.http.pip64 import messages
from braidlog.protocols.http.pip64.api import read_body
from braidlog.protocols.http.pip64.attached import HttpConsumer
from braidlog.protocols.http.pip64.messages import UpdateCursor, either
from braidlog.protocols.http.pip64.names import subscription_name, topic_of
from braidlog.protocols.http.pip64.reading import after, check_place
from braidlog.protocols.http.pip64.showing import message_id
from braidlog.protocols.http.requests import json_response
from braidlog.protocols.http.values.primitives import BadValue, whole_number

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.broker.delivery.dispatcher import Dispatcher
    from braidlog.broker.positions.subscriptions import Subscription
    from braidlog.broker.topics.partition import Partition
    from braidlog.broker.topics.topic import Topic
    from braidlog.protocols.http.bodies import BodyReader

RANGES_TOLD_MAX = 100  # Of a partition; a Shared subscription can have very many ranges.
TIME_MS_MAX = (2**63 - 1) // 1000
SEVERAL = (SubscriptionKind.SHARED, SubscriptionKind.KEY_SHARED)

Positions = dict[int, Callable[[], Awaitable[int]]]


@dataclass(slots=True)
class NamedMessage:
    """A message that a request names."""

    partition: Partition
    id: MessageId


class CursorApi:
    """Handlers of a broker's cursors."""

    def __init__(self, broker: Broker, bodies: BodyReader) -> None:
        self._broker = broker
        self._bodies = bodies

    async def show(self, request: Request) -> Response:
        """The cursor of a subscription."""
        topic = topic_of(self._broker, request)
        subscription = self._broker.subscriptions.get(topic, subscription_name(request))
        return json_response(messages.CursorAnswer(await self.cursor(subscription)))

    async def update(self, request: Request) -> Response:
        """Change a cursor; the answer is the cursor, after the change is on disk."""
        wanted = read_body(await self._bodies.read_json(request), UpdateCursor)
        topic = topic_of(self._broker, request)
        subscription = self._broker.subscriptions.get(topic, subscription_name(request))
        change = CHANGES.get((wanted.type or "").lower())
        if change is None:
            types = ", ".join(name.capitalize() for name in CHANGES)
            raise RequestRefused(
                BAD_ACK_TYPE, f"type is one of {types}, not {(wanted.type or '')[:40]!r}"
            )
        ticket = await change(self, subscription, wanted)
        await self._broker.durability.reached(ticket)
        return json_response(messages.CursorAnswer(await self.cursor(subscription)))

    # Changes. Each method returns the ticket to wait for.

    async def _individual(self, subscription: Subscription, wanted: UpdateCursor) -> int:
        named_spans = [
            await self._span(message_id) for message_id in self._named(subscription.topic, wanted)
        ]
        ticket = 0
        by_partition: dict[Partition, list[tuple[EntrySpan, EntrySpan]]] = {}
        for partition, span, part in named_spans:
            if span is not None and part is not None:
                by_partition.setdefault(partition, []).append((span, part))
        for partition, spans in by_partition.items():
            ticket = max(ticket, await self._ack(subscription, partition, spans))
        return ticket

    async def _span(
        self, named: NamedMessage
    ) -> tuple[Partition, EntrySpan | None, EntrySpan | None]:
        """Return the named entry and the named part of the entry; None for both below the log
        start.

        Raises RequestRefused if there is no such message.
        """
        partition, wanted = named.partition, named.id
        if wanted.entry < partition.log_start_offset:
            return partition, None, None
        span = await entries.resolve_individual(partition, EntryId(wanted.ledger, wanted.entry))
        if span is None or wanted.batch_index >= span.record_count:
            text = f"ledger {wanted.ledger}, entry {wanted.entry} names no message"
            raise RequestRefused(BAD_MESSAGES, f"messageIds: {text}")
        if wanted.batch_index < 0:
            return partition, span, span
        return partition, span, EntrySpan(span.offset + wanted.batch_index, 1)

    async def _ack(
        self,
        subscription: Subscription,
        partition: Partition,
        spans: Sequence[tuple[EntrySpan, EntrySpan]],
    ) -> int:
        ids: list[EntryId] = []
        ranges: list[tuple[int, int]] = []
        for span, part in spans:
            ranges.append((part.offset, part.end))
            whole = part.record_count == span.record_count
            left = () if whole else ack_set_of(span, [(part.offset, part.end)])
            ids.append(EntryId(partition.partition_id, span.offset, left))
            for offset in await piece_offsets(partition, span.offset):
                ranges.append((offset, offset + 1))
                ids.append(EntryId(partition.partition_id, offset))
        partition.check_here()  # Another topic may have the number.
        ticket = subscription.start(partition.index, partition.log_start_offset)
        dispatcher = self._dispatcher(subscription, partition)
        if dispatcher is None or not dispatcher.consumers:
            return max(ticket, subscription.ack(partition.index, ranges, lazy=False))
        for entry_id in ids:
            _touch(dispatcher, entry_id.entry, is_done=not entry_id.ack_set)
        holder = dispatcher.consumers[0]  # The dispatcher finds the consumer that holds an entry.
        ticket = max(ticket, await dispatcher.acknowledge(holder, ids, lazy=False))
        dispatcher.wake()  # A consumer at its limit may continue.
        return ticket

    async def _cumulative(self, subscription: Subscription, wanted: UpdateCursor) -> int:
        positions: dict[Partition, int] = {}
        for named in self._named(subscription.topic, wanted):
            try:
                position = await after(named.id, named.partition)
            except BadMessageId as error:
                raise RequestRefused(BAD_MESSAGES, f"messageIds: {error}") from None
            positions[named.partition] = max(position, positions.get(named.partition, 0))
        for partition in positions:
            dispatcher = self._dispatcher(subscription, partition)
            if (
                dispatcher is not None
                and dispatcher.kind in SEVERAL
                and len(dispatcher.consumers) > 1
            ):
                text = "Cumulative would acknowledge what other consumers hold"
                raise RequestRefused(BAD_ACK_TYPE, text)
            partition.check_here()  # Another topic may have the number.
        ticket = 0
        for partition, position in positions.items():
            started = subscription.start(partition.index, partition.log_start_offset)
            acked = subscription.ack_to(partition.index, position, lazy=False)
            ticket = max(ticket, started, acked)
        return ticket

    async def _negative(self, subscription: Subscription, wanted: UpdateCursor) -> int:
        spans = [
            (message_id, await self._span(message_id))
            for message_id in self._named(subscription.topic, wanted)
        ]
        for named, (partition, span, _) in spans:
            dispatcher = self._dispatcher(subscription, partition)
            if dispatcher is None or span is None:
                continue
            back = [EntryId(named.id.ledger, span.offset)]
            back += [
                EntryId(named.id.ledger, offset)
                for offset in await piece_offsets(partition, span.offset)
            ]
            _touch(dispatcher, span.offset)
            for holder in list(dispatcher.consumers):
                if isinstance(holder, HttpConsumer):
                    holder.put_back([entry.entry for entry in back])
                elif span.offset in holder.pending or dispatcher.kind not in SEVERAL:
                    dispatcher.redeliver(holder, back)
        return 0

    async def _seek(self, subscription: Subscription, wanted: UpdateCursor) -> int:
        ids = either(wanted.messageIds, wanted.message_ids)
        targets = [ids or None, wanted.position, wanted.timestamp]
        if sum(target is not None for target in targets) != 1:
            text = "Seek takes exactly one of position, timestamp and messageIds"
            raise RequestRefused(BAD_MESSAGES, text)
        topic = subscription.topic
        positions = self._positions_of_ids(topic, wanted) if ids else _positions(topic, wanted)
        ticket = 0
        for index, resolve in positions.items():
            ticket = max(ticket, await self.move(subscription, topic.partition(index), resolve))
        return ticket

    def _positions_of_ids(self, topic: Topic, wanted: UpdateCursor) -> Positions:
        positions: Positions = {}
        for named in self._named(topic, wanted):
            index = named.partition.index
            if index in positions:
                raise RequestRefused(BAD_MESSAGES, "Seek takes one message id a partition")
            positions[index] = partial(_place_of, named)
        return positions

    async def move(
        self,
        subscription: Subscription,
        partition: Partition,
        resolve: Callable[[], Awaitable[int]],
    ) -> int:
        """Move the position in a partition and close its consumers; return the ticket to wait
        for.
        """
        dispatcher = self._dispatcher(subscription, partition)
        if dispatcher is None or dispatcher.resetting is not None:
            position = await resolve()
            partition.check_here()  # Another topic may have the number.
            return subscription.seek(partition.index, position)
        return await dispatcher.seek(resolve)

    def _named(self, topic: Topic, wanted: UpdateCursor) -> list[NamedMessage]:
        """Return the messages that the request names, each checked. Raises RequestRefused."""
        texts = either(wanted.messageIds, wanted.message_ids)
        if not texts:
            raise RequestRefused(BAD_MESSAGES, "messageIds: expected at least one")
        if len(texts) > MESSAGE_IDS_MAX:
            raise RequestRefused(BAD_MESSAGES, f"messageIds: at most {MESSAGE_IDS_MAX}")
        return [_named(topic, number, text) for number, text in enumerate(texts)]

    def _dispatcher(self, subscription: Subscription, partition: Partition) -> Dispatcher | None:
        dispatcher = self._broker.dispatchers.find(partition, subscription.name)
        return dispatcher if dispatcher is not None and dispatcher.cursor.is_durable else None

    # The cursor object.

    async def cursor(self, subscription: Subscription) -> messages.Cursor:
        """Return a subscription's position in each partition."""
        topic = subscription.topic
        consumers: dict[str, messages.CursorConsumer] = {}
        kind: SubscriptionKind | None = None
        parts: list[messages.CursorPartition] = []
        async for partition in in_turns(tuple(topic.partitions)):
            dispatcher = self._dispatcher(subscription, partition)
            if dispatcher is not None and dispatcher.consumers:
                kind = dispatcher.kind
                _add_consumers(consumers, dispatcher)
            parts.append(await _partition(subscription, partition, dispatcher))
        for member in self._broker.members.of(topic, subscription.name):
            if not member.is_delivered_to:
                key = f"{member.protocol} {member.name}"
                consumers[key] = messages.CursorConsumer(None, member.name, member.protocol, 0)
        return messages.Cursor(
            subscription=subscription.name.decode(errors="backslashreplace"),
            type=None if kind is None else kind.value,
            durable=True,
            consumers=list(consumers.values()),
            unacked=sum(consumer.unacked for consumer in consumers.values()),
            backlog=sum(part.backlog for part in parts),
            partitions=parts,
        )


CHANGES: dict[str, Callable[[CursorApi, Subscription, UpdateCursor], Awaitable[int]]] = {
    "individual": CursorApi._individual,
    "cumulative": CursorApi._cumulative,
    "negative": CursorApi._negative,
    "seek": CursorApi._seek,
}


def _named(topic: Topic, number: int, text: str | None) -> NamedMessage:
    try:
        if text is None:
            raise BadMessageId("null is not a message id")
        wanted = read_id(text)
        count = len(topic.partitions)
        if wanted.partition >= count or (wanted.partition < 0 and count != 1):
            raise BadMessageId(f"{text!r} names no partition of {topic.name}")
        partition = topic.partitions[max(wanted.partition, 0)]
        check_place(wanted, partition)
    except BadMessageId as error:
        raise RequestRefused(BAD_MESSAGES, f"messageIds[{number}]: {error}") from None
    return NamedMessage(partition, wanted)


def _positions(topic: Topic, wanted: UpdateCursor) -> Positions:
    """Return the target of a seek of the whole subscription, by partition."""
    if wanted.timestamp is not None:
        try:
            time_ms = whole_number(wanted.timestamp)
        except BadValue as error:
            raise RequestRefused(BAD_MESSAGES, f"timestamp: {error}") from None
        if not 0 <= time_ms <= TIME_MS_MAX:
            raise RequestRefused(BAD_MESSAGES, "timestamp: expected milliseconds since 1970")
        return {
            partition.index: partial(entries.resolve_time, partition, time_ms * 1000)
            for partition in topic.partitions
        }
    place = (wanted.position or "").lower()
    if place not in ("earliest", "latest"):
        raise RequestRefused(BAD_MESSAGES, "position is earliest or latest")
    return {partition.index: partial(_end_of, partition, place) for partition in topic.partitions}


async def _end_of(partition: Partition, place: str) -> int:
    return partition.log_start_offset if place == "earliest" else partition.high_watermark


async def _place_of(named: NamedMessage) -> int:
    """Return the offset of a message; of the next message if removed, the end if beyond the log."""
    place = EntryId(named.id.ledger, named.id.entry)
    position = await entries.resolve_seek(named.partition, place)
    if named.id.batch_index > 0 and position == named.id.entry:
        span = await entries.entry_at(named.partition, position)
        return position + min(named.id.batch_index, span.record_count if span else 0)
    return position


def _touch(dispatcher: Dispatcher, entry: int, *, is_done: bool = False) -> None:
    """Record that the consumer over HTTP which holds the entry is in use."""
    for consumer in dispatcher.consumers:
        if isinstance(consumer, HttpConsumer) and consumer.holds(entry):
            consumer.owner.touch()
            if is_done:
                consumer.forget(entry)


def _add_consumers(consumers: dict[str, messages.CursorConsumer], dispatcher: Dispatcher) -> None:
    """Add the consumers of one partition; a consumer of several partitions is listed once."""
    for consumer in dispatcher.consumers:
        identity = consumer.owner.id if isinstance(consumer, HttpConsumer) else None
        key = f"{consumer.protocol} {consumer.identity}"
        entry = consumers.get(key)
        if entry is None:
            entry = messages.CursorConsumer(identity, consumer.name, consumer.protocol, 0)
            consumers[key] = entry
        entry.unacked += consumer.unacked


async def _partition(
    subscription: Subscription, partition: Partition, dispatcher: Dispatcher | None
) -> messages.CursorPartition:
    position = subscription.position(partition.index)
    acked = subscription.acked(partition.index)
    ranges = [(start, end - 1) for start, end in islice(acked, RANGES_TOLD_MAX)]
    backlog = subscription.backlog(partition.index)
    read_position = max([position or 0, *(last + 1 for _, last in ranges)])
    for consumer in dispatcher.consumers if dispatcher is not None else ():
        if consumer.pending:
            held = max(consumer.pending)
            read_position = max(read_position, held + consumer.pending[held].record_count)
    return messages.CursorPartition(
        partition.index,
        await _mark_delete(partition, position),
        message_id(partition, read_position, -1),
        ranges,
        backlog,
        partition.next_offset,
    )


async def _mark_delete(partition: Partition, position: int | None) -> str | None:
    """Return the id of the last message below the position."""
    if not position:
        return None
    span = await entries.entry_at_or_before(partition, position - 1)
    if span is None:
        return None
    inside = position - 1 - span.offset if span.end > position else -1
    return message_id(partition, span.offset, inside)
