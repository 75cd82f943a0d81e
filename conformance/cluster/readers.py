"""Readers of all protocols that move positions, survive every fault, and remember received values.

Other readers read whole topics at the end.
"""

import time
from collections.abc import Sequence
from typing import Any, Final

import httpx
import pulsar
from kafka import KafkaConsumer, TopicPartition
from kafka.structs import OffsetAndMetadata

from conformance.clients.raw.iggy import BY_OFFSET, IggyWire
from conformance.clients.raw.kafka import KafkaWire
from conformance.cluster.book import Log
from conformance.cluster.clients import AGAIN_S, ANSWER_S, LoadState, ReconnectingClient

TOPICS_MAX: Final = 8  # For a reader with a connection per topic.
POLLED: Final = 100
SESSION_MS: Final = 6000
READ_S: Final = 90.0  # Time to read all topics at the end.


class KafkaGroupReader(ReconnectingClient):
    """kafka-python as a member of a group, which commits the received records."""

    patience_s = 2 * SESSION_MS / 1000 + 1

    def __init__(self, kind: str, load: LoadState) -> None:
        super().__init__(kind, load)
        self.whole_topics = load.book.topics

    def live(self) -> None:
        consumer = KafkaConsumer(
            *self.book.topics,
            bootstrap_servers=self.addresses(),
            group_id=self.kind,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            request_timeout_ms=SESSION_MS + 1000,
        )
        try:
            while not self.load.stopping.is_set():
                self._poll(consumer)
        finally:
            consumer.close(autocommit=False)

    def _poll(self, consumer: Any) -> None:
        polled = consumer.poll(300, max_records=POLLED)
        if not polled:
            return
        moves = []
        for place, records in polled.items():
            topic = place.topic
            self.book.reads(self.kind, topic, self.kind, [record.value for record in records])
            end = records[-1].offset + 1
            moves.append((topic, self.book.moving(self.kind, topic, self.kind, end)))
        consumer.commit(
            {place: _commit(records[-1].offset + 1) for place, records in polled.items()}
        )
        for topic, moved in moves:
            self.book.moved(topic, moved)


def _commit(offset: int) -> OffsetAndMetadata:
    return OffsetAndMetadata(offset, "", -1)


class OldKafka(ReconnectingClient):
    """Frames of Kafka 0.8: reads at the leader, commits at any broker.

    A commit without an answer may come late, so that the next life has a separate group.
    """

    def live(self) -> None:
        topic = self.random.choice(self.book.topics)
        group = f"{self.kind}-{self.generation}"
        position = 0
        consumer = KafkaConsumer(bootstrap_servers=self.addresses(), api_version=(0, 8, 2))
        try:
            consumer.assign([TopicPartition(topic, 0)])
            consumer.seek_to_beginning()
            with KafkaWire(self.address()) as wire:
                wire.socket.settimeout(ANSWER_S)
                while not self.load.stopping.is_set():
                    for records in consumer.poll(300, max_records=POLLED).values():
                        self.book.reads(
                            self.kind, topic, group, [record.value for record in records]
                        )
                        position = records[-1].offset + 1
                    moved = self.book.moving(self.kind, topic, group, position)
                    error = wire.commit(group, topic, position)
                    if error:
                        raise ConnectionError(f"commit: error {error}")
                    self.book.moved(topic, moved)
        finally:
            consumer.close()


class IggyReader(ReconnectingClient):
    """Polls by offset at any broker and stores the offset, with a new topic and consumer in each
    life.
    """

    protocol = "iggy"

    def live(self) -> None:
        topic = self.random.choice(self.book.topics)
        group = f"{self.kind}-{self.generation}"
        position = 0
        with IggyWire(self.address(), timeout_s=ANSWER_S) as wire:
            while not self.load.stopping.is_set():
                messages = wire.poll(topic, POLLED, BY_OFFSET, position, group)
                if not messages:
                    self.load.stopping.wait(AGAIN_S)
                    continue
                self.book.reads(self.kind, topic, group, [message.payload for message in messages])
                position = messages[-1].offset + 1
                moved = self.book.moving(self.kind, topic, group, position)
                wire.store_offset(topic, group, position - 1)
                self.book.moved(topic, moved)


class PulsarReader(ReconnectingClient):
    """pulsar-client: a durable subscription on several topics, with individual acknowledgements."""

    protocol = "pulsar"
    patience_s = 2 * ANSWER_S

    def __init__(self, kind: str, load: LoadState) -> None:
        super().__init__(kind, load)
        self.whole_topics = load.book.topics[:TOPICS_MAX]

    def live(self) -> None:
        client = pulsar.Client(
            "pulsar://" + ",".join(self.addresses()),
            operation_timeout_seconds=5,
            connection_timeout_ms=2000,
            logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
        )
        try:
            consumers = {
                topic: client.subscribe(
                    topic, self.kind, initial_position=pulsar.InitialPosition.Earliest
                )
                for topic in self.book.topics[:TOPICS_MAX]
            }
            while not self.load.stopping.is_set():
                for topic, consumer in consumers.items():
                    self._poll(topic, consumer)
        finally:
            client.shutdown()

    def _poll(self, topic: str, consumer: Any) -> None:
        for _ in range(POLLED):
            try:
                message = consumer.receive(50)
            except pulsar.Timeout:
                return
            self.book.reads(self.kind, topic, self.kind, [message.data()])
            consumer.acknowledge(message)


