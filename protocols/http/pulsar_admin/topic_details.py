"""Details of a topic in Pulsar's admin API: properties, ledgers of all partitions, its cluster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from braidlog.broker.reading import entries
from braidlog.broker.runtime.turns import in_turns
from braidlog.protocols.http.errors import ONE_PARTITION_WANTED, TOPIC_NOT_FOUND, RequestRefused
from braidlog.protocols.http.path_names import name_of
from braidlog.protocols.http.pulsar_admin import statistics
from braidlog.protocols.http.pulsar_admin.answers import done, json_answer
from braidlog.protocols.http.pulsar_admin.apache_words import full_name_in
from braidlog.protocols.http.pulsar_admin.bundles import Bundles
from braidlog.protocols.http.pulsar_admin.cluster_rules import check_topic_clusters
from braidlog.protocols.http.pulsar_admin.handlers import AdminHandlers
from braidlog.protocols.http.pulsar_admin.internal_stats import date_text, internal_stats
from braidlog.protocols.http.pulsar_admin.names import full_name, topic_of
from braidlog.protocols.http.pulsar_admin.new_objects import CLUSTER
from braidlog.protocols.http.pulsar_admin.properties import (
    OF_TOPIC,
    TOPIC_CLUSTERS,
    changes_to,
    properties_of,
    read_properties,
    shown_properties,
)
from braidlog.protocols.http.routes import group_check, groups_seen

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.broker.topics.partition import Partition
    from braidlog.broker.topics.topic import Topic
    from braidlog.protocols.http.pulsar_admin.policies import Setting

Json = dict[str, object]


class AdminTopicDetails(AdminHandlers):
    """Handlers of topics."""

    # Properties.

    async def properties(self, request: Request) -> Response:
        """The properties of a topic; a partition has none. Empty for a partitioned topic without
        properties, as in Apache.
        """
        topic, _ = topic_of(self._broker, request)
        _, index = name_of(request)
        shown = {} if index is not None else properties_of(topic.meta.settings, OF_TOPIC)
        if topic.partitioned and index is None and not shown:
            return Response(status_code=200)
        return json_answer(shown)

    async def set_properties(self, request: Request) -> Response:
        """Add properties to a topic."""
        properties = read_properties(await self._body(request))
        return await self._altered(request, properties)

    async def delete_property(self, request: Request) -> Response:
        """Remove the property of a topic that `key` names."""
        key = request.query_params.get("key", "")
        return await self._altered(request, {key: None})

    async def _altered(self, request: Request, properties: Mapping[str, str | None]) -> Response:
        topic, _ = topic_of(self._broker, request)
        return await self._alter(topic, changes_to(topic.meta.settings, OF_TOPIC, properties))

    async def _alter(self, topic: Topic, changes: Mapping[str, Setting | None]) -> Response:
        ticket = await self._broker.topics.alter_settings(topic.name, changes)
        return await self._done_at(ticket)

    # Clusters.

    async def clusters(self, request: Request) -> Response:
        """The clusters that a topic sets; with `applied`, those that have the topic's messages."""
        topic, _ = topic_of(self._broker, request)
        if request.query_params.get("applied") == "true" or TOPIC_CLUSTERS in topic.meta.settings:
            return json_answer([CLUSTER])
        return Response(status_code=200)

    async def set_clusters(self, request: Request) -> Response:
        """Set the list of clusters, which is the own cluster alone."""
        topic, _ = topic_of(self._broker, request)
        body = await self._body(request)
        check_topic_clusters(self._broker, topic.name.tenant, body)
        return await self._alter(topic, {TOPIC_CLUSTERS: CLUSTER})

    async def reset_clusters(self, request: Request) -> Response:
        """Leave the clusters to the namespace."""
        topic, _ = topic_of(self._broker, request)
        return await self._alter(topic, {TOPIC_CLUSTERS: None})

    async def bundle(self, request: Request) -> Response:
        """The bundle of a topic or partition, which need not exist."""
        name, _ = name_of(request)
        meta = self._broker.namespaces.get(name.tenant, name.namespace)
        bundle = Bundles(meta.settings).of(full_name_in(request))
        return Response(bundle, media_type="application/json")

    # Partitions.

    async def create_missed(self, request: Request) -> Response:
        """Answer that every partition exists: they are created with their topic."""
        topic, _ = topic_of(self._broker, request)
        if not topic.partitioned:
            raise RequestRefused(TOPIC_NOT_FOUND, f"Topic {full_name(topic)} does not exist")
        return done()

    async def trim(self, request: Request) -> Response:
        """Delete the records that retention need not keep, now."""
        topic, _ = topic_of(self._broker, request)
        await self._broker.retention.apply(topic)
        return Response(status_code=200)

    async def backlog_size(self, request: Request) -> Response:
        """The stored bytes from a message id on."""
        body = await self._body(request)
        _, (partition,) = topic_of(self._broker, request)
        position = await entries_after(partition, body)
        return json_answer(statistics.bytes_from(partition, position))

    async def partitioned_internal_stats(self, request: Request) -> Response:
        """Ledgers and cursors of each partition of a partitioned topic."""
        topic = partitioned_topic(self._broker, request)
        names = groups_seen(self._broker, request, topic)

        sees = group_check(self._broker, request, topic)

        async def shown(partition: Partition) -> object:
            return await internal_stats(self._broker, topic, partition, names, sees)

        count = len(topic.partitions)
        metadata = {"partitions": count, "deleted": False, **shown_properties(topic)}
        return json_answer({"metadata": metadata, "partitions": await _each(topic, shown)})

    async def internal_info(self, request: Request) -> Response:
        """Ledgers and cursors of a topic as stored, or of each partition."""
        topic, partitions = topic_of(self._broker, request)
        names = groups_seen(self._broker, request, topic)

        async def shown(partition: Partition) -> Json:
            return await self._info(topic, partition, names)

        if topic.partitioned and name_of(request)[1] is None:
            return json_answer({"version": 0, "partitions": await _each(topic, shown)})
        return json_answer(await shown(partitions[0]))

    async def _info(self, topic: Topic, partition: Partition, names: list[bytes]) -> Json:
        stats = await internal_stats(self._broker, topic, partition, names, lambda _: False)
        date = date_text(topic.meta.created_us)
        ledger = partition.partition_id
        cursors = {}
        for name, cursor in stats["cursors"].items():
            deleted = int(cursor["markDeletePosition"].partition(":")[2])
            cursors[name] = {
                "version": 0,
                "creationDate": date,
                "modificationDate": date,
                "cursorsLedgerId": -1,
                "markDelete": {"ledgerId": ledger, "entryId": deleted},
            }
        return {
            "version": 0,
            "creationDate": date,
            "modificationDate": date,
            "ledgers": [{"ledgerId": ledger, "timestamp": 0, "isOffloaded": False}],
            "cursors": cursors,
            **shown_properties(topic),
        }


def partitioned_topic(broker: Broker, request: Request) -> Topic:
    """Return the partitioned topic of the path. Raises RequestRefused in Apache's words."""
    topic, _ = topic_of(broker, request)
    if not topic.partitioned:
        text = f"Partitioned Topic persistent://{topic.name.full} not found"
        raise RequestRefused(TOPIC_NOT_FOUND, text)
    return topic


async def _each(topic: Topic, shown: Callable[[Partition], Awaitable[object]]) -> Json:
    by_name: Json = {}
    async for partition in in_turns(tuple(topic.partitions)):
        by_name[full_name(topic, partition.index)] = await shown(partition)
    return by_name


async def entries_after(partition: Partition, body: object) -> int:
    """Return the offset of the entry of a message id; the start for an id of another ledger."""
    ids = body if isinstance(body, dict) else {}
    ledger, entry = ids.get("ledgerId"), ids.get("entryId")
    if type(ledger) is not int or type(entry) is not int:
        raise RequestRefused(ONE_PARTITION_WANTED, "a message id has a ledgerId and an entryId")
    if not (0 <= ledger < 2**63 and 0 <= entry < 2**63):
        return partition.log_start_offset
    return await entries.resolve_seek(partition, entries.EntryId(ledger, entry))
