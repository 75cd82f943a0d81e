"""`python -m conformance.bench.scale [--topics N] [--connections N] [--unacked N] [--acked N]
[--delayed N] [--members N] [--wide N]`: many topics, connections and messages of Pulsar clients,
many members of a Kafka group, and Kafka requests of 100 partitions, on a single broker.

A number of 0 leaves an item out. Prints the broker's memory after each step, the longest waits of
healthy clients meanwhile, and the turns of the broker's loop with more than 50 ms of processor
time. Any such turn makes the exit code 1.
"""

import argparse
import resource
import struct
import sys
import time
from collections.abc import Callable

import trio

from conformance.clients.raw.kafka import FETCH, PRODUCE, KafkaWire, data, string
from conformance.clients.raw.pulsar import (
    ACK,
    FLOW,
    MESSAGE,
    PRODUCER,
    SEND,
    SUBSCRIBE,
    SUCCESS,
    Fields,
    PulsarWire,
    Value,
    entry,
    field_of,
    frame,
)
from conformance.ending import end_on_signals
from conformance.hostile.healthy import Healthy
from conformance.hostile.rows_kafka import RECORD, record_batch
from conformance.server import RunningBroker
from conformance.today.many_groups import live_and_die

SETTINGS = ("loop_turn_log_ms=50",)
IN_FLIGHT = 1000
MADE_TOGETHER = 500
SHARED, PRODUCER_SUCCESS, ACK_RESPONSE = 1, 17, 38
PERMITS = 1_000_000_000
CONNECTIONS = 9_900  # A broker takes 10,000, and healthy clients connect too.
WIDE_PARTITIONS = 100
WIDE_ANSWER = 22  # Bytes of a partition in the answer to Produce v3.


def full(topic: str) -> bytes:
    """Return the topic name as a client writes it."""
    return f"persistent://public/default/{topic}".encode()


def send_frame(number: int, metadata: Fields, payload: bytes = b"x") -> bytes:
    """Return a SEND of a single message."""
    metadata = [(1, b"scale"), (2, number), (3, int(time.time() * 1000)), *metadata]
    return frame(SEND, [(1, 0), (2, number)], entry(metadata, payload))


def store(wire: PulsarWire, topic: str, count: int, metadata: Fields) -> None:
    """Store messages, an entry each."""
    wire.open_producer(topic)
    for first in range(0, count, IN_FLIGHT):
        numbers = range(first, min(first + IN_FLIGHT, count))
        wire.send(b"".join(send_frame(number, metadata) for number in numbers))
        for _ in numbers:
            wire.take_command()


def shared(topic: str, consumer: int) -> Fields:
    """Return the fields of a SUBSCRIBE from the first message on."""
    return [(1, full(topic)), (2, b"s"), (3, SHARED), (4, consumer), (5, 9), (13, 1)]


def subscribe(wire: PulsarWire, topic: str, consumer: int, permits: int) -> None:
    """Subscribe a Shared consumer from the first message on."""
    wire.command(SUBSCRIBE, shared(topic, consumer))
    wire.expect(SUCCESS)
    wire.command(FLOW, [(1, consumer), (2, permits)])


def make_topics(address: tuple[str, int], count: int) -> None:
    """Open a producer and a consumer on each of `count` topics."""
    with PulsarWire(address) as wire:
        for first in range(0, count, MADE_TOGETHER):
            numbers = range(first, min(first + MADE_TOGETHER, count))
            for number in numbers:
                wire.command(PRODUCER, [(1, full(f"many-{number}")), (2, number), (3, 1)])
            for _ in numbers:
                wire.expect(PRODUCER_SUCCESS)
            for number in numbers:
                wire.command(SUBSCRIBE, shared(f"many-{number}", number))
            for _ in numbers:
                wire.expect(SUCCESS)


