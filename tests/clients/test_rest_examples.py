"""Every example of PIP-64's endpoints over a socket, against a broker in its own process.

The stock Pulsar client makes and reads the ids. `tests/protocols/http` tests the meaning of each
field and error.
"""

import base64
import http.client
import json
import signal
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from conformance.server import RunningBroker
from tests.protocols.http.pip64.example_bodies import AVRO_ORDER, FIRST_TWO

pulsar = pytest.importorskip("pulsar", reason="pulsar-client is not installed")

pytestmark = [pytest.mark.clients, pytest.mark.slow]

LONG_MS = 60_000


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with RunningBroker() as running:
        yield running


class TopicRequests:
    """Requests about a topic, each on its own connection."""

    def __init__(self, broker: RunningBroker, name: str, partitions: int) -> None:
        self.broker = broker
        self.base = f"/topics/public/default/{name}"
        path = f"/api/v1/topics/public/default/{name}"
        shown = self.ask("PUT", path, {"partitions": partitions}, status=201)
        self.ledgers = [partition["partition_id"] for partition in shown["partitions"]]

    def ask(
        self, method: str, path: str, body: Any = None, *, status: int = 200, **headers: str
    ) -> Any:
        """Return the answer's JSON."""
        if not path.startswith("/"):
            path = f"{self.base}/{path}" if path else self.base
        connection = http.client.HTTPConnection(*self.broker.address("http"), timeout=90)
        content = None if body is None else json.dumps(body)
        connection.request(method, path, content, headers)
        answer = connection.getresponse()
        received = answer.read()
        connection.close()
        assert answer.status == status, received
        return json.loads(received) if received else None

    def id_of(self, partition: int, entry: int) -> str:
        """Return an id as Pulsar's client writes it."""
        serialized = pulsar.MessageId(partition, self.ledgers[partition], entry, -1).serialize()
        return base64.b64encode(serialized).decode()


@pytest.fixture
def topic(broker: RunningBroker, request: pytest.FixtureRequest) -> TopicRequests:
    """Return a topic of two partitions, with the name of the test."""
    return TopicRequests(broker, request.node.name, 2)


def same(first: str, second: str) -> bool:
    """Compare two ids by their fields: clients may write or leave out optional fields."""
    first_id, other = (
        pulsar.MessageId.deserialize(base64.b64decode(text)) for text in (first, second)
    )
    return (first_id.ledger_id(), first_id.entry_id(), first_id.partition()) == (
        *(other.ledger_id(), other.entry_id(), other.partition()),
    )


def test_produce_then_read(topic: TopicRequests) -> None:
    answer = topic.ask("POST", "", FIRST_TWO)
    assert answer["schema_version"] == 0
    assert [result["partition"] for result in answer["messageIds"]] == [1, 1]
    for entry, result in enumerate(answer["messageIds"]):
        assert same(result["messageId"], topic.id_of(1, entry))
        assert result["error_code"] is None is result["error"]
    again = {"schema_version": 0, "messages": [{"value": {"id": 9, "note": None}}]}
    (placed,) = topic.ask("POST", "partitions/1", again)["messageIds"]
    assert same(placed["messageId"], topic.id_of(1, 2))

    read = topic.ask("GET", "partitions/1/messages?max_messages=2&include_schema=true")
    first, second = read["messages"]
    assert (first["key"], first["value"]) == ("c1", {"id": 7, "note": {"string": "first"}})
    assert first["properties"] == {"src": "web"}
    assert first["eventTime"] == 1764000000000
    assert (first["offset"], first["partition"], first["schema_version"]) == (0, 1, 0)
    assert abs(first["publishTime"] - time.time() * 1000) < LONG_MS
    assert second["value"] == {"id": 8, "note": None}
    assert "key" not in second
    (schema,) = read["schemas"]
    assert json.loads(base64.b64decode(schema["data"])) == AVRO_ORDER
    assert (read["next_offset"], read["log_start_offset"], read["high_watermark"]) == (2, 0, 3)
    last = topic.id_of(1, 1)
    assert same(read["next_message_id"], last)
    for spelling in (quote(last, safe=""), last.replace("+", "-").replace("/", "_").rstrip("=")):
        (third,) = topic.ask("GET", f"partitions/1/messages?message_id={spelling}")["messages"]
        assert third["offset"] == 2


