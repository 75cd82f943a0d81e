"""Ten thousand partitions with repeated writes: size of PostgreSQL's tables, and takeover times.

The takeover times are those of a killed broker's partitions.
"""

import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import psycopg
from confluent_kafka import KafkaError, Message, Producer
from kafka import KafkaAdminClient
from kafka.admin import NewTopic

from braidlog.storage.shared.layout import shard_of
from conformance.cluster.figures import MB, FigureRow
from conformance.cluster.first_acks import FirstAcks
from conformance.cluster.running import GOES_ON_S, Lost, RunningCluster

TOPICS: Final = 100
SHARDS: Final = 64
EVERY_S: Final = 60.0  # Each partition is written once in this time.
VALUE: Final = bytes(100)
DATABASE_MB: Final = 500
WITHIN_S: Final = 10.0


@dataclass
class PartitionsWriter:
    """A stock producer that writes to every partition in turn.

    The library is librdkafka: kafka-python needs most of a core for ten thousand partitions, which
    the brokers then lack.
    """

    producer: Producer
    places: Sequence[tuple[str, int]]
    acknowledged: int = 0
    failed: list[str] = field(default_factory=list)
    # Time of the last answer, by place.
    answered: dict[tuple[str, int], float] = field(default_factory=dict)

    def write_all(self, seconds: float) -> None:
        """Write to each partition once, spread over that time."""
        begun = time.monotonic()
        for number, place in enumerate(self.places):
            self.write(place)
            ahead_s = number * seconds / len(self.places) - (time.monotonic() - begun)
            self.producer.poll(max(ahead_s, 0))

    def write(self, place: tuple[str, int]) -> None:
        """Write a value."""
        self.producer.produce(place[0], VALUE, partition=place[1], on_delivery=self._done)

    def check(self) -> None:
        """Check that every value was acknowledged. Raises Lost."""
        if self.failed or self.answered.keys() < set(self.places):
            without = len(self.places) - len(self.answered)
            raise Lost(
                f"{len(self.failed)} sends failed: {self.failed[:3]}; {without} partitions were"
                " never answered"
            )

    def _done(self, error: KafkaError | None, message: Message) -> None:
        topic, partition = message.topic(), message.partition()
        assert topic is not None and partition is not None
        if error is not None:
            self.failed.append(f"{topic}/{partition}: {error}"[:200])
            return
        self.acknowledged += 1
        self.answered[topic, partition] = time.monotonic()


def held(cluster: RunningCluster, partitions: int, minutes: float) -> Iterator[FigureRow]:
    """Write for `minutes`, measure PostgreSQL, then kill a broker. Raises Lost."""
    names = [f"wide{number}" for number in range(TOPICS)]
    each = partitions // TOPICS
    admin = KafkaAdminClient(bootstrap_servers=cluster.addresses("kafka"))
    for name in names:
        admin.create_topics([NewTopic(name, each, 1)], timeout_ms=int(GOES_ON_S * 1000))
    admin.close()
    producer = Producer(
        {
            "bootstrap.servers": ",".join(cluster.addresses("kafka")),
            "linger.ms": 20,
            "message.timeout.ms": int(GOES_ON_S * 1000),
        }
    )
    writer = PartitionsWriter(
        producer, [(name, number) for number in range(each) for name in names]
    )
    begun = time.monotonic()
    while time.monotonic() - begun < minutes * 60:
        writer.write_all(EVERY_S)
    producer.flush(GOES_ON_S)
    writer.check()
    yield _database(cluster, partitions, minutes)
    yield from _taken_over(cluster, writer)


def _database(cluster: RunningCluster, partitions: int, minutes: float) -> FigureRow:
    with psycopg.connect(cluster.postgres.database) as connection:
        row = connection.execute("SELECT pg_database_size(current_database())").fetchone()
    assert row is not None
    size_mb = row[0] / MB
    name = f"PostgreSQL, {partitions:,} partitions each written every minute, {minutes:g} minutes"
    return FigureRow(name, f"{DATABASE_MB} MB", f"{size_mb:.0f} MB", size_mb < DATABASE_MB)


def _taken_over(cluster: RunningCluster, writer: PartitionsWriter) -> Iterator[FigureRow]:
    """Kill the broker with the most topics, and measure the takeover. Raises Lost.

    The rows give the time until other brokers accept values of each topic, and until the stock
    client has an answer of each partition.
    """
    owners = cluster.owners()
    owned: dict[int, list[tuple[str, int]]] = {}
    for place in writer.places:
        node = owners[shard_of(f"public/default/{place[0]}", SHARDS)]
        owned.setdefault(node, []).append(place)
    node, places = max(owned.items(), key=lambda item: len(item[1]))
    others = [broker.address("kafka") for broker in cluster.brokers if broker.node != node]
    with FirstAcks(others, {topic for topic, _ in places}) as acks:
        cluster.brokers[node - 1].kill()
        killed = time.monotonic()
        acks.begin()
        for place in places:
            writer.write(place)
            writer.producer.poll(0)
        waits = [when - killed for when in acks.times(GOES_ON_S)]
    measured = (
        f"{len(places):,} partitions: a topic takes values after {statistics.median(waits):.1f} s"
        f" (p50), {max(waits):.1f} s at most"
    )
    name = "all of a killed broker taken over, lease 5 s"
    yield FigureRow(name, f"{WITHIN_S:.0f} s", measured, max(waits) <= WITHIN_S)
    writer.producer.flush(GOES_ON_S)
    writer.check()
    client_s = max(writer.answered[place] - killed for place in places)
    name = "librdkafka has written to each of them"
    yield FigureRow(name, f"{GOES_ON_S:.0f} s", f"{client_s:.1f} s", client_s <= GOES_ON_S)
