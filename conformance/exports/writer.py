"""A producer that writes while exports run: Kafka sets of every size, over two partitions."""

import json
import random
import threading
from typing import Self
from urllib.request import Request, urlopen

from confluent_kafka import Producer

from conformance.server import RunningBroker

TOPIC = "orders"
PARTITIONS = 2
PAUSE_S = 0.002  # Between messages: the log grows for as long as the runs take.
BURST_MAX = 50


class LiveWriter:
    """Writes in a thread from entering to leaving."""

    def __init__(self, broker: RunningBroker, seed: int) -> None:
        make_topic(broker, TOPIC, PARTITIONS)
        self._producer = Producer(
            {"bootstrap.servers": broker.addresses["kafka"], "compression.type": "zstd"}
        )
        self._rng = random.Random(seed)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        assert self._producer.flush(60) == 0, "the writer's last records were not acknowledged"

    def _write(self) -> None:
        rng = self._rng
        while not self._ended.wait(PAUSE_S):
            for _ in range(rng.randrange(1, BURST_MAX)):
                value = rng.randbytes(rng.choice((10, 100, 2000)))
                self._producer.produce(TOPIC, value, partition=rng.randrange(PARTITIONS))
            self._producer.poll(0)


def make_topic(broker: RunningBroker, name: str, partitions: int) -> None:
    """Create a topic over HTTP."""
    url = f"{broker.url}/api/v1/topics/public/default/{name}"
    body = json.dumps({"partitions": partitions}).encode()
    headers = {"Content-Type": "application/json"}
    urlopen(Request(url, body, headers, method="PUT")).close()


def ends_of(broker: RunningBroker, name: str) -> dict[int, int]:
    """Return the high watermark of each partition."""
    with urlopen(f"{broker.url}/api/v1/topics/public/default/{name}") as answer:
        topic = json.loads(answer.read())
    return {
        number: partition["high_watermark"] for number, partition in enumerate(topic["partitions"])
    }
