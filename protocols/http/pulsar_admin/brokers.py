"""Brokers and clusters in Pulsar's admin API: the parts that the broker does not need to decide.

There is a single cluster, whose settings cannot be changed while the broker runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from braidlog.protocols.http.errors import (
    CLUSTER_EXISTS,
    NO_SUCH_PATH,
    NOT_SUPPORTED,
    RequestRefused,
)
from braidlog.protocols.http.path_names import text_of
from braidlog.protocols.http.pulsar_admin.answers import done, json_answer
from braidlog.protocols.http.pulsar_admin.new_objects import CLUSTER

if TYPE_CHECKING:
    from braidlog.protocols.http.pulsar_admin.cluster import ClusterApi


class BrokersApi:
    """Handlers of brokers and clusters."""

    def __init__(self, cluster: ClusterApi) -> None:
        self._cluster = cluster

    async def brokers(self, request: Request) -> Response:
        """The addresses of all brokers, this one's first."""
        return json_answer(self._cluster.broker_addresses(request))

    async def leader(self, request: Request) -> Response:
        """The address of the broker that makes changes; without a cluster, this broker."""
        url = self._cluster.leader_url(request)
        return json_answer({"serviceUrl": url, "brokerId": url.partition("://")[2]})

    async def dynamic_names(self, _: Request) -> Response:
        """The names of settings that can change while the broker runs: none can."""
        return json_answer([])

    async def dynamic_values(self, _: Request) -> Response:
        """The values of changed settings: none can change."""
        return json_answer({})

    async def check_quotas(self, _: Request) -> Response:
        """Answer that backlog quotas are checked, which happens all the time."""
        return done()

    async def peers(self, request: Request) -> Response:
        """The peers of the cluster: none."""
        self._check(request)
        return Response(status_code=200)

    async def failure_domains(self, request: Request) -> Response:
        """The failure domains of the cluster: none."""
        self._check(request)
        return json_answer({})

    async def failure_domain(self, request: Request) -> Response:
        """Answer that a failure domain does not exist: there are none."""
        self._check(request)
        domain = text_of(request, "domain")[:100]
        text = f"Domain-name {domain} or cluster {CLUSTER} does not exist"
        if request.method == "GET":
            text = f"Domain {domain} for cluster {CLUSTER} does not exist"
        raise RequestRefused(NO_SUCH_PATH, text)

    async def delete_cluster(self, request: Request) -> Response:
        """Refuse to delete the only cluster."""
        self._check(request)
        raise RequestRefused(NOT_SUPPORTED, f"the only cluster, {CLUSTER}, cannot be deleted")

    async def create_cluster(self, request: Request) -> Response:
        """Refuse another cluster: messages go to no other cluster."""
        if text_of(request, "cluster") == CLUSTER:
            raise RequestRefused(CLUSTER_EXISTS, "Cluster already exists")
        raise RequestRefused(NOT_SUPPORTED, f"there is one cluster, {CLUSTER}, and no replication")

    def _check(self, request: Request) -> None:
        if text_of(request, "cluster") != CLUSTER:
            raise RequestRefused(NO_SUCH_PATH, "Cluster does not exist")
