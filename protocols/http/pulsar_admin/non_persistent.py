"""Non-persistent topics in Pulsar's admin API: list, create, grow, delete, statistics.

Operations that need stored records (positions, single messages, policies) are refused as
`not_on_non_persistent`, with Apache Pulsar's status.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import add
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from braidlog.broker.access.rights import Resource
from braidlog.broker.errors import TopicExists, TopicNotFound
from braidlog.protocols.http import query
from braidlog.protocols.http.errors import (
    GROUP_NOT_FOUND,
    NOT_ON_NON_PERSISTENT,
    NOT_SUPPORTED,
    OTHER_KIND_OF_TOPIC,
    SUBSCRIPTION_BUSY,
    TOPIC_BUSY,
    TOPIC_NOT_FOUND,
    RequestRefused,
)
from braidlog.protocols.http.path_names import name_of, namespace_of, text_of
from braidlog.protocols.http.pulsar_admin import blank_stats
from braidlog.protocols.http.pulsar_admin.answers import done, json_answer
from braidlog.protocols.http.pulsar_admin.client_stats import (
    CONSUMER_RATES,
    add_counts,
    add_rates,
    connected_consumer,
    publisher_stats,
)
from braidlog.protocols.http.pulsar_admin.handlers import AdminHandlers
from braidlog.protocols.http.pulsar_admin.names import shown_name
from braidlog.protocols.http.pulsar_admin.statistics import (
    RATES,
    WITHOUT_CONSUMERS,
    WITHOUT_PUBLISHERS,
    subscription_stats,
    topic_rates,
    without_clients,
)
from braidlog.protocols.http.pulsar_admin.topics import (
    NOT_PARTITIONED,
    PARTITIONED,
    no_separate_partition,
    partition_count,
)
from braidlog.protocols.http.routes import seen_by, topics_seen

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.broker.delivery.non_persistent.channel import (
        NonPersistentChannel,
        NonPersistentSubscription,
    )
    from braidlog.protocols.http.bodies import BodyReader
    from braidlog.protocols.http.pulsar_admin.traffic_meter import TrafficMeter
    from braidlog.storage.metadata.names import TopicName

Json = dict[str, Any]
# Apache's names; the rates of the first four are `RATES`, that of the last is `msgDropRate`.
COUNTERS = ("msgInCounter", "bytesInCounter", "msgOutCounter", "bytesOutCounter", "msgDropCounter")
DROPS = {"msgDropRate": 0.0, "msgDropCounter": 0}  # Of a subscription.

NO_PROPERTIES = "properties of a non-persistent topic are not stored here"


class AdminNonPersistent(AdminHandlers):
    """Handlers of a broker's non-persistent topics."""

    def __init__(self, broker: Broker, bodies: BodyReader, meter: TrafficMeter) -> None:
        super().__init__(broker, bodies)
        self._meter = meter
        self._non_persistent = broker.non_persistent

    async def list_topics(self, request: Request) -> Response:
        """The non-persistent topics of a namespace in use that the client may see, of all brokers.

        Each partition is listed separately.
        """
        place = namespace_of(request)
        self._broker.namespaces.get(*place)
        topics = [channel.topic for channel in self._non_persistent.list(*place)]
        topics_here = await topics_seen(self._broker, request, place, topics)
        is_seen = seen_by(self._broker, request)
        elsewhere = await self._broker.peers.non_persistent(place)
        theirs = [name for name, of in elsewhere.items() if is_seen(Resource.of_topic(of))]
        return json_answer(sorted({*theirs, *(topic.metrics_name for topic in topics_here)}))

    async def list_partitioned(self, request: Request) -> Response:
        """The partitioned non-persistent topics of a namespace that the client may see."""
        is_seen = seen_by(self._broker, request)
        names = self._non_persistent.list_partitioned(*namespace_of(request))
        seen = [name for name in names if is_seen(Resource.of_topic(name))]
        return json_answer([f"non-persistent://{name.full}" for name in seen])

    async def create(self, request: Request) -> Response:
        """Create a non-persistent topic without partitions."""
        name, index = name_of(request)
        if await self._body(request):
            raise RequestRefused(NOT_SUPPORTED, NO_PROPERTIES)
        if index is not None:
            raise no_separate_partition(name, index, self._non_persistent.partitions(name))
        self._non_persistent.create(name)
        return done()

    async def delete(self, request: Request) -> Response:
        """Delete a non-persistent topic without partitions."""
        name, _ = name_of(request)
        if self._non_persistent.partitions(name):
            text = f"non-persistent://{name.full} {PARTITIONED}"
            raise RequestRefused(OTHER_KIND_OF_TOPIC, text)
        return await self._delete(request, name)

    async def partitions(self, request: Request) -> Response:
        """The number of a non-persistent topic's partitions; 0 for a topic without partitions.

        With `checkAllowAutoCreation` the number is 0 also for a topic that does not exist.
        """
        name, index = name_of(request)
        self._broker.namespaces.get(name.tenant, name.namespace)
        wants_missing = query.truth(request, ("checkAllowAutoCreation",))
        if not wants_missing and not self._non_persistent.exists(name):
            raise TopicNotFound(f"Topic non-persistent://{name.full} not found")
        count = self._non_persistent.partitions(name) if index is None else 0
        return json_answer({"partitions": count, "deleted": False})

    async def set_partitions(self, request: Request) -> Response:
        """Create a partitioned non-persistent topic or add partitions; the body is the partition
        count.
        """
        name, _ = name_of(request)
        count, properties = await partition_count(self._bodies, request)
        if properties:
            raise RequestRefused(NOT_SUPPORTED, NO_PROPERTIES)
        known = self._non_persistent.partitions(name)
        if request.method == "PUT" and known:
            raise TopicExists("This topic already exists")
        if request.method == "POST" and not known:
            raise self._not_partitioned(name)
        ticket = 0 if count == known else await self._non_persistent.partition(name, count)
        return await self._done_at(ticket)

    async def delete_partitioned(self, request: Request) -> Response:
        """Delete a non-persistent topic with its partitions."""
        name, _ = name_of(request)
        if not self._non_persistent.partitions(name):
            raise self._not_partitioned(name)
        return await self._delete(request, name)

    def _not_partitioned(self, name: TopicName) -> Exception:
        """Return the error for a topic without partitions, or for a missing topic."""
        if self._non_persistent.find(name, None) is None:
            return TopicNotFound(f"Partitioned Topic not found: {name}")
        text = f"non-persistent://{name.full} {NOT_PARTITIONED}"
        return RequestRefused(OTHER_KIND_OF_TOPIC, text)

    async def _delete(self, request: Request, name: TopicName) -> Response:
        users = sum(
            topic.producers + sum(len(s.consumers) for s in topic.subscriptions.values())
            for topic in self._all(name)
        )
        if users and not query.truth(request, ("force",)):
            raise RequestRefused(TOPIC_BUSY, f"Topic has {users} clients connected")
        return await self._done_at(await self._non_persistent.delete(name))

    def _all(self, name: TopicName) -> list[NonPersistentChannel]:
        """Return the topic, or its partitions, as far as in use."""
        count = self._non_persistent.partitions(name)
        places = range(count) if count else [None]
        topics_found = (self._non_persistent.find(name, index) for index in places)
        return [topic for topic in topics_found if topic is not None]

    async def stats(self, request: Request) -> Response:
        """Statistics of a non-persistent topic, or of a partition."""
        return json_answer(self._stats(request, [self._topic(request)]))

    async def partitioned_stats(self, request: Request) -> Response:
        """Statistics of all partitions of a non-persistent topic together; of each on request."""
        name, _ = name_of(request)
        if not self._non_persistent.partitions(name):
            raise RequestRefused(TOPIC_NOT_FOUND, f"Partitioned Topic not found: {name}")
        topics_found = self._all(name)
        answer = self._stats(request, topics_found)
        answer["metadata"] = {"partitions": self._non_persistent.partitions(name), "deleted": False}
        wanted = query.truth(request, ("perPartition",))
        parts = topics_found if wanted else ()
        answer["partitions"] = {part.full: self._stats(request, [part]) for part in parts}
        return json_answer(answer)

    async def internal_stats(self, request: Request) -> Response:
        """Apache's internal statistics of a non-persistent topic: nothing is stored."""
        topic = self._topic(request)
        cursor = blank_stats.INTERNAL_CURSOR
        return json_answer(
            blank_stats.INTERNAL
            | {"entriesAddedCounter": topic.traffic.records_in}
            | {"cursors": dict.fromkeys(self._groups_seen(request), cursor)}
        )

    async def subscriptions(self, request: Request) -> Response:
        """The names of a non-persistent topic's subscriptions that the client may see."""
        return json_answer(self._groups_seen(request))

    def _groups_seen(self, request: Request) -> list[str]:
        is_seen = seen_by(self._broker, request)
        names = {
            shown_name(name): None
            for topic in self._parts(request)
            for name in topic.subscriptions
            if is_seen(Resource.of_group(name, topic.name))
        }
        return [*names]

    async def delete_subscription(self, request: Request) -> Response:
        """Delete a subscription; with `force` even while consumers are connected."""
        name = text_of(request, "subscription").encode()
        parts = [
            (topic, subscription)
            for topic in self._parts(request)
            if (subscription := topic.subscriptions.get(name)) is not None
        ]
        if not parts:
            raise RequestRefused(GROUP_NOT_FOUND, "Subscription not found")
        is_busy = any(subscription.consumers for _, subscription in parts)
        if is_busy and not query.truth(request, ("force",)):
            raise RequestRefused(SUBSCRIPTION_BUSY, "Subscription has active connected consumers")
        for topic, subscription in parts:
            self._broker.closing.add(subscription.close_consumers())
            topic.unsubscribe(subscription)
        return done()

    def _parts(self, request: Request) -> list[NonPersistentChannel]:
        """Return the topic or the partition of the path; of a partitioned topic, all partitions in
        use. Raises TopicNotFound, PartitionNotFound.
        """
        name, index = name_of(request)
        if index is None and self._non_persistent.partitions(name):
            return self._all(name)
        return [self._topic(request)]

    def _topic(self, request: Request) -> NonPersistentChannel:
        """Return the topic of the path, if in use, or a partition of a partitioned topic.

        Raises TopicNotFound, PartitionNotFound.
        """
        name, index = name_of(request)
        if index is not None:
            return self._non_persistent.get(name, index, make=False)
        topic = self._non_persistent.find(name, None)
        if topic is None:
            raise TopicNotFound(f"Topic non-persistent://{name.full} not found")
        return topic

    async def unload(self, request: Request) -> Response:
        """Answer that a non-persistent topic is unloaded; there is nothing to do."""
        self._parts(request)
        return done()

    def _stats(self, request: Request, topics: list[NonPersistentChannel]) -> Json:
        of = self._broker.shown_producers.of
        publishers = [publisher for topic in topics for publisher in of(topic.partition_id)]
        stats = _stats(topics, seen_by(self._broker, request), self._meter) | publisher_stats(
            publishers
        )
        for publisher in stats["publishers"]:
            publisher["msgDropRate"] = 0.0
        stats["ownerBroker"] = request.headers.get("host", "")
        return without_clients(
            stats,
            publishers=not query.truth(request, WITHOUT_PUBLISHERS),
            consumers=not query.truth(request, WITHOUT_CONSUMERS),
        )

    async def not_here(self, request: Request) -> Response:
        """Refuse an operation that needs stored records."""
        path = request.scope["path"]
        raise RequestRefused(
            NOT_ON_NON_PERSISTENT, f"{request.method} {path}: a non-persistent topic keeps nothing"
        )


