"""Statistics of topics in Pulsar's admin API: `stats` and `partitioned-stats`.

All fields of Apache are present; unknown statistics (`blank_stats.py`) are 0, and so are the rates
of single producers. Knows topics and subscriptions, no request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from braidlog.broker.delivery.exclusive import OrderedDispatcher
from braidlog.broker.delivery.key_shared import KeySharedDispatcher
from braidlog.broker.reading.records import read_records
from braidlog.broker.runtime.turns import in_turns
from braidlog.protocols.http.pulsar_admin import blank_stats
from braidlog.protocols.http.pulsar_admin.client_stats import (
    CONSUMER_RATES,
    add_counts,
    add_rates,
    connected_consumer,
    consumer_stats,
    key_ranges,
    key_sharing,
    publisher_stats,
)
from braidlog.protocols.http.pulsar_admin.names import full_name, shown_name
from braidlog.protocols.http.pulsar_admin.properties import shown_properties
from braidlog.protocols.http.pulsar_admin.traffic_meter import TrafficMeter

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.broker.delivery.consumer import Consumer
    from braidlog.broker.delivery.dispatcher import Dispatcher
    from braidlog.broker.positions.subscriptions import Subscription
    from braidlog.broker.topics.partition import Partition
    from braidlog.broker.topics.shown_producers import ShownProducer
    from braidlog.broker.topics.topic import Topic

Json = dict[str, Any]
RATES = ("msgRateIn", "msgThroughputIn", "msgRateOut", "msgThroughputOut")
NO_TIME = -1
EARLIEST = "earliestMsgPublishTimeInBacklog"
NO_QUOTA = -1
WITHOUT_PUBLISHERS, WITHOUT_CONSUMERS = ("excludePublishers",), ("excludeConsumers",)


@dataclass(frozen=True, slots=True)
class WantedStats:
    """The subscriptions in `names`, and the named readers that the client may see; the broker's
    address. `with_times`: also the publish time of the first message of each backlog, which costs
    a read.
    """

    names: Sequence[bytes]
    sees: Callable[[bytes], bool]
    owner: str
    meter: TrafficMeter
    with_times: bool = False
    publishers: bool = True
    consumers: bool = True


async def topic_stats(
    broker: Broker, topic: Topic, partitions: Sequence[Partition], wanted: WantedStats
) -> Json:
    """Return statistics of a topic or a partition."""
    subscriptions: Json = {}
    for name in wanted.names:
        subscription = broker.subscriptions.find(topic, name)
        if subscription is not None:  # Otherwise deleted meanwhile.
            shown = await _subscription(broker, subscription, partitions, wanted.meter)
            if wanted.with_times:
                shown[EARLIEST] = await _earliest_ms(subscription, partitions)
            subscriptions[shown_name(name)] = shown
    publishers: list[ShownProducer] = []
    readers: dict[bytes, list[Dispatcher]] = {}
    published_us = 0
    rates = [0.0] * len(RATES)
    async for partition in in_turns(partitions):
        of_partition = _partition_rates(partition, wanted.meter)
        rates = [total + rate for total, rate in zip(rates, of_partition, strict=True)]
        published_us = max(published_us, _last_append_us(partition))
        publishers += broker.shown_producers.of(partition.partition_id)
        for dispatcher in broker.dispatchers.on(partition):
            is_reader = dispatcher.consumers and not dispatcher.cursor.is_durable
            if is_reader and wanted.sees(dispatcher.name):
                readers.setdefault(dispatcher.name, []).append(dispatcher)
    subscriptions |= {
        shown_name(name): _reader(dispatchers, wanted.meter)
        for name, dispatchers in readers.items()
    }
    times = [shown[EARLIEST] for shown in subscriptions.values() if shown[EARLIEST] > 0]
    stats = blank_stats.TOPIC | topic_rates(rates) | _counters(broker, topic, partitions)
    stats |= {
        "storageSize": sum(partition.size_bytes for partition in partitions),
        "backlogSize": await _backlog_bytes(broker, topic, partitions, wanted.names),
        "backlogQuotaLimitSize": topic.settings.get("backlog_bytes") or NO_QUOTA,
        "backlogQuotaLimitTime": topic.settings.get("backlog_age_s") or NO_QUOTA,
        "earliestMsgPublishTimeInBacklogs": min(times, default=0),
        "subscriptions": subscriptions,
        "nonContiguousDeletedMessagesRanges": sum(
            shown["nonContiguousDeletedMessagesRanges"] for shown in subscriptions.values()
        ),
        "deduplicationStatus": "Enabled" if broker.topics.is_deduplicated(topic) else "Disabled",
        "topicEpoch": topic.meta.topic_epoch,
        "topicCreationTimeStamp": topic.meta.created_us // 1000,
        "lastPublishTimeStamp": published_us // 1000,
        "ownerBroker": wanted.owner,
        **publisher_stats(publishers),
    }
    return without_clients(stats, publishers=wanted.publishers, consumers=wanted.consumers)


def _partition_rates(partition: Partition, meter: TrafficMeter) -> list[float]:
    traffic = partition.traffic
    counts = (traffic.records_in, traffic.bytes_in, traffic.records_out, traffic.bytes_out)
    return meter.rates(partition.partition_id, counts, partition.topic.created_us)


def topic_rates(rates: Sequence[float]) -> Json:
    """Return the fields of a topic for rates in the order of `RATES`, and the size of a message."""
    messages, size, *_ = rates
    average = size / messages if messages else 0.0
    return {**dict(zip(RATES, rates, strict=True)), "averageMsgSize": average}


async def partitioned_stats(
    broker: Broker, topic: Topic, wanted: WantedStats, *, per_partition: bool
) -> Json:
    """Return the sum of all partitions, and the statistics of each if `per_partition`."""
    stats = await topic_stats(broker, topic, tuple(topic.partitions), wanted)
    count = len(topic.partitions) if topic.partitioned else 0
    stats["metadata"] = {"partitions": count, "deleted": False, **shown_properties(topic)}
    stats["partitions"] = {}
    if per_partition:
        async for partition in in_turns(tuple(topic.partitions)):
            part_stats = await topic_stats(broker, topic, (partition,), wanted)
            stats["partitions"][full_name(topic, partition.index)] = part_stats
    return stats


def without_clients(stats: Json, *, publishers: bool, consumers: bool) -> Json:
    """Return the statistics without the producers or consumers that the client does not want."""
    if not publishers:
        stats["publishers"] = []
    if not consumers:
        for shown in stats["subscriptions"].values():
            shown["consumers"] = []
    return stats


def _counters(broker: Broker, topic: Topic, partitions: Sequence[Partition]) -> Json:
    """Return the counters of messages and bytes since the start: of a whole topic, or of some
    partitions since this broker has served them.
    """
    names = {"msgIn": "records_in", "bytesIn": "bytes_in"}
    names |= {"msgOut": "records_out", "bytesOut": "bytes_out"}
    total, full = broker.metrics.topic_total, topic.name.full
    if len(partitions) == len(topic.partitions):
        return {f"{ours}Counter": total(f"braidlog_{name}", full) for ours, name in names.items()}
    return {
        f"{ours}Counter": sum(getattr(partition.traffic, name) for partition in partitions)
        for ours, name in names.items()
    }


def _last_append_us(partition: Partition) -> int:
    if not partition.next_offset:
        return 0  # The time of an empty segment is that of its creation.
    return max((at_us for _, at_us, _ in partition.segments()[-1:]), default=0)


async def _backlog_bytes(
    broker: Broker, topic: Topic, partitions: Sequence[Partition], names: Sequence[bytes]
) -> int:
    """Return the number of bytes from the slowest subscription's position on."""
    if not names:
        return 0
    size = 0
    async for partition in in_turns(partitions):
        positions = [
            subscription.position(partition.index) or 0
            for name in names
            if (subscription := broker.subscriptions.find(topic, name)) is not None
        ]
        size += bytes_from(partition, min(positions, default=partition.next_offset))
    return size


