"""`/api/v1/topics`: list, show, create, alter and delete topics. Knows bodies and the broker, no
connection and no file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.responses import Response

from braidlog.broker.access.rights import Action, Resource
from braidlog.broker.errors import InvalidRequest, NotOwner
from braidlog.broker.runtime.turns import in_turns
from braidlog.broker.topics.dead_letter_topics import check_dead_letters
from braidlog.broker.topics.schemas import latest_version
from braidlog.broker.topics.settings import in_force, read_settings
from braidlog.broker.topics.settings_table import TOPIC_SETTINGS
from braidlog.protocols.http import query
from braidlog.protocols.http.bodies import BodyReader
from braidlog.protocols.http.management import messages
from braidlog.protocols.http.management.groups import summarize_groups
from braidlog.protocols.http.management.joined import joined_groups
from braidlog.protocols.http.path_names import topic_name
from braidlog.protocols.http.query import page_limit
from braidlog.protocols.http.requests import json_response
from braidlog.protocols.http.routes import seen_by
from braidlog.protocols.http.turns import first_by, first_topics

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.broker.topics.partition import Partition
    from braidlog.broker.topics.topic import Topic
    from braidlog.protocols.http.requests import Exchange
    from braidlog.storage.metadata.names import TopicName


SORTS: Final = ("name", "records", "size", "partitions")


class TopicsApi:
    """Handlers of a broker's topics."""

    def __init__(self, broker: Broker, bodies: BodyReader) -> None:
        self._broker = broker
        self._bodies = bodies

    async def list_topics(self, request: Request) -> Response:
        """A page of topics, all or of a namespace: `?namespace=`, `?contains=` (a part of the
        name), `?sort=name`, or `records`, `size` and `partitions`, the largest first, `?after=`,
        `?limit=`.

        The page shows the topics that the client may see.
        """
        limit = page_limit(request)
        sort = query.choice(request, "sort", SORTS)
        after = request.query_params.get("after", "") if sort == SORTS[0] else ""
        namespace = request.query_params.get("namespace")
        part = request.query_params.get("contains", "")
        is_seen = seen_by(self._broker, request)

        def wanted(topic: Topic) -> bool:
            name = topic.name
            if namespace is not None and namespace != f"{name.tenant}/{name.namespace}":
                return False
            if (after or part) and not (name.full > after and part in name.full):
                return False
            return is_seen(topic.resource)

        elsewhere = await self._broker.peers.stored_sizes()
        if sort == SORTS[0]:
            topics = await first_topics(self._broker.topics.all(), wanted, limit + 1)
            following = topics[limit - 1].name.full if len(topics) > limit else None
        else:
            before = query.entries_before(request)
            key = _size_key(sort, wanted, elsewhere)
            topics = await first_by(self._broker.topics.all(), key, before + limit + 1)
            del topics[:before]
            following = str(before + limit) if len(topics) > limit else None
        listed = [self._summary(topic, elsewhere) async for topic in in_turns(topics[:limit])]
        return json_response(messages.TopicPage(listed, following))

    async def show(self, request: Request) -> Response:
        """All details of a topic."""
        topic = self._broker.topics.get(topic_name(request))
        return json_response(await self._detail(request, topic))

    async def create(self, request: Request) -> Response:
        """Create a topic; answered once the topic is on disk."""
        name = topic_name(request)
        wanted = await self._bodies.read(request, messages.CreateTopic)
        read_in = read_settings(wanted.settings)
        settings = {key: value for key, value in read_in.items() if value is not None}
        self._check_dead_letters(request, name, settings)
        partitions = wanted.partitions or self._broker.topics.defaults.num_partitions
        topic = await self._broker.topics.create(name, partitions, settings=settings)
        await self._broker.durability.reached(topic.ticket)
        return json_response(await self._detail(request, topic), 201)

    async def alter(self, request: Request) -> Response:
        """Change a topic's settings or add partitions; answered once the change is on disk."""
        name = topic_name(request)
        wanted = await self._bodies.read(request, messages.AlterTopic)
        changes = read_settings(wanted.settings)
        topic = self._broker.topics.get(name)
        in_force(self._broker.config.log, {**topic.settings, **changes})  # Refuse before changes.
        self._check_dead_letters(request, name, changes)
        if wanted.partitions is not None and wanted.partitions < len(topic.partitions):
            raise InvalidRequest(f"{name} has {len(topic.partitions)} partitions; none can go")
        if wanted.partitions not in (None, len(topic.partitions)):
            await self._broker.topics.add_partitions(name, wanted.partitions)
        if changes:
            await self._broker.topics.alter_settings(name, changes)
            with suppress(NotOwner):  # Moved: the new owner applies the change.
                await self._broker.retention.apply(topic)
        await self._broker.durability.reached(topic.ticket)
        return json_response(await self._detail(request, topic))

    async def delete(self, request: Request) -> Response:
        """Delete a topic with its records and groups; answered once the deletion is on disk."""
        ticket = await self._broker.topics.delete(topic_name(request))
        await self._broker.durability.reached(ticket)
        return Response(status_code=204)

    def _check_dead_letters(
        self, request: Request, name: TopicName, changes: Mapping[str, str | int | bool | None]
    ) -> None:
        """Check the dead letter topic that changes name. Raises NotAuthorized, InvalidRequest."""
        exchange: Exchange = request.scope["exchange"]

        def check(action: Action, resource: Resource) -> None:
            self._broker.access.check(exchange.principal, action, resource, exchange.at)

        check_dead_letters(self._broker.topics, name, changes, check)

    def _summary(
        self, topic: Topic, elsewhere: Mapping[str, tuple[int, int, int]]
    ) -> messages.TopicSummary:
        sizes = elsewhere.get(topic.name.full)
        records, size_bytes = (_records(topic), _size_bytes(topic)) if sizes is None else sizes[:2]
        ends = [partition.high_watermark for partition in topic.partitions]
        version = latest_version(topic.meta.schemas)
        return messages.TopicSummary(
            name=topic.name.full,
            partitions=len(topic.partitions),
            records=records,
            size_bytes=size_bytes,
            durability=str(self._in_force(topic)["durability"]),
            ends=sum(ends) if sizes is None else None,
            groups=len(self._broker.subscriptions.names(topic)) if sizes is None else None,
            schema_version=version,
        )

    async def _detail(self, request: Request, topic: Topic) -> messages.TopicDetail:
        in_force = self._in_force(topic)
        joined = await joined_groups(self._broker)
        partitions = [
            _partition_info(partition) async for partition in in_turns(tuple(topic.partitions))
        ]
        return messages.TopicDetail(
            name=topic.name.full,
            topic_id=topic.meta.topic_id,
            created_us=topic.meta.created_us,
            partitioned=topic.partitioned,
            durability=str(in_force["durability"]),
            settings=topic.meta.settings,
            in_force=in_force,
            partitions=partitions,
            groups=await summarize_groups(
                self._broker,
                topic,
                joined,
                is_seen=seen_by(self._broker, request),
            ),
            inherited=self._inherited(topic),
            silent_brokers=list(joined.silent_brokers),
        )

    def _in_force(self, topic: Topic) -> dict[str, str | int | bool | None]:
        """Return the settings of logs, and the policies that some level sets."""
        policies = {name: topic.settings[name] for name in TOPIC_SETTINGS if name in topic.settings}
        return {**policies, **in_force(self._broker.config.log, topic.settings)}

    def _inherited(self, topic: Topic) -> dict[str, str | int | bool]:
        namespace = self._broker.namespaces.find(topic.name.tenant, topic.name.namespace)
        settings = namespace.settings if namespace else {}
        return {name: settings[name] for name in TOPIC_SETTINGS if name in settings}


