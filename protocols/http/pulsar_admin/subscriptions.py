"""Subscriptions in Pulsar's admin API: create, delete, move, peek at the next messages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from braidlog.broker.reading import entries
from braidlog.broker.reading.entries import EntryId
from braidlog.broker.reading.numbered import nth_entry
from braidlog.protocols.http import query
from braidlog.protocols.http.errors import (
    BAD_POSITION,
    MESSAGE_NOT_FOUND,
    NOT_SUPPORTED,
    NOTHING_TO_EXPIRE,
    SUBSCRIPTION_BUSY,
    SUBSCRIPTION_EXISTS,
    RequestRefused,
)
from braidlog.protocols.http.path_names import name_of
from braidlog.protocols.http.pip64.cursor import CursorApi
from braidlog.protocols.http.pip64.names import subscription_name
from braidlog.protocols.http.pulsar_admin.answers import done, json_answer
from braidlog.protocols.http.pulsar_admin.handlers import AdminHandlers
from braidlog.protocols.http.pulsar_admin.names import shown_name, topic_of
from braidlog.protocols.http.pulsar_admin.properties import read_properties
from braidlog.protocols.http.pulsar_admin.shown_entries import shown_entry
from braidlog.protocols.http.pulsar_admin.topics import (
    TIME_MS_MAX,
    AdminTopics,
    check_entry_number,
    path_number,
)
from braidlog.protocols.http.routes import groups_seen, made_by_itself

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.broker.positions.subscriptions import Subscription
    from braidlog.broker.topics.partition import Partition
    from braidlog.broker.topics.topic import Topic
    from braidlog.protocols.http.bodies import BodyReader

EXPIRE_S_MAX = 10**9  # Some thirty years.
BACKLOG_MIN_OF_READERS = 1000
NO_BACKLOG = {
    "entries": 0,
    "messages": 0,
    "markerMessages": 0,
    "filterRejectedEntries": 0,
    "filterAcceptedEntries": 0,
    "filterRescheduledEntries": 0,
    "filterRejectedMessages": 0,
    "filterAcceptedMessages": 0,
    "filterRescheduledMessages": 0,
    "aborted": False,
}
LATEST_ID = 2**63 - 1


class AdminSubscriptions(AdminHandlers):
    """Handlers of a broker's subscriptions."""

    def __init__(
        self, broker: Broker, bodies: BodyReader, cursors: CursorApi, topics: AdminTopics
    ) -> None:
        super().__init__(broker, bodies)
        self._cursors = cursors
        self._topics = topics

    async def list_subscriptions(self, request: Request) -> Response:
        """The names of a topic's subscriptions that the client may see."""
        topic, _ = topic_of(self._broker, request)
        names = groups_seen(self._broker, request, topic)
        return json_answer([shown_name(name) for name in names])

    async def create(self, request: Request) -> Response:
        """Create a subscription, at the end or at the body's position; and its topic if allowed."""
        body = await self._body(request)
        place, index = name_of(request)
        if self._broker.topics.find(place) is None and index is None:
            await made_by_itself(self._broker, request, place)
        topic, partitions = topic_of(self._broker, request)
        if query.truth(request, ("replicated",)):
            raise RequestRefused(NOT_SUPPORTED, "replicated subscriptions are not served here")
        name = subscription_name(request, is_new=True)
        existing = self._broker.subscriptions.find(topic, name)
        if existing is not None and all(
            existing.position(place.index) is not None for place in partitions
        ):
            raise RequestRefused(SUBSCRIPTION_EXISTS, "Subscription already exists for topic")
        fields = body if isinstance(body, dict) else {}
        properties = read_properties(fields.get("properties"))
        meant = {partition: await _message(partition, body) for partition in partitions}
        subscription = self._broker.subscriptions.open(topic, name, properties)
        ticket = 0
        for partition, (position, first) in meant.items():
            ticket = max(ticket, subscription.start(partition.index, position))
            if first > position:  # Pulsar's consumers see and skip this part of a batch.
                skipped = [(position, first)]
                ticket = max(ticket, subscription.ack(partition.index, skipped, lazy=False))
        return await self._done_at(ticket)

    async def delete(self, request: Request) -> Response:
        """Delete a subscription; with `force` even with connected consumers of any protocol."""
        topic, subscription, partitions = self._named(request)
        dispatchers = [
            self._broker.dispatchers.find(partition, subscription.name) for partition in partitions
        ]
        busy = any(dispatcher is not None and dispatcher.consumers for dispatcher in dispatchers)
        indexes = {place.index for place in partitions}
        members = self._broker.members.of(topic, subscription.name)
        busy = busy or any(not indexes.isdisjoint(member.partitions) for member in members)
        if busy and not query.truth(request, ("force",)):
            raise RequestRefused(SUBSCRIPTION_BUSY, "Subscription has active connected consumers")
        if len(partitions) == len(topic.partitions):
            ticket = subscription.delete()
        else:
            ticket = max(subscription.delete_cursor(place.index) for place in partitions)
        return await self._done_at(ticket)

    async def reset_to_time(self, request: Request) -> Response:
        """Move a subscription to the first message published at or after a time (milliseconds)."""
        time_ms = path_number(request, "time", TIME_MS_MAX)
        _, subscription, partitions = self._named(request)
        return await self._move(
            subscription,
            partitions,
            lambda partition: entries.resolve_time(partition, time_ms * 1000),
        )

    async def reset_to_id(self, request: Request) -> Response:
        """Move a subscription to a message, or after a message that the body excludes."""
        body = await self._body(request)
        _, subscription, partitions = self._named(request)
        meant = {place: await _message(place, body) for place in partitions}

        async def start(partition: Partition) -> int:
            return meant[partition][0]

        answer = await self._move(subscription, partitions, start)
        for partition, (position, first) in meant.items():
            if first > position:  # Pulsar's consumers see and skip this part of a batch.
                partition.check_here()
                ticket = subscription.ack(partition.index, [(position, first)], lazy=False)
                await self._broker.durability.reached(ticket)
        return answer

    async def skip(self, request: Request) -> Response:
        """Acknowledge as many next messages as the path says."""
        count = path_number(request, "number", 2**63 - 1)
        _, subscription, _ = self._named(request)
        partition = self._topics.one_partition(request)
        subscription.start(partition.index, partition.log_start_offset)
        position = _behind(subscription, partition, count)
        return await self._done_at(subscription.ack_to(partition.index, position, lazy=False))

    async def skip_all(self, request: Request) -> Response:
        """Acknowledge all messages."""
        _, subscription, partitions = self._named(request)
        ticket = 0
        for partition in partitions:
            subscription.start(partition.index, partition.log_start_offset)
            end = partition.high_watermark
            ticket = max(ticket, subscription.ack_to(partition.index, end, lazy=False))
        return await self._done_at(ticket)

    async def expire(self, request: Request) -> Response:
        """Acknowledge messages published longer ago than a number of seconds.

        Refused as by Apache: without a backlog, or with a small backlog and connected consumers,
        which receive that backlog soon.
        """
        seconds = path_number(request, "seconds", EXPIRE_S_MAX)
        _, subscription, partitions = self._named(request)
        moved, is_looked_at = 0, False
        for partition in partitions:
            is_looked_at |= self._is_looked_at(subscription, partition)
            moved += await self._broker.backlogs.expire(subscription, partition, seconds)
        if not moved and not is_looked_at:
            raise RequestRefused(
                NOTHING_TO_EXPIRE, "Expire message by timestamp: nothing is that old"
            )
        return done()

    async def expire_all(self, request: Request) -> Response:
        """As `expire`, for every subscription of the topic that the client may see."""
        seconds = path_number(request, "seconds", EXPIRE_S_MAX)
        topic, partitions = topic_of(self._broker, request)
        names = groups_seen(self._broker, request, topic)
        moved, is_looked_at = 0, False
        for name in names:
            subscription = self._broker.subscriptions.get(topic, name)
            for partition in partitions:
                is_looked_at |= self._is_looked_at(subscription, partition)
                moved += await self._broker.backlogs.expire(subscription, partition, seconds)
        if names and not moved and not is_looked_at:
            raise RequestRefused(
                NOTHING_TO_EXPIRE, "Expire message by timestamp: nothing is that old"
            )
        return done()

    async def expire_to_id(self, request: Request) -> Response:
        """Acknowledge everything up to a message, which is acknowledged too unless excluded."""
        body = await self._body(request)
        _, subscription, _ = self._named(request)
        partition = self._topics.one_partition(request)
        _, end = await _message(partition, body, skips=not _is_excluded(body))
        subscription.start(partition.index, partition.log_start_offset)
        return await self._done_at(subscription.ack_to(partition.index, end, lazy=False))

    async def properties(self, request: Request) -> Response:
        """The properties of a subscription."""
        _, subscription, _ = self._named(request)
        return json_answer(subscription.properties)

    async def set_properties(self, request: Request) -> Response:
        """Replace the properties of a subscription; without a body they are removed."""
        properties = read_properties(await self._body(request))
        _, subscription, partitions = self._named(request)
        for partition in partitions:
            partition.check_here()
        return await self._done_at(subscription.set_properties(properties))

    async def analyze(self, request: Request) -> Response:
        """Count the unacknowledged messages of a subscription, from the body's message id on;
        entries are counted as messages.
        """
        body = await self._body(request)
        _, subscription, _ = self._named(request)
        partition = self._topics.one_partition(request)
        start = _behind(subscription, partition, 0)
        if body is not None:
            start = max(start, (await _message(partition, body))[1])
        end = partition.high_watermark
        acked = subscription.acked(partition.index)
        count = end - start - acked.count_within(start, end) if start < end else 0
        shown: dict[str, object] = {**NO_BACKLOG, "entries": count, "messages": count}
        shown |= {"filterAcceptedEntries": count, "filterAcceptedMessages": count}
        if count:
            edges = {
                "firstMessageId": acked.next_gap(start),
                "lastMessageId": acked.gap_before(end),
            }
            for name, offset in edges.items():
                span = await entries.entry_at_or_before(partition, offset)
                entry = offset if span is None else span.offset
                shown[name] = f"{partition.partition_id}:{entry}"
        return json_answer(shown)

    def _is_looked_at(self, subscription: Subscription, partition: Partition) -> bool:
        """Return True if Apache would look for old messages in this partition."""
        waiting = partition.high_watermark - _behind(subscription, partition, 0)
        dispatcher = self._broker.dispatchers.find(partition, subscription.name)
        is_read = dispatcher is not None and bool(dispatcher.consumers)
        return waiting >= (BACKLOG_MIN_OF_READERS if is_read else 1)

    async def peek(self, request: Request) -> Response:
        """The n-th entry with unacknowledged messages, counted from 1: a batch comes whole. For a
        subscription that does not exist, all messages are unacknowledged, as in Apache.
        """
        number = path_number(request, "number", 2**63 - 1)
        if number < 1:
            raise RequestRefused(MESSAGE_NOT_FOUND, "messages are counted from 1")
        topic, _ = topic_of(self._broker, request)
        subscription = self._broker.subscriptions.find(topic, subscription_name(request))
        partition = self._topics.one_partition(request)
        position, acked = partition.log_start_offset, None
        if subscription is not None:
            position = subscription.position(partition.index) or 0
            acked = subscription.acked(partition.index)
        if number > partition.high_watermark - position:
            raise RequestRefused(MESSAGE_NOT_FOUND, "Message not found")
        check_entry_number(number)
        span = await nth_entry(partition, position, number, acked)
        if span is None:
            raise RequestRefused(MESSAGE_NOT_FOUND, "Message not found")
        return await shown_entry(self._broker, request, partition, span.offset)

    async def _move(
        self,
        subscription: Subscription,
        partitions: Sequence[Partition],
        resolve: Callable[[Partition], Awaitable[int]],
    ) -> Response:
        ticket = 0
        for partition in partitions:
            moved = await self._cursors.move(subscription, partition, partial(resolve, partition))
            ticket = max(ticket, moved)
        return await self._done_at(ticket)

    def _named(self, request: Request) -> tuple[Topic, Subscription, Sequence[Partition]]:
        topic, partitions = topic_of(self._broker, request)
        subscription = self._broker.subscriptions.get(topic, subscription_name(request))
        return topic, subscription, partitions


