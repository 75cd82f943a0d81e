"""`python -m conformance.old.handover`: a group of Kafka 0.8 goes to clients of today and back.

In turn a client reads the next records of the group and leaves: 0.8's consumer over ZooKeeper, a
member of Kafka's classic protocol, a member of the new protocol, a Pulsar subscription and an Iggy
consumer. Each must receive exactly the records that the others left. Then a high-level consumer
runs while members of the other protocols join and leave: every record reaches a client.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pulsar
from confluent_kafka import Consumer

from conformance.clients.iggy_py_driver import CONSUMER_ID, IggyPy
from conformance.clients.raw.kafka import KafkaWire, message
from conformance.ending import end_on_signals
from conformance.old.group import Group, MemberProcess, missing
from conformance.old.programs import java_command
from conformance.old.readers import PARTITIONS, Servers
from conformance.server import ANY_PORT, RunningBroker

# The library for Iggy has a fixed name of its consumer, and reads a single partition.
GROUP, TOPIC, SHARED_GROUP = CONSUMER_ID, "handed-over", "g"
COUNT: Final = 6
# Seconds for a client to read, and to join; and between two looks at another program's state.
READ_S, JOINED_S, LOOK_S = 60.0, 5.0, 0.2
MILLIS: Final = 1000


class NotHandedOver(AssertionError):
    """A client received other records than the next ones."""


def read_high_level(broker: RunningBroker) -> list[str]:
    """Read by Kafka 0.8's consumer."""
    command = [*java_command("Reader"), broker.addresses["zookeeper"], TOPIC, GROUP, str(COUNT)]
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        timeout=READ_S,
        check=True,
    )
    return done.stdout.splitlines()


