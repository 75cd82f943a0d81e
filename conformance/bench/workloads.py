"""The workloads, each one function: what the broker does in a round, as a number with a unit.

Every workload makes topics of its own, so that rounds and workloads do not depend on each other.
"""

import itertools
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from conformance.bench import iggy_load, kafka_load, pulsar_load
from conformance.bench.latency import publish_to_receive
from conformance.bench.many import synchronous_producers
from conformance.bench.process import cpu_seconds
from conformance.raw.kafka import KafkaWire
from conformance.server import RunningBroker

MB = 1e6
FETCH_BYTES = 1 << 20


@dataclass(slots=True)
class Sample:
    """One round: the value, and what its ratio is taken of (a limit's letter with a factor)."""

    value: float
    unit: str
    of: str
    factor: float = 1.0
    cpu_us: float | None = None
    messages: int = 0


@dataclass(slots=True)
class Round:
    """What a workload is given."""

    broker: RunningBroker
    seconds: float
    counter: "itertools.count[int]" = field(default_factory=itertools.count)

    def topic(self) -> str:
        """A fresh name, always of one length."""
        return f"bench-{next(self.counter):06d}"

    def address(self, door: str) -> tuple[str, int]:
        """Host and port of a door."""
        host, _, port = self.broker.addresses[door].rpartition(":")
        return host, int(port)


@dataclass(frozen=True, slots=True)
class Workload:
    """A row of the table; `about` says connections, partitions and batch sizes."""

    name: str
    about: str
    run: Callable[[Round], Sample]


def _timed(
    round_: Round, work: Callable[[], int], unit: str, of: str, unit_size: float, factor: float = 1
) -> Sample:
    """Time `work`, which returns how many messages it moved; the value is in `unit` a second."""
    cpu = cpu_seconds(round_.broker.pid)
    started = time.perf_counter()
    messages = work()
    spent = time.perf_counter() - started
    cpu_us = (cpu_seconds(round_.broker.pid) - cpu) * 1e6 / messages
    return Sample(messages * unit_size / spent, unit, of, factor, cpu_us, messages)


def _kafka_produce(value_bytes: int, depth: int) -> Callable[[Round], Sample]:
    def run(round_: Round) -> Sample:
        body, count = kafka_load.set_of_128k(value_bytes)
        address, topic = round_.address("kafka"), round_.topic()

        def work() -> int:
            return count * kafka_load.pipelined_produce(address, topic, body, round_.seconds, depth)

        return _timed(round_, work, "MB/s", "D", len(body) / count / MB)

    return run


def _fill_kafka(round_: Round, value_bytes: int, megabytes: int) -> tuple[str, int, int]:
    """(topic, log end, stored size of a message) of a topic with that much in it."""
    body, count = kafka_load.set_of_128k(value_bytes)
    topic = round_.topic()
    sets = megabytes * 1_000_000 // len(body)
    with KafkaWire(round_.address("kafka")) as wire:
        wire.create(topic)
        for _ in range(sets):
            error, _ = wire.produce(topic, body)
            assert error == 0
    return topic, sets * count, len(body) // count


def _kafka_fetch(value_bytes: int) -> Callable[[Round], Sample]:
    def run(round_: Round) -> Sample:
        topic, log_end, step = _fill_kafka(round_, value_bytes, 60)
        address = round_.address("kafka")

        def work() -> int:
            return kafka_load.fetch_all(address, topic, log_end, step, FETCH_BYTES) // step

        return _timed(round_, work, "MB/s", "L", step / MB)

    return run


def _pulsar_sends(payload_bytes: int, in_flight: int, batch: int) -> Callable[[Round], Sample]:
    def run(round_: Round) -> Sample:
        address, topic = round_.address("pulsar"), round_.topic()

        def work() -> int:
            sends = pulsar_load.sends_in_flight(
                address, topic, b"v" * payload_bytes, round_.seconds, in_flight, batch
            )
            return sends * (batch or 1)

        return _timed(round_, work, "msg/s", "P", 1)

    return run


def _pulsar_delivery(payload_bytes: int, batch: int) -> Callable[[Round], Sample]:
    def run(round_: Round) -> Sample:
        address, topic = round_.address("pulsar"), round_.topic()
        payload = b"v" * payload_bytes
        sent = pulsar_load.sends_in_flight(address, topic, payload, round_.seconds, 1000, batch)

        def work() -> int:
            return pulsar_load.deliver(address, topic, sent, batch, "bench") * (batch or 1)

        return _timed(round_, work, "msg/s", "P", 1)

    return run


def _kafka_to_pulsar(round_: Round) -> Sample:
    topic, log_end, _ = _fill_kafka(round_, 100, 12)
    address = round_.address("pulsar")

    def work() -> int:
        return pulsar_load.deliver(address, topic, log_end, 0, "bench")

    return _timed(round_, work, "msg/s", "P", 1)


def _iggy_sends(payload_bytes: int, count: int, depth: int) -> Callable[[Round], Sample]:
    def run(round_: Round) -> Sample:
        address, topic = round_.address("iggy"), round_.topic()
        frame = iggy_load.send_frame(topic, count, payload_bytes)

        def work() -> int:
            return count * iggy_load.pipelined_sends(address, topic, frame, round_.seconds, depth)

        return _timed(round_, work, "msg/s", "P", 1)

    return run


