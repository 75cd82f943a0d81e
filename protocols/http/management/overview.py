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

from braidlog.broker.runtime.threads import run_in_thread
from braidlog.protocols.http import query
from braidlog.protocols.http.requests import json_response
from braidlog.protocols.http.turns import in_turns

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.broker.metrics import Number

TOTALS = {
    "braidlog_open_connections": "connections",
    "braidlog_records_in": "records_in",
    "braidlog_bytes_in": "bytes_in",
    "braidlog_records_out": "records_out",
    "braidlog_bytes_out": "bytes_out",
}


class ConnectionInfo(msgspec.Struct):
    """An open connection of Kafka, Pulsar or Iggy. `library`: the name that the client gives; empty
    if none. `idle_s`: the time since the last bytes from the client. Bytes as the kernel counts.
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


class Stats(msgspec.Struct):
    """The broker's totals. Records of deleted topics no longer count."""

    version: str
    uptime_s: float
    topics: int
    partitions: int
    disk_bytes: int
    disk_free_bytes: int
    protocols: dict[str, ProtocolTotals]


class OverviewApi:
    """Handlers of a broker's connections and totals."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._began_s = trio.current_time()

    async def connections(self, request: Request) -> Response:
        """A page of open connections of Kafka, Pulsar and Iggy: `?after=` (an id), `?limit=`."""
        limit = query.page_limit(request)
        after = query.number(request, ("after",), -1, least=0, most=None)
        assert after is not None
        open_now = [
            connection
            for connection in self._broker.connections
            if connection.is_open and connection.id > after
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
        return json_response(ConnectionPage(shown, more))

    async def stats(self, _: Request) -> Response:
        """The broker's totals, by protocol."""
        broker = self._broker
        disk = os.statvfs(broker.data_dir)
        topics = tuple(broker.topics.all())
        partitions = 0
        async for topic in in_turns(topics):
            partitions += len(topic.partitions)
        stats = Stats(
            version=broker.version,
            uptime_s=round(trio.current_time() - self._began_s, 3),
            topics=len(topics),
            partitions=partitions,
            disk_bytes=disk.f_blocks * disk.f_frsize,
            disk_free_bytes=disk.f_bavail * disk.f_frsize,
            protocols=await run_in_thread(_totals, broker.metrics.snapshot().numbers),
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
