"""Waits of a fetch: the rule for enough bytes, and the cases without a wait."""

import pytest
import trio
import trio.testing

from braidlog.broker.broker import Broker
from braidlog.storage.metadata.names import TopicName
from tests.protocols.kafka import forms as m
from tests.protocols.kafka.frames import RawKafka, fetch, message, message_set, produce
from tests.protocols.kafka.talk import (
    FOO,
    FOO_NAME,
    OpenClient,
    fetch_one,
    foreign_append,
    produce_one,
    second_client,
    values,
)
from tests.waiting import until


async def test_negative_max_bytes_is_an_error_only_with_records(client: RawKafka) -> None:
    """As Kafka 0.8.2.2 answers."""
    assert await fetch_one(client, 0, -1) == m.Fetched(0, 0, [])
    await produce_one(client, message_set(b"a"))
    assert await fetch_one(client, 0, -1) == m.Fetched(-1, -1, [])
    assert await fetch_one(client, 1, -1) == m.Fetched(0, 1, [])
    assert await fetch_one(client, 2, -1) == m.Fetched(1, -1, [])


async def test_negative_max_bytes_is_an_error_once_records_arrive(
    client: RawKafka, open_client: OpenClient
) -> None:
    await client.send(fetch(FOO, {0: (0, -1)}, wait_ms=3_600_000))
    await trio.testing.wait_all_tasks_blocked()
    await produce_one(await second_client(open_client), message_set(b"a"))
    reply = await client.answer(m.FetchRequest)
    assert reply == m.FetchReply({FOO: {0: m.Fetched(-1, -1, [])}})


async def test_min_bytes_above_the_room_does_not_wait(client: RawKafka) -> None:
    await produce_one(client, message_set(bytes(300)))
    request = fetch(FOO, {0: (0, 100)}, wait_ms=3_600_000, bytes_min=200)
    reply = await client.call(request)
    assert isinstance(reply, m.FetchReply)
    assert reply.topics[FOO][0].size == 100


@pytest.mark.parametrize(("bytes_max", "bytes_min"), [(50, 100), (50, 99), (0, 1), (0, 100)])
async def test_available_min_bytes_do_not_wait_with_any_max_bytes(
    client: RawKafka, bytes_max: int, bytes_min: int
) -> None:
    """As Kafka 0.8.2.2 answers."""
    await produce_one(client, message_set(bytes(74)))  # 100 bytes in all
    request = fetch(FOO, {0: (0, bytes_max)}, wait_ms=3_600_000, bytes_min=bytes_min)
    reply = await client.call(request)
    assert isinstance(reply, m.FetchReply)
    assert reply.topics[FOO][0].size == bytes_max


@pytest.mark.parametrize("listener", ["kafka", "another"])
@pytest.mark.parametrize("bytes_max", [0, 50, 100, 1000])
async def test_unavailable_min_bytes_wait_with_any_max_bytes(
    broker: Broker, client: RawKafka, open_client: OpenClient, bytes_max: int, listener: str
) -> None:
    """As Kafka 0.8.2.2 does: the bytes as seen by the client count, not the bytes on disk."""

    async def store() -> None:  # 100 bytes, as Kafka's readers see them
        if listener == "kafka":
            await produce_one(await second_client(open_client), message_set(bytes(74)))
        else:
            foreign_append(broker, "foo", [bytes(74)])

    await store()
    await until(lambda: broker.topics.partition(FOO_NAME, 0).high_watermark == 1)
    await client.send(fetch(FOO, {0: (0, bytes_max)}, wait_ms=3_600_000, bytes_min=101))
    await until(lambda: len(broker.waiters) == 1)
    await trio.testing.wait_all_tasks_blocked()
    assert len(broker.waiters) == 1
    await store()
    reply = await client.answer(m.FetchRequest)
    assert isinstance(reply, m.FetchReply)
    is_first_whole = listener == "another" and bytes_max == 50
    assert reply.topics[FOO][0].size == (100 if is_first_whole else min(bytes_max, 200))


