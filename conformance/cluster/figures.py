"""Figures of a broker over the shared store, each a row with a goal."""

import math
import statistics
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from signal import SIGCONT, SIGSTOP
from typing import Final

from braidlog.storage.shared.layout import Buffer, SliceEntry
from braidlog.storage.shared.making import make_cluster
from braidlog.storage.shared.obstore import ObstoreObjects
from braidlog.storage.shared.points import SharedPoint, Slice
from braidlog.storage.shared.postgres import PostgresLedger
from braidlog.storage.shared.publisher import NoWatch, Publisher, RoundSettings, SessionIdentity
from conformance.bench import kafka_load
from conformance.bench.many import synchronous_producers
from conformance.clients.raw.kafka import KafkaWire, parse_set
from conformance.cluster import servers
from conformance.cluster.brokers import ClusterBroker, command, settings_for

MB: Final = 1_000_000
STATEMENTS: Final = 300
COMMITS: Final = 300
IDLE_S: Final = 5.0
SETTLE_S: Final = 30.0  # For packs and uploads to end.
BULK_CONNECTIONS: Final = 4
# Sets of 128 KiB in flight per connection. With 8, all connections together do not fill a round, so
# that 41 MB/s is the maximum at a round every 100 ms.
BULK_DEPTH: Final = 32
BURST_S: Final = 0.5  # At full speed, for a given pace.
COLD_CACHE_BYTES: Final = 128 << 20
COLD_FETCH_BYTES: Final = 4 << 20
DOWN_S: Final = 20.0
QUIET_S: Final = 3.0  # Without a put for this time, packs and uploads have ended.
UNDER_WAY_S: Final = 2.0  # Load before a store stops.
GOES_ON_S: Final = 5.0  # Time after the store answers again: the goal is 3 s.
SHARDS: Final = 64


@dataclass(slots=True, frozen=True)
class FigureRow:
    """A figure: goal, measured value, and result."""

    name: str
    goal: str
    measured: str
    holds: bool


@dataclass(slots=True)
class Stores:
    """PostgreSQL with commits that reach the disk, and SeaweedFS, both empty."""

    folder: Path
    postgres: servers.Postgres
    seaweed: servers.Seaweed


@contextmanager
def stores(folder: Path, volumes: int = 50) -> Iterator[Stores]:
    """Start both stores below a folder; `volumes` as in `Seaweed`."""
    folder.mkdir()
    folder.chmod(0o755)
    with (
        servers.Postgres(folder / "pg", syncs=True) as postgres,
        servers.Seaweed(folder / "s3", volumes=volumes) as seaweed,
    ):
        yield Stores(folder, postgres, seaweed)


@contextmanager
def alone(running: Stores, *settings: str) -> Iterator[ClusterBroker]:
    """Start a broker over the stores; a later broker there continues with the data."""
    store = settings_for(running.postgres, running.seaweed, "figures")
    code, output = command(store, "init")
    assert code == 0, output
    broker = ClusterBroker(running.folder / "node1", 1, [*store, *settings, "log_level=warning"])
    broker.start()
    try:
        yield broker
        broker.stop()
    finally:
        broker.kill()


