"""Brokers in Pulsar's admin API: settings cannot be changed while the broker runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from braidlog.protocols.http.pulsar_admin.answers import done, json_answer

if TYPE_CHECKING:
    from braidlog.protocols.http.pulsar_admin.cluster import ClusterApi


class BrokersApi:
    """Handlers of brokers."""

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

    async def bookies(self, _: Request) -> Response:
        """The bookies of BookKeeper: there are none."""
        return json_answer({"bookies": []})

    async def racks(self, _: Request) -> Response:
        """The racks of bookies: there are none."""
        return json_answer({})

    async def check_quotas(self, _: Request) -> Response:
        """Answer that backlog quotas are checked, which happens all the time."""
        return done()