def _stats(
    topics: list[NonPersistentChannel], is_seen: Callable[[Resource], bool], meter: TrafficMeter
) -> Json:
    """Return the statistics of a topic, or of several partitions together, with the subscriptions
    that the client may see.
    """
    subscriptions: Json = {}
    counts, rates = [0] * len(COUNTERS), [0.0] * len(COUNTERS)
    for topic in topics:
        of_topic = _counts(topic)
        counts = [*map(add, counts, of_topic)]
        rates_of_topic = meter.rates(topic.partition_id, of_topic, topic.topic.meta.created_us)
        rates = [*map(add, rates, rates_of_topic)]
        for name, subscription in topic.subscriptions.items():
            if not is_seen(Resource.of_group(name, topic.name)):
                continue
            _add(
                subscriptions.setdefault(shown_name(name), {**subscription_stats(meter), **DROPS}),
                subscription,
                meter,
            )
    return (
        blank_stats.TOPIC
        | topic_rates(rates[: len(RATES)])
        | dict(zip(COUNTERS, counts, strict=True))
        | {
            "msgDropRate": rates[-1],
            "storageSize": 0,
            "backlogSize": 0,
            "producersCount": sum(topic.producers for topic in topics),
            "subscriptions": subscriptions,
        }
    )


def _counts(topic: NonPersistentChannel) -> list[int]:
    """Return the counts of a topic, in the order of `COUNTERS`."""
    traffic, readers = topic.traffic, topic.subscriptions.values()
    messages_out = sum(reader.messages_out for reader in readers)
    bytes_out = sum(reader.bytes_out for reader in readers)
    dropped = topic.messages_dropped
    return [traffic.records_in, traffic.bytes_in, messages_out, bytes_out, dropped]


def _add(stats: Json, subscription: NonPersistentSubscription, meter: TrafficMeter) -> None:
    topic = subscription.partition
    place, dropped = (topic.partition_id, subscription.name), subscription.messages_dropped
    (drop_rate,) = meter.rates(place, (dropped,), topic.topic.meta.created_us)
    stats["msgDropRate"] += drop_rate
    stats["msgDropCounter"] += dropped
    stats["msgOutCounter"] += subscription.messages_out
    stats["bytesOutCounter"] += subscription.bytes_out
    if subscription.consumers:
        stats["type"] = subscription.kind.value
    for consumer in subscription.consumers:
        shown = connected_consumer(consumer)
        add_counts(shown, consumer)
        add_rates(shown, consumer, place, meter)
        for name in CONSUMER_RATES:
            stats[name] += shown[name]
        stats["consumers"].append(shown)
