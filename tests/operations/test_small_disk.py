"""A file system that is really full, or read-only, under a served broker: refusals, what makes
room, starts, and that all goes on by itself.
"""

import contextlib
import subprocess
import sys

import pytest

from broker.cli.main import run
from tests.waiting import until_seen

from .doors import OK, Doors
from .kit import api, topic_path
from .small_disk import InsideBroker, SmallDisk, can_mount
from .test_full_disk import ALL_OK, COMMITS_REFUSED, REFUSED, TOPIC, open_doors

DISK_BYTES = 20 << 20
RESERVE_BYTES = 1 << 20
OLD = "old"
ALTERATIONS = 60  # Their records are larger together than two blocks.
SEND_TIMEOUT_MS = 2000

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not can_mount(), reason="no file system can be mounted here"),
]


@pytest.fixture
def disk(tmp_path):
    folder = tmp_path / "mount"
    folder.mkdir()
    with SmallDisk(folder, DISK_BYTES) as mounted:
        yield mounted


@pytest.fixture
def broker(tmp_path, disk):
    settings = ("log.segment_bytes=64KiB", "log.retention_check_ms=100")
    with InsideBroker(tmp_path / "broker", disk, settings=settings) as running:
        yield running
        assert "Traceback" not in running.log()


@pytest.fixture
def doors(broker):
    """A client of each door of that broker, with some records in a topic."""
    with contextlib.closing(open_doors(broker)) as opened:
        yield opened


def use_up(doors):
    """Fill the disk, and write until each door refuses; what was refused."""
    doors.broker.disk.fill()
    refused = {}
    while set(refused) != set(REFUSED):
        answers = doors.write()
        refused |= {door: code for door, code in answers.items() if code != OK}
    return refused


def commit_until_refused(doors):
    """Commits until there is no room for them; the last position that was acknowledged."""
    for position in range(1, 1000):
        if doors.kafka.commit("kafka-group", TOPIC, position):
            return position - 1
    raise AssertionError("never refused")


def command(broker, *words):
    """What an operator types; the exit code."""
    return run(["topics", *words, "--url", broker.url])


def test_writers_are_refused_and_readers_read_on_over_starts(doors):
    broker = doors.broker
    assert use_up(doors) == REFUSED
    committed = commit_until_refused(doors)
    assert doors.make_topic("other") == "storage_full"
    before = doors.check()
    for end in (broker.stop, broker.kill):
        end()
        doors.close()
        broker.start()
        doors.connect()
        assert doors.check() == before
        assert doors.write() == REFUSED
        assert doors.kafka.committed("kafka-group", TOPIC) == committed
    broker.disk.empty()
    doors.open_producer()
    assert doors.write() == ALL_OK
    assert doors.make_topic("other") == OK
    assert doors.commit(1) == {"kafka": OK, "iggy": OK}
    assert doors.check().items() > before.items()


def test_an_operator_makes_room_on_it(doors, capsys):
    broker = doors.broker
    old = Doors(broker, OLD)
    old.kafka.create(OLD)
    for _ in range(500):
        assert old.write() == ALL_OK
    old.close()
    assert use_up(doors) == REFUSED
    for number in range(ALTERATIONS):
        assert command(broker, "alter", OLD, "--set", f"retention_ms={number + 1}d") == 0
    assert RESERVE_BYTES // 2 < broker.reserve_bytes < RESERVE_BYTES
    assert doors.write() == REFUSED, "others had the room that was kept"
    assert command(broker, "alter", OLD, "--set", "retention_bytes=100KiB") == 0
    doors.open_producer()
    assert doors.write() == ALL_OK
    until_seen(lambda: broker.reserve_bytes == RESERVE_BYTES)
    assert use_up(doors) == REFUSED
    assert command(broker, "alter", OLD, "--set", "retention_ms=1ms") == 0
    until_seen(lambda: api(broker, "GET", topic_path(OLD))[1]["partitions"][0]["size_bytes"] < 100)
    assert use_up(doors) == REFUSED
    assert command(broker, "delete", TOPIC, "--yes") == 0
    until_seen(lambda: command(broker, "create", TOPIC) == 0)  # The files go a moment later.
    again = Doors(broker, TOPIC)
    assert again.write() == ALL_OK
    until_seen(lambda: broker.reserve_bytes == RESERVE_BYTES)
    again.close()


def test_a_topic_is_deleted_after_a_start_on_it(doors, capsys):
    broker = doors.broker
    assert use_up(doors) == REFUSED
    broker.kill()
    doors.close()
    broker.start()
    assert command(broker, "delete", TOPIC, "--yes") == 0
    until_seen(lambda: command(broker, "create", TOPIC) == 0)  # The files go a moment later.
    doors.acknowledged = {}
    doors.connect()
    assert doors.write() == ALL_OK


PULSAR_CLIENT = f"""
import sys, pulsar
quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
client = pulsar.Client("pulsar://" + sys.argv[1], logger=quiet)
producer = client.create_producer(sys.argv[2], send_timeout_millis={SEND_TIMEOUT_MS})
for line in sys.stdin:
    try:
        producer.send(b"x" * 5000)
        print("sent", flush=True)
    except pulsar.PulsarException as error:
        print(type(error).__name__, flush=True)
client.close()
"""


def test_a_client_of_pulsar_hears_of_it_though_it_tries_again_for_ever(doors):
    """Its own timeout begins anew whenever its producer is let in again."""
    pytest.importorskip("pulsar", reason="pulsar-client is not installed")
    address = doors.broker.addresses["pulsar"]
    with subprocess.Popen(
        [sys.executable, "-c", PULSAR_CLIENT, address, TOPIC],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    ) as client:

        def send():
            client.stdin.write("\n")
            return client.stdout.readline().strip()

        until_seen(lambda: send() == "sent")  # Its timeout is short.
        use_up(doors)
        assert send() == "Timeout"
        doors.broker.disk.empty()
        until_seen(lambda: send() == "sent")
        client.stdin.close()


@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_a_broker_that_starts_on_a_read_only_disk_serves_readers(doors, ending):
    broker = doors.broker
    assert doors.commit(1) == {"kafka": OK, "iggy": OK}
    before = doors.check()
    assert not broker.disk.remount("ro"), "the kernel refuses it while a broker writes there"
    assert doors.write() == ALL_OK
    before = doors.check()
    doors.close()
    getattr(broker, ending)()
    assert broker.disk.remount("ro")
    broker.start()
    doors.connect()
    assert doors.write() == REFUSED
    assert doors.commit(2) == COMMITS_REFUSED
    assert doors.make_topic("other") == "storage_full"
    assert doors.check() == before
    assert doors.kafka.committed("kafka-group", TOPIC) == 1
    assert broker.disk.remount("rw")
    doors.open_producer()
    assert doors.write() == ALL_OK
    assert doors.commit(3) == {"kafka": OK, "iggy": OK}
    assert doors.check().items() > before.items()
    assert broker.stop() == 0
