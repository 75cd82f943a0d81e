"""Clients that write or read as fast as they can, and count for some seconds.

Each load returns the number of messages that were answered or received within the time.
"""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable
from typing import Final

import confluent_kafka
import httpx
import pulsar

from conformance.clients.raw.iggy import IggyWire
from conformance.clients.raw.websocket import WebSocketClient
from conformance.policies.place import SUBSCRIPTION, Place

PAYLOAD: Final = b"x" * 1000
UNANSWERED: Final = 25  # Messages that a writer sends ahead: they pass before the rate holds.
RECEIVED_MS: Final = 200

Load = Callable[[Place, str, float], int]


class CountWindow:
    """Counts until the time is over."""

    def __init__(self, seconds: float) -> None:
        self.end_s = time.monotonic() + seconds
        self.count = 0
        self._lock = threading.Lock()

    @property
    def is_open(self) -> bool:
        """True until the time is over."""
        return time.monotonic() < self.end_s

    def add(self, count: int = 1) -> None:
        """Count messages, if the time is not over."""
        if self.is_open:
            with self._lock:
                self.count += count


def write_pulsar(place: Place, topic: str, seconds: float) -> int:
    """Write with pulsar-client, one message a SEND."""
    client = place.client()
    try:
        producer = client.create_producer(
            topic,
            batching_enabled=False,
            max_pending_messages=UNANSWERED,
            block_if_queue_full=True,
            send_timeout_millis=0,
        )
        window = CountWindow(seconds)

        def answered(result: pulsar.Result, _: pulsar.MessageId) -> None:
            if result == pulsar.Result.Ok:
                window.add()

        while window.is_open:
            producer.send_async(PAYLOAD, answered)
        return window.count
    finally:
        client.close()


def write_websocket(place: Place, topic: str, seconds: float) -> int:
    """Write over WebSocket, some messages ahead of the answers."""
    socket = WebSocketClient(place.url, f"/ws/v2/producer/persistent/{topic}")
    text = json.dumps({"payload": base64.b64encode(PAYLOAD).decode()})
    window, waiting = CountWindow(seconds), 0
    while window.is_open:
        while waiting < UNANSWERED:
            socket.send(text)
            waiting += 1
        if '"ok"' in str(socket.receive(seconds + 10)):
            window.add()
        waiting -= 1
    socket.close()
    return window.count


def write_http(place: Place, topic: str, seconds: float) -> int:
    """Write by requests of PIP-64, some messages each."""
    body = {"schema_type": "STRING", "messages": [{"value": PAYLOAD.decode()}] * UNANSWERED}
    window = CountWindow(seconds)
    with httpx.Client(base_url=place.url, timeout=seconds + 10) as client:
        while window.is_open:
            answer = client.post(f"/topics/{topic}", json=body).raise_for_status()
            window.add(len(answer.json()["messageIds"]))
    return window.count


def write_kafka(place: Place, topic: str, seconds: float) -> int:
    """Write with librdkafka, small batches."""
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": place.addresses["kafka"],
            "batch.num.messages": UNANSWERED,
            "queue.buffering.max.messages": UNANSWERED,
            "log_level": 0,
        }
    )
    name, window = topic.rpartition("/")[2], CountWindow(seconds)

    def answered(error: confluent_kafka.KafkaError | None, _: confluent_kafka.Message) -> None:
        if error is None:
            window.add()

    while window.is_open:
        try:
            producer.produce(name, PAYLOAD, on_delivery=answered)
            producer.poll(0)
        except BufferError:
            producer.poll(0.02)
    producer.purge()
    producer.flush(1)
    return window.count


def write_iggy(place: Place, topic: str, seconds: float) -> int:
    """Write by Iggy's SEND, some messages each."""
    host, _, port = place.addresses["iggy"].rpartition(":")
    name, window = topic.rpartition("/")[2], CountWindow(seconds)
    with IggyWire((host, int(port)), timeout_s=seconds + 10) as wire:
        while window.is_open:
            wire.send_messages(name, [(0, [], PAYLOAD)] * UNANSWERED)
            window.add(UNANSWERED)
    return window.count


def read_pulsar(kind: pulsar.ConsumerType, place: Place, topic: str, seconds: float) -> int:
    """Read with pulsar-client and a subscription of that kind."""
    client = place.client()
    try:
        consumer = client.subscribe(
            topic,
            SUBSCRIPTION,
            kind,
            receiver_queue_size=UNANSWERED,
            initial_position=pulsar.InitialPosition.Earliest,
        )
        window = CountWindow(seconds)
        while window.is_open:
            try:
                consumer.acknowledge(consumer.receive(RECEIVED_MS))
                window.add()
            except pulsar.Timeout:
                continue
        return window.count
    finally:
        client.close()


def read_websocket(place: Place, topic: str, seconds: float) -> int:
    """Read over WebSocket."""
    query = "?subscriptionType=Shared&subscriptionInitialPosition=Earliest"
    target = f"/ws/v2/consumer/persistent/{topic}/readers{query}"
    socket = WebSocketClient(place.url, target)
    window = CountWindow(seconds)
    while window.is_open:
        try:
            message = json.loads(socket.receive(RECEIVED_MS / 1000))
        except TimeoutError:
            continue
        socket.send(json.dumps({"messageId": message["messageId"]}))
        window.add()
    socket.close()
    return window.count


def read_http(place: Place, topic: str, seconds: float) -> int:
    """Read with a consumer of PIP-64."""
    path = f"/topics/{topic}/subscription/readers"
    with httpx.Client(base_url=place.url, timeout=seconds + 10) as client:
        wanted = {"initial_position": "Earliest", "subscription_type": "Shared"}
        consumer = client.post(path, json=wanted).raise_for_status().json()["id"]
        window = CountWindow(seconds)
        while window.is_open:
            query = {"timeout": RECEIVED_MS, "max_messages": UNANSWERED}
            answer = client.get(f"{path}/consumer/{consumer}/messages", params=query)
            ids = [message["messageId"] for message in answer.raise_for_status().json()["messages"]]
            if ids:
                client.post(f"{path}/cursor", json={"type": "individual", "messageIds": ids})
                window.add(len(ids))
        client.delete(f"{path}/consumer/{consumer}")
    return window.count


def fill(place: Place, topic: str, count: int) -> None:
    """Store messages, each an entry of its own for every protocol."""
    client = place.client()
    producer = client.create_producer(topic, batching_enabled=False, block_if_queue_full=True)
    for _ in range(count):
        producer.send_async(PAYLOAD, lambda *_: None)
    producer.flush()
    client.close()