class HttpReader(ReconnectingClient):
    """httpx: a consumer over HTTP; acknowledged messages must not be delivered again."""

    protocol = "http"

    def __init__(self, kind: str, load: LoadState) -> None:
        super().__init__(kind, load)
        self._acked: dict[str, set[bytes]] = {}

    def live(self) -> None:
        topic = self.random.choice(self.book.topics[:TOPICS_MAX])
        host, port = self.address()
        subscription = f"/topics/public/default/{topic}/subscription/{self.kind}"
        with httpx.Client(base_url=f"http://{host}:{port}", timeout=ANSWER_S) as client:
            created = client.post(subscription, json={"initial_position": "Earliest"})
            consumer = f"{subscription}/consumer/{created.raise_for_status().json()['id']}"
            while not self.load.stopping.is_set():
                query = {"max_messages": POLLED, "timeout": 200}
                answer = client.get(f"{consumer}/messages", params=query).raise_for_status()
                self._take(client, topic, subscription, answer.json()["messages"])

    def _take(self, client: httpx.Client, topic: str, path: str, messages: list[Any]) -> None:
        if not messages:
            return
        acked = self._acked.setdefault(topic, set())
        values = [message["value"].encode() for message in messages]
        again = acked.intersection(values)
        if again:
            text = f"{topic}: {self.kind} acknowledged {sorted(again)[:5]}, which came again"
            self.book.doubled.append(text)
        self.book.reads(self.kind, topic, self.kind, values)
        done = {"type": "Individual", "messageIds": [message["messageId"] for message in messages]}
        client.post(f"{path}/cursor", json=done).raise_for_status()
        acked.update(values)


def readers(load: LoadState) -> list[ReconnectingClient]:
    """Return a reader of each kind."""
    kinds = {"kafka": KafkaGroupReader, "kafka-0.8": OldKafka, "pulsar": PulsarReader}
    kinds |= {"iggy": IggyReader, "http": HttpReader}
    return [kind(f"{name}-reader", load) for name, kind in kinds.items()]


# Whole topics.


def by_kafka(address: str, topics: Sequence[str]) -> dict[str, Log]:
    """Read whole topics by a stock client, which finds the owners. Raises TimeoutError."""
    consumer = KafkaConsumer(bootstrap_servers=address)
    places = [TopicPartition(topic, 0) for topic in topics]
    consumer.assign(places)
    consumer.seek_to_beginning(*places)
    ends = {place.topic: end for place, end in consumer.end_offsets(places).items()}
    logs: dict[str, list[tuple[int, bytes]]] = {topic: [] for topic in topics}
    deadline = time.monotonic() + READ_S
    while any(ends[topic] > (log[-1][0] + 1 if log else 0) for topic, log in logs.items()):
        for place, records in consumer.poll(1000).items():
            logs[place.topic] += [(record.offset, record.value) for record in records]
        if time.monotonic() > deadline:
            raise TimeoutError(f"not everything can be read within {READ_S:.0f} s: {ends}")
    consumer.close()
    return dict(logs)


def by_iggy(address: tuple[str, int], topics: Sequence[str]) -> dict[str, Log]:
    """Read whole topics by Iggy, at a single broker."""
    logs: dict[str, Log] = {}
    with IggyWire(address) as wire:
        for topic in topics:
            log: list[tuple[int, bytes]] = []
            while polled := wire.poll(topic, 1000, BY_OFFSET, log[-1][0] + 1 if log else 0):
                log += [(message.offset, message.payload) for message in polled]
            logs[topic] = log
    return logs


def by_http(address: str, topics: Sequence[str]) -> dict[str, Log]:
    """Read whole topics by HTTP, at a single broker."""
    logs: dict[str, Log] = {}
    with httpx.Client(base_url=f"http://{address}", timeout=READ_S) as client:
        for topic in topics:
            log: list[tuple[int, bytes]] = []
            while True:
                position = log[-1][0] + 1 if log else 0
                answer = client.get(
                    f"/topics/public/default/{topic}/partitions/0/messages",
                    params={"position": position, "max_messages": 1000, "timeout": 0},
                ).raise_for_status()
                messages = answer.json()["messages"]
                if not messages:
                    break
                log += [(message["offset"], message["value"].encode()) for message in messages]
            logs[topic] = log
    return logs


def committed(
    address: tuple[str, int], groups: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], int]:
    """Return the position of every group and topic, as a broker answers in Kafka's protocol."""
    with KafkaWire(address) as wire:
        return {(group, topic): wire.committed(group, topic) for group, topic in groups}