def _kafka_consumer(broker: RunningBroker, group: str, topic: str, protocol: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.addresses["kafka"],
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.subscribe([topic])
    return consumer


def _read_kafka(broker: RunningBroker, *, protocol: str) -> list[str]:
    consumer = _kafka_consumer(broker, GROUP, TOPIC, protocol)
    messages = consumer.consume(COUNT, READ_S)
    consumer.commit(asynchronous=False)
    consumer.close()
    return [(item.value() or b"").decode() for item in messages]


def read_classic(broker: RunningBroker) -> list[str]:
    """Read by librdkafka in Kafka's classic protocol of groups."""
    return _read_kafka(broker, protocol="classic")


def read_new(broker: RunningBroker) -> list[str]:
    """Read by librdkafka in Kafka's new protocol of groups."""
    return _read_kafka(broker, protocol="consumer")


def _subscribed(broker: RunningBroker, held: ExitStack, group: str, topic: str) -> Any:
    client = pulsar.Client(
        f"pulsar://{broker.addresses['pulsar']}",
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
    )
    held.callback(client.close)
    return client.subscribe(
        topic,
        group,
        consumer_type=pulsar.ConsumerType.Shared,
        initial_position=pulsar.InitialPosition.Earliest,
    )


def read_pulsar(broker: RunningBroker) -> list[str]:
    """Read by Pulsar's client, as a shared subscription."""
    values = []
    with ExitStack() as held:
        consumer = _subscribed(broker, held, GROUP, TOPIC)
        for _ in range(COUNT):
            received = consumer.receive(int(READ_S * MILLIS))
            consumer.acknowledge(received)
            values.append(received.data().decode())
        consumer.close()
    return values


def read_iggy(broker: RunningBroker) -> list[str]:
    """Read by Iggy's client."""
    messages = IggyPy(broker.addresses["iggy"]).read_as_group(TOPIC, GROUP, COUNT)
    return [(item.value or b"").decode() for item in messages]


Reader = Callable[[RunningBroker], list[str]]
TODAY: Final[dict[str, Reader]] = {
    "classic group": read_classic,
    "new group protocol": read_new,
    "Pulsar subscription": read_pulsar,
    "Iggy consumer": read_iggy,
}


def turns() -> Iterator[tuple[str, Reader]]:
    """Yield each reader of today after a high-level consumer, and at last a high-level consumer."""
    for name, reader in TODAY.items():
        yield "high-level consumer", read_high_level
        yield name, reader
    yield "high-level consumer", read_high_level


def hand_over(broker: RunningBroker) -> None:
    """Pass the group from client to client. Raises NotHandedOver."""
    host, _, port = broker.addresses["kafka"].rpartition(":")
    number = 0
    with KafkaWire((host, int(port))) as wire:
        wire.create(TOPIC)
        for name, reader in turns():
            values = [f"value-{number + index}" for index in range(COUNT)]
            for value in values:
                error, _ = wire.produce(TOPIC, message(None, value.encode()))
                assert error == 0, error
            number += COUNT
            received = sorted(reader(broker))
            if received != sorted(values):
                raise NotHandedOver(f"{name} received {received} instead of {values}")
            print(f"{name:24} goes on at the position of the one before", flush=True)


@dataclass
class OffsetsReceived(MemberProcess):
    """A member of another protocol in this process."""

    process: Any = None
    runs: list[tuple[int, int, int]] = field(default_factory=list)

    def note(self, partition: int, offset: int) -> None:
        """Add a received record."""
        self.runs.append((partition, offset, offset))


def _join_kafka(broker: RunningBroker, topic: str, member: OffsetsReceived) -> None:
    consumer = _kafka_consumer(broker, SHARED_GROUP, topic, "classic")
    until = time.monotonic() + JOINED_S
    while time.monotonic() < until:
        for item in consumer.consume(100, LOOK_S):
            member.note(item.partition() or 0, item.offset() or 0)
    if member.runs:
        consumer.commit(asynchronous=False)
    consumer.close()


def _join_pulsar(broker: RunningBroker, topic: str, member: OffsetsReceived) -> None:
    with ExitStack() as held:
        consumer = _subscribed(broker, held, SHARED_GROUP, topic)
        until = time.monotonic() + JOINED_S
        while time.monotonic() < until:
            try:
                received = consumer.receive(int(LOOK_S * MILLIS))
            except pulsar.Timeout:
                continue
            place = received.message_id()  # The entry of a record of Kafka is the record's offset.
            member.note(max(0, place.partition()), place.entry_id())
            consumer.acknowledge(received)
        consumer.close()


def join_and_leave(broker: RunningBroker, folder: Path) -> None:
    """Let members of other protocols join a running high-level group. Raises NotHandedOver."""
    servers = Servers(broker.addresses["kafka"], broker.addresses["zookeeper"])
    topic, count = "orders", 0
    servers.make(topic)
    group = Group(lambda: [broker.addresses["zookeeper"]], folder)
    group.start("a")
    members: list[MemberProcess] = list(group.members)

    def produce(records: int) -> None:
        nonlocal count
        servers.produce(topic, count, records)
        count += records

    def await_all(event: str, readers: Sequence[MemberProcess], first: dict[int, int]) -> None:
        ends = dict.fromkeys(range(PARTITIONS), count // PARTITIONS - 1)
        deadline = time.monotonic() + READ_S
        before = MemberProcess(
            "", readers[0].process, [(i, 0, end - 1) for i, end in first.items()]
        )
        while left := missing([before, *readers], ends):
            if time.monotonic() > deadline:
                raise NotHandedOver(f"{event}: nobody received {left}")
            time.sleep(LOOK_S)
        print(f"{event:44} all {count} records received", flush=True)

    try:
        produce(300)
        await_all("a high-level consumer", members, {})
        for name, join in (("a classic member", _join_kafka), ("a subscription", _join_pulsar)):
            member = OffsetsReceived(name)
            produce(300)
            join(broker, topic, member)
            members.append(member)
            await_all(f"{name} joins and leaves", members, {})
            begun = dict.fromkeys(range(PARTITIONS), count // PARTITIONS)
            produce(300)
            await_all("  then the high-level consumer alone", group.members, begun)
    finally:
        group.kill()


def main(arguments: Sequence[str]) -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m conformance.old.handover", description=__doc__)
    parser.parse_args(arguments)
    with (
        tempfile.TemporaryDirectory(prefix="braidlog-handover-") as folder,
        RunningBroker(listen={"zookeeper": ANY_PORT}) as broker,
    ):
        try:
            hand_over(broker)
            join_and_leave(broker, Path(folder))
        except NotHandedOver as failure:
            print(f"FAILED: {failure}", flush=True)
            return 1
    return 0


if __name__ == "__main__":
    end_on_signals()
    sys.exit(main(sys.argv[1:]))
