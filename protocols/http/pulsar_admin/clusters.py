"""Clusters by name in Pulsar's admin API: this broker's own cluster, and descriptions of others.

Listeners define the own cluster's addresses. All other fields are only stored and shown: nothing
connects to another cluster.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.responses import Response

from braidlog.broker.access.rights import CLUSTER as THE_CLUSTER
from braidlog.broker.access.rights import Action
from braidlog.broker.errors import InvalidRequest, NamespaceExists, NamespaceNotFound
from braidlog.protocols.http import query
from braidlog.protocols.http.errors import (
    BAD_BODY,
    BAD_LIMIT,
    CLUSTER_EXISTS,
    INVALID_NAME,
    NO_SUCH_PATH,
    NOT_SUPPORTED,
    RequestRefused,
)
from braidlog.protocols.http.path_names import text_of
from braidlog.protocols.http.pulsar_admin.answers import done, json_answer, read_any
from braidlog.protocols.http.pulsar_admin.cluster_fields import (
    ADDRESSES,
    MIGRATION,
    PEERS,
    Fields,
    migration_of,
    read_cluster,
    read_migration,
    read_names,
    shown_cluster,
)
from braidlog.protocols.http.pulsar_admin.cluster_rules import is_known
from braidlog.protocols.http.pulsar_admin.new_objects import CLUSTER
from braidlog.storage.metadata.names import DEFAULT_NAMESPACE, valid_namespace

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.protocols.http.bodies import BodyReader
    from braidlog.protocols.http.pulsar_admin.cluster import ClusterApi

NO_CLUSTER: Final = "Cluster does not exist"


class ClustersApi:
    """Handlers of clusters."""

    def __init__(self, broker: Broker, bodies: BodyReader, own: ClusterApi) -> None:
        self._broker = broker
        self._bodies = bodies
        self._own = own

    async def clusters(self, _: Request) -> Response:
        """The names of the clusters."""
        return json_answer(sorted({CLUSTER, *self._broker.namespaces.clusters.names()}))

    async def cluster(self, request: Request) -> Response:
        """The addresses and settings of a cluster; secrets only for administrators."""
        cluster, fields = self._known(request)
        addresses = self._own.addresses(request) if cluster == CLUSTER else {}
        principal = request.scope["exchange"].principal
        sees_all = self._broker.access.allows(principal, Action.ADMINISTER, THE_CLUSTER)
        return json_answer(addresses | shown_cluster(fields, with_secrets=sees_all))

    async def create(self, request: Request) -> Response:
        """Describe another cluster: addresses, peers, and settings for clients."""
        cluster = text_of(request, "cluster")
        fields = read_cluster(await read_any(self._bodies, request))
        if not valid_namespace(cluster, DEFAULT_NAMESPACE):
            raise RequestRefused(INVALID_NAME, "Cluster name is not valid")
        if cluster == CLUSTER:
            raise RequestRefused(CLUSTER_EXISTS, "Cluster already exists")
        await self._stored(self._broker.namespaces.clusters.create(cluster, fields))
        return Response(status_code=200)  # As Apache.

    async def alter(self, request: Request) -> Response:
        """Replace the description of a cluster; listeners define the own cluster's addresses."""
        fields: Fields = read_cluster(await read_any(self._bodies, request))
        cluster, before = self._known(request)
        if cluster == CLUSTER:
            fields = self._without_addresses(request, fields)
        migration = {n: value for n, value in before.items() if n.startswith(MIGRATION)}
        await self._set(cluster, {**fields, **migration})
        return Response(status_code=200)

    def _without_addresses(self, request: Request, fields: Fields) -> Fields:
        shown = self._own.addresses(request)
        for name in ADDRESSES:
            if fields.get(name) not in (None, shown.get(name)):
                text = f"{name} is {shown.get(name)}: the listeners define it, with `advertised`"
                raise RequestRefused(NOT_SUPPORTED, text)
        return {name: value for name, value in fields.items() if name not in ADDRESSES}

    async def delete(self, request: Request) -> Response:
        """Delete the description of another cluster."""
        cluster, _ = self._known(request)
        if cluster == CLUSTER:
            text = f"{CLUSTER} is this broker's own cluster, and cannot be deleted"
            raise RequestRefused(NOT_SUPPORTED, text)
        await self._stored(self._broker.namespaces.clusters.delete(cluster))
        return done()

    # Peers, migration, failure domains.

    async def peers(self, request: Request) -> Response:
        """The names of a cluster's peers; an empty answer if they were never set."""
        _, fields = self._known(request)
        return json_answer(fields[PEERS]) if PEERS in fields else Response(status_code=200)

    async def set_peers(self, request: Request) -> Response:
        """Set the names of a cluster's peers; without a body, remove the names."""
        peers = read_names(await read_any(self._bodies, request), "the names of the peers")
        cluster = text_of(request, "cluster")
        for peer in peers or ():
            if peer == cluster:
                raise RequestRefused(BAD_LIMIT, f"{cluster} itself can't be part of peer-list")
            if not is_known(self._broker, peer):
                raise RequestRefused(BAD_LIMIT, f"Peer cluster {peer[:60]} does not exist")
        _, before = self._known(request)
        fields = {name: value for name, value in before.items() if name != PEERS}
        await self._set(cluster, fields if peers is None else {**fields, PEERS: peers})
        return done()

    async def migration(self, request: Request) -> Response:
        """The addresses to which a cluster's clients move, if they were set."""
        shown = migration_of(self._known(request)[1])
        if shown is None:
            raise RequestRefused(NO_SUCH_PATH, NO_CLUSTER)
        return json_answer(shown)

    async def set_migration(self, request: Request) -> Response:
        """Store whether, and to which addresses, another cluster's clients move."""
        is_migrated = query.truth(request, ("migrated",))
        fields = read_migration(await read_any(self._bodies, request), is_migrated=is_migrated)
        cluster, before = self._known(request)
        if cluster == CLUSTER:
            raise RequestRefused(NOT_SUPPORTED, f"the clients of {CLUSTER} are not moved here")
        others = {name: value for name, value in before.items() if not name.startswith(MIGRATION)}
        await self._set(cluster, {**others, **fields})
        return Response(status_code=200)

    async def failure_domains(self, _: Request) -> Response:
        """The failure domains of any cluster: none."""
        return json_answer({})

    async def failure_domain(self, request: Request) -> Response:
        """Answer that a failure domain does not exist: there are none."""
        cluster, domain = text_of(request, "cluster"), text_of(request, "domain")[:100]
        if not is_known(self._broker, cluster):
            raise RequestRefused(BAD_LIMIT, f"Cluster {cluster[:100]} does not exist.")
        text = f"Domain-name {domain} or cluster {cluster} does not exist"
        if request.method == "GET":
            text = f"Domain {domain} for cluster {cluster} does not exist"
        raise RequestRefused(NO_SUCH_PATH, text)

    def _known(self, request: Request) -> tuple[str, Fields]:
        """Return the cluster of the path, and the stored fields. Raises RequestRefused."""
        cluster = text_of(request, "cluster")
        fields = self._broker.namespaces.clusters.find(cluster)
        if fields is None and cluster != CLUSTER:
            raise RequestRefused(NO_SUCH_PATH, NO_CLUSTER)
        return cluster, fields or {}

    async def _set(self, cluster: str, fields: Fields) -> None:
        clusters = self._broker.namespaces.clusters
        if clusters.find(cluster) is not None:
            await self._stored(clusters.alter(cluster, fields))
        elif fields:  # Of the own cluster, for the first time.
            await self._stored(clusters.create(cluster, fields))

    async def _stored(self, change: Awaitable[int]) -> None:
        """Return when the change is on disk, or refuse the change in Apache's words."""
        try:
            ticket = await change
        except InvalidRequest as error:
            raise RequestRefused(BAD_BODY, str(error)) from error
        except NamespaceExists as error:
            raise RequestRefused(CLUSTER_EXISTS, "Cluster already exists") from error
        except NamespaceNotFound as error:
            raise RequestRefused(NO_SUCH_PATH, NO_CLUSTER) from error
        await self._broker.durability.reached(ticket)
