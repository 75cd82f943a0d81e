"""Retention and deletion under a served broker, with readers in the removed parts."""

import contextlib
import os
import threading

import pytest

from braidlog.broker.cli.main import run
from conformance.clients.raw.iggy import BY_OFFSET, IggyWire
from conformance.clients.raw.kafka import KafkaWire, message, parse_set
from conformance.clients.raw.pulsar import FLOW, PulsarWire
from conformance.server import RunningBroker
from tests.operations.kit import api, iggy, kafka, partition_of, pulsar, topic_path
from tests.waiting import HANG_S, until_seen

TOPIC = "t"
KAFKA_OUT_OF_RANGE = 1
SEGMENT = "segment_bytes=64KiB"
RECORDS = 300


@pytest.fixture
def broker(tmp_path):
    """A broker with constant retention checks; it must log no traceback."""
    settings = ["log.retention_check_ms=20ms", "log.segment_bytes=64KiB"]
    with RunningBroker(tmp_path / "broker", settings=settings) as running:
        yield running
        assert "Traceback" not in running.log()


def fill(broker, records=RECORDS):
    """Store records of a kilobyte: about 60 in a segment."""
    with kafka(broker) as wire:
        wire.create(TOPIC)
        for number in range(records):
            error, _ = wire.produce(TOPIC, message(None, b"%06d" % number + bytes(1000)))
            assert error == 0


def alter(broker, *options):
    """Run a user's `topics alter`."""
    command = ["topics", "alter", TOPIC, "--url", broker.url, *options]
    assert run(command) == 0


def log_start(broker):
    """Return the first kept offset; the API and Kafka's listener must agree."""
    return partition_of(broker, TOPIC)["log_start_offset"]


@pytest.mark.slow
@pytest.mark.parametrize("limit", ["retention_bytes=100KiB", "retention_ms=1ms"])
def test_readers_in_removed_parts_receive_their_protocols_error(broker, limit):
    fill(broker)
    with contextlib.ExitStack() as stack:
        subscriber = stack.enter_context(pulsar(broker))
        subscriber.subscribe(TOPIC, "slow", permits=2)
        assert [subscriber.next_message().entry for _ in range(2)] == [0, 1]
        alter(broker, "--set", limit)
        until_seen(lambda: log_start(broker) > 0)
        alter(broker, "--set", "retention_ms=1h", "--set", "retention_bytes=none")
        fill(broker, 70)
        start = log_start(broker)
        reader = stack.enter_context(kafka(broker))
        assert reader.fetch(TOPIC, 2, wait_ms=0)[0] == KAFKA_OUT_OF_RANGE
        subscriber.command(FLOW, [(1, 0), (2, 1000)])
        entry, before = subscriber.next_message().entry, 1
        while entry < start:  # Entries that were read before are still delivered.
            assert entry == before + 1
            entry, before = subscriber.next_message().entry, entry
        polled = stack.enter_context(iggy(broker)).poll(TOPIC, 1, strategy=BY_OFFSET, value=2)
        assert [message.offset for message in polled] >= [start]
    end = partition_of(broker, TOPIC)["log_end_offset"]
    assert start < end == RECORDS + 70
    broker.kill()
    broker.start()
    assert start <= log_start(broker) < end
    with kafka(broker) as reader:
        assert reader.fetch(TOPIC, 2, wait_ms=0)[0] == KAFKA_OUT_OF_RANGE


@pytest.mark.slow
def test_limits_can_stop_at_records_that_a_group_has_not_read(broker):
    fill(broker)
    with kafka(broker) as wire:
        assert wire.commit("billing", TOPIC, 100) == 0
        alter(broker, "--set", "keep_unacknowledged=true", "--set", "retention_bytes=1")
        assert 0 < log_start(broker) <= 100
        assert wire.fetch(TOPIC, 100, wait_ms=0)[0] == 0
        assert wire.commit("billing", TOPIC, 250) == 0
        until_seen(lambda: log_start(broker) > 100)
        assert log_start(broker) <= 250
        # The commit holds the remaining records, and brings no record back.
        assert wire.commit("late", TOPIC, 0) == 0
        assert wire.fetch(TOPIC, log_start(broker), wait_ms=0)[0] == 0


