"""Each listener's answer to a write, a commit and a read as a word, for tests with
failing storage.
"""

import struct

from conformance.clients.raw.iggy import SEND, STORE_OFFSET, headers_block, identifier
from conformance.clients.raw.kafka import message, parse_set
from conformance.clients.raw.pulsar import PRODUCER, RECEIPT, SEND_ERROR, entry, field_of, parse
from conformance.clients.raw.pulsar import SEND as PULSAR_SEND
from tests.operations.kit import api, iggy, kafka, pulsar, topic_path
from tests.waiting import until_seen

KAFKA_STORAGE_ERROR = 56
IGGY_CANNOT_APPEND = 4010
PULSAR_PERSISTENCE_ERROR = 2
PULSAR_ERROR = 14  # The command.
OK = "ok"


class Listeners:
    """A client of each listener on a shared topic; the values name their listener."""

    def __init__(self, broker, topic):
        self.broker = broker
        self.topic = topic
        self.acknowledged = {}
        """Offset to value of everything that was acknowledged."""
        self.told = []
        """Texts of refusals, if the protocol has room for text."""
        self._number = 0
        self._produces = False
        self.connect()

    def connect(self):
        """Open new connections, after a restart."""
        self.kafka = kafka(self.broker)
        self.iggy = iggy(self.broker)
        self.pulsar = None
        self._produces = False

    def open_producer(self):
        """Open Pulsar's producer again after a refusal closed its connection, once the broker
        allows this.

        The broker refuses producers while there is no room.
        """
        until_seen(lambda: self._ask_for_producer() == OK)

    def _ask_for_producer(self):
        if self.pulsar is not None:
            self.pulsar.close()
        self.pulsar = pulsar(self.broker)
        name = f"persistent://public/default/{self.topic}".encode()
        self.pulsar.command(PRODUCER, [(1, name), (2, 0), (3, 1)])
        kind, fields, _ = self.pulsar.take_command()
        self._produces = kind != PULSAR_ERROR
        if self._produces:
            return OK
        self.told.append(field_of(fields, 3).decode())
        return field_of(fields, 2)

    def write(self):
        """Send a record by each protocol; return protocol -> error code, `OK` if acknowledged."""
        return {
            "kafka": self._kafka_write(self._value("kafka")),
            "pulsar": self._pulsar_write(self._value("pulsar")),
            "iggy": self._iggy_write(self._value("iggy")),
        }

    def commit(self, offset):
        """Commit a position by each listener with commits; return listener -> error
        code or `OK`.
        """
        stored = b"\x01" + identifier("iggy-group") + identifier("default")
        stored += identifier(self.topic) + struct.pack("<IQ", 1, offset)
        return {
            "kafka": self.kafka.commit("kafka-group", self.topic, offset) or OK,
            "iggy": self.iggy.ask(STORE_OFFSET, stored)[0] or OK,
        }

    def make_topic(self, name):
        """Create a topic over HTTP; return the error's name or `OK`."""
        status, answer = api(self.broker, "PUT", topic_path(name), {"partitions": 2})
        if status == 201:
            return OK
        self.told.append(answer["message"])
        return answer["code"]

    def read(self):
        """Return offset -> value of the whole topic; all listeners must agree."""
        values = dict(self.kafka_read())
        polled = self.iggy.poll(self.topic, 10_000)
        assert {message.offset: message.payload for message in polled} == values
        return values

    def kafka_read(self, start=0):
        """Yield (offset, value) of every record from `start` on, fetch by fetch."""
        while True:
            error, watermark, body = self.kafka.fetch(self.topic, start, wait_ms=0)
            assert error == 0, f"fetch at {start}: error {error}"
            records = [(offset, value) for offset, _, value in parse_set(body) if offset >= start]
            yield from records
            if not records:
                assert start <= watermark  # Equal, unless a gap is at the end.
                return
            start = records[-1][0] + 1

    def check(self):
        """Check that all acknowledged records are at their offsets."""
        values = self.read()
        for offset, value in self.acknowledged.items():
            assert values.get(offset) == value, (offset, value, values.get(offset))
        assert list(values) == sorted(values)
        return values

    def close(self):
        """Close the connections."""
        for wire in (self.kafka, self.iggy, self.pulsar):
            if wire is not None:
                wire.close()

    def _value(self, listener):
        self._number += 1
        return b"%s %06d" % (listener.encode(), self._number) + b"." * 100

    def _kafka_write(self, value):
        code, offset = self.kafka.produce(self.topic, message(None, value))
        if code:
            return code
        self.acknowledged[offset] = value
        return OK

    def _pulsar_write(self, value):
        if not self._produces and (refused := self._ask_for_producer()) != OK:
            return refused
        number = self._number
        payload = entry([(1, b"raw"), (2, number), (3, 1)], value, checksum=False)
        self.pulsar.command(PULSAR_SEND, [(1, 0), (2, number)], payload)
        kind, fields, _ = self.pulsar.take_command()
        if kind == SEND_ERROR:  # The connection also ends.
            self._produces = False
            self.told.append(field_of(fields, 4).decode())
            return field_of(fields, 3)
        assert kind == RECEIPT, f"command {kind} {fields}"
        self.acknowledged[_entry(fields)] = value
        return OK

    def _iggy_write(self, value):
        end = max(self.acknowledged, default=-1)
        body = identifier("default") + identifier(self.topic) + b"\x02\x04" + struct.pack("<I", 1)
        body += (self._number).to_bytes(16, "little") + headers_block([])
        code, _ = self.iggy.ask(SEND, body + struct.pack("<I", len(value)) + value)
        if code:
            return code
        offset = next(offset for offset, stored in self.kafka_read(end + 1) if stored == value)
        self.acknowledged[offset] = value
        return OK


def _entry(receipt):
    return field_of(parse(field_of(receipt, 3)), 2)
