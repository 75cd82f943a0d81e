"""Builds and sends Kafka 0.8 requests in tests, through construct's description of the layouts."""

import struct
from typing import Any

import trio

from braidlog.protocols.kafka.codec import read, write
from braidlog.protocols.kafka.fields import FieldReader, Writer
from braidlog.protocols.kafka.tables import APIS, FLEXIBLE
from braidlog.protocols.kafka.wire.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from conformance.clients.raw import kafka as raw
from tests.protocols.frame_stream import FrameStream
from tests.protocols.kafka import forms as m
from tests.protocols.kafka.layouts import build_request, parse_reply

API_KEYS: dict[type, int] = {
    m.ProduceRequest: 0,
    m.FetchRequest: 1,
    m.OffsetsRequest: 2,
    m.MetadataRequest: 3,
    m.OffsetCommitRequest: 8,
    m.OffsetFetchRequest: 9,
    m.ConsumerMetadataRequest: 10,
}


API_VERSIONS_KEY = 18  # Its answer has the old header in any version.
KEY_OF: dict[object, int] = {api.request: key for key, api in APIS.items()}


def table_request(api_key: int, version: int, correlation_id: int, body: object) -> bytes:
    """Return the frame of a request by the table of its layout."""
    out = Writer()
    write(out, m.full(body), version)
    head = struct.pack(">hhihs", api_key, version, correlation_id, 1, b"t")
    if (api_key, version) in FLEXIBLE:
        head += b"\0"
    frame = head + b"".join(map(bytes, out.parts()))
    return len(frame).to_bytes(4, "big") + frame


def message(value: bytes | None, key: bytes | None = None, offset: int = 0) -> bytes:
    """Return an entry of a message set, format 0."""
    return raw.message(key, value, offset=offset)


def message_set(*values: bytes | None) -> bytes:
    """Return messages without keys."""
    return b"".join(map(message, values))


def request(body: m.RequestBody, correlation_id: int = 1) -> bytes:
    """Return the frame of a request."""
    version = getattr(body, "version", 0)
    return build_request(API_KEYS[type(body)], version, m.Request(correlation_id, b"t", body))


def produce(topic: bytes, sets: dict[int, bytes], acks: int = 1) -> m.ProduceRequest:
    """Return a request with sets for partitions of a topic."""
    views = {index: memoryview(data) for index, data in sets.items()}
    return m.ProduceRequest(acks, 1000, {topic: views})


def fetch(
    topic: bytes, targets: dict[int, tuple[int, int]], *, wait_ms: int = 0, bytes_min: int = 1
) -> m.FetchRequest:
    """Return a request for partitions of a topic: partition number -> (offset, maximum bytes)."""
    wanted = {index: m.FetchTarget(*target) for index, target in targets.items()}
    return m.FetchRequest(-1, wait_ms, bytes_min, {topic: wanted})


def delete_records(topic: bytes, partition: int, offset: int) -> DeleteRecordsRequest:
    """Return a request to delete a partition's records below an offset."""
    target = DeleteRecordsPartition(partition_index=partition, offset=offset)
    return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[target])])


class RawKafka(FrameStream):
    """A raw connection to the Kafka listener."""

    def __init__(self, stream: trio.SocketStream) -> None:
        super().__init__(stream)
        self.correlation_id = 0

    async def call(self, body: m.RequestBody, version: int | None = None) -> m.Reply:
        """Send a request and return the answer; with a version, by the table of that version."""
        if version is not None:
            return await self.call_with_table(body, version)
        await self.send(body)
        return await self.answer(type(body))

    async def call_with_table(self, body: object, version: int) -> Any:
        """Send and parse by the tables, which construct does not describe; `test_tables.py` checks
        them. Return the short form of the answer where there is one.
        """
        return m.short(await self.call_whole(body, version), version)

    async def call_whole(self, body: object, version: int) -> Any:
        """As `call_with_table`, with all fields of the answer."""
        self.correlation_id += 1
        api_key = KEY_OF[type(m.full(body))]
        await self.stream.send_all(table_request(api_key, version, self.correlation_id, body))
        frame = await self.frame()
        assert frame is not None, "closed"
        reader = FieldReader(memoryview(frame), 4)
        assert reader.i32() == self.correlation_id
        if (api_key, version) in FLEXIBLE and api_key != API_VERSIONS_KEY:
            assert reader.u8() == 0
        reply = read(APIS[api_key].reply, reader, version)
        assert not reader.left
        return reply

    async def send(self, *bodies: m.RequestBody) -> None:
        """Send requests in a single piece, without waiting."""
        frames = b""
        for body in bodies:
            self.correlation_id += 1
            frames += request(body, self.correlation_id)
        await self.stream.send_all(frames)

    async def answer(self, kind: type) -> m.Reply:
        """Return the next answer; `kind` is the type of its request."""
        frame = await self.frame()
        assert frame is not None, "closed"
        _, reply = parse_reply(API_KEYS[kind], frame)
        return reply
