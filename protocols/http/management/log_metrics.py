"""Metrics without counters, read from the log and the cursors: offsets, sizes, backlogs, and the
age of unread records.

Each scrape reads them in the event loop, in turns, so they cannot drift. Any thread can then make
the metric families. Knows no HTTP.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import trio
from prometheus_client import ProcessCollector

from braidlog.broker.families import Family, Kind, gauge, label_text
from braidlog.broker.metrics import Snapshot
from braidlog.protocols.http.management.backlog_ages import Ages
from braidlog.protocols.http.management.joined import joined_here
from braidlog.protocols.http.management.named_metrics import (
    ACKED,
    BY_TOPIC,
    SUBSCRIPTION_ACKED,
    SUBSCRIPTION_OUT,
    GroupFacts,
    PartitionFacts,
    TopicFacts,
    Traffic,
    kafka_metrics,
    kafka_series,
    pulsar_metrics,
    pulsar_series,
)
from braidlog.protocols.http.management.rates import RateSamples
from braidlog.protocols.http.turns import CHANGED, Turns

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.broker.positions.subscriptions import Subscription
    from braidlog.broker.topics.topic import Topic

PARTITION_LABELS = ("topic", "partition")
GROUP_LABELS = ("topic", "subscription")
# Series of members of groups, which have a place beside the limit of topics' series: as many as a
# Kafka listener has groups.
MEMBER_SERIES_MAX = 10_000
OPEN_FILES = "/proc/self/fd"
OWN_OF_PARTITION, OWN_OF_GROUP = 3, 3  # Series with our own names.


@dataclass(frozen=True, slots=True)
class Scrape:
    """The statistics of a scrape."""

    own: list[Family]
    topics: Sequence[TopicFacts]
    counted: Snapshot
    rates: RateSamples
    at_s: float
    members: Sequence[tuple[str, str, int]] = ()
    """Topic, group and number of members, of groups that clients have joined at this broker."""

    @property
    def size(self) -> int:
        """Approximate number of samples."""
        partitions = sum(len(topic.partitions) for topic in self.topics)
        groups = sum(len(topic.groups) for topic in self.topics)
        numbers = len(self.counted.numbers) + len(self.members)
        return numbers + len(self.topics) + partitions + groups

    def families(self, sets: Collection[str], series_max: int) -> Iterator[Family]:
        """Iterate over every metric family of these sets of names.

        Topics beyond the limit of series have no series of their own, but count in sums.
        """
        members = self.members[:MEMBER_SERIES_MAX] if "braidlog" in sets else ()
        shown, left_out = self._shown(sets, series_max - len(members))
        if "braidlog" in sets:
            left_out += len(self.members) - len(members)
        hidden = {topic.name.full for topic in self.topics[len(shown) :]}
        text = "Series of topics that this answer leaves out, being at its limit."
        yield from self.own
        yield gauge("braidlog_series_left_out", text, left_out)
        yield from self.counted.without(hidden).families()
        if "braidlog" in sets:
            yield from _of_topics(shown, len(self.topics))
            yield _of_members(members)
        traffic = self._traffic()
        if "pulsar" in sets:
            yield from pulsar_metrics(self.topics, traffic, hidden)
        if "kafka" in sets:
            yield from kafka_metrics(shown, traffic)

    def _shown(self, sets: Collection[str], series_max: int) -> tuple[Sequence[TopicFacts], int]:
        """Return the first topics, up to the limit of series, and the number of series of the other
        topics.
        """
        counted = self.counted.series_of_topics()
        left = series_max - (len(self.counted.numbers) - sum(counted.values()))
        shown = left_out = 0
        for topic in self.topics:
            series = counted.get(topic.name.full, 0)
            series += len(topic.partitions) * OWN_OF_PARTITION if "braidlog" in sets else 0
            series += len(topic.groups) * OWN_OF_GROUP if "braidlog" in sets else 0
            series += pulsar_series(topic) if "pulsar" in sets else 0
            series += kafka_series(topic) if "kafka" in sets else 0
            if left_out or series > left:
                left_out += series
            else:
                shown, left = shown + 1, left - series
        return self.topics[:shown], left_out

    def _traffic(self) -> Traffic:
        totals: dict[str, Mapping[str, int]] = dict(self.counted.by_topic(BY_TOPIC))
        totals[SUBSCRIPTION_OUT] = {
            f"{topic.name.full}/{group.name}": group.messages_out
            for topic in self.topics
            for group in topic.groups
        }
        totals[SUBSCRIPTION_ACKED] = {
            f"{topic.name.full}/{group.name}": group.messages_acked
            for topic in self.topics
            for group in topic.groups
        }
        totals[ACKED] = {
            topic.name.full: sum(group.messages_acked for group in topic.groups)
            for topic in self.topics
        }
        numbers = self.counted.numbers
        connections = {
            name: number.value
            for (name, labels), number in numbers.items()
            if labels == ("pulsar",)
        }
        return Traffic(totals, self.rates.rates(self.at_s, totals), connections)


async def scrape(broker: Broker, ages: Ages, rates: RateSamples) -> Scrape:
    """Gather the current statistics; other tasks run meanwhile."""
    topics: list[TopicFacts] = []
    turns = Turns()
    ages.begin()
    joined = await joined_here(broker)
    rows: list[tuple[str, str, int]] = []
    for topic in broker.topics.all():
        await turns.count()
        if topic.deleted:
            continue
        members = joined.members(topic)
        rows += [(topic.name.full, name, count) for name, count in members.items()]
        with suppress(*CHANGED):  # The next scrape shows the topic, if it is still here.
            topics.append(await _facts(broker, topic, ages, turns))
            topics[-1].members = members
    own = [*_of_the_process(), *_of_the_broker(broker)]
    return Scrape(own, topics, broker.metrics.snapshot(), rates, trio.current_time(), rows)


def _of_the_process() -> Iterator[Family]:
    for metric in ProcessCollector(registry=None).collect():
        family = Family(Kind(metric.type), metric.name, metric.documentation)
        for sample in metric.samples:
            family.add_labelled("", sample.value)
        yield family


def _of_the_broker(broker: Broker) -> list[Family]:
    labels = ("version", "python")
    build = Family(Kind.GAUGE, "braidlog_build_info", "What runs here.", labels)
    build.add((broker.version, platform.python_version()), 1)
    tasks = trio.lowlevel.current_statistics().tasks_living
    families = [build, gauge("braidlog_trio_tasks", "Tasks of the event loop.", tasks)]
    with suppress(OSError):  # To count the open files takes a file: there may be none left.
        files = len(os.listdir(OPEN_FILES))
        families.append(gauge("braidlog_open_files", "Files and sockets open.", files))
    ends = Family(
        Kind.GAUGE,
        "braidlog_certificate_end_seconds",
        "Last moment of a listener's certificate, in seconds since 1970.",
        ("listener",),
    )
    for name, listener in sorted(broker.listeners.items()):
        if listener.tls is not None and listener.tls.certificate_end_us is not None:
            ends.add((name,), listener.tls.certificate_end_us // 1_000_000)
    if ends.lines:
        families.append(ends)
    return families


def _of_topics(topics: Sequence[TopicFacts], count_all: int) -> list[Family]:
    start = Family(Kind.GAUGE, "braidlog_log_start_offset", "First offset kept.")
    end = Family(Kind.GAUGE, "braidlog_log_end_offset", "Offset the next record gets.")
    size = Family(Kind.GAUGE, "braidlog_log_bytes", "Size of the log files.")
    backlog = Family(Kind.GAUGE, "braidlog_subscription_backlog", "Records not acknowledged.")
    unacked = Family(Kind.GAUGE, "braidlog_subscription_unacked", "Records that consumers hold.")
    text = "Age of the oldest record that is not read."
    age = Family(Kind.GAUGE, "braidlog_subscription_backlog_seconds", text)
    for topic in topics:
        name = topic.name.full
        for partition in topic.partitions:
            labels = label_text(PARTITION_LABELS, (name, str(partition.index)))
            start.add_labelled(labels, partition.start)
            end.add_labelled(labels, partition.end)
            size.add_labelled(labels, partition.size_bytes)
        for group in topic.groups:
            labels = label_text(GROUP_LABELS, (name, group.name))
            backlog.add_labelled(labels, group.backlog)
            unacked.add_labelled(labels, group.unacked)
            if group.backlog_s is not None:
                age.add_labelled(labels, group.backlog_s)
    count = gauge("braidlog_topics", "Topics there are.", count_all)
    return [count, start, end, size, backlog, unacked, age]


def _of_members(members: Sequence[tuple[str, str, int]]) -> Family:
    text = "Members that read the topic, of groups that clients have joined at this broker."
    family = Family(Kind.GAUGE, "braidlog_group_members", text)
    for topic, group, count in members:
        family.add_labelled(label_text(GROUP_LABELS, (topic, group)), count)
    return family


async def _facts(broker: Broker, topic: Topic, ages: Ages, turns: Turns) -> TopicFacts:
    facts = TopicFacts(topic.name)
    for partition in tuple(topic.partitions):
        await turns.count()
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
        if subscription is not None:  # Otherwise deleted meanwhile.
            facts.groups.append(await _group(broker, subscription, ages, turns))
    return facts


async def _group(
    broker: Broker, subscription: Subscription, ages: Ages, turns: Turns
) -> GroupFacts:
    name = subscription.name.decode(errors="backslashreplace")
    facts = GroupFacts(name, 0, 0, 0, [])
    members: set[str] = set()
    for partition in tuple(subscription.topic.partitions):
        await turns.count()
        backlog = subscription.backlog(partition.index)
        position = subscription.position(partition.index)
        facts.backlog += backlog
        since_us = await ages.since_us(partition, position) if backlog else broker.now_us()
        if since_us is not None:
            facts.backlog_s = max(facts.backlog_s or 0.0, (broker.now_us() - since_us) / 1e6)
        if position is not None:
            facts.positions.append((partition.index, position, backlog))
        dispatcher = broker.dispatchers.find(partition, subscription.name)
        if dispatcher is None:
            continue
        facts.delayed += dispatcher.delayed
        facts.is_blocked |= dispatcher.is_blocked
        for consumer in dispatcher.consumers:
            members.add(consumer.name)
            facts.unacked += consumer.unacked
            facts.messages_out += consumer.messages_out
            facts.messages_acked += consumer.messages_acked
    facts.consumers = len(members)
    return facts
