"""Rates: messages that pass within a time, at each level and for the clients of each protocol."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final

import pulsar

from conformance.policies import loads
from conformance.policies.loads import PAYLOAD, Load
from conformance.policies.place import Place, namespace_of, set_up

TOLERANCE: Final = 0.1
LOADS_AT_ONCE: Final = 4
# Messages a second, by level: each level differs, so that the nearest is seen to hold.
PUBLISHED: Final = {"broker": 60, "namespace": 80, "topic": 100}
DELIVERED: Final = {"broker": 70, "namespace": 90, "topic": 110, "subscription": 130}
LEVELS: Final = ("broker", "namespace", "topic")
# Settings of the broker.
SETTINGS: Final = (
    f"topics.publish_rate_messages={PUBLISHED['broker']}",
    f"topics.dispatch_rate_messages={DELIVERED['broker']}",
    f"topics.subscription_dispatch_rate_messages={DELIVERED['broker']}",
)


@dataclass(frozen=True, slots=True)
class RateCheck:
    """A rate of messages a second, set at a level by a policy, and the client that it slows."""

    client: str
    policy: str
    level: str
    load: Load
    is_bytes: bool = False

    @property
    def name(self) -> str:
        """Return the name for people."""
        unit = "bytes" if self.is_bytes else "messages"
        return f"{self.policy} of a {self.level}, {unit}, {self.client}"

    @property
    def is_read(self) -> bool:
        """True if the load reads."""
        return self.policy != "publishRate"

    @property
    def rate(self) -> int:
        """Return the messages a second."""
        return (DELIVERED if self.is_read else PUBLISHED)[self.level]

    @property
    def body(self) -> Mapping[str, object]:
        """Return the body that sets the policy."""
        word = "dispatch" if self.is_read else "publish"
        values = (-1, self.rate * len(PAYLOAD)) if self.is_bytes else (self.rate, -1)
        named = (f"{word}ThrottlingRateInMsg", f"{word}ThrottlingRateInByte")
        return dict(zip(named, values, strict=True))

    @property
    def topic(self) -> str:
        """Return the topic; Kafka's and Iggy's clients see the topics of the default namespace."""
        words = self.client.lower().replace(" ", "-").replace("_", "-")
        unit = "-bytes" if self.is_bytes else ""
        space = namespace_of(self.level, self.policy)
        if self.client in ("Kafka", "Iggy"):
            space = "public/default"
        return f"{space}/{words}{unit}"

    def is_short(self, count: int | str, seconds: float) -> bool:
        """Return True if fewer messages have passed than the rate allows."""
        return isinstance(count, int) and count < (1 - TOLERANCE) * self.rate * seconds


EXCLUSIVE, SHARED, KEY_SHARED = (
    partial(loads.read_pulsar, kind)
    for kind in (
        pulsar.ConsumerType.Exclusive,
        pulsar.ConsumerType.Shared,
        pulsar.ConsumerType.KeyShared,
    )
)
CHECKS: Final[Sequence[RateCheck]] = (
    *(RateCheck("Pulsar", "publishRate", level, loads.write_pulsar) for level in LEVELS),
    RateCheck("Pulsar", "publishRate", "topic", loads.write_pulsar, is_bytes=True),
    RateCheck("WebSocket", "publishRate", "topic", loads.write_websocket),
    RateCheck("HTTP", "publishRate", "topic", loads.write_http),
    RateCheck("Kafka", "publishRate", "topic", loads.write_kafka),
    RateCheck("Iggy", "publishRate", "topic", loads.write_iggy),
    *(RateCheck("Pulsar Exclusive", "dispatchRate", level, EXCLUSIVE) for level in LEVELS),
    RateCheck("Pulsar Exclusive", "dispatchRate", "topic", EXCLUSIVE, is_bytes=True),
    RateCheck("Pulsar Key_Shared", "dispatchRate", "topic", KEY_SHARED),
    RateCheck("WebSocket", "dispatchRate", "topic", loads.read_websocket),
    RateCheck("HTTP", "dispatchRate", "topic", loads.read_http),
    *(RateCheck("Pulsar Shared", "subscriptionDispatchRate", level, SHARED) for level in LEVELS),
    RateCheck("Pulsar Shared", "subscriptionDispatchRate", "subscription", SHARED),
    RateCheck("Pulsar Exclusive", "subscriptionDispatchRate", "subscription", EXCLUSIVE),
)


def prepare(place: Place, checks: Sequence[RateCheck]) -> None:
    """Create the topics, and set the policies."""
    for check in checks:
        set_up(place, check.level, check.policy, check.body, check.topic)


def fill(place: Place, checks: Sequence[RateCheck], seconds: float) -> None:
    """Store more messages than readers get in that time."""
    for check in checks:
        if check.is_read:
            loads.fill(place, check.topic, round(check.rate * seconds * (1 + 2 * TOLERANCE)) + 50)


def measure(place: Place, checks: Sequence[RateCheck], seconds: float) -> dict[str, int | str]:
    """Run the loads, some at the same time; return the messages of each, or its error.

    Each runs in a process, where no other client delays its callbacks.
    """
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(LOADS_AT_ONCE, mp_context=context) as processes:
        counted = processes.map(partial(_counted, place, seconds=seconds), checks)
        return dict(zip((check.name for check in checks), counted, strict=True))


def _counted(place: Place, check: RateCheck, seconds: float) -> int | str:
    try:
        return check.load(place, check.topic, seconds)
    except Exception as error:  # Shown as the result of this load.
        return f"{type(error).__name__}: {error}"[:300]


def faults(
    checks: Sequence[RateCheck], results: Mapping[str, int | str], seconds: float
) -> Iterator[str]:
    """Yield the rates that did not hold within the tolerance."""
    for check in checks:
        count, expected = results[check.name], check.rate * seconds
        if not isinstance(count, int):
            yield f"{check.name}: {count}"
        elif abs(count - expected) > TOLERANCE * expected:
            yield f"{check.name}: {count} in {seconds:g} s, not {expected:g}"
