"""Metrics that nobody counts, because the log and the cursors know them: offsets, sizes, backlogs.

Read when somebody scrapes, so they cannot drift. Knows no HTTP.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import trio
from prometheus_client import ProcessCollector
from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from protocols.rest.named_metrics import (
    GroupFacts,
    PartitionFacts,
    TopicFacts,
    Traffic,
    kafka_metrics,
    pulsar_metrics,
)
from protocols.rest.turns import in_turns

if TYPE_CHECKING:
    from broker.broker import Broker
    from broker.subscriptions.subscriptions import Subscription
    from broker.topics.topic import Topic

PARTITION_LABELS = ("topic", "partition")
GROUP_LABELS = ("topic", "subscription")
OPEN_FILES = "/proc/self/fd"


async def collect(broker: Broker, sets: Collection[str]) -> list[Metric]:
    """Every family of these sets of names; other tasks run meanwhile."""
    topics: list[TopicFacts] = []
    for topic in broker.topics.all():
        if not topic.deleted:
            topics.append(await _facts(broker, topic))
        await trio.lowlevel.checkpoint()
    families: list[Metric] = [*ProcessCollector(registry=None).collect()]
    if "braidlog" in sets:
        families += [*_of_the_process(broker), *_of_topics(topics)]
    if "pulsar" in sets:
        families += pulsar_metrics(topics, _traffic(broker))
    if "kafka" in sets:
        families += kafka_metrics(topics, _traffic(broker))
    return families


def _traffic(broker: Broker) -> Traffic:
    totals = broker.metrics.totals_by_topic
    return Traffic(
        totals("braidlog_records_in"),
        totals("braidlog_bytes_in"),
        totals("braidlog_records_out"),
        totals("braidlog_bytes_out"),
    )


def _of_the_process(broker: Broker) -> Sequence[Metric]:
    build = GaugeMetricFamily(
        "braidlog_build_info", "What runs here.", labels=("version", "python")
    )
    build.add_metric((broker.version, platform.python_version()), 1)
    tasks = trio.lowlevel.current_statistics().tasks_living
    files = len(os.listdir(OPEN_FILES))
    return [
        build,
        GaugeMetricFamily("braidlog_trio_tasks", "Tasks of the event loop.", value=tasks),
        GaugeMetricFamily("braidlog_open_files", "Files and sockets open.", value=files),
    ]


def _of_topics(topics: Sequence[TopicFacts]) -> Sequence[Metric]:
    count = GaugeMetricFamily("braidlog_topics", "Topics there are.", value=len(topics))
    start = GaugeMetricFamily(
        "braidlog_log_start_offset", "First offset kept.", labels=PARTITION_LABELS
    )
    end = GaugeMetricFamily(
        "braidlog_log_end_offset", "Offset the next record gets.", labels=PARTITION_LABELS
    )
    size = GaugeMetricFamily(
        "braidlog_log_bytes", "Size of the log files.", labels=PARTITION_LABELS
    )
    backlog = GaugeMetricFamily(
        "braidlog_subscription_backlog", "Records not acknowledged.", labels=GROUP_LABELS
    )
    unacked = GaugeMetricFamily(
        "braidlog_subscription_unacked", "Records that consumers hold.", labels=GROUP_LABELS
    )
    for topic in topics:
        name = topic.name.full
        for one in topic.partitions:
            labels = (name, str(one.index))
            start.add_metric(labels, one.start)
            end.add_metric(labels, one.end)
            size.add_metric(labels, one.size_bytes)
        for group in topic.groups:
            backlog.add_metric((name, group.name), group.backlog)
            unacked.add_metric((name, group.name), group.unacked)
    return [count, start, end, size, backlog, unacked]


async def _facts(broker: Broker, topic: Topic) -> TopicFacts:
    facts = TopicFacts(topic.name)
    async for partition in in_turns(tuple(topic.partitions)):
        facts.partitions.append(
            PartitionFacts(
                partition.index,
                partition.log_start_offset,
                partition.next_offset,
                partition.size_bytes,
            )
        )
    for name in broker.subscriptions.names(topic):
        subscription = broker.subscriptions.find(topic, name)
        if subscription is not None:  # Else it ended meanwhile.
            facts.groups.append(await _group(broker, subscription))
    return facts


async def _group(broker: Broker, subscription: Subscription) -> GroupFacts:
    name = subscription.name.decode(errors="backslashreplace")
    facts = GroupFacts(name, 0, 0, 0, [])
    members: set[str] = set()
    async for partition in in_turns(tuple(subscription.topic.partitions)):
        backlog = subscription.backlog(partition.index)
        position = subscription.position(partition.index)
        facts.backlog += backlog
        if position is not None:
            facts.positions.append((partition.index, position, backlog))
        dispatcher = broker.dispatchers.find(partition, subscription.name)
        for consumer in dispatcher.consumers if dispatcher is not None else ():
            members.add(consumer.name)
            facts.unacked += consumer.unacked
    facts.consumers = len(members)
    return facts
