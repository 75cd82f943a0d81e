"""Workloads of clients that wait for each answer: acknowledgements, small requests, latencies."""

import statistics
import struct
import time
from collections.abc import Callable

from conformance.bench import iggy_load, kafka_load
from conformance.bench.latency import publish_to_receive
from conformance.bench.many import one_in_flight, synchronous_producers
from conformance.bench.process import in_background
from conformance.bench.sample import BenchRound, BenchSample, timed
from conformance.clients.raw.kafka import METADATA, OFFSET_COMMIT, KafkaWire, frame, string
from conformance.clients.raw.pulsar import PING, PulsarWire
from conformance.clients.raw.pulsar import frame as pulsar_frame

BULK_CONNECTIONS = 2
LIGHT_PAUSE_S = 0.005
COMMITS_EACH = 100
COMMITS_IN_FLIGHT = 4

Run = Callable[[BenchRound], BenchSample]


def _topics(round_: BenchRound, count: int) -> list[str]:
    topics = [round_.topic() for _ in range(count)]
    with KafkaWire(round_.address("kafka")) as wire:
        for topic in topics:
            wire.create(topic)
    return topics


def acknowledgements(producers: int, partitions: int) -> Run:
    """Messages of 1 KB, each sent after the message before is on disk."""

    def run(round_: BenchRound) -> BenchSample:
        topics = _topics(round_, partitions)
        address = round_.address("kafka")
        spread = [topics[i % partitions] for i in range(producers)]
        body = kafka_load.message_set(1, 1000)

        def work() -> int:
            return len(synchronous_producers(address, spread, body, round_.seconds))

        return timed(round_, BenchSample(0, "acks/s", "S", producers), work)

    return run


def one_producer_latency(round_: BenchRound) -> BenchSample:
    """Median time to the acknowledgement of a single synchronous producer."""
    address, topics = round_.address("kafka"), _topics(round_, 1)
    body = kafka_load.message_set(1, 1000)
    latencies = synchronous_producers(address, topics, body, round_.seconds)
    return BenchSample(statistics.median(latencies) * 1000, "ms p50", "1000/S")


def receive_latency(percentile: int) -> Run:
    """Time from the scheduled send to the receipt by a consumer, at 1000 messages per second."""

    def run(round_: BenchRound) -> BenchSample:
        latencies: list[float] = []

        def work() -> int:
            latencies.extend(
                publish_to_receive(round_.address("pulsar"), round_.topic(), 1000, round_.seconds)
            )
            return len(latencies)

        sample = timed(round_, BenchSample(0, f"ms p{percentile}", "1000/S"), work)
        sample.value = sorted(latencies)[len(latencies) * percentile // 100] * 1000
        return sample

    return run


def requests(connections: int) -> Run:
    """PING and PONG, the smallest request, with a single request in flight per connection."""

    def run(round_: BenchRound) -> BenchSample:
        ping = pulsar_frame(PING, [])
        wires = [PulsarWire(round_.address("pulsar")) for _ in range(connections)]

        def work() -> int:
            return one_in_flight({wire.socket: ping for wire in wires}, round_.seconds)

        try:
            return timed(round_, BenchSample(0, "req/s", "P"), work)
        finally:
            for wire in wires:
                wire.close()

    return run


def iggy_sends(dialect: Callable[[], iggy_load.DialectFrames], connections: int) -> Run:
    """SENDs of a message of 1 KB to a partition, one in flight per connection."""

    def run(round_: BenchRound) -> BenchSample:
        address, topic = round_.address("iggy"), round_.topic()
        iggy_load.make_topic(address, topic)
        frames, wires = {}, []
        for _ in range(connections):
            client = dialect()
            wires.append(client.open(address, topic))
            frames[wires[-1].socket] = client.sends(topic, 1, 1000)

        def work() -> int:
            return one_in_flight(frames, round_.seconds)

        try:
            return timed(round_, BenchSample(0, "acks/s", "S", connections), work)
        finally:
            for wire in wires:
                wire.close()

    return run


def light_beside_bulk(round_: BenchRound) -> BenchSample:
    """Longest time of a Metadata request while others produce at full speed."""
    address = round_.address("kafka")
    (topic,) = _topics(round_, 1)
    body, _ = kafka_load.set_of_128k(100)
    seconds = round_.seconds
    bulk = [
        lambda name=name: kafka_load.pipelined_produce(address, name, [body], seconds + 60, 8)
        for name in _topics(round_, BULK_CONNECTIONS)
    ]
    latencies: list[float] = []
    request = struct.pack(">i", 1) + string(topic.encode())
    with KafkaWire(address) as wire, in_background(bulk):
        time.sleep(min(seconds, 0.5))  # Until the bulk is under way.
        deadline = time.perf_counter() + seconds
        while time.perf_counter() < deadline:
            started = time.perf_counter()
            wire.ask(METADATA, 0, request)
            latencies.append(time.perf_counter() - started)
            time.sleep(LIGHT_PAUSE_S)
    return BenchSample(sorted(latencies)[len(latencies) * 99 // 100] * 1000, "ms p99")


def offset_commits(round_: BenchRound) -> BenchSample:
    """OffsetCommits of 100 partitions each, on disk before the answer."""
    topics = _topics(round_, COMMITS_EACH)
    head = string(b"bench") + struct.pack(">i", -1) + string(b"") + struct.pack(">i", len(topics))

    def request(offset: int) -> bytes:
        body = head + b"".join(
            string(topic.encode()) + struct.pack(">iiqq", 1, 0, offset, -1) + string(b"")
            for topic in topics
        )
        return frame(OFFSET_COMMIT, 1, body)

    prepared = [request(offset) for offset in range(1, 51)]

    def work() -> int:
        sent = answered = 0
        with KafkaWire(round_.address("kafka")) as wire:
            deadline = time.perf_counter() + round_.seconds
            while answered < sent or time.perf_counter() < deadline:
                while sent - answered < COMMITS_IN_FLIGHT and time.perf_counter() < deadline:
                    wire.send(prepared[sent % len(prepared)])
                    sent += 1
                if answered < sent:
                    answer = wire.take_frame()
                    assert answer.endswith(bytes(2)), "a commit was refused"
                    answered += 1
        return answered * COMMITS_EACH

    return timed(round_, BenchSample(0, "commits/s", "P"), work)