async def test_a_fetch_does_not_follow_a_growing_log(broker: Broker, client: RawKafka) -> None:
    """The fetch's time and its minimum bytes have passed long before."""
    await broker.topics.create(
        TopicName("public", "default", "busy"), 1, settings={"durability": "written"}
    )
    partition = broker.topics.partition(TopicName("public", "default", "busy"), 0)
    foreign_append(broker, "busy", [bytes(300_000)] * 3)
    is_answered = False

    async def write() -> None:
        while not is_answered and partition.next_offset < 60:
            await trio.lowlevel.checkpoint()
            foreign_append(broker, "busy", [bytes(300_000)])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(write)
        reply = await client.call(fetch(b"busy", {0: (0, 60 << 20)}, wait_ms=100))
        is_answered = True
    assert isinstance(reply, m.FetchReply)
    assert 3 <= len(values(reply.topics[b"busy"][0])) <= 20


async def test_a_timeout_answers_with_the_present_records(client: RawKafka) -> None:
    await produce_one(client, message_set(b"a"))
    reply = await client.call(fetch(FOO, {0: (0, 1000)}, wait_ms=1, bytes_min=1000))
    assert isinstance(reply, m.FetchReply)
    assert values(reply.topics[FOO][0]) == [(0, b"a")]


async def test_a_half_closed_client_gets_its_pending_answer(
    broker: Broker, client: RawKafka, open_client: OpenClient
) -> None:
    """As Kafka 0.8.2.2 answers."""
    await client.send(fetch(FOO, {0: (0, 1000)}, wait_ms=30_000))
    await until(lambda: len(broker.waiters) == 1)
    (connection,) = broker.connections
    await client.stream.send_eof()
    assert not any(connection.notice_gone() for _ in range(3))
    await produce_one(await second_client(open_client), message_set(b"a"))
    reply = await client.answer(m.FetchRequest)
    assert isinstance(reply, m.FetchReply)
    assert values(reply.topics[FOO][0]) == [(0, b"a")]
    await until(lambda: connection not in broker.connections)


async def test_min_bytes_count_bytes_above_a_partitions_max_bytes(
    broker: Broker, client: RawKafka
) -> None:
    await broker.topics.create(TopicName("public", "default", "wide"), 2)
    await client.call(produce(b"wide", {0: message_set(bytes(100), bytes(300))}))
    targets = {0: (0, 100), 1: (0, 100)}
    reply = await client.call(fetch(b"wide", targets, wait_ms=3_600_000, bytes_min=200))
    assert isinstance(reply, m.FetchReply)
    sizes = {index: fetched.size for index, fetched in reply.topics[b"wide"].items()}
    assert sizes == {0: 100, 1: 0}


async def test_nothing_follows_a_cut_set_after_a_wait(
    broker: Broker, client: RawKafka, open_client: OpenClient
) -> None:
    await produce_one(client, message_set(bytes(100), bytes(100)))
    log = message(bytes(100), None, 0) + message(bytes(100), None, 1)
    await client.send(fetch(FOO, {0: (0, 200)}, wait_ms=3_600_000, bytes_min=1000))
    await until(lambda: len(broker.waiters) == 1)
    await produce_one(await second_client(open_client), message_set(bytes(900)))
    reply = await client.answer(m.FetchRequest)
    assert isinstance(reply, m.FetchReply)
    assert b"".join(map(bytes, reply.topics[FOO][0].parts)) == log[:200]


async def test_a_fetch_waits_for_bytes_beyond_what_it_can_hold(
    broker: Broker, client: RawKafka, open_client: OpenClient
) -> None:
    await produce_one(client, message_set(bytes(150)))
    await client.send(fetch(FOO, {0: (0, 100)}, wait_ms=3_600_000, bytes_min=1000))
    await until(lambda: len(broker.waiters) == 1)
    other = await second_client(open_client)
    await produce_one(other, message_set(bytes(100)))
    await until(lambda: len(broker.waiters) == 1)
    await produce_one(other, message_set(bytes(900)))
    reply = await client.answer(m.FetchRequest)
    assert isinstance(reply, m.FetchReply)
    assert reply.topics[FOO][0].size == 100
