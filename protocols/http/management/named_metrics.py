"""Metrics under the names of existing dashboards: Apache Pulsar's and those of Kafka's exporter.

Each scrape reads their values from the log and the cursors. Knows the facts of a topic, not the way
they are gathered (`log_metrics.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from braidlog.broker.families import Family, Kind, gauge, label_text
from braidlog.storage.metadata.names import (
    DEFAULT_NAMESPACE,
    DEFAULT_TENANT,
    TopicName,
    kafka_legal,
)

RECORDS_IN, BYTES_IN = "braidlog_records_in", "braidlog_bytes_in"
RECORDS_OUT, BYTES_OUT = "braidlog_records_out", "braidlog_bytes_out"
PRODUCERS = "braidlog_producers"
BY_TOPIC = (RECORDS_IN, BYTES_IN, RECORDS_OUT, BYTES_OUT, PRODUCERS)
SUBSCRIPTION_OUT, ACKED = "subscription_out", "acked"
SUBSCRIPTION_ACKED = "subscription_acked"
CLUSTER = "standalone"  # Pulsar's own name for a single-broker cluster.
LEADER = 1  # The broker's number among Kafka's brokers.


@dataclass(slots=True)
class PartitionFacts:
    """The log of a partition."""

    index: int
    start: int
    end: int
    size_bytes: int


@dataclass(slots=True)
class GroupFacts:
    """A group on a topic."""

    name: str
    backlog: int
    consumers: int
    unacked: int
    positions: list[tuple[int, int, int]]  # (partition, position, backlog), only set positions.
    delayed: int = 0  # Records held until their delivery time.
    is_blocked: bool = False  # At a limit of unacknowledged messages.
    messages_out: int = 0  # Of the connected consumers.
    messages_acked: int = 0  # By the connected consumers.
    backlog_s: float | None = None  # Age of the oldest unread record; None if unknown.


@dataclass(slots=True)
class TopicFacts:
    """The statistics of a topic in a scrape."""

    name: TopicName
    partitions: list[PartitionFacts] = field(default_factory=list)
    groups: list[GroupFacts] = field(default_factory=list)
    # Members of groups that clients have joined, by name, also of groups without a position.
    members: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Traffic:
    """Traffic in and out: totals and rates by family, then by the topic's full name (for
    `SUBSCRIPTION_OUT` followed by the group's name); and the counters of Pulsar's connections.
    """

    totals: Mapping[str, Mapping[str, int]]
    rates: Mapping[str, Mapping[str, float]]
    connections: Mapping[str, int]

    def total(self, family: str, topic: str) -> int:
        return self.totals[family].get(topic, 0)

    def rate(self, family: str, key: str) -> float:
        """Return the rate per second of a topic or group."""
        return self.rates[family].get(key, 0.0)


def pulsar_series(topic: TopicFacts) -> int:
    """Return the number of series that `pulsar_metrics` makes for a topic."""
    return len(PULSAR_GAUGES) + len(PULSAR_TOTALS) + len(PULSAR_GROUPS) * len(topic.groups)


def kafka_series(topic: TopicFacts) -> int:
    """Return the number of series that `kafka_metrics` makes for a topic."""
    if not _has_kafka_name(topic.name):
        return 0
    series = 1 + len(KAFKA_TOTALS) + len(KAFKA_PARTITIONS) * len(topic.partitions)
    series += len(topic.members)  # At most: a group with positions has a series already.
    return series + sum(2 + 2 * len(group.positions) for group in topic.groups)


def _has_kafka_name(name: TopicName) -> bool:
    is_there = (name.tenant, name.namespace) == (DEFAULT_TENANT, DEFAULT_NAMESPACE)
    return is_there and kafka_legal(name.topic)


def pulsar_metrics(
    topics: Iterable[TopicFacts], traffic: Traffic, hidden: Collection[str] = ()
) -> list[Family]:
    """Return the metric families of Apache's broker that are known here. Topics in `hidden` count
    only in sums.
    """
    gauges = _families(Kind.GAUGE, "pulsar_", PULSAR_GAUGES)
    totals = _families(Kind.COUNTER, "pulsar_", PULSAR_TOTALS)
    groups = _families(Kind.GAUGE, "pulsar_", PULSAR_GROUPS)
    sums = dict.fromkeys(PULSAR_GAUGES, 0.0)
    namespaces: dict[str, int] = {}
    for topic in topics:
        namespace = f"{topic.name.tenant}/{topic.name.namespace}"
        namespaces[namespace] = namespaces.get(namespace, 0) + 1
        values = _pulsar_gauges(topic, traffic)
        for name, value in values.items():
            sums[name] += value
        full = topic.name.full
        if full in hidden:
            continue
        place = (CLUSTER, namespace, f"persistent://{full}")
        labels = label_text(PULSAR_TOPIC, place)
        for name, value in values.items():
            gauges[name].add_labelled(labels, value)
        for name, family in PULSAR_TOTAL_OF.items():
            totals[name].add_labelled(labels, traffic.total(family, full))
        for group in topic.groups:
            of_group = label_text((*PULSAR_TOPIC, "subscription"), (*place, group.name))
            for name, value in _pulsar_group(topic, group, traffic).items():
                groups[name].add_labelled(of_group, value)
    counts = Family(Kind.GAUGE, "pulsar_topics_count", "Topics.", ("cluster", "namespace"))
    for namespace, count in sorted(namespaces.items()):
        counts.add((CLUSTER, namespace), count)
    families = [counts, *gauges.values(), *totals.values(), *groups.values()]
    return families + _pulsar_broker(sums, sum(namespaces.values()), traffic)


def _families(kind: Kind, prefix: str, texts: Mapping[str, str]) -> dict[str, Family]:
    """Return an empty family for each name, whose samples come with their labels."""
    return {name: Family(kind, prefix + name, text) for name, text in texts.items()}


def _pulsar_gauges(topic: TopicFacts, traffic: Traffic) -> dict[str, float]:
    """Return a topic's values of `PULSAR_GAUGES`."""
    full = topic.name.full
    stored = sum(partition.size_bytes for partition in topic.partitions)
    records = sum(partition.end - partition.start for partition in topic.partitions)
    slowest = max((group.backlog for group in topic.groups), default=0)
    return {
        "subscriptions_count": len(topic.groups),
        "producers_count": traffic.total(PRODUCERS, full),
        "consumers_count": sum(group.consumers for group in topic.groups),
        "rate_in": traffic.rate(RECORDS_IN, full),
        "rate_out": traffic.rate(RECORDS_OUT, full),
        "throughput_in": traffic.rate(BYTES_IN, full),
        "throughput_out": traffic.rate(BYTES_OUT, full),
        ACK_RATE: traffic.rate(ACKED, full),
        "storage_size": stored,
        "storage_backlog_size": stored * min(slowest, records) // max(records, 1),
        "msg_backlog": sum(group.backlog for group in topic.groups),
    }


