"""Limits: as many clients as allowed are served, and the next gets Apache's error."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import httpx
import pulsar

from conformance.clients.raw.websocket import UpgradeRefused, WebSocketClient
from conformance.policies.place import ANSWER_S, Place, PolicyFailed, namespace_of, set_up

# The allowed number, by level: each level differs, so that the nearest is seen to hold.
ALLOWED: Final = {"broker": 2, "namespace": 3, "topic": 4}
# The largest is first: pulsar-client refuses by itself what the broker's setting forbids.
MESSAGE_BYTES: Final = {"broker": 4000, "topic": 2000}
SILENCE_MS: Final = 500
# C++ (Python) tries again after some errors, at Apache too: its error is then a timeout.
RETRIED_S: Final = 3
Probe = Callable[[Place, str, int], None]


@dataclass(frozen=True, slots=True)
class LimitCheck:
    """A policy with a limit, and the clients that try to exceed it. `broker` is the setting."""

    policy: str
    probe: Probe
    broker: str = ""
    levels: Sequence[str] = ("broker", "namespace", "topic")
    body: Callable[[int], object] = int
    allowed: Mapping[str, int] = field(default_factory=lambda: ALLOWED)

    @property
    def settings(self) -> Iterator[str]:
        """The settings of the broker."""
        if self.broker:
            yield f"topics.{self.broker}={self.allowed['broker']}"

    def topic(self, level: str) -> str:
        """Return the topic for a level."""
        return f"{namespace_of(level, self.policy)}/limited"

    def prepare(self, place: Place) -> None:
        """Set the policy at each level."""
        for level in self.levels:
            set_up(place, level, self.policy, self.body(self.allowed[level]), self.topic(level))

    def faults(self, place: Place) -> Iterator[str]:
        """Yield what does not hold."""
        for level in self.levels:
            try:
                self.probe(place, self.topic(level), self.allowed[level])
            except (AssertionError, OSError, pulsar.PulsarException, httpx.HTTPError) as error:
                yield f"{self.policy} of a {level}: {type(error).__name__}: {error}"


@contextmanager
def refusal(*names: str) -> Iterator[None]:
    """Demand an exception of pulsar-client with such a name. Raises PolicyFailed."""
    try:
        yield
    except pulsar.PulsarException as error:
        if type(error).__name__ not in names:
            raise PolicyFailed(f"refused by {type(error).__name__}, not {names}") from error
    else:
        raise PolicyFailed(f"served, not refused by {names}")


@contextmanager
def client_of(place: Place, patience_s: int = ANSWER_S) -> Iterator[pulsar.Client]:
    """Yield a client, which ends with all its producers and consumers."""
    client = place.client(patience_s)
    try:
        yield client
    finally:
        client.close()


def websocket_is_refused(place: Place, target: str, status: int, text: str) -> None:
    """Demand an answer before the 101. Raises PolicyFailed."""
    try:
        WebSocketClient(place.url, target).close()
    except UpgradeRefused as error:
        if error.status != status or text not in error.body:
            raise PolicyFailed(f"WebSocket: {error.status} {error.body}, not {text}") from error
    else:
        raise PolicyFailed("WebSocket: served")


def http_is_refused(place: Place, path: str, body: object, status: int, text: str) -> None:
    """Demand an error of PIP-64. Raises PolicyFailed."""
    answer = httpx.post(f"{place.url}/topics/{path}", json=body, timeout=ANSWER_S)
    if answer.status_code != status or text not in answer.text:
        raise PolicyFailed(f"HTTP: {answer.status_code} {answer.text}, not {status} {text}")


def subscribe(client: pulsar.Client, topic: str, name: str, **options: Any) -> pulsar.Consumer:
    """Attach a Shared consumer."""
    return client.subscribe(topic, name, pulsar.ConsumerType.Shared, **options)


def producers(place: Place, topic: str, allowed: int) -> None:
    """Open producers."""
    with client_of(place) as client:
        for _ in range(allowed):
            client.create_producer(topic)
        with refusal("ProducerBusy"):
            client.create_producer(topic)
        text = "reached max producers limit"
        websocket_is_refused(place, f"/ws/v2/producer/persistent/{topic}", 409, text)


def consumers(place: Place, topic: str, allowed: int, *, of_topic: bool) -> None:
    """Attach consumers, of as many subscriptions or of one."""
    text = "Topic reached max consumers" if of_topic else "Subscription reached max consumers limit"
    with client_of(place) as client:
        for number in range(allowed):
            subscribe(client, topic, f"s{number}" if of_topic else "s0")
        with refusal("ConsumerBusy"):
            subscribe(client, topic, "s0")
        query = "?subscriptionType=Shared"
        websocket_is_refused(place, f"/ws/v2/consumer/persistent/{topic}/s0{query}", 409, text)
        http_is_refused(place, f"{topic}/subscription/s0", {}, 409, text)


def subscriptions(place: Place, topic: str, allowed: int) -> None:
    """Create subscriptions, which stay."""
    with client_of(place) as client:
        for number in range(allowed):
            subscribe(client, topic, f"s{number}")
        with refusal("NotAllowedError"):
            subscribe(client, topic, "more")
        text = "Exceed the maximum number of subscriptions of the topic"
        http_is_refused(place, f"{topic}/subscription/more", {}, 412, text)


def topics(place: Place, topic: str, allowed: int) -> None:
    """Create topics; `topic` is one of them."""
    space = topic.rpartition("/")[0]
    for number in range(allowed - 1):
        place.call("PUT", f"persistent/{space}/more{number}")
    status, answer = place.call("PUT", f"persistent/{space}/last")
    if status != 412 or "Exceed maximum number of topics in namespace." not in str(answer):
        raise PolicyFailed(f"a topic more: {status} {answer}")
    with client_of(place) as client, refusal("NotAllowedError", "TopicNotFound"):
        client.create_producer(f"{space}/last")


def message_size(place: Place, topic: str, allowed: int) -> None:
    """Write a message that is too large, and the next."""
    with client_of(place) as client:
        producer = client.create_producer(topic, batching_enabled=False)
        with refusal("ChecksumError", "MessageTooBig"):  # Some clients ask before.
            producer.send(b"x" * allowed)
        producer.send(b"x" * (allowed - 200))
    socket = WebSocketClient(place.url, f"/ws/v2/producer/persistent/{topic}")
    socket.send(json.dumps({"payload": base64.b64encode(b"x" * (allowed + 1)).decode()}))
    answer = str(socket.receive())
    socket.close()
    if "send-error:8" not in answer or "Exceed maximum message size" not in answer:
        raise PolicyFailed(f"WebSocket: {answer}")
    body = {"schema_type": "STRING", "messages": [{"value": "x" * (allowed + 1)}]}
    http_is_refused(place, topic, body, 413, "Exceed maximum message size")


def unacknowledged(place: Place, topic: str, allowed: int, *, consumer_count: int) -> None:
    """Receive messages without an acknowledgement; then acknowledge, and receive the next."""
    with client_of(place) as client:
        consumers = [
            subscribe(client, topic, "held", initial_position=pulsar.InitialPosition.Earliest)
            for _ in range(consumer_count)
        ]
        producer = client.create_producer(topic, batching_enabled=False)
        for _ in range(2 * allowed):
            producer.send(b"x")
        held = [message for consumer in consumers for message in received(consumer)]
        if len(held) != allowed:
            raise PolicyFailed(f"{len(held)} messages are unacknowledged, not {allowed}")
        for message in held:  # An id of another consumer counts all the same.
            consumers[0].acknowledge(message)
        if not any(received(consumer) for consumer in consumers):
            raise PolicyFailed("delivery does not go on")
        consumers[0].seek(pulsar.MessageId.latest)


def received(consumer: pulsar.Consumer) -> list[pulsar.Message]:
    """Return the messages that come."""
    messages: list[pulsar.Message] = []
    with suppress(pulsar.Timeout):
        while True:
            messages.append(consumer.receive(SILENCE_MS))
    return messages


def subscribes(place: Place, topic: str, allowed: int) -> None:
    """Subscribe as often as allowed, with the same name."""
    target = f"/ws/v2/consumer/persistent/{topic}/s?consumerName=again&subscriptionType=Shared"
    for _ in range(allowed):
        WebSocketClient(place.url, target).close()
    text = "Subscribe limited by subscribe rate limit per consumer."
    websocket_is_refused(place, target, 412, text)


def kinds(place: Place, topic: str, _: int) -> None:
    """Subscribe with a kind that is enabled, and with another."""
    with client_of(place) as client:
        client.subscribe(topic, "failover", pulsar.ConsumerType.Failover)
        with refusal("NotAllowedError"):
            subscribe(client, topic, "shared")
    query = "?subscriptionType=Shared"
    text = "doesn't support Shared sub type!"
    websocket_is_refused(place, f"/ws/v2/consumer/persistent/{topic}/shared{query}", 412, text)
    http_is_refused(place, f"{topic}/subscription/shared", {}, 412, text)


def new_subscriptions(place: Place, topic: str, _: int) -> None:
    """Subscribe with a subscription that does not exist."""
    with client_of(place, RETRIED_S) as client, refusal("SubscriptionNotFound", "Timeout"):
        subscribe(client, topic, "new")
    text = "Subscription does not exist"
    target = f"/ws/v2/consumer/persistent/{topic}/new"
    websocket_is_refused(place, target, 404, text)
    http_is_refused(place, f"{topic}/subscription/new", {}, 404, text)


def encryption(place: Place, topic: str, _: int) -> None:
    """Open a producer that does not encrypt."""
    with client_of(place, RETRIED_S) as client, refusal("BrokerMetadataError", "Timeout"):
        client.create_producer(topic)
    target, text = f"/ws/v2/producer/persistent/{topic}", "Encryption is required in"
    websocket_is_refused(place, target, 412, text)
    body = {"messages": [{"value": "x"}]}
    http_is_refused(place, topic, body, 412, "Messages must be encrypted")


CHECKS: Final[Sequence[LimitCheck]] = (
    LimitCheck("maxProducersPerTopic", producers, "producers_max"),
    LimitCheck("maxConsumersPerTopic", partial(consumers, of_topic=True), "consumers_max"),
    LimitCheck(
        "maxConsumersPerSubscription",
        partial(consumers, of_topic=False),
        "subscription_consumers_max",
    ),
    LimitCheck("maxSubscriptionsPerTopic", subscriptions, "subscriptions_max"),
    LimitCheck("maxTopicsPerNamespace", topics, "topics_max", levels=("broker", "namespace")),
    LimitCheck(
        "maxMessageSize",
        message_size,
        "message_bytes_max",
        levels=("broker", "topic"),
        allowed=MESSAGE_BYTES,
    ),
    LimitCheck(
        "maxUnackedMessagesPerConsumer",
        partial(unacknowledged, consumer_count=1),
        "unacked_consumer_max",
    ),
    LimitCheck(
        "maxUnackedMessagesPerSubscription",
        partial(unacknowledged, consumer_count=2),
        "unacked_subscription_max",
    ),
    LimitCheck(
        "subscribeRate",
        subscribes,
        "subscribe_rate",
        body=lambda times: {"subscribeThrottlingRatePerConsumer": times, "ratePeriodInSecond": 90},
    ),
    LimitCheck(
        "subscriptionTypesEnabled",
        kinds,
        levels=("namespace", "topic"),
        body=lambda _: ["Exclusive", "Failover"],
    ),
    LimitCheck(
        "autoSubscriptionCreation",
        new_subscriptions,
        levels=("namespace", "topic"),
        body=lambda _: {"allowAutoSubscriptionCreation": False},
    ),
    LimitCheck("encryptionRequired", encryption, levels=("namespace",), body=lambda _: True),
)
SETTINGS: Final = tuple(setting for check in CHECKS for setting in check.settings)
