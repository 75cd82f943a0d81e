"""`/api/v1/connections` and `/api/v1/stats`: the open connections, and the broker's totals.

Knows counters and connections, no record.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec
import trio
from starlette.requests import Request
from starlette.responses import Response

from braidlog.broker.cluster.placement import NOBODY
from braidlog.broker.runtime.threads import run_in_thread
from braidlog.broker.runtime.turns import in_turns
from braidlog.broker.server.connection import address_text
from braidlog.protocols.http import query
from braidlog.protocols.http.path_names import topic_name
from braidlog.protocols.http.requests import json_response

if TYPE_CHECKING:
    from braidlog.broker.access.rights import Resource
    from braidlog.broker.broker import Broker
    from braidlog.broker.metrics import Number

TOTALS = {
    "braidlog_open_connections": "connections",
    "braidlog_records_in": "records_in",
    "braidlog_bytes_in": "bytes_in",
    "braidlog_records_out": "records_out",
    "braidlog_bytes_out": "bytes_out",
}
REFUSED = "braidlog_errors"


class ConnectionInfo(msgspec.Struct):
    """An open connection. `library`: the name that the client gives, over HTTP the `User-Agent` of
    the last request; empty if none. `idle_s`: the time since the last bytes from the client. Bytes
    as the kernel counts.
    """

    id: int
    protocol: str
    listener: str
    address: str
    user: str
    library: str
    encrypted: bool
    idle_s: float
    bytes_in: int
    bytes_out: int


class ConnectionPage(msgspec.Struct):
    """A page of connections by id; `next` is the `after` of the next page, or null."""

    connections: list[ConnectionInfo]
    next: str | None


class ProtocolTotals(msgspec.Struct):
    """Open connections of a protocol, and what its clients stored and read since the start."""

    connections: int = 0
    records_in: int = 0
    bytes_in: int = 0
    records_out: int = 0
    bytes_out: int = 0


class RefusedRequests(msgspec.Struct):
    """Requests of a protocol that were refused with an error since the start. `error` is the
    protocol's number or name.
    """

    protocol: str
    error: str
    requests: int


class CertificateInfo(msgspec.Struct):
    """The certificate of a listener with TLS, and the last moment of its validity, in microseconds
    since 1970; null if the date cannot be read. `days_left` is negative after that moment.
    """

    listener: str
    expires_us: int | None
    days_left: int | None


class Stats(msgspec.Struct):
    """The broker's totals. Records of deleted topics no longer count. `durability` is the default
    of topics; `refused` has the most frequent errors first.
    """

    version: str
    uptime_s: float
    topics: int
    partitions: int
    disk_bytes: int
    disk_free_bytes: int
    durability: str
    protocols: dict[str, ProtocolTotals]
    refused: list[RefusedRequests]
    certificates: list[CertificateInfo]


class BrokerInfo(msgspec.Struct):
    """A broker of the cluster. `shards` are the numbers of its groups of topics."""

    node: int
    is_here: bool  # The broker that answers.
    changes_catalogue: bool
    addresses: dict[str, str]  # Advertised address of each listener.
    shards: list[int]


class BrokerList(msgspec.Struct):
    """The brokers of the cluster; a broker without a cluster has no shards."""

    is_cluster: bool
    brokers: list[BrokerInfo]
    shards_without_owner: list[int]


class ConnectionsApi:
    """Handlers of the open connections."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def connections(self, request: Request) -> Response:
        """A page of open connections: `?after=` (an id), `?limit=`."""
        return json_response(await self._page(request))

    async def writers(self, request: Request) -> Response:
        """A page of the open connections that have lately written to a topic, as `connections`."""
        topic = self._broker.topics.get(topic_name(request))
        return json_response(await self._page(request, topic.resource))

    async def _page(self, request: Request, written: Resource | None = None) -> ConnectionPage:
        """Return a page of open connections; with `written`, of those that write to that topic."""
        limit = query.page_limit(request)
        after = query.number(request, ("after",), -1, least=0, most=None)
        assert after is not None
        open_now = [
            connection
            for connection in (*self._broker.connections, *self._broker.served_connections)
            if connection.is_open
            and connection.id > after
            and (written is None or written in connection.written_topics)
        ]
        open_now.sort(key=lambda connection: connection.id)
        now = trio.current_time()
        shown = [
            ConnectionInfo(
                connection.id,
                connection.protocol,
                connection.listener_name,
                connection.peer,
                connection.principal.name,
                connection.library,
                connection.is_encrypted,
                round(max(now - connection.heard_at, 0.0), 3),
                *connection.traffic(),
            )
            async for connection in in_turns(open_now[:limit])
        ]
        more = str(shown[-1].id) if len(open_now) > limit else None
        return ConnectionPage(shown, more)