async def _start(partition: Partition, body: object) -> int:
    """Return the offset of a message id of the admin API, or of a word; the end for None."""
    if body in (None, "latest"):
        return partition.high_watermark
    if body == "earliest":
        return partition.log_start_offset
    if not isinstance(body, dict):
        raise RequestRefused(BAD_POSITION, "expected earliest, latest or a message id")
    ledger, entry = _number(body.get("ledgerId")), _number(body.get("entryId"))
    if entry == LATEST_ID:
        return partition.high_watermark
    if entry < 0:
        return partition.log_start_offset
    return await entries.resolve_seek(partition, EntryId(ledger, entry))


async def _message(
    partition: Partition, body: object, *, skips: bool | None = None
) -> tuple[int, int]:
    """Return the position of the entry that a body names, and the first wanted message: the message
    of the id's batch index, or with `skips` the message behind it; by default, if the id is
    excluded.
    """
    position = await _start(partition, body)
    if not isinstance(body, dict) or body["ledgerId"] != partition.partition_id:
        return position, position
    span = await entries.entry_at(partition, body["entryId"])
    if span is None:
        return position, position
    index = body.get("batchIndex")
    # Messages of the entry before the wanted message.
    count = 0 if index is None else _number(index)
    if _is_excluded(body) if skips is None else skips:
        count = span.record_count if index in (None, -1) else count + 1
    first = min(span.offset + max(count, 0), span.end)
    return (first, first) if first == span.end else (span.offset, first)


def _is_excluded(body: object) -> bool:
    """Return whether the message of a body's id does not count. Java's client sends `excluded`; the
    documents use the field's name.
    """
    ids = body if isinstance(body, dict) else {}
    return ids.get("excluded") is True or ids.get("isExcluded") is True


def _number(value: object) -> int:
    if type(value) is not int or not -1 <= value <= LATEST_ID:
        raise RequestRefused(BAD_POSITION, "a message id has a ledgerId and an entryId")
    return value


def _behind(subscription: Subscription, partition: Partition, count: int) -> int:
    """Return the offset after the next `count` unacknowledged messages."""
    place = max(subscription.position(partition.index) or 0, partition.log_start_offset)
    for start, end in subscription.acked(partition.index):
        if start - place >= count:
            break
        if end > place:
            count -= max(start - place, 0)
            place = end
    return min(place + count, partition.high_watermark)