def test_read_as_lines_and_as_events(topic: TopicRequests) -> None:
    topic.ask("POST", "partitions/0", {"messages": [{"value": "a"}, {"value": "b"}]})
    connection = http.client.HTTPConnection(*topic.broker.address("http"), timeout=90)
    path = f"{topic.base}/partitions/0/messages"
    connection.request("GET", path, headers={"Accept": "application/x-ndjson"})
    answer = connection.getresponse()
    lines = answer.read().splitlines()
    assert [json.loads(line)["value"] for line in lines] == ["a", "b"]
    assert answer.headers["X-Next-Offset"] == "2"
    begin = {"Accept": "text/event-stream", "Last-Event-ID": topic.id_of(0, 0)}
    connection.request("GET", path, headers=begin)
    answer = connection.getresponse()
    data = next(line for line in iter(answer.readline, b"") if line.startswith(b"data:"))
    assert json.loads(data[5:])["value"] == "b"
    connection.close()


def test_create_fetch_acknowledge_and_delete(topic: TopicRequests) -> None:
    topic.ask("POST", "partitions/1", {"messages": [{"value": f"{n}"} for n in range(3)]})
    wanted = {"name": "w1", "initial_position": "Earliest"}
    created = topic.ask("POST", "subscription/billing", wanted, status=201)
    assert (created["name"], created["subscription_type"]) == ("w1", "Shared")
    identity = created["id"]
    place = f"{topic.base}/subscription/billing/consumers/{identity}"
    assert created["base_uri"] == f"{topic.broker.url}{place}"
    assert topic.ask("POST", "subscription/billing", {"id": identity, "name": "w1"}) == created
    fetch = f"subscription/billing/consumer/{identity}/messages"
    messages = topic.ask("GET", fetch)["messages"]
    assert [message["value"] for message in messages] == ["0", "1", "2"]
    assert {message["redeliveryCount"] for message in messages} == {0}

    ids = [message["messageId"] for message in messages]
    ack = {"type": "Individual", "messageIds": [ids[0], topic.id_of(1, 2)]}
    cursor = topic.ask("POST", "subscription/billing/cursor", ack)["cursor"]
    assert cursor == topic.ask("GET", "subscription/billing/cursor")["cursor"]
    assert (cursor["subscription"], cursor["type"], cursor["durable"]) == (
        "billing",
        "Shared",
        True,
    )
    consumer = {"id": identity, "name": "w1", "protocol": "rest", "unacked": 1}
    assert (cursor["consumers"], cursor["unacked"], cursor["backlog"]) == ([consumer], 1, 1)
    empty, used = cursor["partitions"]
    assert (empty["mark_delete"], empty["backlog"], empty["log_end_offset"]) == (None, 0, 0)
    assert same(empty["read_position"], topic.id_of(0, 0))
    assert same(used["mark_delete"], ids[0])
    assert same(used["read_position"], topic.id_of(1, 3))
    assert (used["individually_acked"], used["backlog"]) == ([[2, 2]], 1)

    hand_back = {"type": "Negative", "messageIds": [ids[1]]}
    topic.ask("POST", "subscription/billing/cursor", hand_back)
    (again,) = topic.ask("GET", fetch)["messages"]
    assert (again["value"], again["redeliveryCount"]) == ("1", 1)
    cumulative = {"type": "cumulative", "messageIds": [ids[2]]}
    cursor = topic.ask("POST", "subscription/billing/cursor", cumulative)["cursor"]
    assert cursor["backlog"] == 0
    topic.ask("POST", "subscription/billing/cursor", {"type": "Seek", "position": "earliest"})
    assert len(topic.ask("GET", fetch)["messages"]) == 3
    seek = {"type": "Seek", "messageIds": [ids[2]]}
    assert topic.ask("POST", "subscription/billing/cursor", seek)["cursor"]["backlog"] == 1
    ended = f"subscription/billing/consumers/{identity}"
    assert topic.ask("DELETE", ended, status=204) is None
    assert topic.ask("DELETE", ended, status=404)["error_code"] == 40403
    assert topic.ask("GET", "subscription/billing/cursor")["cursor"]["consumers"] == []


def test_of_two_fetches_at_once_a_single_fetch_gets_the_messages(topic: TopicRequests) -> None:
    created = topic.ask("POST", "subscription/s", {}, status=201)
    fetch = f"subscription/s/consumer/{created['id']}/messages?timeout={LONG_MS}"
    fetches: list[Any] = []

    def take() -> None:
        fetches.append([message["value"] for message in topic.ask("GET", fetch)["messages"]])

    both = [threading.Thread(target=take) for _ in range(2)]
    for thread in both:
        thread.start()
    while not fetches:  # The newer consumer has replaced the older consumer.
        time.sleep(0.01)
    topic.ask("POST", "", {"messages": [{"value": "x"}]})
    for thread in both:
        thread.join(LONG_MS / 1000)
    assert fetches == [[], ["x"]]


