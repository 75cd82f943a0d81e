"""Very many partitions in a broker, created and removed while other clients are served.

Few files are open: the soft limit is below the need of a commit round over all partitions.
"""

import math
import os
import resource
import struct
import threading

import pytest

from braidlog.storage.log.descriptors import HANDLES_MAX, idle_handles_of
from conformance.clients.raw.iggy import PING
from conformance.clients.raw.kafka import FETCH, PRODUCE, message, string
from conformance.server import RunningBroker
from tests.operations.kit import api, iggy, kafka, topic_path
from tests.waiting import until_seen


def hard_limit():
    """Return the hard limit of descriptors."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    return math.inf if most == resource.RLIM_INFINITY else most


OTHERS_MAX = 100  # Descriptors of no log file.
IDLE_MAX = OTHERS_MAX + (HANDLES_MAX if hard_limit() == math.inf else idle_handles_of(hard_limit()))
# A round over all partitions holds two files of each, and some systems allow 1024 descriptors.
PARTITIONS = 1000 if hard_limit() > 4000 else 400
SOFT_LIMIT = PARTITIONS * 7 // 10  # Fewer than the partitions of a single request.
TOPICS = ("a", "b")
VALUE = b"one of many"


class SoftLimitBroker(RunningBroker):
    """A broker with a low soft limit, as is usual."""

    @property
    def command(self):
        limit = f'ulimit -S -n {SOFT_LIMIT} && exec "$@"'
        return ["sh", "-c", limit, "sh", *super().command]


class Pinger(threading.Thread):
    """A client with repeated requests; `seen` are the numbers of partitions in the answers."""

    def __init__(self, broker):
        super().__init__()
        self.wire = iggy(broker)
        self.folder = broker.data_dir / "partitions"
        self.seen = set()
        self.stopping = threading.Event()

    def run(self):
        with self.wire:
            while not self.stopping.is_set():
                self.wire.ok(PING, b"")
                self.seen.add(len(os.listdir(self.folder)))


def produce_to_all(broker, topic):
    """Send a record to each partition, in a single request."""
    body = struct.pack(">hii", 1, 20_000, 1) + string(topic.encode())
    body += struct.pack(">i", PARTITIONS)
    for number in range(PARTITIONS):
        records = message(None, VALUE)
        body += struct.pack(">ii", number, len(records)) + records
    with kafka(broker) as wire:
        answer = wire.ask(PRODUCE, 0, body)
    fields = struct.iter_unpack(">ihq", answer[4 + len(string(topic.encode())) + 4 :])
    assert [(number, 0, 0) for number in range(PARTITIONS)] == sorted(fields)


def records_of_all(broker, topic):
    """Return the number of records in a fetch of every partition."""
    body = struct.pack(">iiii", -1, 0, 1, 1) + string(topic.encode())
    body += struct.pack(">i", PARTITIONS)
    for number in range(PARTITIONS):
        body += struct.pack(">iqi", number, 0, 1000)
    with kafka(broker) as wire:
        return wire.ask(FETCH, 0, body).count(VALUE)


@pytest.mark.slow
def test_very_many_partitions_are_served_with_few_descriptors(tmp_path):
    with SoftLimitBroker(tmp_path / "broker") as broker:
        pinger = Pinger(broker)
        pinger.start()
        for number, topic in enumerate(TOPICS):
            assert api(broker, "PUT", topic_path(topic), {"partitions": PARTITIONS})[0] == 201
            before = number * PARTITIONS
            # An answer may come late. Another request was served meanwhile.
            meanwhile = [count for count in pinger.seen if before < count < before + PARTITIONS]
            assert len(meanwhile) > 1, "the making of a topic held up everybody"
            produce_to_all(broker, topic)
        assert [records_of_all(broker, topic) for topic in TOPICS] == [PARTITIONS] * 2
        assert len(os.listdir(f"/proc/{broker.pid}/fd")) <= IDLE_MAX
        pinger.stopping.set()
        pinger.join()
        broker.kill()
        broker.start()
        assert [records_of_all(broker, topic) for topic in TOPICS] == [PARTITIONS] * 2
        assert api(broker, "DELETE", topic_path("a"))[0] == 204
        assert records_of_all(broker, "b") == PARTITIONS
        assert broker.stop() == 0
        broker.start()
        assert records_of_all(broker, "b") == PARTITIONS
        until_seen(lambda: len(os.listdir(broker.data_dir / "partitions")) == PARTITIONS)
        assert "Traceback" not in broker.log()
