"""Statistics of a broker in Pulsar's admin API, `broker-stats`: all topics, and metrics.

Pulsar Manager and `pulsar-admin broker-stats` read them. The names are Apache's, which differ
between these statistics and those of a single topic. Numbers about Java and BookKeeper are absent.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request
from starlette.responses import Response

from braidlog.broker.errors import NotOwner
from braidlog.broker.runtime.heap import resident_bytes
from braidlog.broker.runtime.turns import in_turns
from braidlog.protocols.http.errors import BAD_LIMIT, RequestRefused
from braidlog.protocols.http.limits import HttpLimits, limits_of
from braidlog.protocols.http.pulsar_admin import statistics
from braidlog.protocols.http.pulsar_admin.answers import done, json_answer
from braidlog.protocols.http.pulsar_admin.broker_load import LoadMeter, NamespaceLoad
from braidlog.protocols.http.pulsar_admin.bundles import Bundles
from braidlog.protocols.http.pulsar_admin.names import full_name
from braidlog.protocols.http.pulsar_admin.new_objects import CLUSTER
from braidlog.protocols.http.routes import group_check, groups_seen

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.protocols.http.pulsar_admin.cluster import ClusterApi
    from braidlog.protocols.http.pulsar_admin.traffic_meter import TrafficMeter

Json = dict[str, Any]
# Apache's names here, and in the statistics of a topic.
COUNTERS: Final = {
    "msgInCount": "msgInCounter",
    "bytesInCount": "bytesInCounter",
    "msgOutCount": "msgOutCounter",
    "bytesOutCount": "bytesOutCounter",
}
OF_TOPIC: Final = (
    *("publishers", "replication", "averageMsgSize", "storageSize", "backlogSize"),
    *statistics.RATES,
)
OF_SUBSCRIPTION: Final = (
    *("consumers", "msgBacklog", "type", "msgRateExpired", "msgRateOut", "messageAckRate"),
    *("msgThroughputOut", "msgRateRedeliver"),
)


class BrokerStats:
    """Handlers of a broker's statistics."""

    def __init__(self, broker: Broker, cluster: ClusterApi, meter: TrafficMeter) -> None:
        self._broker = broker
        self._cluster = cluster
        self._meter = meter
        self._load = LoadMeter(broker)

    async def topics(self, request: Request) -> Response:
        """Statistics of each topic of this broker, by namespace and bundle."""
        broker, by_namespace, partitions, subscriptions = self._broker, Json(), 0, 0
        async for topic in in_turns(broker.topics.all()):
            try:
                topic.check_here()
            except NotOwner:
                continue  # Another broker shows the topic.
            names = groups_seen(broker, request, topic)
            partitions += len(topic.partitions)
            subscriptions += len(topic.partitions) * len(names)
            _check_size(limits_of(broker), partitions, subscriptions)
            wanted = statistics.WantedStats(
                names, group_check(broker, request, topic), "", self._meter
            )
            tenant, namespace = topic.name.tenant, topic.name.namespace
            shown = by_namespace.setdefault(f"{tenant}/{namespace}", {})
            bundles = Bundles(broker.namespaces.get(tenant, namespace).settings)
            async for partition in in_turns(tuple(topic.partitions)):
                stats = await statistics.topic_stats(broker, topic, (partition,), wanted)
                name = full_name(topic, partition.index)
                of_bundle = shown.setdefault(bundles.of(name), {"persistent": {}})
                of_bundle["persistent"][name] = _shown(stats)
        return json_answer(by_namespace)

    async def metrics(self, request: Request) -> Response:
        """Connections, health and use of the machine by this broker, and the load by each
        namespace.
        """
        loads = await self._load.look()
        of_broker = {"broker": self._address(request), "cluster": CLUSTER}
        connections = len(self._broker.connections)
        has_room = await self._broker.has_room()
        rows = [
            _row({"brk_active_connections": connections}, of_broker, "broker_connection"),
            _row({"brk_health": int(has_room)}, of_broker, "broker_health"),
            _row(
                {
                    "brk_lb_cpu_usage": 100 * self._load.cores_used / _cores(),
                    "brk_lb_memory_usage": 100 * resident_bytes() / _machine_bytes(),
                },
                {"broker": of_broker["broker"]},
                "loadBalancing",
            ),
        ]
        for place, load in sorted(loads.items()):
            rows.append({"metrics": _of_namespace(load), "dimensions": {"namespace": place}})
        return json_answer(rows)

    async def load_report(self, request: Request) -> Response:
        """Return no report, as Apache without a load manager; `pulsar-admin` 4.0.8 waits forever
        after a report.
        """
        return done()

    def _address(self, request: Request) -> str:
        return self._cluster.broker_addresses(request)[0]


def _row(metrics: Json, dimensions: Mapping[str, str], metric: str) -> Json:
    return {"metrics": metrics, "dimensions": {**dimensions, "metric": metric}}


def _of_namespace(load: NamespaceLoad) -> Json:
    """Return the metrics of a namespace; nothing is replicated."""
    return {
        "brk_in_rate": load.rates.messages_in,
        "brk_in_tp_rate": load.rates.bytes_in,
        "brk_out_rate": load.rates.messages_out,
        "brk_out_tp_rate": load.rates.bytes_out,
        "brk_no_of_subscriptions": load.subscriptions,
        "brk_no_of_producers": load.producers,
        "brk_no_of_consumers": load.consumers,
        "brk_no_of_replicators": 0,
        "brk_msg_backlog": float(load.backlog),
        "brk_storage_size": float(load.size_bytes),
        "brk_replication_backlog": 0.0,
        "brk_max_replication_delay_second": 0.0,
    }


def _cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def _machine_bytes() -> int:
    """Return the memory of the machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _check_size(limits: HttpLimits, partitions: int, subscriptions: int) -> None:
    """Raises RequestRefused if these are too many to show."""
    for count, most, name in (
        (partitions, limits.partitions_shown, "partitions"),
        (subscriptions, limits.subscriptions_shown, "subscriptions of partitions"),
    ):
        if count > most:
            text = (
                f"this broker has more than {most} {name}: ask for the statistics of single topics"
            )
            raise RequestRefused(BAD_LIMIT, f"{text}, or /metrics")


def _shown(stats: Json) -> Json:
    """Return the statistics of a topic under the names of this call."""
    subscriptions = {
        name: {field: subscription[field] for field in OF_SUBSCRIPTION}
        for name, subscription in stats["subscriptions"].items()
    }
    return (
        {field: stats[field] for field in OF_TOPIC}
        | {name: stats[field] for name, field in COUNTERS.items()}
        | {"producerCount": len(stats["publishers"]), "subscriptions": subscriptions}
        | {"pendingAddEntriesCount": 0, "filteredEntriesCount": 0}
    )
