"""A protocol in a separate package, as a third party would write it: lines over TCP.

    append TOPIC TEXT     -> "ok OFFSET" once it is durable; creates a missing topic
    read TOPIC OFFSET     -> "text TEXT" of every record from OFFSET on, then "end OFFSET"
    wait TOPIC OFFSET     -> "high HIGH_WATERMARK" once it is above OFFSET, or the broker stops

The test copies this file into a folder with an entry point; no other code knows the protocol.
"""

import msgspec

from braidlog.broker.errors import BrokerError
from braidlog.broker.runtime.endings import ProtocolError
from braidlog.storage.formats.api import BodyInfo
from braidlog.storage.formats.plain.codec import PLAIN
from braidlog.storage.formats.record import Record
from braidlog.storage.metadata.names import parse_topic

LINE_BYTES_MAX = 65536


class LineOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    greeting: str = "hello"
    line_bytes_max: int = LINE_BYTES_MAX


class LineSession:
    def __init__(self, broker, connection, options):
        self.broker, self.connection, self.options = broker, connection, options
        self.seen = 0
        connection.outbox.put([options.greeting.encode() + b"\n"])

    def frame_size(self, view):
        end = bytes(view).find(b"\n", self.seen)
        self.seen = 0 if end >= 0 else len(view)
        if end < 0 and len(view) > self.options.line_bytes_max:
            raise ProtocolError("no end of line", b"error line too long\n")
        return end + 1 if end >= 0 else None

    async def handle(self, frame):
        words = bytes(frame).decode().split(maxsplit=2)
        try:
            command, topic, argument = words
            await getattr(self, f"do_{command}")(parse_topic(topic), argument.rstrip("\n"))
        except BrokerError as error:
            self.connection.outbox.answer([f"error {error}\n".encode()])
        except (ValueError, AttributeError):
            raise ProtocolError("not understood", b"error not understood\n") from None

    async def do_append(self, name, text):
        partition = (await self.broker.topics.auto_create(name)).partitions[0]
        now_us = self.broker.now_us()
        record = Record(partition.next_offset, now_us, value=text.encode())
        body = PLAIN.encode([record], partition.next_offset)
        appended = partition.append([body], BodyInfo(1), body_format=PLAIN.format, append_us=now_us)
        self.connection.outbox.answer([b"ok %d\n" % appended.base_offset], appended.ticket)

    async def do_read(self, name, offset):
        partition = self.broker.topics.partition(name, 0)
        position = int(offset)
        while batches := await partition.read(position, 1 << 20):
            for batch in batches:
                decoded = PLAIN.decode(
                    batch.body, batch.base_offset, batch.header.append_us, start_offset=position
                )
                for record in decoded.records:
                    self.connection.outbox.answer([b"text " + record.value + b"\n"])
                position = batch.next_offset
        self.connection.outbox.answer([b"end %d\n" % position])

    async def do_wait(self, name, offset):
        partition = self.broker.topics.partition(name, 0)
        await partition.wait_for(int(offset))
        self.connection.outbox.answer([b"high %d\n" % partition.high_watermark])

    async def turn_ended(self):
        pass

    def on_deadline(self, now):
        return float("inf")

    def goodbye(self):
        self.connection.outbox.answer([b"goodbye\n"])

    async def closed(self):
        pass


class LineAdapter:
    name = "lines"
    default_address = ("127.0.0.1", 4444)
    options_type = LineOptions

    def open_session(self, broker, connection, options):
        return LineSession(broker, connection, options)

    def describe(self, host, port, options):
        return f"nc {host} {port}"


ADAPTER = LineAdapter()