@pytest.mark.slow
def test_records_read_by_every_group_can_be_removed_at_once(broker):
    fill(broker)
    alter(broker, "--set", "delete_acknowledged=true")
    with kafka(broker) as wire:
        assert wire.commit("audit", TOPIC, 130) == 0
        assert wire.commit("billing", TOPIC, 200) == 0
        until_seen(lambda: log_start(broker) > 0)
        assert log_start(broker) <= 130
        assert wire.commit("audit", TOPIC, RECORDS) == 0
        until_seen(lambda: log_start(broker) > 130)
        assert log_start(broker) <= 200
        assert wire.fetch(TOPIC, 200, wait_ms=0)[0] == 0


@pytest.mark.slow
def test_settings_survive_a_kill_and_can_be_reset(broker, capsys):
    fill(broker, 1)
    alter(broker, "--set", SEGMENT, "--set", "retention_ms=7d", "--set", "durability=written")
    broker.kill()
    broker.start()
    status, shown = api(broker, "GET", topic_path(TOPIC))
    assert status == 200
    expected = {"segment_bytes": 65536, "retention_ms": 7 * 86_400_000, "durability": "written"}
    assert shown["settings"] == expected
    assert shown["in_force"].items() >= expected.items()
    capsys.readouterr()
    alter(broker, "--unset", "durability", "--set", "retention_ms=none")
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["durability", "synced", "broker"] in rows
    assert ["retention_ms", "no", "limit", "topic"] in rows
    for bad in ("durability=maybe", "retention_ms=-5", "segment_bytes=1", "colour=red"):
        command = ["topics", "alter", TOPIC, "--url", broker.url, "--set", bad]
        assert run(command) != 0
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert bad.partition("=")[0] in error


class ClientThread(threading.Thread):
    """A client that works until a refusal; `ended_by` is the refusal."""

    def __init__(self, wire, step):
        super().__init__()
        self.wire, self.step = wire, step
        self.steps = 0
        self.ended_by = None

    def run(self):
        with self.wire:
            while self.ended_by is None:
                try:
                    self.ended_by = self.step(self.wire, self.steps)
                except (OSError, AssertionError) as error:
                    self.ended_by = error
                self.steps += 1


def kafka_write(wire: KafkaWire, number):
    return wire.produce(TOPIC, message(None, b"%d" % number))[0] or None


def kafka_read(wire: KafkaWire, number):
    error, _, body = wire.fetch(TOPIC, number, wait_ms=200)
    assert error or parse_set(body)
    return error or None


def kafka_commit(wire: KafkaWire, number):
    """Commit; Kafka 0.8 answers a commit for a missing topic like any other, and stores nothing."""
    error = wire.commit("deleted-under", TOPIC, number)
    return error or (-1 if wire.committed("deleted-under", TOPIC) == -1 else None)


def iggy_write(wire: IggyWire, number):
    wire.send_messages(TOPIC, [(number, [], b"x")])


def iggy_read(wire: IggyWire, number):
    wire.poll(TOPIC, 100)


def pulsar_write(wire: PulsarWire, number):
    wire.publish(number, [(3, 1)], b"x")


def pulsar_read(wire: PulsarWire, number):
    wire.next_message()
    wire.command(FLOW, [(1, 0), (2, 1)])


@pytest.mark.slow
def test_a_topic_is_deleted_while_clients_write_read_and_commit(broker):
    fill(broker, 100)
    folder = broker.data_dir / "partitions" / str(partition_of(broker, TOPIC)["partition_id"])
    producer, subscriber = pulsar(broker), pulsar(broker)
    producer.open_producer(TOPIC)
    subscriber.subscribe(TOPIC, "reader", permits=2)
    clients = [
        *(ClientThread(kafka(broker), step) for step in (kafka_write, kafka_read, kafka_commit)),
        *(ClientThread(iggy(broker), step) for step in (iggy_write, iggy_read)),
        ClientThread(producer, pulsar_write),
        ClientThread(subscriber, pulsar_read),
    ]
    for client in clients:
        client.start()
    until_seen(lambda: all(client.steps > 20 or client.ended_by for client in clients))
    assert api(broker, "DELETE", topic_path(TOPIC))[0] == 204
    for client in clients:
        client.join(HANG_S)
        assert not client.is_alive(), client.step
        assert client.ended_by is not None, client.step
        assert client.steps > 20, (client.step, client.ended_by)
    until_seen(lambda: not os.listdir(folder.parent))
    assert api(broker, "GET", topic_path(TOPIC))[0] == 404
    fill(broker, 3)
    assert partition_of(broker, TOPIC)["log_end_offset"] == 3
    with kafka(broker) as wire:
        assert wire.committed("deleted-under", TOPIC) == -1
    assert broker.stop() == 0
