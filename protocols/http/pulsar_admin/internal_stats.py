"""A partition's ledger and cursors in Pulsar's admin API: `internalStats`, by Pulsar's ids.

A partition is a single ledger, which counts messages as entries. Knows no request.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from braidlog.broker.reading import entries
from braidlog.protocols.http.pulsar_admin import blank_stats
from braidlog.protocols.http.pulsar_admin.names import shown_name
from braidlog.protocols.http.pulsar_admin.properties import OF_TOPIC, properties_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from braidlog.broker.broker import Broker
    from braidlog.broker.delivery.dispatcher import Dispatcher
    from braidlog.broker.topics.partition import Partition
    from braidlog.broker.topics.topic import Topic

Json = dict[str, Any]
NO_ENTRY = -1
RANGES_SHOWN_MAX = 100


async def internal_stats(
    broker: Broker,
    topic: Topic,
    partition: Partition,
    names: Sequence[bytes],
    sees: Callable[[bytes], bool],
) -> Json:
    """Return a partition's ledger, the cursors in `names`, and those of the readers that `sees`
    accepts.
    """
    last = await entries.last_entry(partition)
    ledger = partition.partition_id
    count = partition.next_offset - partition.log_start_offset
    cursors: Json = {}
    for name in names:
        subscription = broker.subscriptions.find(topic, name)
        if subscription is not None:
            dispatcher = broker.dispatchers.find(partition, name)
            acked = list(subscription.acked(partition.index))
            position = subscription.position(partition.index) or 0
            cursors[shown_name(name)] = await _cursor(partition, position, acked, dispatcher)
    for dispatcher in broker.dispatchers.on(partition):
        if dispatcher.consumers and not dispatcher.cursor.is_durable and sees(dispatcher.name):
            position = dispatcher.cursor.position
            cursors[shown_name(dispatcher.name)] = await _cursor(
                partition, position, (), dispatcher
            )
    sizes = {"entries": count, "size": partition.size_bytes}
    return blank_stats.INTERNAL | {
        "entriesAddedCounter": partition.next_offset,
        "numberOfEntries": count,
        "totalSize": partition.size_bytes,
        "currentLedgerEntries": count,
        "currentLedgerSize": partition.size_bytes,
        "lastLedgerCreatedTimestamp": date_text(topic.meta.created_us),
        "waitingCursorsCount": sum(cursor["waitingReadOp"] for cursor in cursors.values()),
        "lastConfirmedEntry": f"{ledger}:{NO_ENTRY if last is None else last.offset}",
        "state": "Terminated" if partition.is_terminated else "LedgerOpened",
        "ledgers": [{**blank_stats.NO_LEDGER, "ledgerId": ledger, **sizes}],
        "cursors": cursors,
        "properties": properties_of(topic.meta.settings, OF_TOPIC),
        "schemaLedgers": _schema_ledgers(topic),
        "compactedLedger": dict(blank_stats.NO_LEDGER),
    }


def _schema_ledgers(topic: Topic) -> list[Json]:
    """Return the ledger that `schemas/T/metadata` names: its entries are the versions."""
    schemas = topic.meta.schemas
    sizes = {"entries": len(schemas), "size": sum(len(schema.data) for schema in schemas)}
    named = {**blank_stats.NO_LEDGER, "ledgerId": topic.meta.topic_id, **sizes}
    return [named] if schemas else []


async def _cursor(
    partition: Partition,
    position: int,
    acked: Sequence[tuple[int, int]],
    dispatcher: Dispatcher | None,
) -> Json:
    deleted = await entries.last_ended(partition, position)
    ledger = partition.partition_id
    ranges = [
        f"({ledger}:{start - 1}..{ledger}:{end - 1}]" for start, end in acked[:RANGES_SHOWN_MAX]
    ]
    consumers = () if dispatcher is None else dispatcher.consumers
    read = dispatcher.read_position if dispatcher is not None and consumers else position
    waits = read >= partition.high_watermark and any(c.can_take for c in consumers)
    return blank_stats.INTERNAL_CURSOR | {
        "markDeletePosition": f"{ledger}:{NO_ENTRY if deleted is None else deleted.offset}",
        "readPosition": f"{ledger}:{read}",
        "waitingReadOp": waits,
        "messagesConsumedCounter": position + sum(end - start for start, end in acked),
        "individuallyDeletedMessages": f"[{','.join(ranges)}]",
        "lastLedgerSwitchTimestamp": date_text(partition.topic.created_us),
        "state": "Open",
        "active": bool(consumers),
        # As Apache: from the mark-delete position, exclusive, to the read position, inclusive.
        "numberOfEntriesSinceFirstNotAckedMessage": read - position + 1,
        "totalNonContiguousDeletedMessagesRange": len(acked),
        "subscriptionHavePendingRead": waits,
        "properties": {},
    }


def date_text(time_us: int) -> str:
    """Return a time in the form of Java's dates."""
    date = datetime.fromtimestamp(time_us // 1000 / 1000, UTC)
    return date.isoformat(timespec="milliseconds").replace("+00:00", "Z")
