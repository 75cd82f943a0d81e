"""Metrics under the names that dashboards of the others look for: Apache Pulsar's and those of
Kafka's exporter. What they say is read from the log and the cursors, at the time of the scrape.

Knows the facts of a topic, not how they are gathered (`log_metrics.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from storage.metadata.names import DEFAULT_NAMESPACE, DEFAULT_TENANT, TopicName, kafka_legal

CLUSTER = "standalone"  # Pulsar's own name for a cluster of one broker.
LEADER = 1  # The broker's number among Kafka's brokers.


@dataclass(slots=True)
class PartitionFacts:
    """One partition's log."""

    index: int
    start: int
    end: int
    size_bytes: int


@dataclass(slots=True)
class GroupFacts:
    """One group on one topic."""

    name: str
    backlog: int
    consumers: int
    unacked: int
    positions: list[tuple[int, int, int]]  # (partition, position, backlog) where it is set


@dataclass(slots=True)
class TopicFacts:
    """What one scrape finds of a topic."""

    name: TopicName
    partitions: list[PartitionFacts] = field(default_factory=list)
    groups: list[GroupFacts] = field(default_factory=list)


@dataclass(slots=True)
class Traffic:
    """What went in and out of topics, by full name."""

    messages_in: Mapping[str, int]
    bytes_in: Mapping[str, int]
    messages_out: Mapping[str, int]
    bytes_out: Mapping[str, int]


def pulsar_metrics(topics: Iterable[TopicFacts], traffic: Traffic) -> list[Metric]:
    """Families of Apache's broker, those that are known here."""
    by_topic = ("cluster", "namespace", "topic")
    counts = GaugeMetricFamily("pulsar_topics_count", "Topics.", labels=("cluster", "namespace"))
    gauges = {
        name: GaugeMetricFamily(f"pulsar_{name}", text, labels=by_topic)
        for name, text in PULSAR_GAUGES.items()
    }
    totals = {
        name: CounterMetricFamily(f"pulsar_{name}", text, labels=by_topic)
        for name, text in PULSAR_TOTALS.items()
    }
    groups = {
        name: GaugeMetricFamily(f"pulsar_{name}", text, labels=(*by_topic, "subscription"))
        for name, text in PULSAR_GROUPS.items()
    }
    namespaces: dict[str, int] = {}
    for topic in topics:
        namespace = f"{topic.name.tenant}/{topic.name.namespace}"
        namespaces[namespace] = namespaces.get(namespace, 0) + 1
        full = topic.name.full
        labels = (CLUSTER, namespace, f"persistent://{full}")
        gauges["subscriptions_count"].add_metric(labels, len(topic.groups))
        gauges["consumers_count"].add_metric(labels, sum(g.consumers for g in topic.groups))
        gauges["storage_size"].add_metric(labels, sum(p.size_bytes for p in topic.partitions))
        gauges["msg_backlog"].add_metric(labels, sum(g.backlog for g in topic.groups))
        totals["in_messages"].add_metric(labels, traffic.messages_in.get(full, 0))
        totals["in_bytes"].add_metric(labels, traffic.bytes_in.get(full, 0))
        totals["out_messages"].add_metric(labels, traffic.messages_out.get(full, 0))
        totals["out_bytes"].add_metric(labels, traffic.bytes_out.get(full, 0))
        for group in topic.groups:
            of_group = (*labels, group.name)
            groups["subscription_back_log"].add_metric(of_group, group.backlog)
            groups["subscription_unacked_messages"].add_metric(of_group, group.unacked)
    for namespace, count in sorted(namespaces.items()):
        counts.add_metric((CLUSTER, namespace), count)
    return [counts, *gauges.values(), *totals.values(), *groups.values()]


