"""Full and read-only disks under a served broker: writers are told in their protocol's words,
readers read on, and all goes on as soon as there is room.
"""

import contextlib

import pytest

from conformance.raw.pulsar import ACK, encode

from .doors import IGGY_CANNOT_APPEND, KAFKA_STORAGE_ERROR, OK, PULSAR_PERSISTENCE_ERROR, Doors
from .kit import SwitchedBroker, api, pulsar, topic_path

TOPIC = "t"
REFUSED = {
    "kafka": KAFKA_STORAGE_ERROR,
    "pulsar": PULSAR_PERSISTENCE_ERROR,
    "iggy": IGGY_CANNOT_APPEND,
}
ALL_OK = dict.fromkeys(REFUSED, OK)
COMMITS_REFUSED = {"kafka": KAFKA_STORAGE_ERROR, "iggy": IGGY_CANNOT_APPEND}


@pytest.fixture
def doors(tmp_path):
    """A client of each door of a broker whose disk has a switch; some records are there."""
    with SwitchedBroker(tmp_path / "broker") as broker:
        with contextlib.closing(open_doors(broker)) as opened:
            yield opened
        assert "Traceback" not in broker.log()


def open_doors(broker, topic=TOPIC):
    opened = Doors(broker, topic)
    opened.kafka.create(topic)
    opened.open_producer()
    assert opened.write() == ALL_OK
    return opened


def restart(doors):
    """Kill the broker if it runs, start it again on the same ports, and connect."""
    doors.broker.kill()
    doors.close()
    doors.broker.start()
    doors.connect()


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["full", "read-only"])
def test_writers_are_refused_readers_read_on_and_all_resumes(doors, fault):
    assert set(doors.commit(1).values()) == {OK}
    before = doors.check()
    for _ in range(2):
        with doors.broker.fault(fault):
            for _ in range(3):
                assert doors.write() == REFUSED
            assert doors.commit(2) == COMMITS_REFUSED
            assert doors.make_topic("other") == "storage_full"
            assert doors.read() == before
            assert doors.kafka.committed("kafka-group", TOPIC) == 1
        doors.open_producer()
        assert doors.write() == ALL_OK
        before = doors.check()
    assert doors.make_topic("other") == OK
    assert doors.commit(3) == {"kafka": OK, "iggy": OK}
    restart(doors)
    assert doors.check() == before
    assert doors.kafka.committed("kafka-group", TOPIC) == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "reason"),
    [("full", "No space left on device"), ("read-only", "Read-only file system")],
)
def test_clients_are_told_the_reason_and_the_operator_the_file(doors, fault, reason):
    with doors.broker.fault(fault):
        assert doors.write() == REFUSED
        doors.make_topic("other")
    assert doors.told == [f"public/default/{TOPIC}/0: {reason}", reason]
    (line, *_) = [line for line in doors.broker.log().splitlines() if "storage_full" in line]
    assert str(doors.broker.data_dir / "partitions") in line
    assert reason in line


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["synced", "written"])
def test_a_broker_that_starts_on_a_full_disk_serves_readers(doors, mode):
    api(doors.broker, "PATCH", topic_path(TOPIC), {"settings": {"durability": mode}})
    assert doors.write() == ALL_OK
    before = doors.check()
    with doors.broker.fault("full"):
        restart(doors)
        assert doors.check() == before
        assert doors.write() == REFUSED
    doors.open_producer()
    doors.write()  # One may be refused for a place in the log that is in the gap by now.
    assert doors.write() == ALL_OK
    assert doors.check().items() > before.items()


@pytest.mark.slow
def test_a_refused_record_leaves_nothing_that_a_later_start_finds(doors):
    """Half of each refused batch went in: what is acknowledged later lies in its place."""
    with doors.broker.fault("full"):
        assert doors.write() == REFUSED
    doors.open_producer()
    assert doors.write() == ALL_OK
    found = doors.check()
    assert list(found) == list(range(6))
    restart(doors)
    assert doors.check() == found
    assert "torn_tail" not in doors.broker.log()


@pytest.mark.slow
def test_a_subscription_reads_on_and_its_acks_wait_for_room(doors):
    reader = pulsar(doors.broker)
    reader.subscribe(TOPIC, "pulsar-group")
    first = reader.next_message()
    with doors.broker.fault("full"):
        assert [reader.next_message().entry for _ in range(2)] == [1, 2]
        message_id = encode([(1, first.ledger), (2, first.entry)])
        reader.command(ACK, [(1, 0), (2, 0), (3, message_id)])  # Without a receipt.
        assert doors.write() == REFUSED
    doors.open_producer()
    assert doors.write() == ALL_OK
    assert [reader.next_message().entry for _ in range(3)] == [3, 4, 5]
    reader.close()
    assert doors.broker.stop() == 0
    restart(doors)
    assert doors.kafka.committed("pulsar-group", TOPIC) == 1