def _pulsar_group(topic: TopicFacts, group: GroupFacts, traffic: Traffic) -> dict[str, float]:
    """Return a group's values of `PULSAR_GROUPS`."""
    key = f"{topic.name.full}/{group.name}"
    return {
        "subscription_back_log": group.backlog,
        "subscription_back_log_no_delayed": max(group.backlog - group.delayed, 0),
        "subscription_unacked_messages": group.unacked,
        "subscription_blocked_on_unacked_messages": group.is_blocked,
        "subscription_consumers_count": group.consumers,
        "subscription_msg_rate_out": traffic.rate(SUBSCRIPTION_OUT, key),
        "subscription_msg_ack_rate": traffic.rate(SUBSCRIPTION_ACKED, key),
    }


def _pulsar_broker(sums: Mapping[str, float], topics: int, traffic: Traffic) -> list[Family]:
    """Return the same statistics for all topics together, and the connections."""
    created = traffic.connections.get("braidlog_connections", 0)
    still_open = traffic.connections.get("braidlog_open_connections", 0)
    rows = [
        (f"pulsar_broker_{name}", PULSAR_GAUGES.get(name, "Topics."), value)
        for name, value in {"topics_count": topics, **sums}.items()
        if name != ACK_RATE  # Apache has no such total.
    ]
    rows += [
        ("pulsar_active_connections", "Connections that are open.", still_open),
        ("pulsar_connection_created_total_count", "Connections that came.", created),
        ("pulsar_connection_closed_total_count", "Connections that ended.", created - still_open),
    ]
    metrics = []
    for name, text, value in rows:
        family = Family(Kind.GAUGE, name, text, ("cluster",))
        family.add((CLUSTER,), value)
        metrics.append(family)
    return metrics


