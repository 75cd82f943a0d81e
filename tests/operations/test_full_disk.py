"""Full and read-only disks under a served broker: writers are told in their protocol's words,
readers read on, and all goes on as soon as there is room.
"""

import contextlib
import os
import subprocess

import pytest

from conformance.raw.pulsar import ACK, encode
from conformance.server import RunningBroker

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
DISK_BYTES = 20 << 20


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
                doors.open_producer()
            assert doors.commit(2) == COMMITS_REFUSED
            assert doors.make_topic("other") == "storage_full"
            assert doors.read() == before
            assert doors.kafka.committed("kafka-group", TOPIC) == 1
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
        doors.open_producer()
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


def can_mount():
    """Whether a file system of our own can be had, by a namespace of our own if need be."""
    probe = ["unshare", "--mount", "--map-root-user", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    try:
        return subprocess.run(probe, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


class SmallDiskBroker(RunningBroker):
    """A broker whose data directory is a file system of its own, of `DISK_BYTES`, that only it
    sees.
    """

    @property
    def command(self):
        mount = f"mount -t tmpfs -o size={DISK_BYTES} tmpfs {self.data_dir}"
        run = ["unshare", "--mount", "--map-root-user", "sh", "-c", f'{mount} && exec "$@"', "sh"]
        return [*run, *super().command]

    @property
    def inside(self):
        """The data directory as others reach it while the broker runs."""
        return f"/proc/{self.pid}/root{self.data_dir}"

    def verify(self):
        """Nothing: the file system goes with the broker."""


@pytest.mark.slow
@pytest.mark.skipif(not can_mount(), reason="no file system can be mounted here")
def test_a_file_system_that_is_really_full(tmp_path):
    folder = tmp_path / "broker"
    (folder / "data").mkdir(parents=True)
    with SmallDiskBroker(folder) as broker:
        doors = open_doors(broker)
        ballast = os.path.join(broker.inside, "ballast")
        with open(ballast, "wb") as file:
            file.write(bytes(DISK_BYTES - (1 << 20)))
        refused, written = {}, 0
        while set(refused) != set(REFUSED):
            answers = doors.write()
            written += sum(code == OK for code in answers.values())
            refused |= {door: code for door, code in answers.items() if code != OK}
            if answers["pulsar"] != OK:
                doors.open_producer()
            if written % 300 == 0:
                fill(ballast)
        assert refused == REFUSED
        assert doors.make_topic("other") == "storage_full"
        doors.check()
        os.truncate(ballast, 0)
        assert doors.write() == ALL_OK
        assert doors.make_topic("other") == OK
        doors.check()
        doors.close()
        assert broker.stop() == 0
        assert "Traceback" not in broker.log()


def fill(path):
    """Let a file take what room there is."""
    with open(path, "ab", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)):
            pass
