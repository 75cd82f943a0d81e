"""Everything comes and goes while every page and list is read: no read fails.

`python -m conformance.churn --seconds 120`. Stock clients of all protocols create, use and delete
topics, partitions, subscriptions, groups of all three kinds, streams, namespaces, users, ZooKeeper
sessions and WebSockets, all under a few names. Meanwhile readers fetch `/metrics` in both formats,
the pages of the console and the lists of topics, groups and connections. A status of 500 or
502, a traceback in the broker's log, or an ended broker is a fault.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import itertools
import json
import random
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any

import apache_iggy
import pulsar
from confluent_kafka import Consumer, KafkaException, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from conformance.clients.raw.websocket import UpgradeRefused, WebSocketClient
from conformance.clients.raw.zookeeper import ZooKeeper, ZooKeeperError
from conformance.server import ANY_PORT, RunningBroker

TOPICS = tuple(f"churn-{number}" for number in range(8))
STREAMS = ("churn-a", "churn-b")
USERS = ("churn-anna", "churn-bela")
PASSWORD = "correct horse battery"
PATIENCE_S = 60.0
CONSUME_S = 1.5  # The time of a member in a group.
REFUSED_MAX = 499
NOT_SERVED, NOT_READY = 501, 503  # Answers to a correct request, not faults.
ACCEPTED = ("text/plain", "application/openmetrics-text; version=1.0.0", "text/html")
PAGES = (
    *("/metrics", "/healthz", "/readyz", "/api/v1/topics", "/api/v1/groups?ages=true"),
    *("/api/v1/connections", "/api/v1/stats", "/api/v1/users", "/api/v1/history"),
    *("/api/v1/http-consumers", "/api/v1/audit", "/ui", "/ui/topics", "/ui/groups", "/ui/audit"),
    *("/admin/v2/broker-stats/topics", "/admin/v2/persistent/public/default"),
)
TOPIC_PAGES = (
    *("/ui/topics/public/default/{}", "/api/v1/topics/public/default/{}"),
    *("/api/v1/topics/public/default/{}/groups", "/api/v1/topics/public/default/{}/writers"),
    *("/admin/v2/persistent/public/default/{}/stats",),
    *("/admin/v2/persistent/public/default/{}/internalStats",),
    *("/admin/v2/persistent/public/default/{}/partitioned-stats",),
    *("/admin/v2/persistent/public/default/{}/subscriptions",),
)
# Errors of clients whose topic, group or user another client has just deleted.
LOST = (
    *(KafkaException, pulsar.PulsarException, RuntimeError, ZooKeeperError, UpgradeRefused),
    *(OSError, TimeoutError),
)

Churn = Callable[["Churned", random.Random], None]


class Churned:
    """The broker, and the statistics of a run."""

    def __init__(self, broker: RunningBroker) -> None:
        self.broker = broker
        self.stopping = threading.Event()
        self.rounds: Counter[str] = Counter()  # Ended rounds by kind,
        self.lost: Counter[str] = Counter()  # and rounds that a client's error ended.
        self.reads = 0
        self.faults: list[str] = []

    @property
    def kafka(self) -> dict[str, Any]:
        """The settings of Kafka's clients."""
        return {"bootstrap.servers": self.address("kafka"), "log_level": 0}

    def address(self, listener: str) -> str:
        """Return the address of a listener as text."""
        return "{}:{}".format(*self.broker.address(listener))

    def ask(
        self, method: str, path: str, body: object = None, head: Mapping[str, str] | None = None
    ) -> int:
        """Return the status of a request over HTTP. A status of 500 is a fault."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", **(head or {})}
        url = f"{self.broker.url}{path}"
        request = urllib.request.Request(url, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                answer.read()
                return int(answer.status)
        except urllib.error.HTTPError as error:
            text = error.read()[-300:]
            if error.code > REFUSED_MAX and error.code not in (NOT_SERVED, NOT_READY):
                self.faults.append(f"{method} {path}: {error.code} {text!r}")
            return error.code

    def repeat(self, churn: Churn, seed: str) -> None:
        """Do a kind of work, again and again."""
        rng = random.Random(seed)
        while not self.stopping.is_set():
            try:
                churn(self, rng)
                self.rounds[churn.__name__] += 1
            except LOST:
                self.lost[churn.__name__] += 1
                time.sleep(0.02)  # Its target is gone for a moment: leave the loop to others.

    def read(self, paths: tuple[str, ...], seed: str) -> None:
        """Fetch these paths in turn, again and again."""
        rng = random.Random(seed)
        for path in itertools.cycle(paths):
            if self.stopping.is_set():
                return
            with contextlib.suppress(TimeoutError, ConnectionError):
                self.ask("GET", path, head={"Accept": rng.choice(ACCEPTED)})
                self.reads += 1


def _end(futures: Mapping[Any, Future[Any]]) -> None:
    """Wait for the answers; another client may have been faster."""
    for future in futures.values():
        with contextlib.suppress(KafkaException):
            future.result(PATIENCE_S)


def kafka_topics(run: Churned, rng: random.Random) -> None:
    """Create a topic, add partitions, store records, delete the topic."""
    admin, name = AdminClient(run.kafka), rng.choice(TOPICS)
    _end(admin.create_topics([NewTopic(name, rng.choice((1, 3, 12)))]))
    _end(admin.create_partitions([NewPartitions(name, rng.choice((4, 14)))]))
    producer = Producer({**run.kafka, "message.timeout.ms": 3000})
    for topic in TOPICS:
        producer.produce(topic, b"x" * 100, key=b"k")
    producer.flush(3)
    _end(admin.delete_topics([name]))


def _consume(consumer: Consumer | ShareConsumer, rng: random.Random) -> None:
    consumer.subscribe(rng.sample(TOPICS, 4))
    end = time.monotonic() + CONSUME_S
    try:
        while time.monotonic() < end:
            consumer.poll(0.2)
    finally:
        consumer.close()


def classic_groups(run: Churned, rng: random.Random) -> None:
    """Be a member of a classic group."""
    _consume(Consumer({**run.kafka, "group.id": f"gr\u00fcn-{rng.choice('abcd')}"}), rng)


def consumer_groups(run: Churned, rng: random.Random) -> None:
    """Be a member of a group of the consumer protocol."""
    settings = {"group.id": f"new-{rng.choice('abcd')}", "group.protocol": "consumer"}
    _consume(Consumer({**run.kafka, **settings}), rng)


def share_groups(run: Churned, rng: random.Random) -> None:
    """Be a member of a share group."""
    _consume(ShareConsumer({**run.kafka, "group.id": f"share-{rng.choice('ab')}"}), rng)


def kafka_lists(run: Churned, _: random.Random) -> None:
    """List and describe groups and topics, and delete a few groups."""
    admin = AdminClient(run.kafka)
    admin.list_topics(timeout=PATIENCE_S)
    groups = [group.group_id for group in admin.list_consumer_groups().result(PATIENCE_S).valid]
    for group in groups[:10]:
        _end(admin.describe_consumer_groups([group]))
    if groups:
        _end(admin.delete_consumer_groups(groups[:3]))


def pulsar_clients(run: Churned, rng: random.Random) -> None:
    """Subscribe, send, receive, and leave with or without the subscription."""
    service = f"pulsar://{run.address('pulsar')}"
    logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    client = pulsar.Client(service, operation_timeout_seconds=5, logger=logger)
    kinds = (pulsar.ConsumerType.Shared, pulsar.ConsumerType.KeyShared)
    try:
        topic = f"persistent://public/default/{rng.choice(TOPICS)}"
        name, kind = f"sub-{rng.choice('xyz')}", rng.choice(kinds)
        consumer = client.subscribe(topic, name, consumer_type=kind)
        client.create_producer(topic).send(b"x")
        consumer.acknowledge(consumer.receive(2000))
        rng.choice((consumer.unsubscribe, consumer.close))()
    finally:
        client.close()


def pulsar_admin(run: Churned, rng: random.Random) -> None:
    """Create and delete a partitioned topic with a subscription, and a namespace with a topic."""
    name = f"{rng.choice(TOPICS)}-admin"
    topic, namespace = f"/admin/v2/persistent/public/default/{name}", f"public/{name}"
    run.ask("PUT", f"{topic}/partitions", 3)
    run.ask("PUT", f"{topic}/subscription/s", {})
    run.ask("DELETE", f"{topic}/partitions?force={rng.choice(('true', 'false'))}")
    run.ask("PUT", f"/admin/v2/namespaces/{namespace}")
    run.ask("PUT", f"/admin/v2/persistent/{namespace}/t")
    run.ask("DELETE", f"/admin/v2/namespaces/{namespace}?force=true")


def users(run: Churned, rng: random.Random) -> None:
    """Create a user, log in, delete the user."""
    name = rng.choice(USERS)
    run.ask("POST", "/api/v1/users", {"name": name, "password": PASSWORD})
    login = base64.b64encode(f"{name}:{PASSWORD}".encode()).decode()
    run.ask("GET", "/api/v1/topics", head={"Authorization": f"Basic {login}"})
    run.ask("DELETE", f"/api/v1/users/{name}")


def iggy_clients(run: Churned, rng: random.Random) -> None:
    """Use streams, topics and groups through Iggy."""
    stream = rng.choice(STREAMS)

    async def each() -> None:
        client = apache_iggy.IggyClient(run.address("iggy"))
        await client.connect()
        await client.login_user("iggy", "iggy")
        for call in _iggy_calls(client, stream):
            with contextlib.suppress(RuntimeError):  # The stream of the other clients too.
                await call()

    asyncio.run(asyncio.wait_for(each(), PATIENCE_S))


def _iggy_calls(client: Any, stream: str) -> Iterator[Callable[[], Awaitable[object]]]:
    yield lambda: client.create_stream(stream)
    yield lambda: client.create_topic(stream, "t", 3)
    yield lambda: client.create_consumer_group(stream, "t", "g")
    yield lambda: client.join_consumer_group(stream, "t", "g")
    yield lambda: client.get_consumer_groups(stream, "t")
    yield lambda: client.get_topics(stream)
    yield lambda: client.purge_topic(stream, "t")
    yield lambda: client.delete_consumer_group(stream, "t", "g")
    yield lambda: client.delete_topic(stream, "t")
    yield lambda: client.delete_stream(stream)


def zookeeper_sessions(run: Churned, rng: random.Random) -> None:
    """Begin a session, create and list nodes, end the session or leave it behind."""
    session = ZooKeeper(timeout_ms=4000)
    session.connect(run.broker.address("zookeeper"))
    for path in ("/churn", "/churn/node"):
        with contextlib.suppress(ZooKeeperError):  # Another session was faster.
            session.create(path)
    session.children("/brokers/topics", watch=True)
    rng.choice((session.end, session.disconnect))()


def web_sockets(run: Churned, rng: random.Random) -> None:
    """Open a producer, consumer or reader, and drop the connection."""
    topic = f"persistent/public/default/{rng.choice(TOPICS)}"
    targets = (f"consumer/{topic}/web", f"producer/{topic}", f"reader/{topic}")
    client = WebSocketClient(run.broker.url, f"/ws/v2/{rng.choice(targets)}")
    time.sleep(0.05)  # So that the connection is sometimes open, sometimes still opening.
    client.sock.close()


KINDS: tuple[Churn, ...] = (
    *(kafka_topics, classic_groups, consumer_groups, share_groups, kafka_lists, pulsar_clients),
    *(pulsar_admin, users, iggy_clients, zookeeper_sessions, web_sockets),
)


def churn(seconds: float, seed: int) -> list[str]:
    """Run for so long; return the faults."""
    pages = (*PAGES, *(page.format(name) for name in TOPICS[:4] for page in TOPIC_PAGES))
    reads = (("/metrics",), ("/metrics",), pages, pages[::-1])
    with RunningBroker(listen={"zookeeper": ANY_PORT}) as broker:
        run = Churned(broker)
        threads = [
            threading.Thread(target=run.repeat, args=(kind, f"{seed} {kind.__name__}"), daemon=True)
            for kind in KINDS
        ]
        threads += [
            threading.Thread(target=run.read, args=(paths, f"{seed} {number}"), daemon=True)
            for number, paths in enumerate(reads)
        ]
        for thread in threads:
            thread.start()
        end = time.monotonic() + seconds
        while time.monotonic() < end and broker.is_running():
            time.sleep(1)
        run.stopping.set()
        for thread in threads:
            thread.join(2 * PATIENCE_S)
        faults = list(run.faults)
        if not broker.is_running():
            faults.append(f"the broker ended: {broker.log_tail()}")
        faults += [
            f"no round of {kind.__name__}" for kind in KINDS if not run.rounds[kind.__name__]
        ]
        faults += ["traceback in the broker's log"] * broker.log().count("Traceback")
        print(f"{run.reads:,} reads; rounds {dict(run.rounds)}; lost {dict(run.lost)}", flush=True)
    return faults


def main() -> int:
    """Return 1 if a read failed."""
    parser = argparse.ArgumentParser(prog="python -m conformance.churn", description=__doc__)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    faults = churn(arguments.seconds, arguments.seed)
    print(*faults or ["every read was answered"], sep="\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