def metrics(broker: ClusterBroker) -> dict[str, float]:
    """Return all the broker's metrics, by name and labels."""
    with urllib.request.urlopen(f"{broker.url}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


def total(broker: ClusterBroker, family: str, *labels: str) -> float:
    """Return the sum of a family's numbers with these labels."""
    return sum(
        value
        for name, value in metrics(broker).items()
        if name.partition("{")[0] == family and all(label in name for label in labels)
    )


def puts(broker: ClusterBroker, kind: str = "") -> float:
    """Return the number of objects put so far."""
    return total(broker, "braidlog_objects_total", '"put"', kind)


def settle(broker: ClusterBroker) -> None:
    """Return when puts have stopped, or after a while."""
    deadline, before = time.monotonic() + SETTLE_S, -1.0
    while (now := puts(broker)) != before and time.monotonic() < deadline:
        before = now
        time.sleep(QUIET_S)


def p50_ms(latencies: Sequence[float]) -> float:
    """Return the median, in milliseconds."""
    return statistics.median(latencies) * 1000


# Rows.


class Statements(NoWatch):
    """Stores the seconds of each publish statement. Implements `Watch`."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def phase(self, phase: str, seconds: float) -> None:
        if phase == "publish":
            self.seconds.append(seconds)


class Zeros:
    """An endless file."""

    def read_at(self, size: int, pos: int, *, wait: bool = True) -> bytes:
        """Return `size` zeros."""
        return bytes(size)


class Nowhere(ObstoreObjects):
    """Stores no round, so that the disk writes the statements' commits only."""

    def put(self, name: str, data: Buffer) -> None:
        """See `ObjectStore.put`."""


def publishing(running: Stores) -> Iterator[FigureRow]:
    """Measure the publish statement alone."""
    ledger = PostgresLedger(running.postgres.database)
    objects = ObstoreObjects(f"file://{running.folder}/objects", timeout_ms=10_000)
    make_cluster(ledger, objects, SHARDS)
    identity = SessionIdentity(ledger.join(1, {}), 1)
    nowhere = Nowhere(f"file://{running.folder}/objects", timeout_ms=10_000)
    publisher = Publisher(ledger, nowhere, identity, RoundSettings())
    medians = {}
    for partitions in (1, 1000):
        watch = Statements()
        publisher.measure(watch)
        for at in range(STATEMENTS):
            slices = [
                Slice(SliceEntry(1, number, 0, at * 64, 64, at, at + 1, 0, 0), Zeros())
                for number in range(1, partitions + 1)
            ]
            publisher.keep([SharedPoint((), slices=slices)])
        medians[partitions] = p50_ms(watch.seconds)
    ledger.close()
    times = " and ".join(f"{median:.1f}" for median in medians.values())
    holds = max(medians.values()) <= 3 and medians[1000] <= 2 * medians[1]
    yield FigureRow(
        "publish statement, p50, 1 and 1,000 partitions", "3 ms, alike", f"{times} ms", holds
    )


def latencies(running: Stores, seconds: float) -> Iterator[FigureRow]:
    """Measure a single producer, commits, and an idle broker's puts."""
    body = kafka_load.message_set(1, 1000)
    with alone(running, "shared.round_ms=20", "shared.pack_ms=1000") as broker:
        address = broker.address("kafka")
        with KafkaWire(address) as wire:
            wire.create("one")
        median = p50_ms(synchronous_producers(address, ["one"], body, seconds))
        goal = "30 ms"
        yield FigureRow("1 producer, round_ms 20, p50", goal, f"{median:.1f} ms", median <= 30)
        settle(broker)
        before, times_s = puts(broker), []
        with KafkaWire(address) as wire:
            for offset in range(COMMITS):
                begun = time.perf_counter()
                assert wire.commit("group", "one", offset % 10) == 0
                times_s.append(time.perf_counter() - begun)
        made_puts, median = puts(broker) - before, p50_ms(times_s)
        measured, goal = f"{median:.1f} ms, {made_puts:.0f} PUTs", "p50 10 ms, no PUT"
        yield FigureRow("offset commit alone", goal, measured, median <= 10 and not made_puts)
        before = puts(broker)
        time.sleep(IDLE_S)
        idle = puts(broker) - before
        yield FigureRow("PUTs, idle", "0", f"{idle:.0f} in {IDLE_S:.0f} s", not idle)


def many(running: Stores, seconds: float) -> Iterator[FigureRow]:
    """Measure a hundred synchronous producers."""
    topics = [f"many{number:03}" for number in range(100)]
    body = kafka_load.message_set(1, 1000)
    with alone(running, "shared.round_ms=50") as broker:
        address = broker.address("kafka")
        with KafkaWire(address) as wire:
            for topic in topics:
                wire.create(topic)
        before, begun = puts(broker, '"round"'), time.monotonic()
        times_s = synchronous_producers(address, topics, body, seconds)
        elapsed = time.monotonic() - begun
        rate, median = len(times_s) / elapsed, p50_ms(times_s)
        rounds = (puts(broker, '"round"') - before) / elapsed
    measured, goal = f"{rate:,.0f} acks/s, p50 {median:.0f} ms", "1,700 acks/s, p50 58 ms"
    name = "100 synchronous producers, 100 partitions, round_ms 50"
    yield FigureRow(name, goal, measured, rate >= 1700 and median <= 58)
    yield FigureRow("PUTs of rounds, round_ms 50", "20/s", f"{rounds:.1f}/s", rounds <= 20.5)


def bulk(
    running: Stores, seconds: float, goal_mb: float, pace_mb: float = math.inf
) -> Iterator[FigureRow]:
    """Write sets of 1-KB records at full speed, or in bursts of that pace; then read them cold."""
    body, count = kafka_load.set_of_128k(1000)
    sets = [0] * BULK_CONNECTIONS
    burst_s = seconds if math.isinf(pace_mb) else BURST_S
    with alone(running) as broker:
        address = broker.address("kafka")

        def produce(number: int) -> None:
            begun = time.monotonic()
            while time.monotonic() - begun < seconds:
                sets[number] += kafka_load.pipelined_produce(
                    address, f"bulk{number}", [body], burst_s, BULK_DEPTH
                )
                due_s = sets[number] * len(body) * BULK_CONNECTIONS / (pace_mb * MB)
                time.sleep(max(0.0, due_s - (time.monotonic() - begun)))

        threads = [
            threading.Thread(target=produce, args=(number,)) for number in range(BULK_CONNECTIONS)
        ]
        begun = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        written = sum(sets) * len(body)
        rate = written / (time.monotonic() - begun) / MB
        name = f"Kafka sets of 1-KB records for {seconds:.0f} s"
        yield FigureRow(name, f"{goal_mb:.0f} MB/s", f"{rate:.1f} MB/s", rate >= goal_mb)
        settle(broker)
        if math.isinf(pace_mb):
            each = puts(broker) / (written / (1 << 30))
            yield FigureRow(
                "PUTs a GiB at full speed, round_ms 100", "400", f"{each:.0f}", each <= 400
            )
        times = total(broker, "braidlog_uploaded_bytes_total") / written
        yield FigureRow("bytes uploaded per byte written", "3.2", f"{times:.2f}", times <= 3.2)
    yield from cold(running, sets[0] * count, len(body) // count)


def cold(running: Stores, log_end: int, step: int) -> Iterator[FigureRow]:
    """Read a topic by a broker with an empty cache."""
    with alone(running, f"shared.cache_bytes={COLD_CACHE_BYTES}") as broker:
        begun = time.monotonic()
        address = broker.address("kafka")
        byte_count = kafka_load.fetch_all(address, "bulk0", log_end, step, COLD_FETCH_BYTES)
        rate = byte_count / (time.monotonic() - begun) / MB
        yield FigureRow("cold sequential read", "40 MB/s", f"{rate:.1f} MB/s", rate >= 40)
        time.sleep(2.0)  # The gauge is set each second.
        share = total(broker, "braidlog_cache_bytes") / COLD_CACHE_BYTES
        read = f"{share:.2f} of it, {byte_count / MB:.0f} MB read"
        yield FigureRow("cache", "within 10 % of cache_bytes", read, share <= 1.1)


class CachedReadLoad:
    """A producer and a reader of cached records, each with a single request in flight."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self.stopping = threading.Event()
        self.acked: list[float] = []
        self.offsets: list[int] = []  # Acknowledged.
        self.read: list[float] = []
        self._threads = [threading.Thread(target=work) for work in (self._produce, self._fetch)]
        with KafkaWire(address) as wire:
            wire.create("stops")
            wire.produce("stops", kafka_load.message_set(1, 1000))
        for thread in self._threads:
            thread.start()

    def _produce(self) -> None:
        body = kafka_load.message_set(1, 1000)
        with KafkaWire(self._address) as wire:
            while not self.stopping.is_set():
                error, offset = wire.produce("stops", body, acks=-1)
                if not error:
                    self.acked.append(time.monotonic())
                    self.offsets.append(offset)

    def _fetch(self) -> None:
        with KafkaWire(self._address) as wire:
            while not self.stopping.is_set():
                error, _, body = wire.fetch("stops", 0, wait_ms=0)
                assert not error and body
                self.read.append(time.monotonic())
                time.sleep(0.01)

    def stop(self) -> None:
        """End both."""
        self.stopping.set()
        for thread in self._threads:
            thread.join()

    def lost(self) -> int:
        """Return the number of acknowledged offsets that are missing or were returned twice."""
        offsets: set[int] = set()
        position, end = 0, 1
        with KafkaWire(self._address) as wire:
            while position < end:
                error, end, body = wire.fetch("stops", position, wait_ms=0)
                assert not error and body
                offsets.update(offset for offset, _, _ in parse_set(body))
                position = max(offsets) + 1
        stored = offsets.intersection(self.offsets)
        return len(self.offsets) - len(stored)


def stops(running: Stores) -> Iterator[FigureRow]:
    """Stop each of the stores for twenty seconds."""
    with alone(running, "shared.round_ms=20") as broker:
        for name, server in (("S3", running.seaweed), ("PostgreSQL", running.postgres)):
            load = CachedReadLoad(broker.address("kafka"))
            time.sleep(UNDER_WAY_S)
            server.send(SIGSTOP)
            stopped = time.monotonic()
            time.sleep(DOWN_S)
            server.send(SIGCONT)
            again = time.monotonic()
            time.sleep(GOES_ON_S)
            load.stop()
            # Requests in flight when the store stopped may still have had an answer.
            meanwhile = sum(stopped + 1 < at < again for at in load.acked)
            after = min((at - again for at in load.acked if at >= again), default=99.0)
            reads = [at for at in load.read if stopped < at < again]
            gap = max(b - a for a, b in pairwise(reads))
            measured = (
                f"{meanwhile} acknowledged, {load.lost()} of {len(load.offsets)} lost, goes on"
                f" after {after:.1f} s, {len(reads)} reads, longest gap {gap:.2f} s"
            )
            goal = "nothing acknowledged, nothing lost, 3 s, reads go on"
            holds = not meanwhile and not load.lost() and after <= 3 and gap <= 1
            yield FigureRow(f"{name} stopped {DOWN_S:.0f} s", goal, measured, holds)