class OverviewApi:
    """Handlers of a broker's totals, and of the list of brokers."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._began_s = trio.current_time()

    async def brokers(self, request: Request) -> Response:
        """The brokers of the cluster, with the shards that each owns."""
        placement = self._broker.placement
        owned: dict[int, list[int]] = {}
        for shard, owner in placement.shard_owners().items():
            node = placement.node_id if owner is None else owner.node_id
            owned.setdefault(node, []).append(shard)
        changing = placement.catalogue_owner()
        here = BrokerInfo(
            placement.node_id,
            True,
            changing is None,
            self._own_addresses(request),
            owned.get(placement.node_id, []),
        )
        others = [
            BrokerInfo(
                owner.node_id,
                False,
                owner == changing,
                {name: address_text(address) for name, address in owner.addresses.items()},
                owned.get(owner.node_id, []),
            )
            for owner in placement.others()
        ]
        brokers = sorted([here, *others], key=lambda broker: broker.node)
        free = owned.get(NOBODY.node_id, [])
        return json_response(BrokerList(not placement.is_alone, brokers, free))

    def _own_addresses(self, request: Request) -> dict[str, str]:
        local = request.scope.get("server") or ("", 0)
        return {
            name: address_text(listener.advertised_to(local))
            for name, listener in self._broker.listeners.items()
        }

    async def stats(self, _: Request) -> Response:
        """The broker's totals, by protocol."""
        broker = self._broker
        disk = os.statvfs(broker.data_dir)
        topics = tuple(broker.topics.all())
        partitions = 0
        async for topic in in_turns(topics):
            partitions += len(topic.partitions)
        numbers = broker.metrics.snapshot().numbers
        now_us = broker.now_us()
        stats = Stats(
            version=broker.version,
            uptime_s=round(trio.current_time() - self._began_s, 3),
            topics=len(topics),
            partitions=partitions,
            disk_bytes=disk.f_blocks * disk.f_frsize,
            disk_free_bytes=disk.f_bavail * disk.f_frsize,
            durability=broker.config.log.durability,
            protocols=await run_in_thread(_totals, numbers),
            refused=await run_in_thread(_refused, numbers),
            certificates=[
                CertificateInfo(
                    name, listener.tls.certificate_end_us, listener.tls.days_left(now_us)
                )
                for name, listener in sorted(broker.listeners.items())
                if listener.tls is not None
            ],
        )
        return json_response(stats)


def _totals(numbers: Mapping[tuple[str, tuple[str, ...]], Number]) -> dict[str, ProtocolTotals]:
    by_protocol: dict[str, ProtocolTotals] = {}
    for (name, labels), number in numbers.items():
        field = TOTALS.get(name)
        if field is not None:
            totals = by_protocol.setdefault(labels[0], ProtocolTotals())
            setattr(totals, field, getattr(totals, field) + number.value)
    return dict(sorted(by_protocol.items()))


def _refused(numbers: Mapping[tuple[str, tuple[str, ...]], Number]) -> list[RefusedRequests]:
    refused = [
        RefusedRequests(labels[0], labels[1], number.value)
        for (name, labels), number in numbers.items()
        if name == REFUSED
    ]
    return sorted(refused, key=lambda row: (-row.requests, row.protocol, row.error))
