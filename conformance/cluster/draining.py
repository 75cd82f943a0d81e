"""Stock clients of Kafka and Pulsar while their broker is drained or stopped.

No call of the clients may fail or take long.
"""

import re
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import pulsar
from kafka import KafkaConsumer, KafkaProducer

from braidlog.storage.shared.layout import shard_of
from conformance.clients.raw.iggy import IggyWire
from conformance.cluster.brokers import command
from conformance.cluster.running import GOES_ON_S, LOOK_S, Lost, RunningCluster

SHARDS: Final = 64  # The default of `cluster init`.
TOPICS: Final = 12  # Enough for every broker to own several.
STEADY: Final = 20  # Calls of every client before the drain, and after it.
OWNED_LOOK_S: Final = 0.05


@dataclass
class ClientResults:
    """The results of a client: successful calls, the longest call, and errors."""

    calls: int = 0
    longest_s: float = 0.0
    errors: list[str] = field(default_factory=list)

    def call(self, work: Callable[[], int]) -> None:
        """Call the library as an application does; return the amount of work."""
        begun = time.monotonic()
        try:
            self.calls += work()
        except Exception as error:  # An error that the application would see.
            self.errors.append(f"{type(error).__name__}: {error}"[:200])
        self.longest_s = max(self.longest_s, time.monotonic() - begun)

    def go_on(self, work: Callable[[], int], stopping: threading.Event) -> None:
        """Repeat the call until the run ends."""
        while not stopping.is_set():
            self.call(work)


@dataclass
class Drained:
    """The effect of a drain or a stop on clients, and the time until other brokers
    own all topics.
    """

    seconds: float
    clients: dict[str, ClientResults]

    @property
    def errors(self) -> list[str]:
        """Return every error that reached an application."""
        return [
            f"{name}: {error}" for name, client in self.clients.items() for error in client.errors
        ]


def drain(cluster: RunningCluster, node: int) -> Drained:
    """Drain a broker under load of topics that the broker owns. Raises Lost."""

    def by_command() -> float:
        code, output = command(cluster.settings, "drain", str(node))
        # Without the command's start time.
        match = re.search(r"owns nothing after ([0-9.]+) s", output)
        if code or match is None:
            raise Lost(output)
        return float(match[1])

    return _under_load(cluster, owned_topics(cluster, node, "drained"), by_command)


def stop(cluster: RunningCluster, node: int) -> Drained:
    """Stop a broker by a signal under load of topics that the broker owns. Raises Lost."""

    def by_signal() -> float:
        broker, begun = cluster.brokers[node - 1], time.monotonic()
        broker.signal(signal.SIGTERM)
        while len(others := cluster.owners()) < SHARDS + 1 or node in others.values():
            if time.monotonic() - begun > GOES_ON_S:
                raise Lost(f"node {node} keeps its topics: {cluster.tails()}")
            time.sleep(OWNED_LOOK_S)
        seconds = time.monotonic() - begun
        if code := broker.wait():
            raise Lost(f"node {node} ended with {code}: {broker.log_tail()}")
        return seconds

    return _under_load(cluster, owned_topics(cluster, node, "stopped"), by_signal)


def _under_load(cluster: RunningCluster, topics: list[str], leave: Callable[[], float]) -> Drained:
    bodies = {
        "kafka producer": _kafka_producer,
        "kafka group": _kafka_group,
        "pulsar producer": _pulsar_producer,
        "pulsar consumer": _pulsar_consumer,
        "pulsar newcomer": _pulsar_newcomer,
    }
    clients = {name: ClientResults() for name in bodies}
    stopping = threading.Event()
    threads = [
        threading.Thread(target=body, args=(cluster, topics, worked, stopping), daemon=True)
        for body, worked in zip(bodies.values(), clients.values(), strict=True)
    ]
    for thread in threads:
        thread.start()
    try:
        _await_calls(clients)
        seconds = leave()
        _await_calls(clients)
    finally:
        stopping.set()
        for thread in threads:
            thread.join(GOES_ON_S)
    return Drained(seconds, clients)


def owned_topics(cluster: RunningCluster, node: int, prefix: str = "drained") -> list[str]:
    """Return new topics that a broker owns. Raises Lost if the broker owns none for long."""
    names = [f"{prefix}{number}" for number in range(TOPICS)]
    with IggyWire(cluster.brokers[0].address("iggy")) as wire:
        for name in names:
            wire.create_topic(name)
    deadline = time.monotonic() + GOES_ON_S
    while time.monotonic() < deadline:
        owners = cluster.owners()
        owned = [n for n in names if owners.get(shard_of(f"public/default/{n}", SHARDS)) == node]
        if owned and len(set(owners.values())) == len(cluster.brokers):
            return owned
        time.sleep(LOOK_S)
    raise Lost(f"node {node} owns nothing: {cluster.tails()}")


def _await_calls(clients: dict[str, ClientResults]) -> None:
    before = {name: client.calls for name, client in clients.items()}
    deadline = time.monotonic() + GOES_ON_S
    while any(client.calls < before[name] + STEADY for name, client in clients.items()):
        if time.monotonic() > deadline:
            raise Lost(f"clients do not go on: {clients}")
        time.sleep(LOOK_S)


def _kafka_producer(
    cluster: RunningCluster, topics: list[str], worked: ClientResults, stopping: threading.Event
) -> None:
    producer = KafkaProducer(bootstrap_servers=cluster.addresses("kafka"))

    def send() -> int:
        futures = [producer.send(topic, b"kafka", partition=0) for topic in topics]
        for future in futures:
            future.get(GOES_ON_S)
        return 1

    worked.go_on(send, stopping)
    producer.close()


def _kafka_group(
    cluster: RunningCluster, topics: list[str], worked: ClientResults, stopping: threading.Event
) -> None:
    consumer = KafkaConsumer(
        *topics,
        bootstrap_servers=cluster.addresses("kafka"),
        group_id="drained",
        auto_offset_reset="earliest",
    )

    def poll() -> int:
        return len(consumer.poll(200))

    worked.go_on(poll, stopping)
    consumer.close()


def _pulsar_client(cluster: RunningCluster) -> Any:
    return pulsar.Client(
        "pulsar://" + ",".join(cluster.addresses("pulsar")),
        # A slow machine is no error; the longest call is reported.
        operation_timeout_seconds=int(GOES_ON_S),
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
    )


def _pulsar_producer(
    cluster: RunningCluster, topics: list[str], worked: ClientResults, stopping: threading.Event
) -> None:
    client = _pulsar_client(cluster)
    producer = client.create_producer(topics[0], send_timeout_millis=int(1000 * GOES_ON_S))

    def send() -> int:
        producer.send(b"pulsar")
        return 1

    worked.go_on(send, stopping)
    client.close()


def _pulsar_consumer(
    cluster: RunningCluster, topics: list[str], worked: ClientResults, stopping: threading.Event
) -> None:
    client = _pulsar_client(cluster)
    consumer = client.subscribe(topics[0], "drained")

    def receive() -> int:
        try:
            message = consumer.receive(500)
        except pulsar.Timeout:
            return 0
        consumer.acknowledge(message)
        return 1

    worked.go_on(receive, stopping)
    client.close()


def _pulsar_newcomer(
    cluster: RunningCluster, topics: list[str], worked: ClientResults, stopping: threading.Event
) -> None:
    """Open and close consumers: some open while their topic moves."""
    client = _pulsar_client(cluster)

    def subscribe() -> int:
        client.subscribe(topics[worked.calls % len(topics)], "newcomer").close()
        return 1

    worked.go_on(subscribe, stopping)
    client.close()
