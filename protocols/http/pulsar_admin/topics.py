"""Topics in Pulsar's admin API: list, create, grow, delete, statistics, single messages."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from braidlog.broker.errors import TopicExists, TopicNotFound
from braidlog.broker.reading import entries
from braidlog.broker.reading.numbered import nth_entry, nth_entry_from_end
from braidlog.broker.runtime.turns import in_turns
from braidlog.protocols.http import query
from braidlog.protocols.http.errors import (
    BAD_LIMIT,
    BAD_PARTITIONS,
    FEWER_PARTITIONS,
    MESSAGE_NOT_FOUND,
    NOT_OF_A_PARTITION,
    NOTHING_TO_EXAMINE,
    OTHER_KIND_OF_TOPIC,
    TOPIC_BUSY,
    TOPIC_NOT_FOUND,
    RequestRefused,
)
from braidlog.protocols.http.path_names import name_of, namespace_of
from braidlog.protocols.http.pulsar_admin import statistics
from braidlog.protocols.http.pulsar_admin.answers import as_number, done, json_answer, read_any
from braidlog.protocols.http.pulsar_admin.bundles import Bundles
from braidlog.protocols.http.pulsar_admin.handlers import AdminHandlers
from braidlog.protocols.http.pulsar_admin.internal_stats import internal_stats
from braidlog.protocols.http.pulsar_admin.names import full_name, full_names, topic_of
from braidlog.protocols.http.pulsar_admin.properties import (
    OF_TOPIC,
    changes_to,
    read_properties,
    shown_properties,
)
from braidlog.protocols.http.pulsar_admin.shown_entries import shown_entry
from braidlog.protocols.http.pulsar_admin.topic_details import partitioned_topic
from braidlog.protocols.http.routes import group_check, groups_seen, topics_seen

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.broker.topics.partition import Partition
    from braidlog.broker.topics.topic import Topic
    from braidlog.protocols.http.bodies import BodyReader
    from braidlog.protocols.http.pulsar_admin.policies import Setting
    from braidlog.protocols.http.pulsar_admin.traffic_meter import TrafficMeter
    from braidlog.storage.metadata.names import TopicName

PARTITIONS_MAX = 10_000
INT_MAX = 2**31 - 1  # The largest `int` of Java.
PARTITIONS_PER_TURN = 20  # For truncation: each partition may write a slot and start a segment.
SUBSCRIPTIONS_PER_TURN = 200
TIME_MS_MAX = (2**63 - 1) // 1000
NO_ENTRY = -1
TIMES = ("getEarliestTimeInBacklog",)
# Ends of Apache's errors for a deletion of the other kind.
PARTITIONED = (
    "is a partitioned topic, instead of calling delete topic, please call delete-partitioned-topic."
)
NOT_PARTITIONED = (
    "is a non-partitioned topic. Instead of calling delete-partitioned-topic please call delete."
)
ENTRIES_COUNTED_MAX = 10_000  # Entries on the way to the entry that a client names by number.


class AdminTopics(AdminHandlers):
    """Handlers of a broker's topics."""

    def __init__(self, broker: Broker, bodies: BodyReader, meter: TrafficMeter) -> None:
        super().__init__(broker, bodies)
        self._meter = meter

    async def list_topics(self, request: Request) -> Response:
        """Every topic of a namespace, or of its `bundle`, that the client may see, each partition
        separately.
        """
        names, bundle = full_names(await self._seen(request)), request.query_params.get("bundle")
        if bundle:
            bundles = Bundles(self._broker.namespaces.get(*namespace_of(request)).settings)
            names = [name for name in names if bundles.of(name) == bundle.lower()]
        return json_answer(names)

    async def list_partitioned(self, request: Request) -> Response:
        """The partitioned topics of a namespace that the client may see."""
        topics = await self._seen(request)
        return json_answer([full_name(topic) for topic in topics if topic.partitioned])

    async def _seen(self, request: Request) -> Sequence[Topic]:
        place = namespace_of(request)
        self._broker.namespaces.get(*place)
        return await topics_seen(self._broker, request, place, self._broker.topics.list(*place))

    async def create(self, request: Request) -> Response:
        """Create a topic without partitions."""
        name, index = name_of(request)
        properties = read_properties(await self._body(request))
        if index is not None:
            existing = self._broker.topics.find(name)
            is_partitioned = existing is not None and existing.partitioned
            count = len(existing.partitions) if existing is not None and is_partitioned else 0
            raise no_separate_partition(name, index, count)
        settings = new_settings(properties)
        topic = await self._broker.topics.create(name, 1, partitioned=False, settings=settings)
        return await self._done_at(topic.ticket)

    async def create_partitioned(self, request: Request) -> Response:
        """Create a partitioned topic; the body is the number of partitions."""
        name, _ = name_of(request)
        count, properties = await partition_count(self._bodies, request)
        settings = new_settings(properties)
        topic = await self._broker.topics.create(name, count, partitioned=True, settings=settings)
        return await self._done_at(topic.ticket)

    async def grow(self, request: Request) -> Response:
        """Add partitions to a partitioned topic; the body is the new partition count."""
        name, _ = name_of(request)
        count, _ = await partition_count(self._bodies, request, least=-INT_MAX)
        topic = self._broker.topics.find(name)
        if topic is None or not topic.partitioned:
            text = f"Topic persistent://{name.full} is not the partitioned topic."
            raise RequestRefused(OTHER_KIND_OF_TOPIC, text)
        if count < len(topic.partitions):
            known = f"the current partitions {len(topic.partitions)}"
            text = f"Desired partitions {count} can't be less than {known}."
            raise RequestRefused(FEWER_PARTITIONS, text)
        is_same = count == len(topic.partitions)
        ticket = 0 if is_same else await self._broker.topics.add_partitions(name, count)
        return await self._done_at(ticket)

    async def partitions(self, request: Request) -> Response:
        """The number of a topic's partitions; 0 for a topic without partitions.

        With `checkAllowAutoCreation` the number is 0 also for a topic that does not exist.
        """
        name, index = name_of(request)
        topic = self._broker.topics.find(name)
        if topic is None:
            self._broker.namespaces.get(name.tenant, name.namespace)
            if not query.truth(request, ("checkAllowAutoCreation",)):
                raise TopicNotFound(f"Topic persistent://{name.full} not found")
        is_partitioned = topic is not None and topic.partitioned and index is None
        count = len(topic.partitions) if topic is not None and is_partitioned else 0
        shown: dict[str, object] = {"partitions": count, "deleted": False}
        if topic is not None and count:
            shown |= shown_properties(topic)
        return json_answer(shown)

    async def delete(self, request: Request) -> Response:
        """Delete a topic without partitions."""
        name, _ = name_of(request)
        topic = self._broker.topics.get(name)
        if topic.partitioned:
            raise RequestRefused(OTHER_KIND_OF_TOPIC, f"{full_name(topic)} {PARTITIONED}")
        return await self._delete(request, topic)

    async def delete_partitioned(self, request: Request) -> Response:
        """Delete a partitioned topic."""
        name, _ = name_of(request)
        topic = self._broker.topics.find(name)
        if topic is None:
            raise RequestRefused(TOPIC_NOT_FOUND, f"Topic persistent://{name.full} not found.")
        if not topic.partitioned:
            raise RequestRefused(OTHER_KIND_OF_TOPIC, f"{full_name(topic)} {NOT_PARTITIONED}")
        return await self._delete(request, topic)

    async def _delete(self, request: Request, topic: Topic) -> Response:
        is_forced = query.truth(request, ("force",))
        if is_forced:
            ticket = await self._broker.topics.delete(topic.name, holds_name=True)
        else:
            check = partial(self._check_unused, topic)
            ticket = await self._broker.inactivity.delete_unused(topic, check)
        return await self._done_at(ticket)

    async def _check_unused(self, topic: Topic) -> None:
        """Raise RequestRefused if a client has a consumer, reader or producer on the topic."""
        consumers = producers = 0
        async for partition in in_turns(tuple(topic.partitions), PARTITIONS_PER_TURN):
            consumers += sum(
                len(dispatcher.consumers) for dispatcher in self._broker.dispatchers.on(partition)
            )
            producers += len(self._broker.shown_producers.of(partition.partition_id))
        if consumers or producers:
            text = f"Topic has {consumers} consumers and {producers} producers connected"
            raise RequestRefused(TOPIC_BUSY, text)

    async def stats(self, request: Request) -> Response:
        """Statistics of a topic or partition."""
        topic, partitions = topic_of(self._broker, request)
        wanted = self._wanted_stats(request, topic)
        answer = await statistics.topic_stats(self._broker, topic, partitions, wanted)
        return json_answer(answer)

    async def partitioned_stats(self, request: Request) -> Response:
        """Statistics of a partitioned topic."""
        topic = partitioned_topic(self._broker, request)
        is_each = query.truth(request, ("perPartition",))
        wanted = self._wanted_stats(request, topic)
        answer = await statistics.partitioned_stats(
            self._broker, topic, wanted, per_partition=is_each
        )
        return json_answer(answer)

    def _wanted_stats(self, request: Request, topic: Topic) -> statistics.WantedStats:
        return statistics.WantedStats(
            groups_seen(self._broker, request, topic),
            group_check(self._broker, request, topic),
            request.headers.get("host", ""),
            self._meter,
            with_times=query.truth(request, TIMES),
            publishers=not query.truth(request, statistics.WITHOUT_PUBLISHERS),
            consumers=not query.truth(request, statistics.WITHOUT_CONSUMERS),
        )

    async def internal_stats(self, request: Request) -> Response:
        """Ledger and cursors of a topic's partition."""
        topic, _ = topic_of(self._broker, request)
        partition = self.one_partition(request)
        names = groups_seen(self._broker, request, topic)
        sees = group_check(self._broker, request, topic)
        return json_answer(await internal_stats(self._broker, topic, partition, names, sees))

    async def unload(self, request: Request) -> Response:
        """Answer that a topic is unloaded; there is nothing to do."""
        topic_of(self._broker, request)
        return done()

    async def truncate(self, request: Request) -> Response:
        """Delete all messages of a topic, and acknowledge them in every subscription.

        In a shared store messages are deleted in whole segments.
        """
        topic, partitions = topic_of(self._broker, request)
        async for partition in in_turns(partitions, PARTITIONS_PER_TURN):
            partition.check_here()
            end = partition.high_watermark
            self._broker.retention.delete_below(partition, end)
            names = self._broker.subscriptions.names(topic)
            async for name in in_turns(names, SUBSCRIPTIONS_PER_TURN):
                subscription = self._broker.subscriptions.find(topic, name)
                if subscription is not None:
                    subscription.ack_to(partition.index, end, lazy=False)
        await self._broker.durability.all_durable()
        return done()

    async def last_message_id(self, request: Request) -> Response:
        """The id of the last message; entry -1 without messages."""
        partition = self.one_partition(request)
        span = await entries.last_entry(partition)
        return json_answer(_id(partition, NO_ENTRY if span is None else span.offset, -1))

    async def id_at(self, request: Request) -> Response:
        """The id of the first message published at or after a time."""
        partition = self.one_partition(request)
        time_ms = path_number(request, "time", TIME_MS_MAX)
        offset = await entries.resolve_time(partition, time_ms * 1000)
        if offset >= partition.high_watermark:
            return json_answer(_id(partition, NO_ENTRY, -1))
        return json_answer(_id(partition, offset, -1))

    async def message(self, request: Request) -> Response:
        """The entry at a ledger and entry id: a batch comes whole."""
        partition = self.one_partition(request)
        ledger = path_number(request, "ledger", 2**63 - 1)
        entry = path_number(request, "entry", 2**63 - 1)
        if ledger != partition.partition_id:
            raise RequestRefused(MESSAGE_NOT_FOUND, f"ledger {ledger} is not of this topic")
        return await shown_entry(self._broker, request, partition, entry)

    async def examine(self, request: Request) -> Response:
        """The n-th entry from either end, counted from 1: a batch comes whole.

        As in Apache, a number beyond the other end means the entry at that end, a number below 1
        means 1, and every word but `earliest` means `latest`.
        """
        number = max(query.integer(request, "messagePosition", 1), 1)
        partition = self.one_partition(request)
        start, end = partition.log_start_offset, partition.high_watermark
        is_from_start = request.query_params.get("initialPosition") == "earliest"
        if number >= end - start:  # Beyond the other end: there are no more entries than messages.
            is_from_start, number = not is_from_start, 1
        check_entry_number(number)
        span = await nth_entry(partition, start, number) if is_from_start else None
        if span is None:
            span = await nth_entry_from_end(partition, 1 if is_from_start else number)
        if span is None:
            raise RequestRefused(
                NOTHING_TO_EXAMINE, "Could not examine messages due to the total message is zero"
            )
        return await shown_entry(self._broker, request, partition, span.offset)

    def one_partition(self, request: Request) -> Partition:
        """Return the only partition of a topic without partitions, or the named partition, for the
        calls of `topic_names.OF_PARTITIONS`.
        """
        _, (partition,) = topic_of(self._broker, request)
        return partition


