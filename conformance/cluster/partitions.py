"""Ten thousand partitions, each written again and again: what PostgreSQL keeps of them, and how
fast others serve those of a broker that is killed.
"""

import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final

import psycopg
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import NewTopic

from conformance.bench import kafka_load
from conformance.cluster.figures import MB, Row
from conformance.cluster.running import GOES_ON_S, Cluster, Lost
from conformance.raw.kafka import KafkaWire
from storage.shared.layout import shard_of

TOPICS: Final = 100
SHARDS: Final = 64
EVERY_S: Final = 60.0  # Each partition is written once in this time.
VALUE: Final = bytes(100)
DATABASE_MB: Final = 500
WITHIN_S: Final = 10.0
LOOK_S: Final = 0.02


@dataclass
class Writer:
    """One stock producer that writes to every partition in turn."""

    producer: Any
    places: Sequence[tuple[str, int]]
    acknowledged: int = 0
    failed: list[str] = field(default_factory=list)
    answered: dict[tuple[str, int], float] = field(default_factory=dict)  # When last, by place.

    def write_all(self, seconds: float) -> None:
        """Each partition once, spread over that time."""
        begun = time.monotonic()
        for number, place in enumerate(self.places):
            self.write(place)
            ahead_s = number * seconds / len(self.places) - (time.monotonic() - begun)
            if ahead_s > 0:
                time.sleep(ahead_s)

    def write(self, place: tuple[str, int]) -> None:
        """One value."""
        sent = self.producer.send(place[0], VALUE, partition=place[1])
        sent.add_callback(self._done, place).add_errback(self._failed)

    def check(self) -> None:
        """Raises Lost where something was not acknowledged."""
        if self.failed or self.answered.keys() < set(self.places):
            without = len(self.places) - len(self.answered)
            raise Lost(
                f"{len(self.failed)} sends failed: {self.failed[:3]}; {without} partitions were"
                " never answered"
            )

    def _done(self, place: tuple[str, int], _: object) -> None:
        self.acknowledged += 1
        self.answered[place] = time.monotonic()

    def _failed(self, error: Exception) -> None:
        self.failed.append(f"{type(error).__name__}: {error}"[:200])


def held(cluster: Cluster, partitions: int, minutes: float) -> Iterator[Row]:
    """Write for so long, look at PostgreSQL, then kill a broker. Raises Lost."""
    names = [f"wide{number}" for number in range(TOPICS)]
    each = partitions // TOPICS
    admin = KafkaAdminClient(bootstrap_servers=cluster.addresses("kafka"))
    for name in names:
        admin.create_topics([NewTopic(name, each, 1)], timeout_ms=int(GOES_ON_S * 1000))
    admin.close()
    producer = KafkaProducer(
        bootstrap_servers=cluster.addresses("kafka"),
        linger_ms=20,
        delivery_timeout_ms=int(GOES_ON_S * 1000),
        max_block_ms=int(GOES_ON_S * 1000),
    )
    writer = Writer(producer, [(name, number) for number in range(each) for name in names])
    try:
        begun = time.monotonic()
        while time.monotonic() - begun < minutes * 60:
            writer.write_all(EVERY_S)
        producer.flush(GOES_ON_S)
        writer.check()
        yield _database(cluster, partitions, minutes)
        yield from _taken_over(cluster, writer)
    finally:
        producer.close(0)


def _database(cluster: Cluster, partitions: int, minutes: float) -> Row:
    with psycopg.connect(cluster.postgres.database) as connection:
        found = connection.execute("SELECT pg_database_size(current_database())").fetchone()
    assert found is not None
    size_mb = found[0] / MB
    name = f"PostgreSQL, {partitions:,} partitions each written every minute, {minutes:g} minutes"
    return Row(name, f"{DATABASE_MB} MB", f"{size_mb:.0f} MB", size_mb < DATABASE_MB)


def _taken_over(cluster: Cluster, writer: Writer) -> Iterator[Row]:
    """Kill the broker that owns most, and see when others take values for each of its topics; then
    when the stock client had an answer of each partition. Raises Lost.
    """
    owners = cluster.owners()
    owned: dict[int, list[tuple[str, int]]] = {}
    for place in writer.places:
        node = owners[shard_of(f"public/default/{place[0]}", SHARDS)]
        owned.setdefault(node, []).append(place)
    node, places = max(owned.items(), key=lambda one: len(one[1]))
    cluster.brokers[node - 1].kill()
    killed = time.monotonic()
    sending = threading.Thread(target=lambda: [writer.write(place) for place in places])
    sending.start()
    waits = _first_acks(cluster, node, {topic for topic, _ in places}, killed)
    measured = (
        f"{len(places):,} partitions: a topic takes values after {statistics.median(waits):.1f} s"
        f" (p50), {max(waits):.1f} s at most"
    )
    name = "all of a killed broker taken over, lease 5 s"
    yield Row(name, f"{WITHIN_S:.0f} s", measured, max(waits) <= WITHIN_S)
    sending.join(GOES_ON_S)
    writer.producer.flush(GOES_ON_S)
    writer.check()
    client_s = max(writer.answered[place] - killed for place in places)
    name = "kafka-python has written to each of them"
    yield Row(name, f"{GOES_ON_S:.0f} s", f"{client_s:.1f} s", client_s <= GOES_ON_S)


def _first_acks(cluster: Cluster, node: int, topics: set[str], killed: float) -> list[float]:
    """After how long each topic takes a value at one of the other brokers. Raises Lost."""
    waits: list[float] = []
    body = kafka_load.message_set(1, len(VALUE))
    others = [broker for broker in cluster.brokers if broker.node != node]
    with ExitStack() as held:
        wires = [held.enter_context(KafkaWire(one.address("kafka"))) for one in others]
        while topics:
            for topic, wire in [(topic, wire) for topic in sorted(topics) for wire in wires]:
                if topic in topics and not wire.produce(topic, body, acks=-1)[0]:
                    waits.append(time.monotonic() - killed)
                    topics.discard(topic)
            if time.monotonic() - killed > GOES_ON_S:
                raise Lost(f"nobody takes values for {sorted(topics)[:5]}: {cluster.tails()}")
            time.sleep(LOOK_S)
    return waits
