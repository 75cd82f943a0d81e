"""Workloads that move many messages: produce, fetch, deliver, poll, and across protocols.

Every workload creates its own topics, so that rounds and workloads do not depend on each other.
"""

import itertools
from collections.abc import Callable
from ssl import SSLContext

from conformance.bench import iggy_load, kafka_load, mixed, pulsar_load
from conformance.bench.sample import MB, BenchRound, BenchSample, again_and_again, timed
from conformance.clients.raw.kafka import KafkaWire

FETCH_BYTES = 1 << 20
FILL_S = 0.5
MIXED_SETS, MIXED_BLOCKS = 16, 20  # Sent in turn: prepared in well under a second.

Run = Callable[[BenchRound], BenchSample]


def kafka_produce(
    value_bytes: int, depth: int, listener: str = "kafka", context: SSLContext | None = None
) -> Run:
    """Pipelined sets of 128 KiB on a single connection."""

    def sets() -> tuple[list[bytes], int]:
        body, count = kafka_load.set_of_128k(value_bytes)
        return [body], count

    return _produce(sets, depth, listener, context)


def kafka_produce_mixed(value_bytes: int, depth: int) -> Run:
    """Pipelined sets of 128 KiB whose messages differ, on a single connection."""
    return _produce(lambda: mixed.kafka_sets(value_bytes, MIXED_SETS), depth, "kafka", None)


def _produce(
    sets: Callable[[], tuple[list[bytes], int]],
    depth: int,
    listener: str,
    context: SSLContext | None,
) -> Run:
    def run(round_: BenchRound) -> BenchSample:
        bodies, count = sets()
        address, topic = round_.address(listener), round_.topic()
        set_bytes = sum(map(len, bodies)) / len(bodies)

        def work() -> int:
            return count * kafka_load.pipelined_produce(
                address, topic, bodies, round_.seconds, depth, context
            )

        return timed(round_, BenchSample(0, "MB/s", "D"), work, set_bytes / count / MB)

    return run


def fill_kafka(round_: BenchRound, value_bytes: int, megabytes: int) -> tuple[str, int, int]:
    """Fill a topic with `megabytes`; return (topic, log end, stored size of a message)."""
    body, count = kafka_load.set_of_128k(value_bytes)
    topic = round_.topic()
    sets = megabytes * 1_000_000 // len(body)
    with KafkaWire(round_.address("kafka")) as wire:
        wire.create(topic)
        for _ in range(sets):
            error, _ = wire.produce(topic, body)
            assert error == 0
    return topic, sets * count, len(body) // count


def kafka_fetch(
    value_bytes: int,
    bytes_max: int = FETCH_BYTES,
    listener: str = "kafka",
    context: SSLContext | None = None,
) -> Run:
    """Fetches of `bytes_max` in sequence on a single connection."""

    def run(round_: BenchRound) -> BenchSample:
        topic, log_end, step = fill_kafka(round_, value_bytes, 40)
        address = round_.address(listener)

        def work() -> int:
            return kafka_load.fetch_all(address, topic, log_end, step, bytes_max, context) // step

        sample = BenchSample(0, "MB/s", "L")
        return timed(round_, sample, again_and_again(round_, work), step / MB)

    return run


def pulsar_sends(payload_bytes: int, in_flight: int, batch: int) -> Run:
    """SENDs in flight on a single connection; each is a batch of `batch` messages unless `batch` is
    0.
    """

    def run(round_: BenchRound) -> BenchSample:
        address, topic = round_.address("pulsar"), round_.topic()

        def work() -> int:
            sends = pulsar_load.sends_in_flight(
                address, topic, b"v" * payload_bytes, round_.seconds, in_flight, batch
            )
            return sends * (batch or 1)

        return timed(round_, BenchSample(0, "msg/s", "P"), work)

    return run


def pulsar_sends_mixed(payload_bytes: int, in_flight: int) -> Run:
    """Unbatched sends that differ in size, key and properties, with increasing publish times."""

    def run(round_: BenchRound) -> BenchSample:
        blocks = mixed.pulsar_blocks(payload_bytes, pulsar_load.BLOCK, MIXED_BLOCKS)
        address, topic = round_.address("pulsar"), round_.topic()

        def work() -> int:
            return pulsar_load.blocks_in_flight(address, topic, blocks, round_.seconds, in_flight)

        return timed(round_, BenchSample(0, "msg/s", "P"), work)

    return run


def _delivery(round_: BenchRound, topic: str, entries: int, batch: int) -> BenchSample:
    names = itertools.count()
    address = round_.address("pulsar")

    def work() -> int:
        name = f"bench-{next(names)}"
        return pulsar_load.deliver(address, topic, entries, batch, name) * (batch or 1)

    return timed(round_, BenchSample(0, "msg/s", "P"), again_and_again(round_, work))


def pulsar_delivery(payload_bytes: int, batch: int) -> Run:
    """Delivery of Pulsar's messages to a single consumer, acknowledged in groups."""

    def run(round_: BenchRound) -> BenchSample:
        address, topic = round_.address("pulsar"), round_.topic()
        payload = b"v" * payload_bytes
        sent = pulsar_load.sends_in_flight(address, topic, payload, FILL_S, 1000, batch)
        return _delivery(round_, topic, sent, batch)

    return run


def kafka_to_pulsar(round_: BenchRound) -> BenchSample:
    """Delivery of Kafka's records to a Pulsar consumer, an entry per record."""
    topic, log_end, _ = fill_kafka(round_, 100, 6)
    return _delivery(round_, topic, log_end, 0)


def iggy_sends(payload_bytes: int, count: int, dialect: iggy_load.DialectFrames) -> Run:
    """SENDs of `count` messages, four in flight, on a single connection."""

    def run(round_: BenchRound) -> BenchSample:
        address, topic, size = round_.address("iggy"), round_.topic(), (count, payload_bytes)

        def work() -> int:
            seconds = round_.seconds
            return count * iggy_load.pipelined_sends(dialect, address, topic, size, seconds)

        return timed(round_, BenchSample(0, "msg/s", "P"), work)

    return run


def iggy_polls(
    payload_bytes: int, reader: iggy_load.DialectFrames, writer: iggy_load.DialectFrames | None
) -> Run:
    """Polls of 1000 in sequence on a connection; a dialect or (None) Kafka wrote the messages."""

    def run(round_: BenchRound) -> BenchSample:
        address = round_.address("iggy")
        if writer is None:
            topic, log_end, _ = fill_kafka(round_, payload_bytes, 15)
        else:
            topic = round_.topic()
            size = (1000, payload_bytes)
            sends = iggy_load.pipelined_sends(writer, address, topic, size, FILL_S)
            log_end = 1000 * sends

        def work() -> int:
            iggy_load.poll_all(reader, address, topic, log_end, 1000)
            return log_end

        return timed(round_, BenchSample(0, "msg/s", "P"), again_and_again(round_, work))

    return run


def pulsar_to_kafka(round_: BenchRound) -> BenchSample:
    """Pulsar's batches of 100, fetched by Kafka in requests of 1 MiB."""
    topic = round_.topic()
    address, kafka = round_.address("pulsar"), round_.address("kafka")
    sends = pulsar_load.sends_in_flight(address, topic, b"v" * 100, 0.1, 1000, 100)
    log_end, step = sends * 100, 126

    def work() -> int:
        return kafka_load.fetch_all(kafka, topic, log_end, step, FETCH_BYTES) // step

    return timed(round_, BenchSample(0, "msg/s", "P"), again_and_again(round_, work))
