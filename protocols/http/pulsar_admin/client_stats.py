"""Producers, consumers and their clients' addresses, in Pulsar's statistics."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from braidlog.broker.delivery.key_slots import KeyRanges, KeyRing
from braidlog.protocols.http.pulsar_admin import blank_stats
from braidlog.protocols.http.pulsar_admin.internal_stats import date_text

if TYPE_CHECKING:
    from braidlog.broker.delivery.consumer import Consumer
    from braidlog.broker.delivery.key_shared import KeySharedDispatcher
    from braidlog.broker.topics.shown_producers import ShownProducer
    from braidlog.protocols.http.pulsar_admin.traffic_meter import TrafficMeter

Json = dict[str, Any]
CONSUMER_RATES: Final = ("msgRateOut", "msgThroughputOut", "msgRateRedeliver", "messageAckRate")
# Apache's names of a consumer's times, and the choice between those of several partitions.
TIMES: Final[Mapping[str, tuple[str, Callable[[int, int], int]]]] = {
    "lastConsumedFlowTimestamp": ("flow_us", max),
    "firstConsumedFlowTimestamp": ("first_flow_us", min),
    "lastConsumedTimestamp": ("sent_us", max),
    "firstMessagesSentTimestamp": ("first_sent_us", min),
    "lastAckedTimestamp": ("acked_us", max),
}


def publisher_stats(publishers: Iterable[ShownProducer]) -> Json:
    """Return the fields of a topic about its producers. A producer of several partitions counts
    once.
    """
    shown: dict[tuple[str, str], Json] = {}
    waiting = set()
    for publisher in publishers:
        key = (publisher.address, publisher.name)
        if publisher.is_waiting:
            waiting.add(key)
        else:
            shown[key] = {
                "accessMode": publisher.access_mode,
                "msgRateIn": 0.0,
                "msgThroughputIn": 0.0,
                "averageMsgSize": 0.0,
                "chunkedMessageRate": 0.0,
                "producerId": publisher.producer_id,
                "supportsPartialProducer": False,
                "producerName": publisher.name,
            } | _client(
                publisher.address,
                publisher.client_version,
                publisher.connected_us,
                publisher.metadata,
            )
    return {"publishers": list(shown.values()), "waitingPublishers": len(waiting)}


def consumer_stats(name: str) -> Json:
    """Return the statistics of a consumer that has received no messages."""
    return blank_stats.CONSUMER | {
        "consumerName": name,
        **dict.fromkeys(CONSUMER_RATES, 0.0),
        "msgOutCounter": 0,
        "bytesOutCounter": 0,
        "unackedMessages": 0,
        "availablePermits": 0,
        "avgMessagesPerEntry": 0,
        "blockedConsumerOnUnackedMsgs": False,
        **dict.fromkeys(TIMES, 0),
        "lastAckedTime": date_text(0),
        "lastConsumedTime": date_text(0),
        "metadata": {},
    }


def connected_consumer(consumer: Consumer) -> Json:
    """Return statistics of a connected consumer without counts (`add_counts`): its client, as far
    as known, and its key ranges.
    """
    shown = consumer_stats(consumer.name) | _client(
        consumer.address, consumer.client_version, consumer.connected_us, consumer.metadata
    )
    if consumer.key_ranges:
        shown["keyHashRangeArrays"] = [list(key_range) for key_range in consumer.key_ranges]
    return shown


def add_counts(shown: Json, consumer: Consumer) -> None:
    """Add a consumer's counts and times: a consumer of several partitions is shown once."""
    shown["msgOutCounter"] += consumer.messages_out
    shown["bytesOutCounter"] += consumer.bytes_out
    shown["unackedMessages"] += consumer.unacked
    shown["availablePermits"] += consumer.permits
    shown["blockedConsumerOnUnackedMsgs"] |= consumer.is_blocked
    if consumer.entries_out:
        average = round(consumer.messages_out / consumer.entries_out)
        shown["avgMessagesPerEntry"] = max(shown["avgMessagesPerEntry"], average)
    for name, (field, choose) in TIMES.items():
        time_ms = getattr(consumer.times, field) // 1000
        shown[name] = choose(shown[name] or time_ms, time_ms or shown[name])
    shown["lastAckedTime"] = date_text(shown["lastAckedTimestamp"] * 1000)
    shown["lastConsumedTime"] = date_text(shown["lastConsumedTimestamp"] * 1000)


def add_rates(shown: Json, consumer: Consumer, place: Hashable, meter: TrafficMeter) -> None:
    """Add a consumer's rates on a partition; `place` is the partition and the subscription."""
    key = (place, consumer.protocol, consumer.identity, consumer.connected_us)
    counts = (
        consumer.messages_out,
        consumer.bytes_out,
        consumer.messages_redelivered,
        consumer.messages_acked,
    )
    rates = meter.rates(key, counts, consumer.connected_us)
    for name, rate in zip(CONSUMER_RATES, rates, strict=True):
        shown[name] += rate


def key_ranges(dispatcher: KeySharedDispatcher) -> dict[Consumer, list[tuple[int, int]]]:
    """Return the key ranges that the broker assigned to each consumer; empty if the consumers
    chose their own.
    """
    return dispatcher.policy.ranges() if isinstance(dispatcher.policy, KeyRing) else {}


def key_sharing(dispatcher: KeySharedDispatcher) -> Json:
    """Return the way in which a Key_Shared subscription assigns keys to its consumers."""
    return {
        "keySharedMode": "STICKY" if isinstance(dispatcher.policy, KeyRanges) else "AUTO_SPLIT",
        "allowOutOfOrderDelivery": not dispatcher.in_order,
    }


def _client(address: str, version: str, connected_us: int, metadata: Mapping[str, str]) -> Json:
    shown: Json = {"metadata": dict(metadata)}
    if address:
        shown["address"] = f"/{address}"  # The form of Java's addresses.
    if version:
        shown["clientVersion"] = version
    if connected_us:
        connected = datetime.fromtimestamp(connected_us / 1_000_000, UTC)
        shown["connectedSince"] = connected.isoformat().replace("+00:00", "Z")
    return shown
