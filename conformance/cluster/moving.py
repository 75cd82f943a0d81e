"""Clients that hold topics while these move, grow and shrink.

Some readers commit nothing or open and close; another client changes the number of partitions.
"""

import time
from typing import Final

import httpx
import pulsar
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka import KafkaException as ConfluentError
from kafka import KafkaConsumer
from kafka import TopicPartition as PythonPartition

from conformance.clients.raw.iggy import (
    CREATE_PARTITIONS,
    DELETE_GROUP,
    DELETE_PARTITIONS,
    JOIN_GROUP,
    IggyWire,
)
from conformance.cluster.clients import AGAIN_S, ANSWER_S, LoadState, ReconnectingClient

POLLED: Final = 100
SESSION_MS: Final = 6000
HELD_S: Final = 1.0  # Time that a holder keeps its consumers: topics move meanwhile.
FROM_START_S: Final = 15.0  # Time that a reader reads before it restarts.
FOLLOWS_S: Final = 30.0  # Time for a broker to show an answered change.
# Of a topic that grows and shrinks; with more than one partition, a topic is partitioned.
PARTITIONS: Final = 2
MORE_MAX: Final = 3  # Partitions that are added and removed at once.


class LibrdkafkaGroup(ReconnectingClient):
    """librdkafka as a member of a group.

    The client never restarts: a restart would hide a partition that the library no longer reads.
    """

    patience_s = SESSION_MS / 1000 + ANSWER_S

    def __init__(self, kind: str, load: LoadState) -> None:
        super().__init__(kind, load)
        self.whole_topics = load.book.topics

    def live(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": ",".join(self.addresses()),
                "group.id": self.kind,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": SESSION_MS,
                "log_level": 2,  # Without every broken connection.
            }
        )
        consumer.subscribe(self.book.topics)
        try:
            while not self.load.stopping.is_set():
                self._poll(consumer)
        finally:
            consumer.close()

    def _poll(self, consumer: Consumer) -> None:
        ends: dict[str, int] = {}
        for message in consumer.consume(POLLED, 0.3):
            topic, offset, value = message.topic(), message.offset(), message.value()
            if error := message.error():
                self.troubles[str(error)[:160]] += 1
            elif topic is not None and offset is not None and isinstance(value, bytes):
                self.book.reads(self.kind, topic, self.kind, [value])
                ends[topic] = offset + 1
        if not ends:
            return
        moves = [
            (topic, self.book.moving(self.kind, topic, self.kind, end))
            for topic, end in ends.items()
        ]
        places = [TopicPartition(topic, 0, end) for topic, end in ends.items()]
        try:
            committed = consumer.commit(offsets=places, asynchronous=False)
        # The consumer reads on: the next commit passes this position.
        except ConfluentError as error:
            self.troubles[str(error)[:160]] += 1
            return
        done = {place.topic for place in committed or () if place.error is None}
        for topic, moved in moves:
            if topic in done:
                self.book.moved(topic, moved)


class FromStart(ReconnectingClient):
    """kafka-python: reads all topics from their beginning in each life.

    So brokers fetch uncached records while topics move.
    """

    patience_s = 2 * ANSWER_S

    def live(self) -> None:
        consumer = KafkaConsumer(
            bootstrap_servers=self.addresses(), request_timeout_ms=int(ANSWER_S * 1000)
        )
        places = [PythonPartition(topic, 0) for topic in self.book.topics]
        try:
            consumer.assign(places)
            consumer.seek_to_beginning(*places)
            end_s = time.monotonic() + FROM_START_S
            while not self.load.stopping.is_set() and time.monotonic() < end_s:
                if consumer.poll(300, max_records=10 * POLLED):
                    self.book.goes_on(self.kind)
        finally:
            consumer.close()


