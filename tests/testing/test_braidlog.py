"""`braidlog.testing`: the broker for tests of other programs, as those tests use it."""

import asyncio
import json
import socket
import urllib.error
import urllib.request

import pytest
import trio
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError

from braidlog.testing import (
    Braidlog,
    BrokerNotStarted,
    Cut,
    Delay,
    DropAnswers,
    FullDisk,
    MoveClock,
    Rebalance,
    Refuse,
)
from tests.waiting import until_seen

pytestmark = [pytest.mark.clients, pytest.mark.slow]


@pytest.fixture(scope="module")
def broker():
    with Braidlog() as broker:
        yield broker


@pytest.fixture(autouse=True)
def healed(broker):
    yield
    broker.heal()


def produce(broker, topic, value, **settings):
    producer = KafkaProducer(bootstrap_servers=broker.kafka, **settings)
    try:
        return producer.send(topic, value).get(20).offset
    finally:
        producer.close()


def consumed(broker, topic, count):
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=broker.kafka,
        auto_offset_reset="earliest",
        consumer_timeout_ms=20_000,
    )
    try:
        return [next(consumer).value for _ in range(count)]
    finally:
        consumer.close()


def call(broker, method, path, body=None):
    """Return the status and the answer of a request to the control address."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(broker.control + path, data, method=method)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_records_pass_from_one_protocol_to_another(broker, braidlog_topic, braidlog):
    assert produce(braidlog, braidlog_topic, b"written") == 0
    url = f"{braidlog.http}/api/v1/topics/public/default/{braidlog_topic}"
    with urllib.request.urlopen(url) as answer:
        assert json.load(answer)["partitions"]
    assert consumed(braidlog, braidlog_topic, 1) == [b"written"]


def test_each_test_has_topics_of_its_own(broker):
    with_names = [broker.namespace("test_a[x/y é]") for _ in range(2)]
    topics = [namespace.topic("orders") for namespace in with_names]
    assert topics[0] != topics[1]
    assert all(topic.endswith("-orders") for topic in topics)
    with_names[0].delete()
    assert broker.create_topic(topics[0]) == topics[0], "the name is free again"


def test_a_cut_ends_the_connections_of_one_listener(broker):
    host, port = broker.kafka.split(":")
    with socket.create_connection((host, int(port))) as cut:
        other = socket.create_connection(broker.iggy.split(":"))
        with other:
            until_seen(lambda: broker.inject(Cut(listener="kafka"))["connections"])
            with pytest.raises(ConnectionResetError):
                cut.recv(1)
            until_seen(lambda: broker.inject(Cut(listener="iggy"))["connections"])
    with pytest.raises(ValueError, match="listener 'smtp' is unknown, expected one of"):
        broker.inject(Cut(listener="smtp"))


def test_a_dropped_answer_belongs_to_work_that_was_done(broker):
    topic = broker.namespace("drop").topic()
    url = f"{broker.http}/topics/persistent/public/default/{topic}"
    body = json.dumps({"messages": [{"value": "kept"}]}).encode()
    head = {"Content-Type": "application/json"}
    broker.inject(DropAnswers(listener="http"))
    with pytest.raises(OSError):  # The reset, as `urllib` raises it.
        urllib.request.urlopen(urllib.request.Request(url, body, head))
    with urllib.request.urlopen(urllib.request.Request(url, body, head)) as answer:
        assert answer.status == 200, "only one answer is dropped"
    assert len(consumed(broker, topic, 2)) == 2, "the first request was served too"


def test_a_delay_holds_every_answer_back(broker):
    broker.inject(Delay(listener="http", seconds=3600))
    host, port = broker.http.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=0.3) as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
        with pytest.raises(TimeoutError):
            client.recv(1)
    broker.heal()
    with urllib.request.urlopen(f"{broker.http}/healthz") as answer:
        assert answer.status == 200


def test_a_full_disk_refuses_writes_until_healed(broker):
    topic = broker.namespace("disk").topic()
    broker.inject(FullDisk())
    with pytest.raises(KafkaError):
        produce(broker, topic, b"refused", retries=0)
    broker.heal()
    assert produce(broker, topic, b"stored") == 0


@pytest.mark.parametrize("error", ["storage_full", "not_owner", "limit_exceeded"])
def test_an_append_is_refused_with_a_named_error_and_then_served(broker, error):
    topic = broker.namespace("refuse").topic()
    broker.inject(Refuse(operation="append", error=error, count=2))
    for _ in range(2):
        with pytest.raises(KafkaError):
            produce(broker, topic, b"refused", retries=0)
    assert produce(broker, topic, b"stored") == 0


def test_every_operation_of_a_client_can_be_refused(broker):
    topic = broker.namespace("all").topic()
    url = f"{broker.http}/api/v1/topics/public/default/{topic}"

    def status(method, body=None, to=url):
        head = {"Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        try:
            with urllib.request.urlopen(
                urllib.request.Request(to, data, head, method=method)
            ) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code

    settings = {"settings": {"retention_ms": 3_600_000}}
    positions = f"{broker.http}/api/v1/groups/public/default/{topic}/g/positions"
    for operation, request in {
        "create_topic": ("PUT", {"partitions": 1}, f"{url}-other"),
        "alter_topic": ("PATCH", settings, url),
        "commit": ("PUT", {"positions": {"0": 0}}, positions),
        "delete_topic": ("DELETE", None, url),
    }.items():
        broker.inject(Refuse(operation=operation, error="shutting_down"))
        assert status(*request) == 503, operation
        assert status(*request) < 300, operation
    for fault in (
        Refuse(operation="explode", error="storage_full"),
        Refuse(operation="append", error="boredom"),
    ):
        with pytest.raises(ValueError, match="is unknown, expected one of"):
            broker.inject(fault)


def test_retention_follows_a_moved_clock(broker):
    namespace = broker.namespace("clock")
    topic = namespace.topic()
    url = f"{broker.http}/api/v1/topics/public/default/{topic}"
    settings = json.dumps({"settings": {"retention_ms": 3_600_000}}).encode()
    head = {"Content-Type": "application/json"}
    urllib.request.urlopen(urllib.request.Request(url, settings, head, method="PATCH")).close()
    assert produce(broker, topic, b"old") == 0
    broker.inject(MoveClock(seconds=7200))

    def is_empty():
        with urllib.request.urlopen(url) as answer:
            return json.load(answer)["partitions"][0]["log_start_offset"] == 1

    until_seen(is_empty)
    assert produce(broker, topic, b"new") == 1


def test_a_forced_rebalance_lets_members_join_again(broker):
    topic = broker.namespace("group").topic()
    consumer = KafkaConsumer(
        topic, bootstrap_servers=broker.kafka, group_id=topic, auto_offset_reset="earliest"
    )
    with pytest.raises(ValueError, match="expected Stable"):
        broker.inject(Rebalance(group=topic))
    produce(broker, topic, b"first")
    assert next(consumer).value == b"first"
    began = consumer._coordinator.generation_if_stable().generation_id
    broker.inject(Rebalance(group=topic))

    def joined_again():
        consumer.poll(100)
        generation = consumer._coordinator.generation_if_stable()
        return generation is not None and generation.generation_id > began

    until_seen(joined_again)
    produce(broker, topic, b"second")
    assert next(consumer).value == b"second"
    consumer.close()


def test_faults_are_injected_over_http_too(broker):
    assert call(broker, "POST", "/faults", {"fault": "cut"})[0] == 200
    status, answer = call(broker, "POST", "/faults", {"fault": "move_clock", "seconds": 0})
    assert (status, list(answer)) == (200, ["now_us"])
    assert call(broker, "DELETE", "/faults") == (200, {})
    status, addresses = call(broker, "GET", "/addresses")
    assert status == 200
    assert addresses["kafka"] == broker.kafka
    status, answer = call(broker, "POST", "/faults", {"fault": "cut", "listener": "smtp"})
    assert status == 409
    assert "expected one of" in answer["error"]
    for body in ({"fault": "flood"}, {"fault": "delay"}, {"fault": "delay", "seconds": -1}, []):
        assert call(broker, "POST", "/faults", body)[0] == 400
    assert call(broker, "POST", "/faults", {"fault": "x" * 70_000})[0] == 413


def test_a_broker_serves_on_asyncio_and_on_trio():
    async def alive():
        async with Braidlog({"topics.num_partitions": "3"}) as broker:
            return broker.http

    assert asyncio.run(alive()).startswith("http://")
    assert trio.run(alive).startswith("http://")


def test_a_wrong_setting_is_told():
    with pytest.raises(BrokerNotStarted, match=r"topics\.colour: unknown setting"):
        Braidlog({"topics.colour": "red"}).start()
    with pytest.raises(BrokerNotStarted, match="is not started"):
        _ = Braidlog().kafka
