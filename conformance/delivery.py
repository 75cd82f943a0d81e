"""`python -m conformance.delivery [--seeds N] [--first N] [--report FILE]`: random real clients.

Consumers join, close or vanish, acknowledge and return messages, while a producer publishes. A
model knows the allowed deliveries. Each seed is the life of a subscription, of each kind in turn,
and must end.

The model demands from the broker: only sent messages are delivered; a message that a consumer had
acknowledged before closing is never delivered again; no key is at two consumers; in the end all
unacknowledged messages are delivered, and nothing after that.
"""

import argparse
import faulthandler
import random
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import pulsar

from conformance.server import RunningBroker

KINDS: Final = {
    "Exclusive": pulsar.ConsumerType.Exclusive,
    "Failover": pulsar.ConsumerType.Failover,
    "Shared": pulsar.ConsumerType.Shared,
    "Key_Shared": pulsar.ConsumerType.KeyShared,
}
CONSUMERS_MAX: Final = 3
KEYS: Final = 6
STEPS: Final = 80
RECEIVE_MS: Final = 20
QUIET_MS: Final = 300  # Wait of a receive that should stay empty.
DRAIN_S: Final = 60.0
SEED_S: Final = 180.0  # After this time, the seed reports the point where the run hangs.


class LifeConsumer:
    """A consumer with its own connection, and its unacknowledged messages."""

    def __init__(self, url: str, topic: str, kind: Any, queue_size: int) -> None:
        self.client = pulsar.Client(
            url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error), operation_timeout_seconds=60
        )
        self.consumer = self.client.subscribe(
            topic,
            "s",
            consumer_type=kind,
            initial_position=pulsar.InitialPosition.Earliest,
            receiver_queue_size=queue_size,
            negative_ack_redelivery_delay_ms=50,
        )
        self.held: dict[int, Any] = {}  # Messages by value.
        self.acked: set[int] = set()  # Acknowledged by this consumer; the broker may not know yet.

    def receive(self, wait_ms: int) -> Any | None:
        """Return the next message, or None after `wait_ms`."""
        try:
            return self.consumer.receive(wait_ms)
        except pulsar.Timeout:
            return None


