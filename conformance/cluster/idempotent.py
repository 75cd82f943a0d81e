"""Idempotent Kafka producers that never wait for an answer: librdkafka, Java and kafka-python.

A value that a library repeats may be stored only once.
"""

import abc
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import IO, Final

from confluent_kafka import KafkaError, Message, Producer
from kafka import KafkaProducer

from conformance.today.programs import PROGRAMS, SOURCES, Program, copy_jars, is_older, run_build

PAUSE_MS: Final = 4  # Between two values of a producer: several batches are in flight.
METADATA_MS: Final = 1000  # Producers learn of a new owner while the former owner hangs.
END_S: Final = 150.0  # For a producer's last answers: more than the producer's own time-outs.
JAVA: Final = SOURCES.parent / "cluster" / "java" / "Numbered.java"


class Numbered(abc.ABC):
    """A producer that sends numbered values, and the answers to them."""

    def __init__(
        self, kind: str, addresses: str, topics: Sequence[str], pause_ms: int = PAUSE_MS
    ) -> None:
        self.kind = kind
        self.topics = topics
        self.acked: dict[str, int] = {}  # Value: offset.
        self.errors: dict[str, str] = {}  # Value: error that the application received.
        self.pause_ms = pause_ms
        self._addresses = addresses
        self._last_s = time.monotonic()

    @abc.abstractmethod
    def start(self) -> None:
        """Begin to send."""

    @abc.abstractmethod
    def stop(self) -> None:
        """Stop sending, and wait for the answers."""

    @property
    def silent_s(self) -> float:
        """Return the seconds since the last answer."""
        return time.monotonic() - self._last_s

    def answered(self, value: str, offset: int) -> None:
        """Record an acknowledged value."""
        self.acked[value] = offset
        self._last_s = time.monotonic()

    def failed(self, value: str, error: str) -> None:
        """Record a refused value, or a value with an unknown result."""
        self.errors[value] = error


class InThread(Numbered):
    """A library in a thread of this process."""

    def __init__(
        self, kind: str, addresses: str, topics: Sequence[str], pause_ms: int = PAUSE_MS
    ) -> None:
        super().__init__(kind, addresses, topics, pause_ms)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=kind, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(END_S)
        if self._thread.is_alive():
            self.failed(f"{self.kind}:end", f"no end within {END_S:.0f} s")

    def _run(self) -> None:
        number = 0
        while not self._stopping.wait(self.pause_ms / 1000):
            self._send(self.topics[number % len(self.topics)], f"{self.kind}:{number}")
            number += 1
        self._flush()

    @abc.abstractmethod
    def _send(self, topic: str, value: str) -> None: ...

    @abc.abstractmethod
    def _flush(self) -> None: ...


class Librdkafka(InThread):
    """confluent-kafka."""

    def __init__(
        self, kind: str, addresses: str, topics: Sequence[str], pause_ms: int = PAUSE_MS
    ) -> None:
        super().__init__(kind, addresses, topics, pause_ms)
        self._producer = Producer(
            {
                "bootstrap.servers": addresses,
                "enable.idempotence": True,
                "linger.ms": 5,
                "topic.metadata.refresh.interval.ms": METADATA_MS,
                "log_level": 2,  # Without every broken connection.
            }
        )

    def _send(self, topic: str, value: str) -> None:
        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                self.answered(value, message.offset() or 0)
            else:
                self.failed(value, str(error))

        self._producer.produce(topic, value.encode(), partition=0, on_delivery=delivered)
        self._producer.poll(0)

    def _flush(self) -> None:
        self._producer.flush(END_S)


class KafkaPythonProducer(InThread):
    """kafka-python with its default settings."""

    def __init__(
        self, kind: str, addresses: str, topics: Sequence[str], pause_ms: int = PAUSE_MS
    ) -> None:
        super().__init__(kind, addresses, topics, pause_ms)
        self._producer = KafkaProducer(
            bootstrap_servers=addresses.split(","), linger_ms=5, metadata_max_age_ms=METADATA_MS
        )

    def _send(self, topic: str, value: str) -> None:
        future = self._producer.send(topic, value.encode(), partition=0)
        future.add_callback(lambda place: self.answered(value, place.offset))
        future.add_errback(lambda error: self.failed(value, repr(error)))

    def _flush(self) -> None:
        self._producer.flush(END_S)


class Java(Numbered):
    """Kafka's own client, in a process."""

    def __init__(
        self, kind: str, addresses: str, topics: Sequence[str], pause_ms: int = PAUSE_MS
    ) -> None:
        super().__init__(kind, addresses, topics, pause_ms)
        self._process: subprocess.Popen[str] | None = None
        self._command = _java(newest_java())

    def start(self) -> None:
        topics = ",".join(self.topics)
        self._process = subprocess.Popen(
            [
                *self._command,
                self._addresses,
                topics,
                self.kind,
                str(self.pause_ms),
                str(METADATA_MS),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        self._reader = threading.Thread(
            target=self._read, args=(self._process.stdout,), daemon=True
        )
        self._reader.start()

    def stop(self) -> None:
        process = self._process
        assert process is not None and process.stdin is not None
        process.stdin.close()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            self.failed(f"{self.kind}:end", f"no end within {END_S:.0f} s")
        self._reader.join(END_S)

    def _read(self, lines: IO[str]) -> None:
        for line in lines:
            value, _, answer = line.strip().partition(" ")
            if answer.startswith("! "):
                self.failed(value, answer[2:])
            else:
                self.answered(value, int(answer))


def newest_java() -> Program:
    """Return the newest of Kafka's own clients."""
    return [program for program in PROGRAMS if program.name == "java"][-1]


def _java(program: Program) -> list[str]:
    """Return the command of the Java producer; build a missing producer. Raises Unavailable."""
    folder = program.folder
    folder.mkdir(parents=True, exist_ok=True)
    copy_jars(program, SOURCES / "java")
    if is_older(folder / "Numbered.class", JAVA):
        run_build(["javac", "-cp", f"{folder}/*", "-d", folder, JAVA], folder)
    quick = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m"]
    return ["java", *quick, "-cp", f"{folder}:{folder}/*", "Numbered"]


PRODUCERS: Final = {"librdkafka": Librdkafka, "java": Java, "kafka-python": KafkaPythonProducer}


def judge(producer: Numbered, stored: Counter[str]) -> list[str]:
    """Return broken promises; `stored` counts each value in all topics."""
    lost = [value for value in producer.acked if not stored[value]]
    doubled = [value for value, count in stored.items() if count > 1]
    faults = []
    if lost:
        faults.append(f"{producer.kind}: {len(lost)} acknowledged values are lost: {lost[:5]}")
    mine = [value for value in doubled if value.startswith(f"{producer.kind}:")]
    if mine:
        faults.append(f"{producer.kind}: {len(mine)} values are stored twice: {mine[:5]}")
    return faults