def no_separate_partition(name: TopicName, index: int, count: int) -> Exception:
    """Return the error for the creation of a partition of a topic with `count` partitions, which
    exist with their topic.
    """
    if index < count:
        return TopicExists(f"partition {index} of {name} exists")
    end = (
        f"a number smaller than number of partition of partitioned topic {name.topic}"
        if count
        else f"numeric value if there isn't a partitioned topic {name.topic} created."
    )
    text = f'{name.topic}-partition-{index} with "-partition-" followed by {end}'
    return RequestRefused(NOT_OF_A_PARTITION, f"Can't create topic {text}")


async def partition_count(
    bodies: BodyReader, request: Request, *, least: int = 1
) -> tuple[int, dict[str, str]]:
    """Return the number of partitions in the body, and the topic's properties. Raises
    RequestRefused.
    """
    body = await read_any(bodies, request)
    properties = read_properties(body.get("properties") if isinstance(body, dict) else None)
    count = as_number(body.get("partitions") if isinstance(body, dict) else body)
    if type(count) is not int or not least <= count <= PARTITIONS_MAX:
        text = "Number of partitions should be more than 0"
        raise RequestRefused(BAD_PARTITIONS, f"{text} and at most {PARTITIONS_MAX}")
    return count, properties


def new_settings(properties: dict[str, str]) -> dict[str, Setting]:
    """Return the settings of a new topic with these properties. Raises RequestRefused."""
    changes = changes_to({}, OF_TOPIC, properties)
    return {name: value for name, value in changes.items() if value is not None}


def check_entry_number(number: int) -> None:
    """Raise RequestRefused for the number of an entry that would take too long to find."""
    if number > ENTRIES_COUNTED_MAX:
        text = f"an entry's number is at most {ENTRIES_COUNTED_MAX}, not {number}"
        raise RequestRefused(BAD_LIMIT, text)


def path_number(request: Request, part: str, most: int) -> int:
    """Return a number of the path. Raises RequestRefused."""
    text = request.path_params[part]
    if not (text.isascii() and text.isdecimal()) or len(text) > 19 or int(text) > most:
        raise RequestRefused(
            MESSAGE_NOT_FOUND, f"{part} is a number up to {most}, not {text[:40]!r}"
        )
    return int(text)


def _id(partition: Partition, entry: int, batch_index: int) -> dict[str, int]:
    index = partition.index if partition.topic.partitioned else -1
    return {
        "ledgerId": partition.partition_id,
        "entryId": entry,
        "partitionIndex": index,
        "batchIndex": batch_index,
        "batchSize": 0,
    }
