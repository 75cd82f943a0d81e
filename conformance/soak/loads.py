"""Loads of a soak's clients, round by round: each client writes and reads back its own records.

Together they use every protocol, short-lived connections, and short-lived topics. A round depends
on no other client, so that no client waits for a message that nobody sends.
"""

import gzip
import json
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from conformance.clients.raw import kafka
from conformance.clients.raw.iggy import IggyWire
from conformance.clients.raw.kafka import KafkaWire, parse_set
from conformance.clients.raw.pulsar import ACK, PulsarWire, encode
from conformance.server import RunningBroker

Round = Callable[[int], None]
LAST = 4  # Iggy's strategy: the newest messages.
COUNT = 20  # messages of a round
BODY = bytes(200)
PATIENCE_S = 600.0  # A soak runs beside other work.
NOW_MS = 1_700_000_000_000  # A publish time: no check uses this time.


@dataclass(frozen=True, slots=True)
class SoakLoad:
    """A client: rounds per second, and the maker of its rounds."""

    name: str
    rate: float
    begin: Callable[[RunningBroker, ExitStack], Round]


def topics() -> list[str]:
    """Return the topics of the loads, a topic per load."""
    return [topic_of(load.name) for load in LOADS]


def topic_of(load: str) -> str:
    """Return the topic that only this load uses."""
    return "soak-" + load.replace(" ", "-")


def _kafka(broker: RunningBroker, held: ExitStack) -> Round:
    wire = held.enter_context(KafkaWire(broker.address("kafka")))
    return _kafka_round(wire, topic_of("kafka"), kafka.message(b"key", BODY) * COUNT)


def _kafka_compressed(broker: RunningBroker, held: ExitStack) -> Round:
    wire = held.enter_context(KafkaWire(broker.address("kafka")))
    packed = gzip.compress(kafka.message(b"key", BODY) * COUNT)
    return _kafka_round(wire, topic_of("kafka compressed"), kafka.message(None, packed, kafka.GZIP))


def _kafka_round(wire: KafkaWire, topic: str, message_set: bytes) -> Round:
    def one_round(number: int) -> None:
        error, offset = wire.produce(topic, message_set)
        assert error == 0, error
        error, _, fetched = wire.fetch(topic, offset)
        assert error == 0 and fetched, error
        assert wire.commit("soak", topic, offset + 1) == 0

    return one_round


def _iggy(broker: RunningBroker, held: ExitStack) -> Round:
    wire = held.enter_context(IggyWire(broker.address("iggy")))
    topic = topic_of("iggy")

    def one_round(number: int) -> None:
        wire.send_messages(topic, [(0, [(b"name", 2, b"value")], BODY)] * COUNT)
        polled = wire.poll(topic, COUNT, LAST)
        assert len(polled) == COUNT
        wire.store_offset(topic, "soak", polled[-1].offset)

    return one_round


def _pulsar(broker: RunningBroker, held: ExitStack) -> Round:
    wire = held.enter_context(PulsarWire(broker.address("pulsar")))
    topic = topic_of("pulsar")
    wire.open_producer(topic)
    wire.subscribe(topic, "soak", permits=1_000_000)

    def one_round(number: int) -> None:
        wire.publish(number, [(3, NOW_MS)], BODY)
        _take(wire, 1)

    return one_round


def _pulsar_reads_kafka(broker: RunningBroker, held: ExitStack) -> Round:
    topic = topic_of("pulsar reads kafka")
    producer = held.enter_context(KafkaWire(broker.address("kafka")))
    wire = held.enter_context(PulsarWire(broker.address("pulsar")))
    wire.subscribe(topic, "soak", permits=1_000_000)
    message_set = kafka.message(b"key", BODY) * COUNT

    def one_round(number: int) -> None:
        assert producer.produce(topic, message_set)[0] == 0
        _take(wire, COUNT)

    return one_round


def _iggy_reads_pulsar(broker: RunningBroker, held: ExitStack) -> Round:
    topic = topic_of("iggy reads pulsar")
    producer = held.enter_context(PulsarWire(broker.address("pulsar")))
    producer.open_producer(topic)
    wire = held.enter_context(IggyWire(broker.address("iggy")))

    def one_round(number: int) -> None:
        producer.publish(number, [(3, NOW_MS)], BODY)
        assert len(wire.poll(topic, 1, LAST)) == 1

    return one_round


def _kafka_reads_iggy(broker: RunningBroker, held: ExitStack) -> Round:
    topic = topic_of("kafka reads iggy")
    producer = held.enter_context(IggyWire(broker.address("iggy")))
    wire = held.enter_context(KafkaWire(broker.address("kafka")))

    def one_round(number: int) -> None:
        producer.send_messages(topic, [(0, [], BODY)] * COUNT)
        (first, *_) = producer.poll(topic, COUNT, LAST)
        error, _, fetched = wire.fetch(topic, first.offset)
        assert error == 0 and len(parse_set(fetched)) == COUNT, error

    return one_round