def _iggy_polls(payload_bytes: int, from_kafka: bool) -> Callable[[Round], Sample]:
    def run(round_: Round) -> Sample:
        address = round_.address("iggy")
        if from_kafka:
            topic, log_end, _ = _fill_kafka(round_, payload_bytes, 25)
        else:
            topic = round_.topic()
            frame = iggy_load.send_frame(topic, 1000, payload_bytes)
            log_end = 1000 * iggy_load.pipelined_sends(address, topic, frame, 0.3, 4)

        def work() -> int:
            iggy_load.poll_all(address, topic, log_end, 1000)
            return log_end

        return _timed(round_, work, "msg/s", "P", 1)

    return run


def _pulsar_to_kafka(round_: Round) -> Sample:
    topic = round_.topic()
    address = round_.address("pulsar")
    sends = pulsar_load.sends_in_flight(address, topic, b"v" * 100, 0.5, 1000, 100)
    log_end, step = sends * 100, 126
    kafka = round_.address("kafka")

    def work() -> int:
        return kafka_load.fetch_all(kafka, topic, log_end, step, FETCH_BYTES) // step

    return _timed(round_, work, "msg/s", "P", 1)


def _synchronous(producers: int, partitions: int) -> Callable[[Round], Sample]:
    def run(round_: Round) -> Sample:
        topics = [round_.topic() for _ in range(partitions)]
        address = round_.address("kafka")
        with KafkaWire(address) as wire:
            for topic in topics:
                wire.create(topic)
        spread = [topics[i % partitions] for i in range(producers)]
        body = kafka_load.message_set(1, 1000)

        def work() -> int:
            return len(synchronous_producers(address, spread, body, round_.seconds))

        return _timed(round_, work, "acks/s", "S", 1, factor=producers)

    return run


def _one_producer_latency(round_: Round) -> Sample:
    topic, address = round_.topic(), round_.address("kafka")
    with KafkaWire(address) as wire:
        wire.create(topic)
    body = kafka_load.message_set(1, 1000)
    latencies = synchronous_producers(address, [topic], body, round_.seconds)
    return Sample(statistics.median(latencies) * 1000, "ms p50", "1000/S")


def _publish_to_receive(percentile: int) -> Callable[[Round], Sample]:
    def run(round_: Round) -> Sample:
        address = round_.address("pulsar")
        cpu = cpu_seconds(round_.broker.pid)
        latencies = sorted(publish_to_receive(address, round_.topic(), 1000, round_.seconds))
        cpu_us = (cpu_seconds(round_.broker.pid) - cpu) * 1e6 / len(latencies)
        value = latencies[len(latencies) * percentile // 100] * 1000
        return Sample(value, f"ms p{percentile}", "1000/S", 1, cpu_us)

    return run


WORKLOADS = [
    Workload("kafka-produce-100", "1 conn, 1 part, 128 KiB sets, 8 in flight",
    _kafka_produce(100, 8)),
    Workload("kafka-produce-1k", "1 conn, 1 part, 128 KiB sets, 8 in flight",
    _kafka_produce(1000, 8)),
    Workload("kafka-fetch-100", "1 conn, 1 part, 1 MiB a fetch", _kafka_fetch(100)),
    Workload("kafka-fetch-1k", "1 conn, 1 part, 1 MiB a fetch", _kafka_fetch(1000)),
    Workload("pulsar-send-100", "1 conn, 1 part, 1000 unbatched in flight", _pulsar_sends(100,
    1000, 0)),
    Workload("pulsar-batch-100", "1 conn, 1 part, batches of 100, 1000 in flight",
    _pulsar_sends(100, 1000, 100)),
    Workload("pulsar-deliver-100", "1 conn, 1 part, unbatched, grouped acks",
    _pulsar_delivery(100, 0)),
    Workload("pulsar-deliver-batch", "1 conn, 1 part, batches of 100", _pulsar_delivery(100, 100)),
    Workload("iggy-send-100", "1 conn, 1 part, 1000 a SEND, 4 in flight", _iggy_sends(100, 1000,
    4)),
    Workload("iggy-send-1k", "1 conn, 1 part, 1000 a SEND, 4 in flight", _iggy_sends(1000, 1000,
    4)),
    Workload("iggy-poll-100", "1 conn, 1 part, 1000 a POLL", _iggy_polls(100, False)),
    Workload("iggy-poll-1k", "1 conn, 1 part, 1000 a POLL", _iggy_polls(1000, False)),
    Workload("kafka-to-pulsar", "100 B, an entry each, grouped acks", _kafka_to_pulsar),
    Workload("kafka-to-iggy", "100 B, 1000 a POLL", _iggy_polls(100, True)),
    Workload("pulsar-to-kafka", "100 B, batches of 100, 1 MiB a fetch", _pulsar_to_kafka),
    Workload("acks-1", "1 producer, 1 part, 1 KB, 1 in flight", _synchronous(1, 1)),
    Workload("acks-10", "10 producers, 1 part, 1 KB, 1 in flight each", _synchronous(10, 1)),
    Workload("acks-100", "100 producers, 1 part, 1 KB, 1 in flight each", _synchronous(100, 1)),
    Workload("acks-100-spread", "100 producers, 100 parts, 1 KB, 1 in flight each",
    _synchronous(100, 100)),
    Workload("ack-latency", "1 producer, 1 part, 1 KB", _one_producer_latency),
    Workload("receive-p50", "publish to receive, 1000/s, 100 B", _publish_to_receive(50)),
    Workload("receive-p99", "publish to receive, 1000/s, 100 B", _publish_to_receive(99)),
]  # fmt: skip
