"""Ten thousand partitions, each written again and again: what PostgreSQL keeps of them, and how
fast others serve those of a broker that is killed.
"""

import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import psycopg
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import NewTopic

from conformance.cluster.figures import MB, Row
from conformance.cluster.running import GOES_ON_S, Cluster, Lost
from storage.shared.layout import shard_of

TOPICS: Final = 100
SHARDS: Final = 64
EVERY_S: Final = 60.0  # Each partition is written once in this time.
VALUE: Final = bytes(100)
DATABASE_MB: Final = 500
WITHIN_S: Final = 10.0


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
        yield _database(cluster, partitions, minutes)
        yield _taken_over(cluster, writer)
    finally:
        producer.close(0)
    if writer.failed:
        raise Lost(f"{len(writer.failed)} sends failed: {writer.failed[:3]}")


def _database(cluster: Cluster, partitions: int, minutes: float) -> Row:
    with psycopg.connect(cluster.postgres.database) as connection:
        found = connection.execute("SELECT pg_database_size(current_database())").fetchone()
    assert found is not None
    size_mb = found[0] / MB
    name = f"PostgreSQL, {partitions:,} partitions each written every minute, {minutes:g} minutes"
    return Row(name, f"{DATABASE_MB} MB", f"{size_mb:.0f} MB", size_mb < DATABASE_MB)


def _taken_over(cluster: Cluster, writer: Writer) -> Row:
    """Kill the broker that owns most, and see when each of its partitions takes a value again."""
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
    served_s = _served_after(cluster, node, killed)
    sending.join(GOES_ON_S)
    writer.producer.flush(GOES_ON_S)
    waits = sorted(writer.answered[place] - killed for place in places)
    if waits[0] < 0:
        raise Lost(f"a partition of node {node} takes nothing: {cluster.tails()}")
    measured = (
        f"{len(places):,} partitions: owned after {served_s:.1f} s, first value acknowledged after"
        f" {statistics.median(waits):.1f} s (p50), {waits[-1]:.1f} s at most"
    )
    name = "all of a killed broker taken over, lease 5 s"
    return Row(name, f"{WITHIN_S:.0f} s", measured, waits[-1] <= WITHIN_S)


def _served_after(cluster: Cluster, node: int, killed: float) -> float:
    while len(owners := cluster.owners()) <= SHARDS or node in owners.values():
        if time.monotonic() - killed > GOES_ON_S:
            raise Lost(f"nobody takes what node {node} had: {cluster.tails()}")
        time.sleep(0.05)
    return time.monotonic() - killed