def take_unacked(address: tuple[str, int], count: int) -> None:
    """Deliver `count` messages to two consumers that do not acknowledge."""
    with PulsarWire(address) as wire:
        store(wire, "unacked", count, [])
    wires = [PulsarWire(address) for _ in range(2 + count // 50_000)]
    for wire in wires:
        subscribe(wire, "unacked", 0, PERMITS)
    received = 0
    for wire in wires:
        wire.socket.settimeout(3.0)
        try:
            while received < count:
                received += wire.take_command()[0] == MESSAGE
        except TimeoutError:
            continue
    print(f"{received} messages are at consumers", flush=True)
    assert received == count
    for wire in wires:
        wire.close()


def delay(address: tuple[str, int], count: int, tell: Callable[[], None]) -> None:
    """Hold `count` messages for an hour, with a waiting consumer; call `tell` meanwhile.

    Both are on a single connection, which answers PINGs on the way.
    """
    due: Fields = [(19, int(time.time() * 1000) + 3_600_000)]
    with PulsarWire(address) as wire:
        subscribe(wire, "delayed", 0, PERMITS)
        store(wire, "delayed", count, due)
        time.sleep(2.0)
        tell()


def large_frame(number: int) -> bytes:
    """Return a SEND of a message of a megabyte."""
    return send_frame(number, [], bytes(1_000_000))


def acknowledge_behind_one(address: tuple[str, int], count: int) -> None:
    """Acknowledge all of `count` messages of a megabyte, except the first.

    A later consumer receives only the first message, twice.
    """
    with PulsarWire(address) as wire:
        wire.open_producer("acked")
        for number in range(count):
            wire.send(large_frame(number))
            wire.take_command()
    with PulsarWire(address) as wire:
        subscribe(wire, "acked", 0, count)
        ids = [_message(wire) for _ in range(count)]
        for message_id in ids[1:]:
            wire.command(ACK, [(1, 0), (2, 0), (3, message_id), (8, 1)])
        for _ in ids[1:]:
            wire.expect(ACK_RESPONSE)
    for _ in range(2):
        with PulsarWire(address) as wire:
            subscribe(wire, "acked", 0, count)
            assert _message(wire) == ids[0]


def _message(wire: PulsarWire) -> Value:
    """Return the id of the next delivered message."""
    message_id = field_of(wire.expect(MESSAGE), 2)
    assert message_id is not None
    return message_id


def produce_wide(address: tuple[str, int], count: int) -> None:
    """Produce and fetch by requests of WIDE_PARTITIONS partitions each, a record each."""
    batches = b"".join(
        struct.pack(">i", number) + data(record_batch(RECORD)) for number in range(WIDE_PARTITIONS)
    )
    places = b"".join(struct.pack(">iqi", number, 0, 1 << 20) for number in range(WIDE_PARTITIONS))
    name = struct.pack(">i", 1) + string(b"wide") + struct.pack(">i", WIDE_PARTITIONS)
    produced = string(None) + struct.pack(">hi", -1, 30_000) + name + batches
    fetched = struct.pack(">iiiib", -1, 1000, 1, 1 << 26, 0) + name + places
    with KafkaWire(address) as wire:
        wire.create_topic("wide", WIDE_PARTITIONS)
        for _ in range(count):
            answer = wire.ask(PRODUCE, 3, produced)
            at = 4 + len(string(b"wide")) + 4
            for number in range(WIDE_PARTITIONS):
                partition, error = struct.unpack_from(">ih", answer, at + WIDE_ANSWER * number)
                assert (partition, error) == (number, 0)
        for _ in range(count):
            answer = wire.ask(FETCH, 4, fetched)
            assert len(answer) > WIDE_PARTITIONS * len(record_batch(RECORD))


def main() -> int:
    """Print the observations; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m conformance.bench.scale", description=__doc__)
    for name, most in (("topics", 10_000), ("connections", CONNECTIONS)):
        parser.add_argument(f"--{name}", type=int, default=most)
    for name, most in (("unacked", 100_000), ("delayed", 1_000_000), ("members", 1000)):
        parser.add_argument(f"--{name}", type=int, default=most)
    parser.add_argument("--wide", type=int, default=1000, help="requests of 100 partitions")
    parser.add_argument("--acked", type=int, default=1000, help="messages of a megabyte")
    wanted = parser.parse_args()
    _, files_max = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files_max, files_max))
    with RunningBroker(settings=SETTINGS) as broker, Healthy(broker) as healthy:
        _go_through(broker, wanted)
        healthy.check()
        waits = (f"{name} {wait:.2f} s" for name, wait in sorted(healthy.longest_s.items()))
        print(f"Longest waits of healthy clients: {', '.join(waits)}.")
        long = [line for line in broker.log().splitlines() if "loop_held" in line]
    print("\n".join(long))
    return 1 if long else 0


def _go_through(broker: RunningBroker, wanted: argparse.Namespace) -> None:
    address = broker.address("pulsar")

    def tell(step: str) -> None:
        size = broker.resident_bytes() / 1e6
        long = broker.log().count("loop_held")
        print(f"{step}: {size:.0f} MB resident, {long} long turns", flush=True)

    tell("idle")
    if wanted.topics:
        make_topics(address, wanted.topics)
        tell(f"{wanted.topics} topics with a producer and a consumer each")
    wires = [PulsarWire(address) for _ in range(wanted.connections)]
    if wires:
        tell(f"{wanted.connections} connections")
    if wanted.unacked:
        take_unacked(address, wanted.unacked)
        tell(f"{wanted.unacked} unacknowledged messages on one subscription")
    if wanted.acked:
        acknowledge_behind_one(address, wanted.acked)
        tell(f"{wanted.acked} MB acknowledged behind one open message")
    if wanted.delayed:
        delay(address, wanted.delayed, lambda: tell(f"{wanted.delayed} delayed messages"))
    for wire in wires:
        wire.close()
    if wanted.wide:
        produce_wide(broker.address("kafka"), wanted.wide)
        tell(f"{wanted.wide} Produce and Fetch requests of {WIDE_PARTITIONS} partitions")
    if wanted.members:
        trio.run(live_and_die, 1, *broker.address("kafka"), wanted.members)
        tell(f"{wanted.members} members of a Kafka group")


if __name__ == "__main__":
    end_on_signals()
    sys.exit(main())
