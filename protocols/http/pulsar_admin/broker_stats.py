"""Statistics of all topics of a broker in Pulsar's admin API: `broker-statistics/topics`.

Pulsar Manager and `pulsar-admin broker-stats` read them. The names are Apache's, which differ
between these statistics and those of a single topic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request
from starlette.responses import Response

from braidlog.broker.errors import NotOwner
from braidlog.broker.runtime.turns import in_turns
from braidlog.protocols.http.errors import BAD_LIMIT, RequestRefused
from braidlog.protocols.http.limits import HttpLimits, limits_of
from braidlog.protocols.http.pulsar_admin import statistics
from braidlog.protocols.http.pulsar_admin.answers import done, json_answer
from braidlog.protocols.http.pulsar_admin.names import full_name
from braidlog.protocols.http.pulsar_admin.new_objects import BUNDLE
from braidlog.protocols.http.routes import group_check, groups_seen

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker

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

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

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
            wanted = statistics.WantedStats(names, group_check(broker, request, topic), "")
            place = f"{topic.name.tenant}/{topic.name.namespace}"
            bundle = by_namespace.setdefault(place, {BUNDLE: {"persistent": {}}})[BUNDLE]
            async for partition in in_turns(tuple(topic.partitions)):
                stats = await statistics.topic_stats(broker, topic, (partition,), wanted)
                bundle["persistent"][full_name(topic, partition.index)] = _shown(stats)
        return json_answer(by_namespace)

    async def load_report(self, _: Request) -> Response:
        """Answer that there is no load report, as Apache without a load manager."""
        return done()


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