def test_the_shipped_dialect(broker: RunningBroker, topic: TopicRequests) -> None:
    body = {"producerName": "cli", "messages": [{"key": "k", "payload": '{"id": 1}'}]}
    path = topic.base.replace("/topics/", "/topics/persistent/")
    answer = topic.ask("POST", path, body)
    (result,) = answer["messagePublishResults"]
    ledger, entry, partition = map(int, result["messageId"].split(":"))
    assert (ledger, entry) == (topic.ledgers[partition], 0)
    assert (result["errorCode"], result["schemaVersion"], answer["schemaVersion"]) == (0, 0, -1)
    assert topic.ask("POST", path, {"messages": []}) == {
        "messagePublishResults": [],
        "schemaVersion": 0,
    }
    topic.ask("POST", f"{path}/partitions/9", body, status=404)


def test_values_of_every_type_round_trip(topic: TopicRequests) -> None:
    examples: list[tuple[str, list[Any]]] = [
        ("STRING", ["", "é"]),
        ("BYTES", ["", "AP8="]),
        ("BOOLEAN", [True, False]),
        ("INT8", [-(2**7), 2**7 - 1]),
        ("INT64", [-(2**63), 2**63 - 1]),
        ("DOUBLE", [1.5, "NaN", "-Infinity"]),
        ("TIMESTAMP", [1764000000000]),
        ("INSTANT", ["2026-11-21T13:45:00.000000001Z"]),
        ("LOCAL_DATE", ["2026-11-21"]),
        ("LOCAL_TIME", ["13:45:00.5"]),
        ("LOCAL_DATE_TIME", ["2026-11-21T13:45:00"]),
    ]
    for place, (name, values) in enumerate(examples):
        typed = TopicRequests(topic.broker, f"values-{place}", 1)
        body = {"schema_type": name, "messages": [{"value": value} for value in values] + [{}]}
        typed.ask("POST", "", body)
        query = "?schema_type=BYTES&encoding=base64" if name == "BYTES" else ""
        messages = typed.ask("GET", f"partitions/0/messages{query}")["messages"]
        assert [message["value"] for message in messages] == [*values, None], name


def test_a_stop_answers_open_fetches_reads_and_streams_at_once() -> None:
    with RunningBroker() as broker:
        topic = TopicRequests(broker, "open", 1)
        created = topic.ask("POST", "subscription/s", {}, status=201)
        paths = [
            f"subscription/s/consumer/{created['id']}/messages?timeout={LONG_MS}",
            f"partitions/0/messages?position=latest&timeout={LONG_MS}",
        ]
        connections = []
        for path in paths:
            connection = http.client.HTTPConnection(*broker.address("http"), timeout=90)
            connection.request("GET", f"{topic.base}/{path}")
            connections.append(connection)
        while 'braidlog_waiting_requests{protocol="http"} 2.0' not in metrics(broker):
            time.sleep(0.01)
        began = time.monotonic()
        broker.signal(signal.SIGTERM)
        for connection in connections:
            answer = connection.getresponse()
            assert (answer.status, json.loads(answer.read())["messages"]) == (200, [])
            assert answer.headers["Connection"] == "close"
            connection.close()
        assert time.monotonic() - began < LONG_MS / 1000 / 2


def metrics(broker: RunningBroker) -> str:
    connection = http.client.HTTPConnection(*broker.address("http"), timeout=90)
    connection.request("GET", "/metrics")
    received = connection.getresponse().read().decode()
    connection.close()
    return received


def test_the_absolute_form_head_options_and_non_http_bytes(broker: RunningBroker) -> None:
    for request, status in (
        (b"GET http://somewhere/healthz HTTP/1.1\r\nHost: x\r\n", b"200"),
        (b"HEAD /api/v1/topics HTTP/1.1\r\nHost: x\r\n", b"200"),
        (b"OPTIONS * HTTP/1.1\r\nHost: x\r\n", b"204"),
        (b"OPTIONS /topics/a/b/c HTTP/1.1\r\nHost: x\r\n", b"204"),
        (b"NONSENSE\r\n", b"400"),
    ):
        with socket.create_connection(broker.address("http")) as connection:
            connection.sendall(request + b"Connection: close\r\n\r\n")
            received = b"".join(iter(lambda: connection.recv(65536), b""))
        assert received.split(b" ", 2)[1] == status, received