def _size_key(
    sort: str, wanted: Callable[[Topic], bool], elsewhere: Mapping[str, tuple[int, int, int]]
) -> Callable[[Topic], tuple[int, str] | None]:
    """Return the key that sorts the largest topics first, and topics of the same size by name."""

    def key(topic: Topic) -> tuple[int, str] | None:
        if not wanted(topic):
            return None
        name = topic.name.full
        if sort == "partitions":
            return -len(topic.partitions), name
        sizes = elsewhere.get(name)
        if sizes is not None:
            return -sizes[sort == "size"], name
        return -(_records(topic) if sort == "records" else _size_bytes(topic)), name

    return key


def _records(topic: Topic) -> int:
    """Return the number of readable records (gaps included) of a topic of this broker."""
    return sum(part.high_watermark - part.log_start_offset for part in topic.partitions)


def _size_bytes(topic: Topic) -> int:
    return sum(part.size_bytes for part in topic.partitions)


def _partition_info(partition: Partition) -> messages.PartitionInfo:
    return messages.PartitionInfo(
        partition=partition.index,
        partition_id=partition.partition_id,
        log_start_offset=partition.log_start_offset,
        high_watermark=partition.high_watermark,
        log_end_offset=partition.next_offset,
        size_bytes=partition.size_bytes,
        compacted_offset=partition.compacted_offset,
        segments=[
            messages.SegmentInfo(base_offset, size_bytes, last_modified_us)
            for base_offset, last_modified_us, size_bytes in partition.segments()
        ],
    )
