"""Time of each topic's first acknowledged write after a fault.

A separate process measures all topics at the same time, without other clients' threads. `python -m
conformance.cluster.first_acks` reads a line of JSON, `[[[host, port], ...], [topic, ...]]`; a
second line starts the measurement. The answer is a line of JSON: for each topic the time, by the
machine's monotonic clock, when any of these brokers acknowledged a value.
"""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Final

from conformance.bench import kafka_load
from conformance.clients.raw.kafka import KafkaWire
from conformance.cluster.running import Lost

LOOK_S: Final = 0.1  # Between two attempts on a topic.
VALUE_BYTES: Final = 100


class FirstAcks:
    """The process; a context manager that ends the process."""

    def __init__(self, addresses: Sequence[tuple[str, int]], topics: set[str]) -> None:
        """Start the process with the Kafka listeners of the brokers that may take the topics."""
        command = [sys.executable, "-m", "conformance.cluster.first_acks"]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
        self._say(json.dumps([addresses, sorted(topics)]))
        assert self._process.stdout is not None
        self._process.stdout.readline()  # The process is connected.

    def __enter__(self) -> "FirstAcks":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def begin(self) -> None:
        """Start the attempts."""
        self._say("begin")

    def times(self, seconds: float) -> list[float]:
        """Return each topic's first acknowledgement time. Raises Lost if a topic has none in
        `seconds`.
        """
        ending = threading.Timer(seconds, self._process.kill)
        ending.start()
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        ending.cancel()
        if not line:
            raise Lost(f"nobody took values for all topics within {seconds:.0f} s")
        times_s: list[float] = json.loads(line)
        return times_s

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()


def main() -> None:
    """Run the process; see the module."""
    addresses, topics = json.loads(sys.stdin.readline())
    body = kafka_load.message_set(1, VALUE_BYTES)
    with ExitStack() as held, ThreadPoolExecutor(len(topics)) as pool:
        wires = [
            [held.enter_context(KafkaWire((host, port))) for host, port in addresses]
            for _ in topics
        ]
        print("connected", flush=True)
        sys.stdin.readline()

        def first(topic: str, own: Sequence[KafkaWire]) -> float:
            while True:
                for wire in own:
                    if not wire.produce(topic, body, acks=-1)[0]:
                        return time.monotonic()
                time.sleep(LOOK_S)

        print(json.dumps(list(pool.map(first, topics, wires))), flush=True)


if __name__ == "__main__":
    main()