class SubscriptionLife:
    """The life of a subscription."""

    def __init__(self, url: str, seed: int) -> None:
        self.url = url
        self.name = list(KINDS)[seed % len(KINDS)]
        self.topic = f"life-{seed}"
        self.random = random.Random(seed)
        self.sent = 0
        self.members: list[LifeConsumer] = []
        self.settled: set[int] = set()  # Acknowledged by consumers that have closed since.
        self.unsure: set[int] = set()  # Acknowledged by consumers that vanished.
        self.faults: list[str] = []
        self.received = 0
        self._client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        self._producer = self._client.create_producer(self.topic)

    @property
    def in_order(self) -> bool:
        """Return True if a single consumer at a time has all messages."""
        return self.name in ("Exclusive", "Failover")

    # Steps.

    def publish(self) -> None:
        """Publish several messages; each value has its own key."""
        for _ in range(self.random.randrange(1, 15)):
            value, self.sent = self.sent, self.sent + 1
            self._producer.send(b"%d" % value, partition_key=f"k{value % KEYS}")

    def join(self) -> None:
        """Add a consumer, if the kind allows another consumer."""
        if len(self.members) < (1 if self.name == "Exclusive" else CONSUMERS_MAX):
            size = self.random.choice([1, 5, 1000])
            self.members.append(LifeConsumer(self.url, self.topic, KINDS[self.name], size))

    def close(self) -> None:
        """Close a consumer: afterwards the broker knows all acknowledgements of this consumer."""
        if self.members:
            member = self.members.pop(self.random.randrange(len(self.members)))
            member.consumer.close()
            member.client.close()
            self.settled |= member.acked

    def vanish(self) -> None:
        """Shut a consumer's client down without closing the consumer."""
        if self.members:
            member = self.members.pop(self.random.randrange(len(self.members)))
            member.client.shutdown()
            self.unsure |= member.acked

    def receive(self) -> None:
        """Receive several messages, if there are any."""
        for member in self.members:
            for _ in range(self.random.randrange(10)):
                message = member.receive(RECEIVE_MS)
                if message is None:
                    break
                self._take(member, message)

    def acknowledge(self) -> None:
        """Acknowledge some of the held messages, or all messages up to a message."""
        for member in self.members:
            if self.in_order and member.held and self.random.random() < 0.3:
                last = self.random.choice(sorted(member.held))
                member.consumer.acknowledge_cumulative(member.held[last])
                # Includes returned messages that have not been delivered again.
                known = set(range(last + 1))
            else:
                count = self.random.randrange(len(member.held) + 1)
                known = set(self.random.sample(sorted(member.held), count))
                for value in known:
                    member.consumer.acknowledge(member.held[value])
            for value in known:
                member.held.pop(value, None)
            member.acked |= known

    def give_back(self) -> None:
        """Return some held messages for redelivery; kinds in order redeliver all messages."""
        for member in self.members:
            # Redeliver all messages only if no other consumer may have them then: messages in the
            # library's queue stay there and still reach the program.
            if self.in_order and self.random.random() < 0.3:
                member.consumer.redeliver_unacknowledged_messages()
                member.held.clear()
            else:
                for value in self.random.sample(sorted(member.held), len(member.held) // 3):
                    member.consumer.negative_acknowledge(member.held.pop(value))

    # Received messages.

    def _take(self, member: LifeConsumer, message: Any) -> None:
        value = int(message.data())
        self.received += 1
        if not 0 <= value < self.sent:
            self.faults.append(f"{value} was never sent")
        if value in self.settled:
            self.faults.append(f"{value} came again after its consumer acknowledged and closed")
        if self.name == "Key_Shared":
            for other in self.members:
                if other is not member and any(held % KEYS == value % KEYS for held in other.held):
                    self.faults.append(f"key {value % KEYS} is at two consumers ({value})")
        member.held[value] = message

    # A life.

    def run(self, steps: int) -> None:
        """Take random steps; then drain the subscription."""
        choice: Sequence[Callable[[], None]] = (
            *(self.publish, self.join, self.receive, self.receive, self.acknowledge),
            *(self.acknowledge, self.give_back, self.close, self.vanish),
        )
        weights = (4, 4, 4, 4, 3, 3, 2, 1, 1)
        for _ in range(steps):
            self.random.choices(choice, weights)[0]()
        self._drain()
        self._client.close()

    def _drain(self) -> None:
        """Check that all unacknowledged messages are delivered, and nothing after them."""
        for member in self.members:
            # Possibly acknowledged by now; certainly acknowledged below.
            self.unsure |= member.held.keys()
        if not self.members:
            self.join()
        until = time.monotonic() + DRAIN_S
        is_quiet = False
        while self._missing() or not is_quiet:
            if time.monotonic() > until:
                missing = sorted(self._missing())
                self.faults.append(f"{len(missing)} never came: {missing[:10]}")
                break
            is_quiet = True
            for member in self.members:
                while (message := member.receive(QUIET_MS)) is not None:
                    is_quiet = False
                    self._take(member, message)
                    member.consumer.acknowledge(message)
                    member.acked.add(int(message.data()))
                for value in [*member.held]:
                    if value not in member.acked:
                        member.consumer.acknowledge(member.held[value])
                        member.acked.add(value)
                member.held.clear()
        while self.members:
            self.close()
        self.join()
        last = self.members[0]
        # A fault if the message was settled.
        while (message := last.receive(QUIET_MS)) is not None:
            self._take(last, message)
            last.consumer.acknowledge(message)
        self.close()

    def _missing(self) -> set[int]:
        known = self.settled | self.unsure
        return set(range(self.sent)) - known.union(*(member.acked for member in self.members))


def run(
    seeds: Sequence[int], steps: int = STEPS, report: Callable[[str], None] = print
) -> list[str]:
    """Run the seeds; return the broken promises and report each ended seed to `told`."""
    broken = []
    with RunningBroker() as broker:
        for seed in seeds:
            faulthandler.dump_traceback_later(SEED_S, exit=True)
            begun = time.monotonic()
            life = SubscriptionLife(f"pulsar://{broker.addresses['pulsar']}", seed)
            life.run(steps)
            faulthandler.cancel_dump_traceback_later()
            faults = [f"{life.name}, seed {seed}: {fault}" for fault in life.faults]
            broken += faults
            seconds = time.monotonic() - begun
            report(
                f"| {seed} | {life.name} | {life.sent:,} | {life.received:,} | {seconds:.1f} s"
                f" | {len(life.faults)} |"
            )
            for fault in faults[:5]:
                report(fault)
    return broken


def main() -> int:
    """Return 1 when a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m conformance.delivery", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--report", type=Path, metavar="FILE", help="kept up to date on the way")
    options = parser.parse_args()
    lines: list[str] = []

    def report(line: str) -> None:
        lines.append(line)
        print(line, flush=True)
        if options.report:
            options.report.write_text("\n".join(lines) + "\n")

    report("| seed | kind | sent | received | took | faults |")
    report("| --- | --- | --- | --- | --- | --- |")
    broken = run(range(options.first, options.first + options.seeds), report=report)
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
