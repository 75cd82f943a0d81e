"""A really full or read-only file system under a served broker: refusals, actions that free space,
starts, and automatic recovery.
"""

import contextlib
import subprocess
import sys

import pytest

from braidlog.broker.cli.main import run
from tests.operations.clients import OK, Listeners
from tests.operations.kit import api, topic_path
from tests.operations.small_disk import InsideBroker, SmallDisk, can_mount
from tests.operations.test_full_disk import ALL_OK, COMMITS_REFUSED, REFUSED, TOPIC, open_listeners
from tests.waiting import until_seen

DISK_BYTES = 20 << 20
RESERVE_BYTES = 1 << 20
OLD = "old"
ALTERATIONS = 60  # Their records together exceed two blocks.
# More bytes than the writes on a full disk use for good: deleting the topic frees room for the
# whole reserve and a topic, however the blocks were used before.
WRITES = 200
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
def listeners(broker):
    """Yield a client of each listener of that broker, with `WRITES` records of each in a topic."""
    with contextlib.closing(open_listeners(broker)) as opened:
        for _ in range(WRITES):
            assert opened.write() == ALL_OK
        yield opened


def use_up(listeners):
    """Fill the disk, and write until each listener refuses; return the refusals."""
    listeners.broker.disk.fill()
    refused = {}
    while set(refused) != set(REFUSED):
        answers = listeners.write()
        refused |= {listener: code for listener, code in answers.items() if code != OK}
    return refused


def commit_until_refused(listeners):
    """Commit until there is no room; return the last acknowledged position."""
    for position in range(1, 1000):
        if listeners.kafka.commit("kafka-group", TOPIC, position):
            return position - 1
    raise AssertionError("never refused")


def command(broker, *words):
    """Run an operator's command; return the exit code."""
    return run(["topics", *words, "--url", broker.url])


def test_writers_are_refused_and_readers_continue_over_restarts(listeners):
    broker = listeners.broker
    assert use_up(listeners) == REFUSED
    committed = commit_until_refused(listeners)
    assert listeners.make_topic("other") == "storage_full"
    before = listeners.check()
    for end in (broker.stop, broker.kill):
        end()
        listeners.close()
        broker.start()
        listeners.connect()
        assert listeners.check() == before
        assert listeners.write() == REFUSED
        assert listeners.kafka.committed("kafka-group", TOPIC) == committed
    broker.disk.empty()
    listeners.open_producer()
    assert listeners.write() == ALL_OK
    assert listeners.make_topic("other") == OK
    assert listeners.commit(1) == {"kafka": OK, "iggy": OK}
    assert listeners.check().items() > before.items()


def test_an_operator_frees_space_on_a_full_disk(listeners, capsys):
    broker = listeners.broker
    old = Listeners(broker, OLD)
    old.kafka.create(OLD)
    for _ in range(500):
        assert old.write() == ALL_OK
    old.close()
    assert use_up(listeners) == REFUSED
    for number in range(ALTERATIONS):
        assert command(broker, "alter", OLD, "--set", f"retention_ms={number + 1}d") == 0
    assert RESERVE_BYTES // 2 < broker.reserve_bytes < RESERVE_BYTES
    assert listeners.write() == REFUSED, "others had the room that was kept"
    assert command(broker, "alter", OLD, "--set", "retention_bytes=100KiB") == 0
    listeners.open_producer()
    assert listeners.write() == ALL_OK
    until_seen(lambda: broker.reserve_bytes == RESERVE_BYTES)
    assert use_up(listeners) == REFUSED
    assert command(broker, "alter", OLD, "--set", "retention_ms=1ms") == 0
    until_seen(lambda: api(broker, "GET", topic_path(OLD))[1]["partitions"][0]["size_bytes"] < 100)
    until_seen(lambda: broker.reserve_bytes == RESERVE_BYTES)
    assert use_up(listeners) == REFUSED
    assert command(broker, "delete", TOPIC, "--yes") == 0
    # The files are removed a moment later.
    until_seen(lambda: command(broker, "create", TOPIC) == 0)
    again = Listeners(broker, TOPIC)
    assert again.write() == ALL_OK
    until_seen(lambda: broker.reserve_bytes == RESERVE_BYTES)
    again.close()


def test_a_topic_is_deleted_after_a_start_on_a_full_disk(listeners, capsys):
    broker = listeners.broker
    assert use_up(listeners) == REFUSED
    broker.kill()
    listeners.close()
    broker.start()
    assert command(broker, "delete", TOPIC, "--yes") == 0
    # The files are removed a moment later.
    until_seen(lambda: command(broker, "create", TOPIC) == 0)
    listeners.acknowledged = {}
    listeners.connect()
    assert listeners.write() == ALL_OK


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


def test_a_pulsar_client_with_endless_retries_receives_an_error(listeners):
    """The client's own timeout restarts whenever its producer is accepted again."""
    pytest.importorskip("pulsar", reason="pulsar-client is not installed")
    address = listeners.broker.addresses["pulsar"]
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

        until_seen(lambda: send() == "sent")  # The producer's timeout is short.
        use_up(listeners)
        assert send() == "Timeout"
        listeners.broker.disk.empty()
        until_seen(lambda: send() == "sent")
        client.stdin.close()


@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_a_broker_that_starts_on_a_read_only_disk_serves_readers(listeners, ending):
    broker = listeners.broker
    assert listeners.commit(1) == {"kafka": OK, "iggy": OK}
    before = listeners.check()
    assert not broker.disk.remount("ro"), "the kernel refuses it while a broker writes there"
    assert listeners.write() == ALL_OK
    before = listeners.check()
    listeners.close()
    getattr(broker, ending)()
    assert broker.disk.remount("ro")
    broker.start()
    listeners.connect()
    assert listeners.write() == REFUSED
    assert listeners.commit(2) == COMMITS_REFUSED
    assert listeners.make_topic("other") == "storage_full"
    assert listeners.check() == before
    assert listeners.kafka.committed("kafka-group", TOPIC) == 1
    assert broker.disk.remount("rw")
    listeners.open_producer()
    assert listeners.write() == ALL_OK
    assert listeners.commit(3) == {"kafka": OK, "iggy": OK}
    assert listeners.check().items() > before.items()
    assert broker.stop() == 0
