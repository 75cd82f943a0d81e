"""A partition's ledger and cursors in Pulsar's admin API: `internalStats`, by Pulsar's ids.

A partition is a single ledger, which counts messages as entries. Knows no request.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from braidlog.broker.reading import entries
from braidlog.protocols.http.pulsar_admin import blank_figures
from braidlog.protocols.http.pulsar_admin.properties import OF_TOPIC, properties_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from braidlog.broker.broker import Broker
    from braidlog.broker.positions.subscriptions import Subscription
    from braidlog.broker.topics.partition import Partition
    from braidlog.broker.topics.topic import Topic

Json = dict[str, Any]
NO_ENTRY = -1
RANGES_SHOWN_MAX = 100


async def internal_stats(
    broker: Broker, topic: Topic, partition: Partition, names: Sequence[bytes]
) -> Json:
    """Return a partition's ledger, and the cursors in `names`."""
    last = await entries.last_entry(partition)
    ledger = partition.partition_id
    count = partition.next_offset - partition.log_start_offset
    cursors: Json = {}
    for name in names:
        subscription = broker.subscriptions.find(topic, name)
        if subscription is not None:
            text_name = name.decode(errors="backslashreplace")
            cursors[text_name] = await _cursor(broker, subscription, partition)
    sizes = {"entries": count, "size": partition.size_bytes}
    return blank_figures.INTERNAL | {
        "entriesAddedCounter": partition.next_offset,
        "numberOfEntries": count,
        "totalSize": partition.size_bytes,
        "currentLedgerEntries": count,
        "currentLedgerSize": partition.size_bytes,
        "lastLedgerCreatedTimestamp": date_text(topic.meta.created_us),
        "waitingCursorsCount": sum(cursor["waitingReadOp"] for cursor in cursors.values()),
        "lastConfirmedEntry": f"{ledger}:{NO_ENTRY if last is None else last.offset}",
        "state": "Terminated" if partition.is_terminated else "LedgerOpened",
        "ledgers": [{**blank_figures.NO_LEDGER, "ledgerId": ledger, **sizes}],
        "cursors": cursors,
        "properties": properties_of(topic.meta.settings, OF_TOPIC),
        "schemaLedgers": [],
        "compactedLedger": dict(blank_figures.NO_LEDGER),
    }


async def _cursor(broker: Broker, subscription: Subscription, partition: Partition) -> Json:
    position = subscription.position(partition.index) or 0
    deleted = await entries.last_ended(partition, position)
    ledger = partition.partition_id
    acked = list(subscription.acked(partition.index))
    ranges = [
        f"({ledger}:{start - 1}..{ledger}:{end - 1}]" for start, end in acked[:RANGES_SHOWN_MAX]
    ]
    dispatcher = broker.dispatchers.find(partition, subscription.name)
    consumers = () if dispatcher is None else dispatcher.consumers
    waits = position >= partition.high_watermark and any(c.can_take for c in consumers)
    return blank_figures.INTERNAL_CURSOR | {
        "markDeletePosition": f"{ledger}:{NO_ENTRY if deleted is None else deleted.offset}",
        "readPosition": f"{ledger}:{position}",
        "waitingReadOp": waits,
        "messagesConsumedCounter": position,
        "individuallyDeletedMessages": f"[{', '.join(ranges)}]",
        "lastLedgerSwitchTimestamp": date_text(subscription.topic.meta.created_us),
        "state": "Open",
        "active": bool(consumers),
        "numberOfEntriesSinceFirstNotAckedMessage": partition.next_offset - position,
        "totalNonContiguousDeletedMessagesRange": len(acked),
        "subscriptionHavePendingRead": waits,
        "properties": {},
    }


def date_text(time_us: int) -> str:
    """Return a time in the form of Java's dates."""
    date = datetime.fromtimestamp(time_us // 1000 / 1000, UTC)
    return date.isoformat(timespec="milliseconds").replace("+00:00", "Z")
