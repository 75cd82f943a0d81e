"""PIP-64's consumers: create, fetch, delete.

A consumer outlives the connection that created it, and ends after an idle timeout. Knows requests;
`subscriber.py` has the consumers.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import quote

import trio
from starlette.requests import Request
from starlette.responses import Response

from braidlog.broker.delivery.consumer import SubscriptionKind
from braidlog.broker.errors import LimitExceeded, SubscriptionBusy, SubscriptionNotFound
from braidlog.broker.runtime.turns import in_turns
from braidlog.broker.topics.schema_rules import load_parser
from braidlog.protocols.http import limits
from braidlog.protocols.http.errors import (
    BAD_BODY,
    CONSUMER_EXISTS,
    CONSUMER_NOT_FOUND,
    INVALID_NAME,
    RequestRefused,
)
from braidlog.protocols.http.pip64 import streams
from braidlog.protocols.http.pip64.api import read_body
from braidlog.protocols.http.pip64.messages import (
    ConsumerAnswer,
    CreateConsumer,
    FetchAnswer,
    ShownMessage,
    either,
)
from braidlog.protocols.http.pip64.names import checked_name, subscription_name, topic_of
from braidlog.protocols.http.pip64.produce import PROTOCOL, schema_fields
from braidlog.protocols.http.pip64.reading import (
    ReadLimits,
    Room,
    read_limits,
    room_for,
    show_options,
)
from braidlog.protocols.http.pip64.showing import Shower, ShowOptions
from braidlog.protocols.http.pip64.subscriber import ConsumerOptions, DeliveredMessage, Subscriber
from braidlog.protocols.http.requests import json_response
from braidlog.protocols.http.values.resolving import SchemaFields, SchemaRegistry

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.broker.positions.subscriptions import Subscription
    from braidlog.broker.runtime.output_budget import Waits
    from braidlog.broker.topics.topic import Topic
    from braidlog.protocols.http.bodies import BodyReader
    from braidlog.protocols.http.options import RestOptions
    from braidlog.protocols.http.waiting import Waiting

CONSUMER_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
KINDS = {kind.value.lower(): kind for kind in SubscriptionKind}
SWEEP_S = 1.0  # Interval of the search for idle consumers and overdue messages.
# Extra wait for existing records: delivery reads ahead, possibly from a cold disk.
READY_S = 0.1
SWEEP_TURN = 200  # Consumers checked between two checkpoints.


class Consumers:
    """All consumers over HTTP of a listener.

    An id is unique only within a subscription: a client must not learn that another subscription
    has a consumer of the same id.
    """

    def __init__(self, broker: Broker, options: RestOptions) -> None:
        self._broker = broker
        self._idle_s = options.consumer_idle_s
        self._max = options.consumers_max
        self._by_key: dict[tuple[int, bytes, str], Subscriber] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[Subscriber]:
        return iter(tuple(self._by_key.values()))

    def find(self, topic: Topic, name: bytes, identity: str) -> Subscriber | None:
        """Return the live consumer of the id and subscription; None if it does not exist."""
        consumer = self._by_key.get((topic.meta.topic_id, name, identity))
        if consumer is None or consumer.is_over or consumer.subscription.topic is not topic:
            return None
        return consumer

    def of(self, subscription: Subscription) -> list[Subscriber]:
        """Return the consumers of a subscription."""
        return [
            consumer for consumer in self._by_key.values() if consumer.subscription is subscription
        ]

    def add(self, subscriber: Subscriber) -> None:
        """Register a consumer, and end a former consumer of the same id whose topic is deleted.

        Raises LimitExceeded.
        """
        former = self._by_key.get(_key(subscriber))
        if former is not None:
            self.end(former)
        if len(self._by_key) >= self._max:
            raise LimitExceeded(f"limit of {self._max} consumers over HTTP reached")
        subscriber.end_when_idle(self._idle_s)
        self._by_key[_key(subscriber)] = subscriber

    def end(self, subscriber: Subscriber) -> None:
        """End a consumer; entries that the consumer holds return to the subscription."""
        if self.has(subscriber):
            del self._by_key[_key(subscriber)]
            subscriber.leave()

    def has(self, subscriber: Subscriber) -> bool:
        """Return True if the consumer has not ended."""
        return self._by_key.get(_key(subscriber)) is subscriber

    async def keep_time(self) -> None:
        """End idle consumers and redeliver overdue messages, until cancelled."""
        while True:
            await trio.sleep(SWEEP_S)
            await self.sweep(trio.current_time())

    async def sweep(self, now: float) -> None:
        """Run a single round of `keep_time`."""
        async for subscriber in in_turns(self, SWEEP_TURN):
            if subscriber.is_over or not subscriber.is_live():
                self.end(subscriber)
            else:
                subscriber.put_back_overdue(now)


def _key(subscriber: Subscriber) -> tuple[int, bytes, str]:
    subscription = subscriber.subscription
    return subscription.topic.meta.topic_id, subscription.name, subscriber.id


class ConsumersApi:
    """Handlers of one broker's consumers over HTTP."""

    def __init__(
        self,
        broker: Broker,
        bodies: BodyReader,
        registry: SchemaRegistry,
        waiting: Waiting,
        options: RestOptions,
        consumers: Consumers,
    ) -> None:
        self._broker = broker
        self._bodies = bodies
        self._registry = registry
        self._waiting = waiting
        self._advertised_url = options.advertised_url
        self._consumers = consumers

    async def create(self, request: Request) -> Response:
        """Create a consumer: 201, or 200 if the consumer exists."""
        body = read_body(await self._bodies.read_json(request), CreateConsumer)
        await load_parser()  # The consumer's topic may have a schema.
        topic = topic_of(self._broker, request)
        known = self._broker.subscriptions.find(topic, subscription_name(request))
        name = subscription_name(request, is_new=known is None)
        if body.name is not None:
            checked_name(body.name, "consumer")
        if body.id is not None and not CONSUMER_ID.fullmatch(body.id):
            raise RequestRefused(
                INVALID_NAME, "a consumer's id is 1 to 64 letters, digits, _ and -"
            )
        wanted = self._wanted(topic, body)
        if body.id is not None:
            existing = self._consumers.find(topic, name, body.id)
            if existing is not None:
                existing.touch()
                return json_response(self._answer_of(request, existing))
        self._check_policies(request, topic, name, wanted.kind, body.name)
        subscription = known or self._broker.subscriptions.open(topic, name)
        subscriber = self._new(body, subscription, wanted)
        self._consumers.add(subscriber)  # Atomic: no await since the check of id and name.
        try:
            await subscriber.join()
        except BaseException:  # Also Cancelled: no client knows of this consumer, so it must go.
            self._consumers.end(subscriber)
            raise
        return json_response(self._answer_of(request, subscriber), 201)

    def _check_policies(
        self,
        request: Request,
        topic: Topic,
        subscription: bytes,
        kind: SubscriptionKind,
        name: str | None,
    ) -> None:
        """Check that the topic's settings allow a new consumer. Raises BrokerError."""
        policies, client = self._broker.client_policies, request.client
        host = "" if client is None else client.host
        if name is not None:  # A consumer without a name is another consumer each time.
            for partition in topic.partitions:
                policies.count_subscribe(topic, (partition.partition_id, host, name, 0))
        policies.check_consumer(topic, subscription, kind, is_durable=True)

    def _new(
        self, body: CreateConsumer, subscription: Subscription, wanted: ConsumerOptions
    ) -> Subscriber:
        identity = body.id or uuid.uuid4().hex
        name = body.name or f"rest-{identity[:12]}"
        names = {other.name for other in self._consumers.of(subscription)}
        for partition in subscription.topic.partitions:
            dispatcher = self._broker.dispatchers.find(partition, subscription.name)
            if dispatcher is not None:
                names.update(consumer.name for consumer in dispatcher.consumers)
        if name in names:
            raise RequestRefused(CONSUMER_EXISTS, f"the subscription has a consumer named {name!r}")
        return Subscriber(self._broker, identity, name, subscription, wanted)

    def _wanted(self, topic: Topic, body: CreateConsumer) -> ConsumerOptions:
        kind = either(body.subscription_type, body.subscriptionType) or "Shared"
        if kind.lower() not in KINDS:
            kinds = ", ".join(kind_known.value for kind_known in SubscriptionKind)
            raise RequestRefused(
                BAD_BODY, f"subscription_type is one of {kinds}, not {kind[:40]!r}"
            )
        start = (either(body.initial_position, body.initialPosition) or "Latest").lower()
        if start not in ("latest", "earliest"):
            raise RequestRefused(
                BAD_BODY, f"initial_position is Latest or Earliest, not {start[:40]!r}"
            )
        timeout_ms = either(body.ack_timeout_ms, body.ackTimeoutMs)
        if timeout_ms is None:
            timeout_ms = limits.ACK_TIMEOUT_MS_DEFAULT
        if timeout_ms != 0 and not (
            limits.ACK_TIMEOUT_MS_MIN <= timeout_ms <= limits.ACK_TIMEOUT_MS_MAX
        ):
            least, most = limits.ACK_TIMEOUT_MS_MIN, limits.ACK_TIMEOUT_MS_MAX
            raise RequestRefused(BAD_BODY, f"ack_timeout_ms is 0, or from {least} to {most}")
        fields = schema_fields(body)
        reader = version = None
        if fields != SchemaFields():
            chosen = self._registry.choose(topic, fields)
            reader, version = chosen.codec, chosen.version
        return ConsumerOptions(
            KINDS[kind.lower()], start == "earliest", timeout_ms / 1000, reader, version
        )

    def _answer_of(self, request: Request, subscriber: Subscriber) -> ConsumerAnswer:
        path = request.scope["path"].removesuffix("/consumers")
        base = self._advertised_url.rstrip("/")
        if not base:
            host = request.headers.get("host", "")
            base = f"{request.scope['scheme']}://{quote(host, safe=':[]')}"
        return ConsumerAnswer(
            subscriber.id,
            subscriber.name,
            f"{base}{path}/consumers/{subscriber.id}",
            subscriber.wanted.kind.value,
            subscriber.wanted.schema_version,
        )

    async def delete(self, request: Request) -> Response:
        """Delete a consumer: its messages are redelivered, an open fetch is answered at once."""
        self._consumers.end(self._subscriber(request))
        return Response(status_code=204)

    async def fetch(self, request: Request) -> Response:
        """Fetch messages of a consumer."""
        kind = streams.accepted(request)
        subscriber = self._subscriber(request)
        wanted = read_limits(request)
        topic = subscriber.subscription.topic
        options = self._options(request, subscriber)
        shower = Shower(self._registry, topic, options)
        if kind == streams.EVENTS:
            follow = partial(self._next_messages, request, subscriber, shower)
            return streams.EventStream(request, self._waiting, follow)
        given_out: Sequence[DeliveredMessage] = ()
        room = None
        if request.method != "HEAD":  # Without a body the client would not get the messages.
            given_out, room = await self._take(request, subscriber, wanted, is_stream=False)
        if room is not None:
            room.until_sent(request)
        shown = await self._show(shower, given_out)
        if kind == streams.LINES:
            return await streams.lines(streams.Shown(shown, shower.take_largest()), {})
        answer = FetchAnswer(shown)
        if wanted.include_schema:
            answer.schemas = [shower.schemas[version] for version in sorted(shower.schemas)]
        return await streams.whole(answer, shower.take_largest())

    @asynccontextmanager
    async def _next_messages(
        self, request: Request, subscriber: Subscriber, shower: Shower, seconds: float
    ) -> AsyncIterator[streams.Shown]:
        """Yield the next messages of a stream of events, after at most `seconds`. Raises
        RequestRefused if the consumer has ended.
        """
        if not self._consumers.has(subscriber):
            raise RequestRefused(CONSUMER_NOT_FOUND, f"consumer {subscriber.id} has ended")
        wanted = ReadLimits(
            seconds, limits.READ_MESSAGES_DEFAULT, limits.READ_BYTES_DEFAULT, include_schema=False
        )
        given_out, room = await self._take(request, subscriber, wanted, is_stream=True)
        try:
            messages = await self._show(shower, given_out)
            yield streams.Shown(messages, shower.take_largest())
        finally:
            if room is not None:
                room.give_back()

    def _subscriber(self, request: Request) -> Subscriber:
        """Return the consumer of the path. Raises RequestRefused, TopicNotFound."""
        topic = topic_of(self._broker, request)
        identity = request.path_params["consumer"]
        subscriber = self._consumers.find(topic, subscription_name(request), identity)
        if subscriber is None:
            text = f"no consumer {identity[:64]!r} of that subscription"
            raise RequestRefused(CONSUMER_NOT_FOUND, text)
        return subscriber

    def _options(self, request: Request, subscriber: Subscriber) -> ShowOptions:
        chosen = show_options(request, self._registry, subscriber.subscription.topic)
        reader = chosen.reader or subscriber.wanted.reader
        return replace(chosen, reader=reader)

    async def _take(
        self,
        request: Request,
        subscriber: Subscriber,
        wanted: ReadLimits,
        *,
        is_stream: bool,
    ) -> tuple[Sequence[DeliveredMessage], Room | None]:
        """Wait for messages for an answer until the timeout.

        Return the messages and their memory room, which is held until they are sent; the room is
        None without messages, because no room is held during the wait. Raises RequestRefused,
        BrokerError, ClientDisconnect.
        """
        try:
            fetch = await subscriber.begin(wanted.messages, wanted.bytes)
        except (SubscriptionNotFound, SubscriptionBusy) as error:
            self._consumers.end(subscriber)
            raise RequestRefused(CONSUMER_NOT_FOUND, str(error)) from None
        deadline = trio.current_time() + wanted.timeout_s
        try:
            while not fetch.ended.is_set():
                left = deadline - trio.current_time()
                if subscriber.more_is_there():  # Even with a timeout of 0: delivery takes a moment.
                    left = max(left, READY_S)
                if not fetch.came.is_set() and not await self._waiting.wait(
                    request, max(left, 0.0), fetch.came.wait, is_stream=is_stream
                ):
                    return (), None
                if fetch.ended.is_set():
                    return (), None
                await subscriber.wait_until_full(fetch)
                waits = self._waiting.for_memory(request, is_stream=is_stream)
                given_out, room = await self._give_out(subscriber, wanted, waits)
                if given_out:
                    self._count(subscriber, given_out)
                    return given_out, room
                # A seek, pieces of an incomplete message, or skipped records: continue to wait.
                await subscriber.go_on(fetch, wanted.messages, wanted.bytes)
            return (), None
        finally:
            subscriber.finish(fetch)

    async def _give_out(
        self, subscriber: Subscriber, wanted: ReadLimits, waits: Waits
    ) -> tuple[Sequence[DeliveredMessage], Room | None]:
        room, given_out = (
            await room_for(self._broker.output, wanted.bytes, waits),
            list[DeliveredMessage](),
        )
        try:
            given_out = await subscriber.give_out(
                wanted.messages, min(wanted.bytes, room.bytes), room.held
            )
        finally:
            if not given_out:
                room.give_back()
        return given_out, room

    def _count(self, subscriber: Subscriber, given_out: Sequence[DeliveredMessage]) -> None:
        name, count = subscriber.subscription.topic.name.full, self._broker.metrics.records_out
        for delivered in given_out:
            size = len(delivered.record.record.value or b"")
            count(PROTOCOL, name, 1, size, delivered.partition.traffic)

    async def _show(
        self, shower: Shower, given_out: Sequence[DeliveredMessage]
    ) -> list[ShownMessage]:
        shown: list[ShownMessage] = []
        start = 0
        while start < len(given_out):
            end = start + 1
            while end < len(given_out) and given_out[end].partition is given_out[start].partition:
                end += 1
            piece = given_out[start:end]
            records = [delivered.record for delivered in piece]
            shown_piece = await shower.show(piece[0].partition, records, with_offset=False)
            for message, delivered in zip(shown_piece, piece, strict=True):
                message.redeliveryCount = delivered.redelivery_count
            shown += shown_piece
            start = end
        return shown
