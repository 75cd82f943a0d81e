"""Workloads over HTTP: produce requests, on disk before they are answered. The limit that they are
compared with, H, is in `bare_http.py`.
"""

import statistics
import time
from collections.abc import Callable
from functools import partial

from conformance.bench import kafka_load
from conformance.bench.bare_http import answers, request_of
from conformance.bench.many import synchronous_producers
from conformance.bench.process import in_background
from conformance.bench.sample import Round, Sample, timed
from conformance.raw.kafka import KafkaWire

Run = Callable[[Round], Sample]


def produce(messages: int) -> Run:
    """Requests a second, each of `messages` messages that are on disk before the answer."""

    def run(round_: Round) -> Sample:
        request = request_of(f"/topics/public/default/{_topic(round_)}", messages)
        address = round_.address("http")
        return timed(
            round_,
            Sample(0, "req/s", "H", cpu_of="H us"),
            lambda: len(answers(address, request, round_.seconds)),
        )

    return run


def latency_at_half(round_: Round) -> Sample:
    """The 99th percentile of one message a request, at half the rate that there is."""
    request = request_of(f"/topics/public/default/{_topic(round_)}", 1)
    address = round_.address("http")
    began = time.perf_counter()
    count = len(answers(address, request, round_.seconds / 2))
    rate = count / (time.perf_counter() - began) / 2
    latencies = sorted(answers(address, request, round_.seconds, rate))
    return Sample(latencies[len(latencies) * 99 // 100] * 1000, "ms p99")


def acks_beside(round_: Round) -> Sample:
    """Median time of a Kafka acknowledgement beside HTTP at half its rate, over that without."""
    request = request_of(f"/topics/public/default/{_topic(round_)}", 1)
    kafka, http = round_.address("kafka"), round_.address("http")
    topic, body = _topic(round_), kafka_load.message_set(1, 1000)
    began = time.perf_counter()
    count = len(answers(http, request, round_.seconds / 2))
    rate = count / (time.perf_counter() - began) / 2
    alone = statistics.median(synchronous_producers(kafka, [topic], body, round_.seconds / 2))
    with in_background([partial(answers, http, request, round_.seconds + 60, rate)]):
        beside = statistics.median(synchronous_producers(kafka, [topic], body, round_.seconds / 2))
    return Sample(beside / alone, "times p50")


def _topic(round_: Round) -> str:
    topic = round_.topic()
    with KafkaWire(round_.address("kafka")) as wire:
        wire.create(topic)
    return topic
