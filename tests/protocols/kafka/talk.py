"""Common requests of tests to the Kafka listener, over its wire."""

from collections.abc import Mapping
from typing import Any, Protocol

import trio

from braidlog.broker.broker import Broker
from braidlog.protocols.kafka.wire.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from braidlog.storage.formats.api import BodyFormat
from braidlog.storage.formats.record import Record
from braidlog.storage.formats.registry import codec_for
from braidlog.storage.metadata.names import TopicName
from tests.protocols.kafka import forms as m
from tests.protocols.kafka.frames import RawKafka, fetch, produce
from tests.protocols.kafka.layouts import parse_set

FOO = b"foo"
FOO_NAME = TopicName("public", "default", "foo")


class OpenClient(Protocol):
    """The fixture `open_client`."""

    async def __call__(self, protocol: str, **options: object) -> trio.SocketStream: ...


def join_request(protocols: Mapping[bytes, bytes] | None = None, **fields: Any) -> JoinGroupRequest:
    """Return the request of a member that offers `range`, or these protocols with metadata."""
    offered = {b"range": b"topics"} if protocols is None else protocols
    usual: dict[str, Any] = {
        "group_id": b"g",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 60_000,
        "protocol_type": b"consumer",
        "protocols": [
            JoinGroupRequestProtocol(name=name, metadata=metadata)
            for name, metadata in offered.items()
        ],
    }
    return JoinGroupRequest(**(usual | fields))


async def second_client(open_client: OpenClient) -> RawKafka:
    return RawKafka(await open_client("kafka", group_initial_delay_ms=0))


def values(fetched: m.Fetched) -> list[tuple[int, bytes]]:
    """Return (offset, value) of each whole message without a key."""
    data = b"".join(bytes(part) for part in fetched.parts)
    return [(offset, message[14:]) for offset, message in parse_set(data)]


async def fetch_one(client: RawKafka, offset: int, bytes_max: int = 1 << 20) -> m.Fetched:
    reply = await client.call(fetch(FOO, {0: (offset, bytes_max)}))
    assert isinstance(reply, m.FetchReply)
    return reply.topics[FOO][0]


async def produce_one(client: RawKafka, data: bytes, acks: int = 1) -> m.Produced:
    reply = await client.call(produce(FOO, {0: data}, acks))
    assert isinstance(reply, m.ProduceReply)
    return reply.topics[FOO][0]


def foreign_append(
    broker: Broker, topic: str, values: list[bytes], deliver_at_us: int | None = None
) -> None:
    """Append as another listener's producer would: a body in the format with all fields."""
    partition = broker.topics.partition(TopicName("public", "default", topic), 0)
    codec = codec_for(BodyFormat.PLAIN)
    base = partition.next_offset
    now = broker.now_us()
    records = [
        Record(base + at, now, publish_us=now, value=value, deliver_at_us=deliver_at_us)
        for at, value in enumerate(values)
    ]
    body = codec.encode(records, base)
    partition.append([body], codec.inspect(body), body_format=codec.format, append_us=now)