async def _subscription(
    broker: Broker,
    subscription: Subscription,
    partitions: Sequence[Partition],
    meter: TrafficMeter,
) -> Json:
    backlog = size = holes = 0
    dispatchers: list[Dispatcher] = []
    async for partition in in_turns(partitions):
        backlog += subscription.backlog(partition.index)
        size += bytes_from(partition, subscription.position(partition.index) or 0)
        holes += len(subscription.acked(partition.index))
        dispatcher = broker.dispatchers.find(partition, subscription.name)
        if dispatcher is not None and dispatcher.consumers:
            dispatchers.append(dispatcher)
    members = dict(_other_members(broker, subscription, partitions))
    expired = broker.metrics.value(
        "braidlog_expired_records", subscription.topic.name.full, shown_name(subscription.name)
    )
    key = (subscription.topic.meta.topic_id, subscription.name)
    (expired_rate,) = meter.rates(key, (expired,), subscription.topic.meta.created_us)
    return subscription_stats(meter, dispatchers, members, backlog) | {
        "backlogSize": size,
        "msgExpired": expired,
        "totalMsgExpired": expired,
        "msgRateExpired": expired_rate,
        "isDurable": True,
        "durable": True,
        "nonContiguousDeletedMessagesRanges": holes,
        "subscriptionProperties": subscription.properties,
    }


