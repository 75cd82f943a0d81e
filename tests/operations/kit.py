"""A served broker on a disk with a fault switch, and a client of each listener."""

import contextlib
import http.client
import json
import sys

from conformance.clients.raw.iggy import IggyWire
from conformance.clients.raw.kafka import KafkaWire
from conformance.clients.raw.pulsar import PulsarWire
from conformance.server import RunningBroker
from tests.waiting import HANG_S


class SwitchedBroker(RunningBroker):
    """A broker whose disk has a fault while `fault` is entered."""

    @property
    def command(self):
        program = [sys.executable, "-m", "tests.operations.switched_disk", str(self.control)]
        return [*program, *super().command[3:]]

    @property
    def control(self):
        """Return the file that names the fault."""
        return self.folder / "fault"

    @contextlib.contextmanager
    def fault(self, name):
        """Set the fault inside the block."""
        self.break_disk(name)
        yield
        self.control.unlink()

    def break_disk(self, name):
        """Set the fault from now on, atomically: never half a name."""
        new = self.folder / "fault.new"
        new.write_text(name)
        new.rename(self.control)


def kafka(broker):
    """Return a raw Kafka connection."""
    return KafkaWire(broker.address("kafka"))


def pulsar(broker):
    """Return a raw Pulsar connection."""
    return PulsarWire(broker.address("pulsar"))


def iggy(broker):
    """Return a raw Iggy connection."""
    return IggyWire(broker.address("iggy"))


def api(broker, method, path, body=None):
    """Return (status, JSON) of the HTTP listener's answer below /api/v1."""
    connection = http.client.HTTPConnection(*broker.address("http"), timeout=HANG_S)
    try:
        sent = None if body is None else json.dumps(body)
        connection.request(method, f"/api/v1/{path}", sent, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
    finally:
        connection.close()
    return answer.status, json.loads(text) if text else None


def topic_path(topic):
    """Return the path of a topic of public/default in the JSON API."""
    return f"topics/public/default/{topic}"


def partition_of(broker, topic, number=0):
    """Return a partition from the JSON API."""
    status, shown = api(broker, "GET", topic_path(topic))
    assert status == 200, shown
    return shown["partitions"][number]