class Resizer(ReconnectingClient):
    """Grows and shrinks a topic at any broker.

    An answer without an error is exact; after any other answer the change may come late, so that
    the next life has a separate topic.
    """

    protocol = "iggy"
    patience_s = 2 * ANSWER_S

    def live(self) -> None:
        topic = f"resized-{self.generation}"
        with IggyWire(self.address(), timeout_s=2 * ANSWER_S) as wire:
            wire.create_topic(topic, partitions=PARTITIONS)
        self.book.resized = topic
        while not self.load.stopping.is_set():
            more = self.random.randint(1, MORE_MAX)
            self._change(topic, CREATE_PARTITIONS, more, PARTITIONS + more)
            self._change(topic, DELETE_PARTITIONS, more, PARTITIONS)

    def _change(self, topic: str, code: int, count: int, expected: int) -> None:
        with IggyWire(self.address(), timeout_s=2 * ANSWER_S) as wire:
            wire.change_partitions(code, topic, count)
            # A broker that cannot reach PostgreSQL follows the change later.
            end_s = time.monotonic() + FOLLOWS_S
            while (
                partition_count := wire.partitions_of(topic)
            ) != expected and time.monotonic() < end_s:
                self.load.stopping.wait(AGAIN_S)
        if partition_count != expected:
            self.book.doubled.append(
                f"{topic} has {partition_count} partitions after command {code} of {count},"
                f" not {expected}"
            )
            raise AssertionError(f"{topic} has {partition_count} partitions")
        self.book.goes_on(self.kind)
        self.load.stopping.wait(AGAIN_S)


class HoldingClient(ReconnectingClient):
    """Holds the resized topic for several seconds, then attaches again."""

    def live(self) -> None:
        if topic := self.book.resized:
            self.hold(topic)
            self.book.goes_on(self.kind)

    def hold(self, topic: str) -> None:
        """Attach, wait, and leave."""
        raise NotImplementedError

    def wait(self) -> None:
        """Hold the consumers."""
        self.load.stopping.wait(HELD_S)


class HttpHolder(HoldingClient):
    """A consumer over HTTP that requests no records."""

    protocol = "http"

    def hold(self, topic: str) -> None:
        host, port = self.address()
        path = f"/topics/public/default/{topic}/subscription/{self.kind}"
        with httpx.Client(base_url=f"http://{host}:{port}", timeout=ANSWER_S) as client:
            created = client.post(path, json={"initial_position": "Earliest"}).raise_for_status()
            self.wait()
            client.delete(f"{path}/consumer/{created.json()['id']}")


class PulsarHolder(HoldingClient):
    """A consumer of all partitions."""

    protocol = "pulsar"
    patience_s = 2 * ANSWER_S

    def hold(self, topic: str) -> None:
        client = pulsar.Client(
            "pulsar://" + ",".join(self.addresses()),
            operation_timeout_seconds=5,
            connection_timeout_ms=2000,
            logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
        )
        try:
            client.subscribe(topic, self.kind)
            self.wait()
        finally:
            client.shutdown()


class KafkaHolder(HoldingClient):
    """A member of a group."""

    patience_s = SESSION_MS / 1000 + ANSWER_S

    def hold(self, topic: str) -> None:
        consumer = KafkaConsumer(
            topic,
            bootstrap_servers=self.addresses(),
            group_id=self.kind,
            session_timeout_ms=SESSION_MS,
            request_timeout_ms=SESSION_MS + 1000,
        )
        end_s = time.monotonic() + HELD_S
        try:
            while not self.load.stopping.is_set() and time.monotonic() < end_s:
                consumer.poll(300)
        finally:
            consumer.close(autocommit=False)


class IggyHolder(HoldingClient):
    """A member of a group."""

    protocol = "iggy"

    def hold(self, topic: str) -> None:
        group = f"{self.kind}-{self.generation}"
        with IggyWire(self.address(), timeout_s=ANSWER_S) as wire:
            wire.create_group(topic, group)
            wire.ask_of_group(JOIN_GROUP, topic, group)
            self.wait()
            wire.ask_of_group(DELETE_GROUP, topic, group)


def movers(load: LoadState) -> list[ReconnectingClient]:
    """Return a client of each kind."""
    holders = {"http": HttpHolder, "pulsar": PulsarHolder, "kafka": KafkaHolder, "iggy": IggyHolder}
    return [
        LibrdkafkaGroup("librdkafka-reader", load),
        FromStart("kafka-from-start", load),
        Resizer("resizer", load),
        *(kind(f"{name}-holder", load) for name, kind in holders.items()),
    ]
