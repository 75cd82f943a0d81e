"""A process with few file descriptors accepts connections, even with many idle log files."""

import os
import struct

import pytest

from conformance.clients.raw.kafka import PRODUCE, message, string
from conformance.server import RunningBroker
from tests.operations.kit import api, kafka, topic_path

PARTITIONS = 300
CLIENTS = 8


class FewFilesBroker(RunningBroker):
    """A broker with hard and soft limits of `files` open files."""

    files = 0

    @property
    def command(self):
        return ["sh", "-c", f'ulimit -n {self.files} && exec "$@"', "sh", *super().command]


def produce(wire, number, offset=0):
    """Store a record in that partition and wait until the record is on disk."""
    records = message(None, b"value")
    body = struct.pack(">hii", 1, 20_000, 1) + string(b"many")
    body += struct.pack(">iii", 1, number, len(records)) + records
    answer = wire.ask(PRODUCE, 0, body)
    assert struct.unpack_from(">ihq", answer, 4 + len(string(b"many")) + 4) == (number, 0, offset)


@pytest.mark.slow
@pytest.mark.parametrize("files", [64, 256, 512])
def test_idle_files_never_take_the_last_descriptor(tmp_path, files):
    broker = FewFilesBroker(tmp_path / "broker")
    broker.files = files
    with broker:
        assert api(broker, "PUT", topic_path("many"), {"partitions": PARTITIONS})[0] == 201
        with kafka(broker) as wire:
            for number in range(PARTITIONS):
                produce(wire, number)
        clients = [kafka(broker) for _ in range(CLIENTS)]
        for number, wire in enumerate(clients):
            produce(wire, number, offset=1)
        assert api(broker, "GET", "topics")[0] == 200
        assert len(os.listdir(f"/proc/{broker.pid}/fd")) < files
        for wire in clients:
            wire.close()
        assert "accept_failed" not in broker.log()
        assert broker.stop() == 0
