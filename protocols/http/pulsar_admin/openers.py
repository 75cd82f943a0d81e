"""Producers, consumers and their clients' addresses, in Pulsar's statistics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from braidlog.broker.delivery.key_slots import KeyRanges

if TYPE_CHECKING:
    from braidlog.broker.delivery.consumer import Consumer
    from braidlog.broker.delivery.key_shared import KeySharedDispatcher
    from braidlog.broker.topics.publishers import OpenProducer

Json = dict[str, Any]


def publisher_stats(publishers: Iterable[OpenProducer]) -> Json:
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
    """Return the figures of a consumer that has received no messages."""
    return {
        "consumerName": name,
        "msgRateOut": 0.0,
        "msgThroughputOut": 0.0,
        "msgRateRedeliver": 0.0,
        "messageAckRate": 0.0,
        "msgOutCounter": 0,
        "bytesOutCounter": 0,
        "unackedMessages": 0,
        "availablePermits": 0,
        "blockedConsumerOnUnackedMsgs": False,
        "metadata": {},
    }


def connected_consumer(consumer: Consumer) -> Json:
    """Return the figures of a connected consumer, with its client, as far as known, and its key
    ranges.
    """
    shown = consumer_stats(consumer.name) | _client(
        consumer.address, consumer.client_version, consumer.connected_us, consumer.metadata
    )
    if consumer.key_ranges:
        shown["keyHashRangeArrays"] = [list(key_range) for key_range in consumer.key_ranges]
    return shown


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
