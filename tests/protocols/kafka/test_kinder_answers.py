"""Answers that differ from those of a 0.8.2.2 broker, beyond the recorded conversation.

`docs/protocols/kafka.md` lists them. The answers of 0.8.2.2 in the comments were seen there.
"""

import struct

import pytest
import trio

from braidlog.protocols.kafka.errors import Code
from tests.protocols.kafka.frames import RawKafka
from tests.protocols.kafka.talk import OpenClient

NULL_GROUP = struct.pack(">hhihh", 10, 0, 7, -1, -1)


def framed(request: bytes) -> bytes:
    return struct.pack(">i", len(request)) + request


async def test_an_answer_about_a_null_group_has_its_correlation_id(
    open_client: OpenClient,
) -> None:
    stream = await open_client("kafka")
    await stream.send_all(framed(NULL_GROUP))  # 0.8.2.2: error 15 with correlation id 0.
    answer = await RawKafka(stream).frame()
    assert answer is not None
    assert struct.unpack(">ihi", answer[4:14]) == (7, Code.CONSUMER_COORDINATOR_NOT_AVAILABLE, -1)


@pytest.mark.parametrize("key", [4, 5, 6, 7])
async def test_requests_between_brokers_of_kafka_end_the_connection(
    open_client: OpenClient, key: int
) -> None:
    stream: trio.SocketStream = await open_client("kafka")
    await stream.send_all(framed(struct.pack(">hhih", key, 0, 7, -1) + bytes(40)))
    assert await RawKafka(stream).frame() is None  # 0.8.2.2: error 11 or -1.
