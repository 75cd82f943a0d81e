"""Workloads over HTTP: produce requests that are on disk before the answer.

`bare_http.py` measures their limit, H.
"""

import statistics
import time
from collections.abc import Callable
from functools import partial

from conformance.bench import kafka_load
from conformance.bench.bare_http import answers, request_of
from conformance.bench.many import synchronous_producers
from conformance.bench.process import in_background
from conformance.bench.sample import BenchRound, BenchSample, timed
from conformance.clients.raw.kafka import KafkaWire

Run = Callable[[BenchRound], BenchSample]

WANTED = 0.5  # Share of the rate of bare answers: the goal for requests of a single message.
STARTS_S = 0.1  # Time for a load process to start.


def produce(messages: int) -> Run:
    """Requests per second, each of `messages` messages that are on disk before the answer."""

    def run(round_: BenchRound) -> BenchSample:
        request = request_of(f"/topics/public/default/{_topic(round_)}", messages)
        address = round_.address("http")
        return timed(
            round_,
            BenchSample(0, "req/s", "H", cpu_of="H us"),
            lambda: len(answers(address, request, round_.seconds)),
        )

    return run


def read(messages: int) -> Run:
    """Requests per second, each reading `messages` messages of PIP-64."""

    def run(round_: BenchRound) -> BenchSample:
        topic, http = _topic(round_), round_.address("http")
        path = f"/topics/public/default/{topic}"
        answers(http, request_of(path, messages), STARTS_S)
        query = f"/partitions/0/messages?max_messages={messages}"
        request = f"GET {path}{query} HTTP/1.1\r\nHost: bench\r\n\r\n".encode()
        return timed(
            round_,
            BenchSample(0, "req/s", "H", cpu_of="H us"),
            lambda: len(answers(http, request, round_.seconds)),
        )

    return run


def latency(round_: BenchRound) -> BenchSample:
    """The 99th percentile for requests of a single message, at half the goal rate."""
    request = request_of(f"/topics/public/default/{_topic(round_)}", 1)
    http = round_.address("http")
    latencies = sorted(answers(http, request, round_.seconds, half_wanted(round_)))
    return BenchSample(latencies[len(latencies) * 99 // 100] * 1000, "ms p99")


def acks_beside(rate_of: Callable[[BenchRound], float]) -> Run:
    """Median time of a Kafka acknowledgement beside HTTP at that rate, over that without HTTP."""

    def run(round_: BenchRound) -> BenchSample:
        request = request_of(f"/topics/public/default/{_topic(round_)}", 1)
        kafka, http = round_.address("kafka"), round_.address("http")
        topic, body = _topic(round_), kafka_load.message_set(1, 1000)
        rate = rate_of(round_)
        alone = statistics.median(synchronous_producers(kafka, [topic], body, round_.seconds / 2))
        load = partial(answers, http, request, round_.seconds + 60, rate)
        with in_background([load]):
            time.sleep(STARTS_S)
            times = synchronous_producers(kafka, [topic], body, round_.seconds / 2)
        return BenchSample(statistics.median(times) / alone, "times p50")

    return run


def half_wanted(round_: BenchRound) -> float:
    """Return half of the goal rate, in requests per second of a single message."""
    return round_.limits["H"] * WANTED / 2


def half_reached(round_: BenchRound) -> float:
    """Return half of the present rate, which grows as requests become cheaper."""
    request = request_of(f"/topics/public/default/{_topic(round_)}", 1)
    began = time.perf_counter()
    count = len(answers(round_.address("http"), request, round_.seconds / 2))
    return count / (time.perf_counter() - began) / 2


def _topic(round_: BenchRound) -> str:
    topic = round_.topic()
    with KafkaWire(round_.address("kafka")) as wire:
        wire.create(topic)
    return topic
