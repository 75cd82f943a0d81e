"""Metrics that nobody counts, because the log and the cursors know them: offsets, sizes, backlogs.

Read when somebody scrapes, so they cannot drift. Knows no HTTP.
"""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

import trio
from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from protocols.rest.turns import backlog_of, in_turns

if TYPE_CHECKING:
    from broker.broker import Broker
    from broker.topics.topic import Topic

PARTITION_LABELS = ("topic", "partition")
GROUP_LABELS = ("topic", "subscription")


class LogMetrics:
    """The families of one scrape."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._build = GaugeMetricFamily(
            "braidlog_build_info", "What runs here.", labels=("version", "python")
        )
        self._topics = GaugeMetricFamily("braidlog_topics", "Topics there are.")
        self._start = GaugeMetricFamily(
            "braidlog_log_start_offset", "First offset kept.", labels=PARTITION_LABELS
        )
        self._end = GaugeMetricFamily(
            "braidlog_log_end_offset", "Offset the next record gets.", labels=PARTITION_LABELS
        )
        self._bytes = GaugeMetricFamily(
            "braidlog_log_bytes", "Size of the log files.", labels=PARTITION_LABELS
        )
        self._backlog = GaugeMetricFamily(
            "braidlog_subscription_backlog", "Records not acknowledged.", labels=GROUP_LABELS
        )

    async def collect(self) -> list[Metric]:
        """Every family; other tasks run meanwhile."""
        self._build.add_metric((self._broker.version, platform.python_version()), 1)
        topics = self._broker.topics.all()
        self._topics.add_metric((), len(topics))
        for topic in topics:
            if not topic.deleted:
                await self._add(topic)
            await trio.lowlevel.checkpoint()
        return [
            self._build,
            self._topics,
            self._start,
            self._end,
            self._bytes,
            self._backlog,
        ]

    async def _add(self, topic: Topic) -> None:
        name = topic.name.full
        async for partition in in_turns(tuple(topic.partitions)):
            labels = (name, str(partition.index))
            self._start.add_metric(labels, partition.log_start_offset)
            self._end.add_metric(labels, partition.next_offset)
            self._bytes.add_metric(labels, partition.size_bytes)
        for group in self._broker.subscriptions.names(topic):
            subscription = self._broker.subscriptions.find(topic, group)
            if subscription is None:  # It ended meanwhile.
                continue
            backlog = await backlog_of(subscription)
            self._backlog.add_metric((name, group.decode(errors="backslashreplace")), backlog)