PULSAR_TOPIC = ("cluster", "namespace", "topic")
ACK_RATE = "consumer_msg_ack_rate"
PULSAR_GAUGES = {
    "subscriptions_count": "Subscriptions.",
    "producers_count": "Producers that are connected.",
    "consumers_count": "Consumers that are connected.",
    "rate_in": "Records stored in a second, over the last minute.",
    "rate_out": "Records handed to readers in a second, over the last minute.",
    "throughput_in": "Bytes stored in a second, over the last minute.",
    "throughput_out": "Bytes handed to readers in a second, over the last minute.",
    ACK_RATE: "Messages that connected consumers acknowledged in a second, over the last minute.",
    "storage_size": "Bytes of the log files.",
    "storage_backlog_size": "About how many bytes the slowest subscription has still to read.",
    "msg_backlog": "Records that subscriptions have not acknowledged, all together.",
}
PULSAR_TOTALS = {
    "in_messages": "Records stored since the start.",
    "in_bytes": "Bytes stored since the start.",
    "out_messages": "Records handed to readers since the start.",
    "out_bytes": "Bytes handed to readers since the start.",
}
PULSAR_TOTAL_OF = {
    "in_messages": RECORDS_IN,
    "in_bytes": BYTES_IN,
    "out_messages": RECORDS_OUT,
    "out_bytes": BYTES_OUT,
}
PULSAR_GROUPS = {
    "subscription_back_log": "Records not acknowledged.",
    "subscription_back_log_no_delayed": "The same without those held until their time.",
    "subscription_unacked_messages": "Records that consumers hold and have not acknowledged.",
    "subscription_blocked_on_unacked_messages": "1 at a limit of unacknowledged records, else 0.",
    "subscription_consumers_count": "Consumers that are connected.",
    "subscription_msg_ack_rate": "Records acknowledged in a second, over the last minute.",
    "subscription_msg_rate_out": "Records sent to consumers in a second, over the last minute.",
}


def kafka_metrics(topics: Iterable[TopicFacts], traffic: Traffic) -> list[Family]:
    """Return the metric families of danielqsj/kafka_exporter, and of the JMX exporter's usual
    rules, for topics that a Kafka client of the default listener can name.
    """
    brokers = gauge("kafka_brokers", "Brokers.", 1)
    counts = Family(Kind.GAUGE, "kafka_topic_partitions", "Partitions.")
    by_partition = _families(Kind.GAUGE, "kafka_topic_partition_", KAFKA_PARTITIONS)
    by_group = _families(Kind.GAUGE, "kafka_consumergroup_", KAFKA_GROUPS)
    totals = _families(Kind.COUNTER, "kafka_server_brokertopicmetrics_", KAFKA_TOTALS)
    for facts in topics:
        name = facts.name
        if not _has_kafka_name(name):
            continue
        topic = label_text(("topic",), (name.topic,))
        counts.add_labelled(topic, len(facts.partitions))
        totals["messagesin"].add_labelled(topic, traffic.total(RECORDS_IN, name.full))
        totals["bytesin"].add_labelled(topic, traffic.total(BYTES_IN, name.full))
        totals["bytesout"].add_labelled(topic, traffic.total(BYTES_OUT, name.full))
        for partition in facts.partitions:
            labels = label_text(PARTITION, (name.topic, str(partition.index)))
            by_partition["current_offset"].add_labelled(labels, partition.end)
            by_partition["oldest_offset"].add_labelled(labels, partition.start)
            by_partition["leader"].add_labelled(labels, LEADER)
            by_partition["replicas"].add_labelled(labels, 1)
            by_partition["in_sync_replica"].add_labelled(labels, 1)
        for group in facts.groups:
            _add_group(by_group, name.topic, group, facts.members.get(group.name, 0))
        known = {group.name for group in facts.groups}
        for joined, count in facts.members.items():
            if joined not in known:
                labels = label_text(("consumergroup", "topic"), (joined, name.topic))
                by_group["members"].add_labelled(labels, count)
    return [brokers, counts, *by_partition.values(), *by_group.values(), *totals.values()]


def _add_group(families: Mapping[str, Family], topic: str, group: GroupFacts, members: int) -> None:
    for partition, position, backlog in group.positions:
        values = (group.name, topic, str(partition))
        labels = label_text(("consumergroup", *PARTITION), values)
        families["current_offset"].add_labelled(labels, position)
        families["lag"].add_labelled(labels, backlog)
    labels = label_text(("consumergroup", "topic"), (group.name, topic))
    families["lag_sum"].add_labelled(labels, group.backlog)
    # A member of a share group is a consumer, too.
    families["members"].add_labelled(labels, max(group.consumers, members))


PARTITION = ("topic", "partition")
KAFKA_PARTITIONS = {
    "current_offset": "Offset that the next record gets.",
    "oldest_offset": "First offset kept.",
    "leader": "Number of the broker that leads it.",
    "replicas": "Replicas.",
    "in_sync_replica": "Replicas that are in sync.",
}
KAFKA_GROUPS = {
    "current_offset": "Position of the group.",
    "lag": "Records not acknowledged.",
    "lag_sum": "The same of all partitions.",
    "members": "Members, or consumers that are connected.",
}
KAFKA_TOTALS = {
    "messagesin": "Records stored since the start.",
    "bytesin": "Bytes stored since the start.",
    "bytesout": "Bytes handed to readers since the start.",
}