PULSAR_GAUGES = {
    "subscriptions_count": "Subscriptions of the topic.",
    "consumers_count": "Consumers that are connected.",
    "storage_size": "Bytes of the log files.",
    "msg_backlog": "Records that subscriptions have not acknowledged, all together.",
}
PULSAR_TOTALS = {
    "in_messages": "Records stored since the start.",
    "in_bytes": "Bytes stored since the start.",
    "out_messages": "Records handed to readers since the start.",
    "out_bytes": "Bytes handed to readers since the start.",
}
PULSAR_GROUPS = {
    "subscription_back_log": "Records not acknowledged.",
    "subscription_unacked_messages": "Records that consumers hold and have not acknowledged.",
}


def kafka_metrics(topics: Iterable[TopicFacts], traffic: Traffic) -> list[Metric]:
    """Families of danielqsj/kafka_exporter, and of the JMX exporter's usual rules, for the topics
    that a Kafka client of the default listener can name.
    """
    brokers = GaugeMetricFamily("kafka_brokers", "Brokers.")
    brokers.add_metric((), 1)
    counts = GaugeMetricFamily("kafka_topic_partitions", "Partitions.", labels=("topic",))
    by_partition = {
        name: GaugeMetricFamily(f"kafka_topic_partition_{name}", text, labels=PARTITION)
        for name, text in KAFKA_PARTITIONS.items()
    }
    by_group = {
        name: GaugeMetricFamily(f"kafka_consumergroup_{name}", text, labels=labels)
        for name, (text, labels) in KAFKA_GROUPS.items()
    }
    totals = {
        name: CounterMetricFamily(
            f"kafka_server_brokertopicmetrics_{name}", text, labels=("topic",)
        )
        for name, text in KAFKA_TOTALS.items()
    }
    for facts in topics:
        name = facts.name
        is_shown = (name.tenant, name.namespace) == (DEFAULT_TENANT, DEFAULT_NAMESPACE)
        if not is_shown or not kafka_legal(name.topic):
            continue
        topic = name.topic
        counts.add_metric((topic,), len(facts.partitions))
        totals["messagesin"].add_metric((topic,), traffic.messages_in.get(name.full, 0))
        totals["bytesin"].add_metric((topic,), traffic.bytes_in.get(name.full, 0))
        totals["bytesout"].add_metric((topic,), traffic.bytes_out.get(name.full, 0))
        for one in facts.partitions:
            labels = (topic, str(one.index))
            by_partition["current_offset"].add_metric(labels, one.end)
            by_partition["oldest_offset"].add_metric(labels, one.start)
            by_partition["leader"].add_metric(labels, LEADER)
            by_partition["replicas"].add_metric(labels, 1)
            by_partition["in_sync_replica"].add_metric(labels, 1)
        for group in facts.groups:
            _add_group(by_group, topic, group)
    return [brokers, counts, *by_partition.values(), *by_group.values(), *totals.values()]


def _add_group(families: Mapping[str, GaugeMetricFamily], topic: str, group: GroupFacts) -> None:
    for partition, position, backlog in group.positions:
        labels = (group.name, topic, str(partition))
        families["current_offset"].add_metric(labels, position)
        families["lag"].add_metric(labels, backlog)
    families["lag_sum"].add_metric((group.name, topic), group.backlog)
    families["members"].add_metric((group.name, topic), group.consumers)


PARTITION = ("topic", "partition")
KAFKA_PARTITIONS = {
    "current_offset": "Offset that the next record gets.",
    "oldest_offset": "First offset kept.",
    "leader": "Number of the broker that leads it.",
    "replicas": "Replicas.",
    "in_sync_replica": "Replicas that are in sync.",
}
KAFKA_GROUPS = {
    "current_offset": ("Position of the group.", ("consumergroup", *PARTITION)),
    "lag": ("Records not acknowledged.", ("consumergroup", *PARTITION)),
    "lag_sum": ("The same of all partitions.", ("consumergroup", "topic")),
    "members": ("Consumers that are connected.", ("consumergroup", "topic")),
}
KAFKA_TOTALS = {
    "messagesin": "Records stored since the start.",
    "bytesin": "Bytes stored since the start.",
    "bytesout": "Bytes handed to readers since the start.",
}
