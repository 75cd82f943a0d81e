"""Full and read-only disks under a served broker: writers receive their protocol's error, readers
continue, and writes resume as soon as there is room.
"""

import contextlib

import pytest

from conformance.clients.raw.pulsar import ACK, encode
from tests.operations.clients import (
    IGGY_CANNOT_APPEND,
    KAFKA_STORAGE_ERROR,
    OK,
    PULSAR_PERSISTENCE_ERROR,
    Listeners,
)
from tests.operations.kit import SwitchedBroker, api, pulsar, topic_path

TOPIC = "t"
REFUSED = {
    "kafka": KAFKA_STORAGE_ERROR,
    "pulsar": PULSAR_PERSISTENCE_ERROR,
    "iggy": IGGY_CANNOT_APPEND,
}
ALL_OK = dict.fromkeys(REFUSED, OK)
COMMITS_REFUSED = {"kafka": KAFKA_STORAGE_ERROR, "iggy": IGGY_CANNOT_APPEND}


@pytest.fixture
def listeners(tmp_path):
    """Yield a client of each listener, on a disk with a fault switch, with several
    stored records.
    """
    with SwitchedBroker(tmp_path / "broker") as broker:
        with contextlib.closing(open_listeners(broker)) as opened:
            yield opened
        assert "Traceback" not in broker.log()


def open_listeners(broker, topic=TOPIC):
    opened = Listeners(broker, topic)
    opened.kafka.create(topic)
    opened.open_producer()
    assert opened.write() == ALL_OK
    return opened


def restart(listeners):
    """Kill the broker if needed, restart on the same ports, and reconnect."""
    listeners.broker.kill()
    listeners.close()
    listeners.broker.start()
    listeners.connect()


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["full", "read-only"])
def test_writers_are_refused_readers_continue_and_writes_resume(listeners, fault):
    assert set(listeners.commit(1).values()) == {OK}
    before = listeners.check()
    for _ in range(2):
        with listeners.broker.fault(fault):
            for _ in range(3):
                assert listeners.write() == REFUSED
            assert listeners.commit(2) == COMMITS_REFUSED
            assert listeners.make_topic("other") == "storage_full"
            assert listeners.read() == before
            assert listeners.kafka.committed("kafka-group", TOPIC) == 1
        listeners.open_producer()
        assert listeners.write() == ALL_OK
        before = listeners.check()
    assert listeners.make_topic("other") == OK
    assert listeners.commit(3) == {"kafka": OK, "iggy": OK}
    restart(listeners)
    assert listeners.check() == before
    assert listeners.kafka.committed("kafka-group", TOPIC) == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "reason"),
    [("full", "No space left on device"), ("read-only", "Read-only file system")],
)
def test_clients_receive_the_reason_and_the_operator_the_file(listeners, fault, reason):
    with listeners.broker.fault(fault):
        assert listeners.write() == REFUSED
        listeners.make_topic("other")
    assert listeners.told == [f"public/default/{TOPIC}/0: {reason}", reason]
    (line, *_) = [line for line in listeners.broker.log().splitlines() if "storage_full" in line]
    assert str(listeners.broker.data_dir / "partitions") in line
    assert reason in line


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["synced", "written"])
def test_a_broker_that_starts_on_a_full_disk_serves_readers(listeners, mode):
    api(listeners.broker, "PATCH", topic_path(TOPIC), {"settings": {"durability": mode}})
    assert listeners.write() == ALL_OK
    before = listeners.check()
    with listeners.broker.fault("full"):
        restart(listeners)
        assert listeners.check() == before
        assert listeners.write() == REFUSED
    listeners.open_producer()
    listeners.write()  # A write may be refused because its place in the log is now in the gap.
    assert listeners.write() == ALL_OK
    assert listeners.check().items() > before.items()


@pytest.mark.slow
def test_a_refused_record_leaves_nothing_for_a_later_start(listeners):
    """Half of each refused batch was written: later acknowledged records overwrite it."""
    with listeners.broker.fault("full"):
        assert listeners.write() == REFUSED
    listeners.open_producer()
    assert listeners.write() == ALL_OK
    values = listeners.check()
    assert list(values) == list(range(6))
    restart(listeners)
    assert listeners.check() == values
    assert "torn_tail" not in listeners.broker.log()


@pytest.mark.slow
def test_a_subscription_continues_and_its_acks_wait_for_room(listeners):
    reader = pulsar(listeners.broker)
    reader.subscribe(TOPIC, "pulsar-group")
    first = reader.next_message()
    with listeners.broker.fault("full"):
        assert [reader.next_message().entry for _ in range(2)] == [1, 2]
        message_id = encode([(1, first.ledger), (2, first.entry)])
        reader.command(ACK, [(1, 0), (2, 0), (3, message_id)])  # Without a receipt.
        assert listeners.write() == REFUSED
    listeners.open_producer()
    assert listeners.write() == ALL_OK
    assert [reader.next_message().entry for _ in range(3)] == [3, 4, 5]
    reader.close()
    assert listeners.broker.stop() == 0
    restart(listeners)
    assert listeners.kafka.committed("pulsar-group", TOPIC) == 1
