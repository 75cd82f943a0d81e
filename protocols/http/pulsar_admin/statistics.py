"""Figures of topics in Pulsar's admin API: `stats`, `partitioned-stats`, `internalStats`.

All fields that tools read are present; unknown figures and all rates are 0. Knows topics and
subscriptions, no request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from braidlog.broker.delivery.exclusive import OrderedDispatcher
from braidlog.broker.delivery.key_shared import KeySharedDispatcher
from braidlog.broker.reading import entries
from braidlog.broker.reading.records import read_records
from braidlog.protocols.http.pulsar_admin.names import full_name
from braidlog.protocols.http.pulsar_admin.openers import (
    connected_consumer,
    consumer_stats,
    key_sharing,
    publisher_stats,
)
from braidlog.protocols.http.turns import in_turns

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.broker.delivery.dispatcher import Dispatcher
    from braidlog.broker.positions.subscriptions import Subscription
    from braidlog.broker.topics.partition import Partition
    from braidlog.broker.topics.publishers import OpenProducer
    from braidlog.broker.topics.topic import Topic

Json = dict[str, Any]
RATES = ("msgRateIn", "msgThroughputIn", "msgRateOut", "msgThroughputOut")
NO_ENTRY = NO_TIME = -1
EARLIEST = "earliestMsgPublishTimeInBacklog"


async def topic_stats(
    broker: Broker,
    topic: Topic,
    partitions: Sequence[Partition],
    names: Sequence[bytes],
    sees: Callable[[bytes], bool],
    *,
    with_times: bool = False,
) -> Json:
    """Return figures of a topic or a partition, of the subscriptions in `names`, and of named
    readers that the client may see.

    With `with_times` also return the publish time of the first message of each backlog, which costs
    a read.
    """
    stored = sum(partition.size_bytes for partition in partitions)
    subscriptions: Json = {}
    for name in names:
        subscription = broker.subscriptions.find(topic, name)
        if subscription is not None:  # Otherwise deleted meanwhile.
            text_name = name.decode(errors="backslashreplace")
            figures = await _subscription(broker, subscription, partitions)
            if with_times:
                figures[EARLIEST] = await _earliest_ms(subscription, partitions)
            subscriptions[text_name] = figures
    publishers: list[OpenProducer] = []
    readers: dict[bytes, list[Dispatcher]] = {}
    async for partition in in_turns(partitions):
        publishers += broker.publishers.of(partition.partition_id)
        for dispatcher in broker.dispatchers.on(partition):
            if dispatcher.consumers and not dispatcher.cursor.is_durable and sees(dispatcher.name):
                readers.setdefault(dispatcher.name, []).append(dispatcher)
    subscriptions |= {_text(name): _reader(dispatchers) for name, dispatchers in readers.items()}
    total, full = broker.metrics.topic_total, topic.name.full
    is_deduplicated = broker.topics.is_deduplicated(topic)
    is_whole = len(partitions) == len(topic.partitions)
    return dict.fromkeys(RATES, 0.0) | {
        "msgInCounter": total("braidlog_records_in", full) if is_whole else 0,
        "bytesInCounter": total("braidlog_bytes_in", full) if is_whole else 0,
        "msgOutCounter": total("braidlog_records_out", full) if is_whole else 0,
        "bytesOutCounter": total("braidlog_bytes_out", full) if is_whole else 0,
        "averageMsgSize": 0.0,
        "msgChunkPublished": False,
        "storageSize": stored,
        "backlogSize": await _backlog_bytes(broker, topic, partitions, names),
        "subscriptions": subscriptions,
        "replication": {},
        "deduplicationStatus": "Enabled" if is_deduplicated else "Disabled",
        "topicEpoch": topic.meta.topic_epoch,
        "topicCreationTimeStamp": topic.meta.created_us // 1000,
        "ownerBroker": "",
        **publisher_stats(publishers),
    }


async def partitioned_stats(
    broker: Broker,
    topic: Topic,
    names: Sequence[bytes],
    sees: Callable[[bytes], bool],
    *,
    per_partition: bool,
    with_times: bool = False,
) -> Json:
    """Return the sum of all partitions, and the figures of each if `per_partition`."""
    stats = await topic_stats(
        broker, topic, tuple(topic.partitions), names, sees, with_times=with_times
    )
    stats["metadata"] = {"partitions": len(topic.partitions) if topic.partitioned else 0}
    stats["partitions"] = {}
    if per_partition:
        async for partition in in_turns(tuple(topic.partitions)):
            part_stats = await topic_stats(
                broker, topic, (partition,), names, sees, with_times=with_times
            )
            stats["partitions"][full_name(topic, partition.index)] = part_stats
    return stats


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
    broker: Broker, subscription: Subscription, partitions: Sequence[Partition]
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
        "braidlog_expired_records", subscription.topic.name.full, _text(subscription.name)
    )
    return _figures(dispatchers, members, backlog) | {
        "backlogSize": size,
        "totalMsgExpired": expired,
        "isDurable": True,
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


def _reader(dispatchers: Sequence[Dispatcher]) -> Json:
    """Return figures of a reader, from its dispatchers of all partitions."""
    behind = (
        dispatcher.partition.high_watermark - dispatcher.cursor.position
        for dispatcher in dispatchers
    )
    return _figures(dispatchers, {}, sum(max(distance, 0) for distance in behind))


def _figures(
    dispatchers: Sequence[Dispatcher], members: Mapping[tuple[str, str], Json], backlog: int
) -> Json:
    """Return figures of a subscription or reader; `members` do not receive by dispatchers."""
    delayed, kind, active, sharing = 0, "None", "", Json()
    consumers: dict[tuple[str, str], Json] = {}
    for dispatcher in dispatchers:
        delayed += dispatcher.delayed
        kind = dispatcher.kind.value
        if isinstance(dispatcher, KeySharedDispatcher):
            sharing = key_sharing(dispatcher)
        elif isinstance(dispatcher, OrderedDispatcher) and dispatcher.active is not None:
            active = active or dispatcher.active.name
        for consumer in dispatcher.consumers:
            key = (consumer.protocol, consumer.identity)
            shown = consumers.setdefault(key, connected_consumer(consumer))
            shown["msgOutCounter"] += consumer.messages_out
            shown["bytesOutCounter"] += consumer.bytes_out
            shown["unackedMessages"] += consumer.unacked
            shown["availablePermits"] += consumer.permits
            shown["blockedConsumerOnUnackedMsgs"] |= consumer.is_blocked
    consumers |= members
    return {
        "msgRateOut": 0.0,
        "msgThroughputOut": 0.0,
        "msgRateRedeliver": 0.0,
        "msgRateExpired": 0.0,
        "totalMsgExpired": 0,
        "messageAckRate": 0.0,
        "msgOutCounter": sum(shown["msgOutCounter"] for shown in consumers.values()),
        "bytesOutCounter": sum(shown["bytesOutCounter"] for shown in consumers.values()),
        "msgBacklog": backlog,
        "backlogSize": 0,
        "msgBacklogNoDelayed": max(backlog - delayed, 0),
        "msgDelayed": delayed,
        "unackedMessages": sum(shown["unackedMessages"] for shown in consumers.values()),
        "blockedSubscriptionOnUnackedMsgs": any(source.is_blocked for source in dispatchers),
        "type": kind,
        "activeConsumerName": active,
        "consumers": list(consumers.values()),
        "isDurable": False,
        "isReplicated": False,
        "nonContiguousDeletedMessagesRanges": 0,
        "allowOutOfOrderDelivery": False,
        "subscriptionProperties": {},
        **sharing,
    }


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


def _text(name: bytes) -> str:
    return name.decode(errors="backslashreplace")


async def internal_stats(
    broker: Broker, topic: Topic, partition: Partition, names: Sequence[bytes]
) -> Json:
    """Return a partition's ledger and the cursors in `names`, by Pulsar's ids."""
    last = await entries.last_entry(partition)
    ledger = partition.partition_id
    count = partition.next_offset - partition.log_start_offset
    cursors: Json = {}
    for name in names:
        subscription = broker.subscriptions.find(topic, name)
        if subscription is not None:
            text_name = name.decode(errors="backslashreplace")
            cursors[text_name] = await _cursor(subscription, partition)
    return {
        "entriesAddedCounter": partition.next_offset,
        "numberOfEntries": count,
        "totalSize": partition.size_bytes,
        "currentLedgerEntries": count,
        "currentLedgerSize": partition.size_bytes,
        "waitingCursorsCount": 0,
        "pendingAddEntriesCount": 0,
        "lastConfirmedEntry": f"{ledger}:{NO_ENTRY if last is None else last.offset}",
        "state": "LedgerOpened",
        "ledgers": [
            {
                "ledgerId": ledger,
                "entries": count,
                "size": partition.size_bytes,
                "offloaded": False,
                "underReplicated": False,
            }
        ],
        "cursors": cursors,
        "schemaLedgers": [],
        "compactedLedger": {"ledgerId": -1, "entries": -1, "size": -1, "offloaded": False},
    }


async def _cursor(subscription: Subscription, partition: Partition) -> Mapping[str, Any]:
    position = subscription.position(partition.index) or 0
    deleted = await entries.last_ended(partition, position)
    ledger = partition.partition_id
    ranges = [
        f"({ledger}:{start - 1}..{ledger}:{end - 1}]"
        for start, end in list(subscription.acked(partition.index))[:100]
    ]
    return {
        "markDeletePosition": f"{ledger}:{NO_ENTRY if deleted is None else deleted.offset}",
        "readPosition": f"{ledger}:{position}",
        "waitingReadOp": False,
        "pendingReadOps": 0,
        "messagesConsumedCounter": position,
        "cursorLedger": -1,
        "cursorLedgerLastEntry": -1,
        "individuallyDeletedMessages": f"[{', '.join(ranges)}]",
        "lastLedgerSwitchTimestamp": "",
        "state": "Open",
        "numberOfEntriesSinceFirstNotAckedMessage": partition.next_offset - position,
        "totalNonContiguousDeletedMessagesRange": len(ranges),
        "properties": {},
    }
