"""Work on a namespace in Pulsar's admin API: properties, bundles, backlogs, subscriptions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING
from zlib import crc32

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from braidlog.broker.access.rights import Action, Resource
from braidlog.broker.errors import Conflict
from braidlog.broker.runtime.turns import in_turns
from braidlog.protocols.http.errors import (
    NOT_SUPPORTED,
    SUBSCRIPTION_BUSY,
    RequestRefused,
    wire_code,
)
from braidlog.protocols.http.path_names import namespace_of, path_bytes, text_of
from braidlog.protocols.http.pulsar_admin.answers import done, json_answer
from braidlog.protocols.http.pulsar_admin.bundles import Bundles
from braidlog.protocols.http.pulsar_admin.cluster_rules import (
    allowed_by,
    changes_of_allowed,
    check_namespace_clusters,
)
from braidlog.protocols.http.pulsar_admin.handlers import AdminHandlers
from braidlog.protocols.http.pulsar_admin.names import full_name, full_names
from braidlog.protocols.http.pulsar_admin.new_objects import CLUSTER
from braidlog.protocols.http.pulsar_admin.properties import (
    OF_NAMESPACE,
    changes_to,
    properties_of,
    read_properties,
)
from braidlog.protocols.http.routes import topics_seen

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from braidlog.broker.broker import Broker
    from braidlog.broker.positions.subscriptions import Subscription
    from braidlog.broker.topics.partition import Partition
    from braidlog.broker.topics.topic import Topic
    from braidlog.protocols.http.bodies import BodyReader
    from braidlog.protocols.http.pulsar_admin.cluster import ClusterApi

    Acting = Callable[[Topic, Subscription, Sequence[Partition]], int]  # Returns a ticket.

TOPICS_PER_TURN = 20
SUBSCRIPTION = "of_all_topics"  # Part of a path: a subscription's name, without a topic.


class NamespaceJobs(AdminHandlers):
    """Handlers of namespaces."""

    def __init__(self, broker: Broker, bodies: BodyReader, cluster: ClusterApi) -> None:
        super().__init__(broker, bodies)
        self._cluster = cluster

    async def bundles(self, request: Request) -> Response:
        """The bundles of a namespace."""
        return json_answer(self._bundles(request).shown())

    async def topic_positions(self, request: Request) -> Response:
        """The hash of each topic's name in a bundle."""
        bundles, bundle = self._bundles(request), self._bundle(request)
        place = namespace_of(request)
        topics = await topics_seen(self._broker, request, place, self._broker.topics.list(*place))
        wanted = {name for name in request.query_params.get("topics", "").split(",") if name}
        hashes = {
            name: crc32(name.encode())
            for name in full_names(topics)
            if (not wanted or name in wanted) and bundles.of(name) == bundle
        }
        fields = {"namespace": "/".join(place), "bundle": bundle, "topicHashPositions": hashes}
        return json_answer(fields)

    async def unload_bundle(self, request: Request) -> Response:
        """Answer that the bundle is unloaded; there is nothing to do. The destination may be this
        broker, if the broker is alone.
        """
        self._bundle(request)
        wanted = request.query_params.get("destinationBroker")
        addresses = self._cluster.broker_addresses(request)
        if wanted and wanted not in addresses:
            text = "Not allowed unload namespace bundle to inactive destination broker"
            raise RequestRefused(wire_code(Conflict(text)), text)
        if wanted and len(addresses) > 1:
            text = "the move of a namespace to a broker is not served here"
            raise RequestRefused(NOT_SUPPORTED, text)
        return done()

    async def clusters(self, request: Request) -> Response:
        """The clusters that have the namespace's messages."""
        self._broker.namespaces.get(*namespace_of(request))
        return json_answer([CLUSTER])

    async def set_clusters(self, request: Request) -> Response:
        """Accept the own cluster as the list of clusters."""
        tenant, namespace = namespace_of(request)
        self._broker.namespaces.get(tenant, namespace)
        check_namespace_clusters(self._broker, tenant, await self._body(request))
        return Response(status_code=200)  # As Apache, which answers other changes with 204.

    async def allowed_clusters(self, request: Request) -> Response:
        """The clusters that a namespace allows, if they were set."""
        settings = self._broker.namespaces.get(*namespace_of(request)).settings
        return json_answer(allowed_by(settings))

    async def set_allowed_clusters(self, request: Request) -> Response:
        """Set the clusters that a namespace allows, among those of its tenant."""
        tenant, namespace = namespace_of(request)
        self._broker.namespaces.get(tenant, namespace)
        body = await self._body(request)
        changes = changes_of_allowed(self._broker, tenant, body)
        ticket = await self._broker.topics.alter_namespace(tenant, namespace, changes)
        await self._broker.durability.reached(ticket)
        return Response(status_code=200)

    # Properties.

    async def properties(self, request: Request) -> Response:
        """The properties of a namespace."""
        return json_answer(self._properties(request))

    async def property(self, request: Request) -> Response:
        """A property of a namespace; an empty answer without a value."""
        return PlainTextResponse(self._properties(request).get(text_of(request, "key"), ""))

    async def set_properties(self, request: Request) -> Response:
        """Add properties to a namespace."""
        return await self._altered(request, read_properties(await self._body(request)))

    async def set_property(self, request: Request) -> Response:
        """Set a property of a namespace."""
        key, value = text_of(request, "key"), text_of(request, "value")
        return await self._altered(request, {key: value})

    async def delete_properties(self, request: Request) -> Response:
        """Remove all properties of a namespace."""
        return await self._altered(request, dict.fromkeys(self._properties(request)))

    async def delete_property(self, request: Request) -> Response:
        """Remove a property of a namespace; answers with its last value."""
        key = text_of(request, "key")
        value = self._properties(request).get(key, "")
        await self._altered(request, {key: None})
        return PlainTextResponse(value)

    def _properties(self, request: Request) -> dict[str, str]:
        meta = self._broker.namespaces.get(*namespace_of(request))
        return properties_of(meta.settings, OF_NAMESPACE)

    async def _altered(self, request: Request, properties: Mapping[str, str | None]) -> Response:
        place = namespace_of(request)
        settings = self._broker.namespaces.get(*place).settings
        changes = changes_to(settings, OF_NAMESPACE, properties)
        return await self._done_at(await self._broker.topics.alter_namespace(*place, changes))

    # Subscriptions of all topics.

    async def clear_backlog(self, request: Request) -> Response:
        """Acknowledge all messages of all topics: for every subscription, or for the named one."""
        await self._on_all(request, self._cleared)
        return done()

    async def unsubscribe(self, request: Request) -> Response:
        """Delete a subscription from all topics."""
        await self._on_all(request, self._unsubscribed)
        return done()

    def _cleared(
        self, _: Topic, subscription: Subscription, partitions: Sequence[Partition]
    ) -> int:
        ticket = 0
        for partition in partitions:
            subscription.start(partition.index, partition.log_start_offset)
            end = partition.high_watermark
            ticket = max(ticket, subscription.ack_to(partition.index, end, lazy=False))
        return ticket

    def _unsubscribed(
        self, topic: Topic, subscription: Subscription, partitions: Sequence[Partition]
    ) -> int:
        indexes = {partition.index for partition in partitions}
        is_whole = len(indexes) == len(topic.partitions)
        members = self._broker.members.of(topic, subscription.name)
        if any(is_whole or not indexes.isdisjoint(member.partitions) for member in members):
            raise RequestRefused(SUBSCRIPTION_BUSY, "Subscription has active connected consumers")
        if is_whole:
            return subscription.delete()
        return max(subscription.delete_cursor(index) for index in indexes)

    async def _on_all(self, request: Request, act: Acting) -> None:
        """Act on the subscriptions of all topics of this broker that the client may change; of the
        path's bundle, if the path names a bundle.
        """
        broker, place = self._broker, namespace_of(request)
        bundles = self._bundles(request)
        bundle = self._bundle(request) if "bundle" in request.path_params else None
        is_named = SUBSCRIPTION in request.path_params
        named = path_bytes(request, SUBSCRIPTION) if is_named else b""
        may = partial(broker.access.allows, request.scope["exchange"].principal, Action.CONSUME)
        topics, ticket = broker.topics.list(*place), 0
        for topic in topics:  # All or none: another broker's topic refuses the request.
            topic.check_here()
        async for topic in in_turns(topics, TOPICS_PER_TURN):
            partitions = [
                partition
                for partition in topic.partitions
                if bundle in (None, bundles.of(full_name(topic, partition.index)))
            ]
            if not partitions:
                continue
            for name in [named] if is_named else broker.subscriptions.names(topic):
                subscription = broker.subscriptions.find(topic, name)
                if subscription is not None and may(Resource.of_group(name, topic.name)):
                    ticket = max(ticket, act(topic, subscription, partitions))
        await broker.durability.reached(ticket)

    def _bundles(self, request: Request) -> Bundles:
        return Bundles(self._broker.namespaces.get(*namespace_of(request)).settings)

    def _bundle(self, request: Request) -> str:
        """Return the name of the path's bundle. Raises RequestRefused."""
        place = "/".join(namespace_of(request))
        return self._bundles(request).check(text_of(request, "bundle"), place)
