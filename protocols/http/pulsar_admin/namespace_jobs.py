"""Work on a namespace in Pulsar's admin API: properties, the bundle, backlogs, subscriptions."""

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
    BAD_LIMIT,
    NOT_SUPPORTED,
    SUBSCRIPTION_BUSY,
    RequestRefused,
    wire_code,
)
from braidlog.protocols.http.path_names import namespace_of, path_bytes, text_of
from braidlog.protocols.http.pulsar_admin.answers import done, json_answer
from braidlog.protocols.http.pulsar_admin.cluster_rules import (
    allowed_by,
    changes_of_allowed,
    check_namespace_clusters,
)
from braidlog.protocols.http.pulsar_admin.handlers import AdminHandlers
from braidlog.protocols.http.pulsar_admin.names import full_names
from braidlog.protocols.http.pulsar_admin.new_objects import BUNDLE, CLUSTER
from braidlog.protocols.http.pulsar_admin.properties import (
    OF_NAMESPACE,
    changes_to,
    properties_of,
    read_properties,
)
from braidlog.protocols.http.routes import topics_seen

if TYPE_CHECKING:
    from collections.abc import Mapping

    from braidlog.broker.broker import Broker
    from braidlog.broker.positions.subscriptions import Subscription
    from braidlog.broker.topics.topic import Topic
    from braidlog.protocols.http.bodies import BodyReader
    from braidlog.protocols.http.pulsar_admin.cluster import ClusterApi

BUNDLES = {"boundaries": BUNDLE.split("_"), "numBundles": 1}
TOPICS_PER_TURN = 20
SUBSCRIPTION = "of_all_topics"  # Part of a path: a subscription's name, without a topic.


class NamespaceJobs(AdminHandlers):
    """Handlers of namespaces."""

    def __init__(self, broker: Broker, bodies: BodyReader, cluster: ClusterApi) -> None:
        super().__init__(broker, bodies)
        self._cluster = cluster

    async def bundles(self, request: Request) -> Response:
        """The bundle of a namespace: always a single bundle."""
        self._broker.namespaces.get(*namespace_of(request))
        return json_answer(BUNDLES)

    async def topic_positions(self, request: Request) -> Response:
        """The hash of each topic's name, by which Apache chooses a bundle."""
        self._check_bundle(request)
        place = namespace_of(request)
        topics = await topics_seen(self._broker, request, place, self._broker.topics.list(*place))
        wanted = {name for name in request.query_params.get("topics", "").split(",") if name}
        hashes = {
            name: crc32(name.encode())
            for name in full_names(topics)
            if not wanted or name in wanted
        }
        fields = {"namespace": "/".join(place), "bundle": BUNDLE, "topicHashPositions": hashes}
        return json_answer(fields)

    async def unload_bundle(self, request: Request) -> Response:
        """Answer that the bundle is unloaded; there is nothing to do. The destination may be this
        broker, if the broker is alone.
        """
        self._check_bundle(request)
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
        if "bundle" in request.path_params:
            self._check_bundle(request)
        await self._on_all(request, self._cleared)
        return done()

    async def unsubscribe(self, request: Request) -> Response:
        """Delete a subscription from all topics."""
        if "bundle" in request.path_params:
            self._check_bundle(request)
        await self._on_all(request, self._unsubscribed)
        return done()

    def _cleared(self, topic: Topic, subscription: Subscription) -> int:
        ticket = 0
        for partition in tuple(topic.partitions):
            subscription.start(partition.index, partition.log_start_offset)
            end = partition.high_watermark
            ticket = max(ticket, subscription.ack_to(partition.index, end, lazy=False))
        return ticket

    def _unsubscribed(self, topic: Topic, subscription: Subscription) -> int:
        if self._broker.members.of(topic, subscription.name):
            raise RequestRefused(SUBSCRIPTION_BUSY, "Subscription has active connected consumers")
        return subscription.delete()

    async def _on_all(self, request: Request, act: Callable[[Topic, Subscription], int]) -> None:
        """Act on the subscriptions of all topics of this broker that the client may change."""
        broker, place = self._broker, namespace_of(request)
        broker.namespaces.get(*place)
        is_named = SUBSCRIPTION in request.path_params
        named = path_bytes(request, SUBSCRIPTION) if is_named else b""
        may = partial(broker.access.allows, request.scope["exchange"].principal, Action.CONSUME)
        topics, ticket = broker.topics.list(*place), 0
        for topic in topics:  # All or none: another broker's topic refuses the request.
            topic.check_here()
        async for topic in in_turns(topics, TOPICS_PER_TURN):
            for name in [named] if is_named else broker.subscriptions.names(topic):
                subscription = broker.subscriptions.find(topic, name)
                if subscription is not None and may(Resource.of_group(name, topic.name)):
                    ticket = max(ticket, act(topic, subscription))
        await broker.durability.reached(ticket)

    def _check_bundle(self, request: Request) -> None:
        self._broker.namespaces.get(*namespace_of(request))
        bundle = text_of(request, "bundle")
        if bundle.lower() != BUNDLE:
            raise RequestRefused(BAD_LIMIT, f"Invalid bundle range: {bundle[:60]}")
