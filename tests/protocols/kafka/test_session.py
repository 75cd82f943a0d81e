"""Connections of the Kafka door: how they end."""

from broker.broker import Broker
from tests.protocols.kafka.frames import Client, message_set, produce
from tests.protocols.kafka.talk import (
    FOO,
    OpenClient,
    another,
)


async def test_bytes_that_are_no_request_close_at_once(
    broker: Broker, open_client: OpenClient
) -> None:
    for data in (bytes(4), b"\x00\x00\x00\x0d\x00\x12\x00\x00", b"\x00\x00\x00\x0a" + bytes(10)):
        client = await another(open_client)
        await client.stream.send_all(data)
        assert await client.frame() is None


async def test_answers_before_a_bad_request_still_leave(client: Client) -> None:
    await client.send(produce(FOO, {0: message_set(b"a")}))
    await client.stream.send_all(bytes.fromhex("0000000d 0012 0000 00000001 0003636964"))
    assert await client.frame() is not None
    assert await client.frame() is None
