"""Readers of `conformance.readers`: whole topics, with any limit of a request, by hand.

Each yields the offset and the value of every record, as the records come.
"""

import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import httpx
from kafka.record import MemoryRecords

from conformance.clients.raw import kafka
from conformance.clients.raw.iggy import BY_OFFSET, IggyWire
from conformance.clients.raw.kafka import KafkaWire
from conformance.clients.raw.pulsar import FLOW, Fields, PulsarWire, field_of, parse
from conformance.server import RunningBroker

LIMIT_MAX: Final = 64 << 20  # Above any record: a reader that asks for so much must get a record.
NUM_MESSAGES, CHUNKS, CHUNK = 11, 27, 29  # Fields of Pulsar's message metadata.
PAYLOAD_SIZE = 3  # Field of the metadata of a message in a batch.
ANSWER_S: Final = 60.0

Found = Iterator[tuple[int, bytes]]
Read = Callable[[RunningBroker, str, int, int], Found]  # Topic, end offset, limit.


def by_kafka_0_8(broker: RunningBroker, topic: str, end: int, limit: int) -> Found:
    """Fetch v0. A message that is larger than the limit is cut: then clients ask for more."""
    offset, wanted = 0, limit
    with KafkaWire(broker.address("kafka")) as wire:
        while offset < end:
            body = kafka.fetch_body(topic, offset, bytes_max=wanted)
            records = _records(_set_of(wire.ask(kafka.FETCH, 0, body), 18))
            wanted_records = [
                record for record in records if record[0] >= offset
            ]  # A packed set comes whole.
            assert wanted_records or wanted < LIMIT_MAX, f"no message at {offset} in {wanted} bytes"
            wanted = limit if wanted_records else 2 * wanted
            yield from wanted_records
            offset = wanted_records[-1][0] + 1 if wanted_records else offset


def by_kafka(broker: RunningBroker, topic: str, end: int, limit: int) -> Found:
    """Fetch v4, which gives a first batch of any size."""
    offset = 0
    with KafkaWire(broker.address("kafka")) as wire:
        while offset < end:
            body = struct.pack(">iiiibi", -1, 5000, 1, LIMIT_MAX, 0, 1)
            body += kafka.string(topic.encode()) + struct.pack(">iiqi", 1, 0, offset, limit)
            records = _records(_set_of(wire.ask(kafka.FETCH, 4, body), 30))
            wanted_records = [
                record for record in records if record[0] >= offset
            ]  # A batch comes whole.
            assert wanted_records, f"no record at {offset} with a limit of {limit}"
            yield from wanted_records
            offset = wanted_records[-1][0] + 1


def _set_of(answer: bytes, head_bytes: int) -> bytes:
    """The records of a fetch of one partition; `head_bytes`: of the partition, with its length."""
    start = 8 if head_bytes == 30 else 4
    (name,) = struct.unpack_from(">h", answer, start)
    pos = start + 2 + name + 4
    (error,) = struct.unpack_from(">h", answer, pos + 4)
    assert error == 0, f"Fetch: error {error}"
    (size,) = struct.unpack_from(">i", answer, pos + head_bytes - 4)
    assert pos + head_bytes + size == len(answer)
    return answer[pos + head_bytes :]


def _records(data: bytes) -> Found:
    """Whole records; what is cut off at the end is left out."""
    records = MemoryRecords(data)
    while (batch := records.next_batch()) is not None:
        assert batch.validate_crc()
        for record in batch:
            yield record.offset, record.value


def by_pulsar(broker: RunningBroker, topic: str, end: int, limit: int) -> Found:
    """A consumer with so many permits at a time."""
    permits = max(min(limit, 1000), 1)
    offset = 0
    chunks: list[bytes] = []
    with PulsarWire(broker.address("pulsar")) as wire:
        wire.look_up(topic)
        wire.subscribe(topic, f"limit-{limit}", permits)
        while offset < end:
            message = wire.next_message()
            count = int(field_of(message.metadata, NUM_MESSAGES) or 1)
            wire.command(FLOW, [(1, 0), (2, count)])  # A batch takes a permit for each message.
            if (last := field_of(message.metadata, CHUNKS)) is not None and int(last) > 1:
                chunks.append(message.payload)
                assert field_of(message.metadata, CHUNK) == len(chunks) - 1
                if len(chunks) < int(last):
                    continue
                yield message.entry, b"".join(chunks)
                offset, chunks = message.entry + 1, []
            elif field_of(message.metadata, NUM_MESSAGES) is None:
                yield message.entry, message.payload
                offset = message.entry + 1
            else:
                for at, value in enumerate(_batched(message.payload)):
                    yield message.entry + at, value
                offset = message.entry + count


def _batched(payload: bytes) -> Iterator[bytes]:
    pos = 0
    while pos < len(payload):
        (size,) = struct.unpack_from(">I", payload, pos)
        fields: Fields = parse(payload[pos + 4 : pos + 4 + size])
        value = field_of(fields, PAYLOAD_SIZE)
        assert isinstance(value, int)
        pos += 4 + size
        yield payload[pos : pos + value]
        pos += value


def by_iggy(broker: RunningBroker, topic: str, end: int, limit: int) -> Found:
    """POLL of so many messages at a time."""
    offset = 0
    with IggyWire(broker.address("iggy")) as wire:
        while offset < end:
            messages = wire.poll(topic, max(min(limit, 100_000), 1), BY_OFFSET, offset)
            assert messages, f"no message at {offset}"
            yield from ((message.offset, message.payload) for message in messages)
            offset = messages[-1].offset + 1


def by_http(broker: RunningBroker, topic: str, end: int, limit: int) -> Found:
    """GET of so many bytes at a time."""
    offset = 0
    path = f"/topics/public/default/{topic}/partitions/0/messages"
    with httpx.Client(base_url=broker.url, timeout=ANSWER_S, trust_env=False) as client:
        while offset < end:
            query = {"position": offset, "max_bytes": min(limit, 10 << 20), "max_messages": 1000}
            answer = client.get(path, params=query).raise_for_status().json()
            assert answer["messages"], f"no message at {offset} with a limit of {limit}"
            yield from (
                (message["offset"], message["value"].encode()) for message in answer["messages"]
            )
            offset = answer["next_offset"]


READERS: Final[Mapping[str, Read]] = {
    "kafka-0.8": by_kafka_0_8,
    "kafka": by_kafka,
    "pulsar": by_pulsar,
    "iggy": by_iggy,
    "http": by_http,
}