def bytes_from(partition: Partition, position: int) -> int:
    """Return the approximate number of stored bytes from the position on."""
    start, end = max(position, partition.log_start_offset), partition.next_offset
    return partition.bytes_between(start, end) if start < end else 0


async def _earliest_ms(subscription: Subscription, partitions: Sequence[Partition]) -> int:
    """Return the publish time of the first unacknowledged message; NO_TIME without such a
    message.
    """
    times_us = []
    async for partition in in_turns(partitions):
        start = max(subscription.position(partition.index) or 0, partition.log_start_offset)
        if start < partition.high_watermark:
            with partition.room() as memory:
                read = await read_records(
                    partition, start, bytes_max=1, records_max=1, memory=memory
                )
            for placed in read.records:
                record = placed.record
                times_us.append(
                    record.append_us if record.publish_us is None else record.publish_us
                )
    return min(times_us) // 1000 if times_us else NO_TIME


def _reader(dispatchers: Sequence[Dispatcher], meter: TrafficMeter) -> Json:
    """Return statistics of a reader, from its dispatchers of all partitions."""
    behind = (
        dispatcher.partition.high_watermark - dispatcher.cursor.position
        for dispatcher in dispatchers
    )
    backlog = sum(max(distance, 0) for distance in behind)
    return subscription_stats(meter, dispatchers, {}, backlog)


def subscription_stats(
    meter: TrafficMeter,
    dispatchers: Sequence[Dispatcher] = (),
    members: Mapping[tuple[str, str], Json] = MappingProxyType({}),
    backlog: int = 0,
) -> Json:
    """Return statistics of a subscription or reader; `members` do not receive by dispatchers."""
    delayed, kind, active, sharing = 0, "None", "", Json()
    consumers: dict[tuple[str, str], Json] = {}
    for dispatcher in dispatchers:
        delayed += dispatcher.delayed
        kind = dispatcher.kind.value
        ranges: dict[Consumer, list[tuple[int, int]]] = {}
        if isinstance(dispatcher, KeySharedDispatcher):
            sharing = key_sharing(dispatcher)
            ranges = key_ranges(dispatcher)
        elif isinstance(dispatcher, OrderedDispatcher) and dispatcher.active is not None:
            active = active or dispatcher.active.name
        for consumer in dispatcher.consumers:
            key = (consumer.protocol, consumer.identity)
            shown = consumers.setdefault(key, connected_consumer(consumer))
            add_counts(shown, consumer)
            add_rates(shown, consumer, (dispatcher.partition.partition_id, dispatcher.name), meter)
            if consumer in ranges:
                shown["keyHashRangeArrays"] = ranges[consumer]
            if sharing:
                shown["drainingHashes"] = []
    consumers |= members
    shown_all = list(consumers.values())
    summed = ("msgOutCounter", "bytesOutCounter", "unackedMessages", *CONSUMER_RATES)
    latest = ("lastConsumedFlowTimestamp", "lastConsumedTimestamp", "lastAckedTimestamp")
    return (
        blank_stats.SUBSCRIPTION
        | {name: sum(shown[name] for shown in shown_all) for name in summed}
        | {name: max((shown[name] for shown in shown_all), default=0) for name in latest}
        | {
            "msgExpired": 0,
            "totalMsgExpired": 0,
            "msgRateExpired": 0.0,
            "msgBacklog": backlog,
            "backlogSize": 0,
            EARLIEST: 0,
            "msgBacklogNoDelayed": max(backlog - delayed, 0),
            "msgDelayed": delayed,
            "blockedSubscriptionOnUnackedMsgs": any(source.is_blocked for source in dispatchers),
            "type": kind,
            "activeConsumerName": active,
            "consumers": shown_all,
            "isDurable": False,
            "durable": False,
            "isReplicated": False,
            "replicated": False,
            "allowOutOfOrderDelivery": False,
            "subscriptionProperties": {},
            **sharing,
        }
    )


def _other_members(
    broker: Broker, subscription: Subscription, partitions: Sequence[Partition]
) -> Iterator[tuple[tuple[str, str], Json]]:
    """Yield members of Kafka's and Iggy's groups of the same name, as consumers without
    messages.
    """
    topic = subscription.topic
    indexes = {partition.index for partition in partitions}
    for member in broker.members.of(topic, subscription.name):
        is_all = len(indexes) == len(topic.partitions)
        if not member.is_delivered_to and (is_all or indexes.intersection(member.partitions)):
            shown = consumer_stats(member.name)
            shown |= {"address": member.address, "metadata": {"protocol": member.protocol}}
            yield (member.protocol, member.name), shown
