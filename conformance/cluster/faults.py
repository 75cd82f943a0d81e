"""Faults under load on two brokers of a cluster: whatever is killed, stopped or hung, nothing that
was acknowledged is lost, doubled or moved.

`python -m conformance.cluster.faults --faults 200` for a long run. Producers are stock Kafka
clients; a position is committed now and then. Everything runs on loopback, on this machine.
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

from conformance.cluster import servers
from conformance.cluster.brokers import command, settings_for
from conformance.server import RunningBroker

QUICK = (
    "shared.round_ms=20",
    "shared.pack_ms=1000",
    "shared.delete_after_ms=2000",
    "log.segment_bytes=256KiB",
    "topics.num_partitions=3",
    "cluster.lease_ms=1500",
    "cluster.beat_ms=300",
    "cluster.serve_without_beat_ms=20000",
)
GROUP = "readers"
CALM_S = 1.0  # Between two faults, so that something is acknowledged.
SERVING_S = 90.0  # For a broker to serve after a fault.
PARTITIONS = 3  # As `topics.num_partitions` in QUICK.


class Lost(AssertionError):
    """Something acknowledged is not as it was acknowledged; the text says what."""


@dataclass
class Acked:
    """What was acknowledged."""

    values: dict[tuple[int, int], bytes] = field(default_factory=dict)  # (partition, offset).
    position: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, partition: int, offset: int, value: bytes) -> None:
        """An acknowledged record. Raises Lost for an offset that has another value."""
        with self.lock:
            if self.values.setdefault((partition, offset), value) != value:
                raise Lost(f"offset {offset} of partition {partition} was given twice")


class Cluster:
    """PostgreSQL, SeaweedFS, two brokers, and which of them answers."""

    def __init__(self, folder: Path, postgres: servers.Postgres, seaweed: servers.Seaweed) -> None:
        self.postgres, self.seaweed = postgres, seaweed
        self.settings = [*settings_for(postgres, seaweed, "faults"), *QUICK]
        code, said = command(self.settings, "init")
        assert code == 0, said
        self.brokers = [
            RunningBroker(
                folder / f"node{number}",
                listen={"kafka": "127.0.0.1:0"},
                others=False,
                settings=[*self.settings, f"cluster.node_id={number}"],
                environment=servers.KEYS,
            )
            for number in (1, 2)
        ]

    def keep_running(self) -> None:
        """Start what ended, as a supervisor does."""
        for broker in self.brokers:
            if not broker.is_running():
                broker.launch()

    def serving(self) -> RunningBroker:
        """The broker that serves, waited for. Raises Lost if none does."""
        deadline = time.monotonic() + SERVING_S
        while time.monotonic() < deadline:
            self.keep_running()
            for broker in self.brokers:
                if broker.is_running() and broker.is_ready() and answers(broker):
                    return broker
            time.sleep(0.1)
        tails = "\n".join(broker.log_tail() for broker in self.brokers)
        raise Lost(f"no broker serves after {SERVING_S:.0f} s: {tails}")

    def kill(self) -> None:
        """End the brokers."""
        for broker in self.brokers:
            if broker.is_running():
                broker.signal(signal.SIGCONT)
            broker.kill()


def answers(broker: RunningBroker) -> bool:
    """Whether a client gets metadata from it now."""
    try:
        consumer = KafkaConsumer(
            bootstrap_servers=broker.addresses["kafka"], bootstrap_timeout_ms=2000
        )
        consumer.close()
    except (KafkaError, OSError):
        return False
    return True


class Producing(threading.Thread):
    """Produces to the serving broker until it is stopped."""

    def __init__(self, cluster: Cluster, acked: Acked, topic: str) -> None:
        super().__init__(daemon=True)
        self.stopping = threading.Event()
        self.error: BaseException | None = None
        self._cluster, self._acked, self._topic = cluster, acked, topic
        self._count = 0

    def run(self) -> None:
        while not self.stopping.is_set():
            for broker in self._cluster.brokers:
                # A ready file may still be that of the process before, which the broker notices.
                with suppress(KafkaError, OSError, AssertionError):
                    if broker.is_running() and broker.is_ready():
                        self._produce(broker.addresses["kafka"])
            time.sleep(0.05)

    def _produce(self, address: str) -> None:
        producer = KafkaProducer(
            bootstrap_servers=address,
            acks="all",
            retries=0,
            enable_idempotence=False,
            request_timeout_ms=3000,
            delivery_timeout_ms=4000,
            max_block_ms=2000,
            bootstrap_timeout_ms=2000,
        )
        try:
            while not self.stopping.is_set():
                self._some(producer)
        except Lost as error:
            self.error = error
            self.stopping.set()
        finally:
            producer.close(0)

    def _some(self, producer: KafkaProducer) -> None:
        sent = []
        for _ in range(20):
            self._count += 1
            value = b"%d" % self._count + b"x" * 500
            partition = self._count % PARTITIONS
            sent.append((partition, value, producer.send(self._topic, value, partition=partition)))
        for partition, value, future in sent:
            self._acked.add(partition, future.get(5).offset, value)


def commit(broker: RunningBroker, acked: Acked, topic: str) -> None:
    """Commit a position that was acknowledged, and remember it."""
    wanted = max((o for p, o in acked.values if p == 0), default=0)
    place = TopicPartition(topic, 0)
    consumer = KafkaConsumer(
        bootstrap_servers=broker.addresses["kafka"], group_id=GROUP, enable_auto_commit=False
    )
    with suppress(KafkaError, OSError):
        consumer.assign([place])
        consumer.commit({place: OffsetAndMetadata(wanted, "", -1)})
        acked.position = wanted
    consumer.close()


def check(broker: RunningBroker, acked: Acked, topic: str) -> int:
    """Read everything and compare. Raises Lost. How many records there were."""
    consumer = KafkaConsumer(
        bootstrap_servers=broker.addresses["kafka"], group_id=GROUP, enable_auto_commit=False
    )
    places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    consumer.assign(places)
    position = consumer.committed(places[0]) or 0
    if position < acked.position:
        raise Lost(f"the position is {position}, {acked.position} was acknowledged")
    consumer.seek_to_beginning(*places)
    ends = consumer.end_offsets(places)
    found: dict[tuple[int, int], bytes] = {}
    deadline = time.monotonic() + SERVING_S
    while len(found) < sum(ends.values()) and time.monotonic() < deadline:
        for place, records in consumer.poll(5000).items():
            found.update(((place.partition, record.offset), record.value) for record in records)
    consumer.close()
    for (partition, offset), value in acked.values.items():
        if found.get((partition, offset)) != value:
            raise Lost(f"acknowledged offset {offset} of partition {partition} is not there")
    if len(found) != sum(ends.values()):
        raise Lost(f"{len(found)} records of {sum(ends.values())} could be read")
    return len(found)


def fault(cluster: Cluster, name: str, broker: RunningBroker) -> None:
    """Cause one fault in the serving broker or in a store; returns when it has passed."""
    if name == "kill":
        broker.kill()
    elif name == "stop":
        broker.stop()
    elif name == "hang":
        broker.signal(signal.SIGSTOP)
        time.sleep(3.0)
        broker.signal(signal.SIGCONT)
    elif name == "store hangs":
        cluster.seaweed.send(signal.SIGSTOP)
        time.sleep(3.0)
        cluster.seaweed.send(signal.SIGCONT)
    elif name == "store restarts":
        cluster.seaweed.stop()
        time.sleep(1.0)
        cluster.seaweed.start()
    elif name == "postgres restarts":
        cluster.postgres.stop()
        time.sleep(1.0)
        cluster.postgres.start()
    else:
        kill_backends(cluster.postgres.database)


def kill_backends(database: str) -> None:
    """End every connection that PostgreSQL has."""
    import psycopg

    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE pid <> pg_backend_pid() AND application_name = 'braidlog'"
        )


FAULTS = ("kill", "hang", "backends", "store hangs", "postgres restarts", "stop", "store restarts")


def run(cluster: Cluster, names: list[str]) -> int:
    """Faults one after the other under load, and every check. Raises Lost."""
    topic, acked = "faults", Acked()
    producing = Producing(cluster, acked, topic)
    try:
        cluster.serving()
        producing.start()
        for name in names:
            before = len(acked.values)
            broker = cluster.serving()
            wait_for_more(cluster, acked, before, producing)
            commit(broker, acked, topic)
            print(f"{name}: {len(acked.values)} acknowledged before", flush=True)
            fault(cluster, name, broker)
            after = len(acked.values)
            cluster.serving()
            wait_for_more(cluster, acked, after, producing)
        producing.stopping.set()
        producing.join(60)
        if producing.error is not None:
            raise producing.error
        return check(cluster.serving(), acked, topic)
    finally:
        producing.stopping.set()
        cluster.kill()


def wait_for_more(cluster: Cluster, acked: Acked, before: int, producing: Producing) -> None:
    """Wait until more was acknowledged. Raises Lost if nothing is."""
    deadline = time.monotonic() + SERVING_S
    while len(acked.values) <= before + 50:
        cluster.keep_running()
        if producing.error is not None:
            raise producing.error
        if time.monotonic() > deadline:
            raise Lost("nothing is acknowledged any more")
        time.sleep(0.05)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    reason = servers.missing()
    if reason is not None:
        print(reason, file=sys.stderr)
        return 1
    chosen = random.Random(asked.seed).choices(FAULTS, k=asked.faults)
    with tempfile.TemporaryDirectory(prefix="braidlog-faults-") as scratch:
        folder = Path(scratch)
        os.chmod(folder, 0o755)
        with servers.Postgres(folder / "pg") as postgres, servers.Seaweed(folder / "s3") as seaweed:
            cluster = Cluster(folder, postgres, seaweed)
            try:
                count = run(cluster, chosen)
            except Lost as lost:
                print(f"seed {asked.seed}: {lost}", file=sys.stderr)
                return 1
            code, said = command(cluster.settings, "verify", "--deep")
            print(f"{asked.faults} faults, {count} records read, none lost. verify: {said}")
            return code


if __name__ == "__main__":
    sys.exit(main())
