"""A Pulsar client that sends exactly a test's commands, over a real socket."""

import itertools
import struct
from contextlib import asynccontextmanager

from crc32c import crc32c

from braidlog.protocols.pulsar.machine import FIELDS, Type
from braidlog.storage.formats.pulsar.pb.PulsarApi_pb2 import (
    BaseCommand,
    MessageMetadata,
    SingleMessageMetadata,
)
from braidlog.storage.metadata.names import TopicName
from tests.protocols.frame_stream import FrameStream
from tests.protocols.pulsar.golden import taken_apart

TOPIC = "persistent://public/default/t"
NAME = TopicName("public", "default", "t")


def command_bytes(kind, payload=b"", **fields):
    command = BaseCommand(type=kind)
    getattr(command, FIELDS[kind]).SetInParent()
    for name, value in fields.items():
        set_field(getattr(command, FIELDS[kind]), name, value)
    body = command.SerializePartialToString()
    return struct.pack(">II", len(body) + 4 + len(payload), len(body)) + body + payload


def set_field(message, name, value):
    if isinstance(value, dict):
        sub = getattr(message, name)
        sub.SetInParent()
        for key, inner in value.items():
            set_field(sub, key, inner)
    elif isinstance(value, list):
        field = getattr(message, name)
        for item in value:
            if isinstance(item, dict):
                field.add(**item)
            else:
                field.append(item)
    else:
        setattr(message, name, value)


def entry(payload=b"hello", *, count=None, checksum=True, **metadata):
    """Return the part behind a SEND's command; with `count`, a batch of `count` equal messages."""
    metadata = {"producer_name": "p", "sequence_id": 0, "publish_time": 1, **metadata}
    fields = MessageMetadata(**metadata)
    if count is not None:
        fields.num_messages_in_batch = count
        single = SingleMessageMetadata(payload_size=len(payload)).SerializeToString()
        payload = (struct.pack(">I", len(single)) + single + payload) * count
    packed = fields.SerializeToString()
    checked = struct.pack(">I", len(packed)) + packed + payload
    if not checksum:
        return checked
    return b"\x0e\x01" + struct.pack(">I", crc32c(checked)) + checked


class RawPulsar(FrameStream):
    """A connection. Answers are commands; a MESSAGE is the command and its body."""

    def __init__(self, stream):
        super().__init__(stream)
        self.numbers = itertools.count(1)

    async def send(self, kind, payload=b"", **fields):
        await self.stream.send_all(command_bytes(kind, payload, **fields))

    async def next(self, kind):
        """Return the fields of the next frame, which must have that type; answer PINGs."""
        while True:
            frame = await self.frame()
            assert frame is not None, "the connection was closed"
            command, body = taken_apart(frame)
            if command.type == Type.PING and kind != Type.PING:
                await self.send(Type.PONG)
                continue
            assert command.type == kind, command
            field = next(f.name for f, _ in command.ListFields() if f.name != "type")
            fields = getattr(command, field)
            return (fields, body) if kind == Type.MESSAGE else fields

    async def ask(self, kind, answer, **fields):
        await self.send(kind, request_id=next(self.numbers), **fields)
        return await self.next(answer)

    async def refused(self, kind, **fields):
        """Return the number and text of the error for the request."""
        error = await self.ask(kind, Type.ERROR, **fields)
        return error.error, error.message

    async def connect(self, version=20, client="Pulsar-CPP-v4.2.0"):
        await self.send(Type.CONNECT, client_version=client, protocol_version=version)
        return await self.next(Type.CONNECTED)

    async def produce(self, topic=TOPIC, producer_id=0, **fields):
        return await self.ask(
            Type.PRODUCER,
            Type.PRODUCER_SUCCESS,
            topic=topic,
            producer_id=producer_id,
            **fields,
        )

    async def put(self, *entries, producer_id=0, sequence_id=0):
        """Send entries at once; return the entry ids of their receipts."""
        await self.stream.send_all(
            b"".join(
                command_bytes(
                    Type.SEND, body, producer_id=producer_id, sequence_id=sequence_id + number
                )
                for number, body in enumerate(entries)
            )
        )
        return [(await self.next(Type.SEND_RECEIPT)).message_id.entryId for _ in entries]

    async def subscribe(self, consumer_id=0, permits=0, **fields):
        fields = {"topic": TOPIC, "subscription": "s", "subType": 0, **fields}
        answer = await self.ask(Type.SUBSCRIBE, Type.SUCCESS, consumer_id=consumer_id, **fields)
        if permits:
            await self.flow(permits, consumer_id)
        return answer

    async def flow(self, permits, consumer_id=0):
        await self.send(Type.FLOW, consumer_id=consumer_id, messagePermits=permits)

    async def take(self, count):
        """Return (entry id, redelivery count, ack set) of the next messages."""
        deliveries = []
        for _ in range(count):
            message, _ = await self.next(Type.MESSAGE)
            identity = message.message_id
            deliveries.append((identity.entryId, message.redelivery_count, list(message.ack_set)))
        return deliveries

    async def silent(self):
        """Check that no frame has arrived or is in transit: it would come before this PONG."""
        await self.send(Type.PING)
        await self.next(Type.PONG)

    async def closed(self):
        assert await self.frame() is None


@asynccontextmanager
async def talking(open_client, **settings):
    client = RawPulsar(await open_client("pulsar"))
    await client.connect(**settings)
    yield client
    await client.stream.aclose()


EARLIEST = {"initialPosition": 1}
ID_EARLIEST = {"ledgerId": 2**64 - 1, "entryId": 2**64 - 1}
ID_LATEST = {"ledgerId": 2**63 - 1, "entryId": 2**63 - 1}


def message_id(entry_id, ledger=1, ack_set=()):
    return {"ledgerId": ledger, "entryId": entry_id, "ack_set": list(ack_set)}