def _http(broker: RunningBroker, held: ExitStack) -> Round:
    path = f"/topics/public/default/{topic_of('http')}"
    body = {"messages": [{"key": "key", "value": "v" * 200}] * COUNT}

    def one_round(number: int) -> None:
        end = _ask(broker, "GET", f"{path}/partitions/0/messages?position=latest&timeout=0")
        assert not any(
            answered["error_code"] for answered in _ask(broker, "POST", path, body)["messageIds"]
        )
        place = f"position={end['next_offset']}&timeout=0"
        read = _ask(broker, "GET", f"{path}/partitions/0/messages?{place}")
        assert len(read["messages"]) == COUNT

    return one_round


def _http_consumer(broker: RunningBroker, held: ExitStack) -> Round:
    path = f"/topics/public/default/{topic_of('http consumer')}"
    body = {"messages": [{"value": "v" * 200}] * COUNT}
    base = f"{path}/subscription/soak"
    created = _ask(broker, "POST", base, {"initial_position": "Latest"})
    held.callback(_ask, broker, "DELETE", f"{base}/consumer/{created['id']}")

    def one_round(number: int) -> None:
        _ask(broker, "POST", path, body)
        fetched = _ask(broker, "GET", f"{base}/consumer/{created['id']}/messages?timeout=1000")
        ids = [message["messageId"] for message in fetched["messages"]]
        if ids:
            _ask(broker, "POST", f"{base}/cursor", {"type": "Individual", "messageIds": ids})

    return one_round


def _connections(broker: RunningBroker, held: ExitStack) -> Round:
    topic = topic_of("connections")

    def one_round(number: int) -> None:
        with KafkaWire(broker.address("kafka")) as wire:
            wire.committed("soak", topic)
        with IggyWire(broker.address("iggy")) as poller:
            poller.poll(topic, 1)
        with PulsarWire(broker.address("pulsar")) as consumer:
            consumer.subscribe(topic, "soak")

    return one_round


def _passing_topics(broker: RunningBroker, held: ExitStack) -> Round:
    """Return rounds over a few topic names: a protocol creates a topic, others use and delete the
    topic.
    """

    def one_round(number: int) -> None:
        topic = f"soak-passing-{number % 20}"
        with KafkaWire(broker.address("kafka")) as wire:
            wire.create(topic)
            wire.produce(topic, kafka.message(b"key", BODY))
        with PulsarWire(broker.address("pulsar")) as consumer:
            consumer.subscribe(topic, "soak")
            _take(consumer, 1)
        _ask(broker, "DELETE", f"/api/v1/topics/public/default/{topic}")

    return one_round


def _metrics(broker: RunningBroker, held: ExitStack) -> Round:
    def one_round(number: int) -> None:
        with urllib.request.urlopen(f"{broker.url}/metrics", timeout=PATIENCE_S) as answer:
            assert answer.read()

    return one_round


LOADS = (
    SoakLoad("kafka", 5, _kafka),
    SoakLoad("kafka compressed", 5, _kafka_compressed),
    SoakLoad("iggy", 5, _iggy),
    SoakLoad("pulsar", 10, _pulsar),
    SoakLoad("pulsar reads kafka", 5, _pulsar_reads_kafka),
    SoakLoad("iggy reads pulsar", 5, _iggy_reads_pulsar),
    SoakLoad("kafka reads iggy", 5, _kafka_reads_iggy),
    SoakLoad("http", 3, _http),
    SoakLoad("http consumer", 3, _http_consumer),
    SoakLoad("connections", 2, _connections),
    SoakLoad("passing topics", 0.5, _passing_topics),
    SoakLoad("metrics", 0.1, _metrics),
)


def _take(wire: PulsarWire, count: int) -> None:
    """Take messages, and acknowledge cumulatively."""
    for _ in range(count):
        delivered = wire.next_message()
    place = encode([(1, delivered.ledger), (2, delivered.entry)])
    wire.command(ACK, [(1, 0), (2, 1), (3, place)])


def _ask(
    broker: RunningBroker, method: str, path: str, body: object = None
) -> dict[str, list[dict[str, object]]]:
    """Return the JSON object of an answer; {} for an empty answer."""
    data = None if body is None else json.dumps(body).encode()
    head = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{broker.url}{path}", data, head, method=method)
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        answer_body: dict[str, list[dict[str, object]]] = json.loads(answer.read() or b"{}")
    return answer_body
