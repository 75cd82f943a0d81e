"""Produce: over the wire, and the split of a large set into batches."""

import gzip
import random
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from types import GeneratorType, SimpleNamespace
from typing import Any

import pytest
import trio.testing

from braidlog.broker.access.rights import Action, Resource
from braidlog.broker.broker import Broker
from braidlog.broker.errors import NotAuthorized
from braidlog.broker.reading.unpacking import unpacking_limiter
from braidlog.broker.runtime.steps import run
from braidlog.broker.server.written_topics import WrittenTopics
from braidlog.protocols.kafka.context import KafkaContext
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.group_coordinator import GroupCoordinator
from braidlog.protocols.kafka.login import KafkaLogin
from braidlog.protocols.kafka.names import NameSpace
from braidlog.protocols.kafka.options import KafkaOptions
from braidlog.protocols.kafka.presence import Presence
from braidlog.protocols.kafka.produce import PACK_TRIES_MAX, _Producing
from braidlog.protocols.kafka.produce import produce as handle_produce
from braidlog.storage.formats.api import Prepared
from braidlog.storage.formats.kafka import record_batches as kafka_batches
from braidlog.storage.formats.kafka.message_sets import KAFKA
from braidlog.storage.formats.kafka.prepare import (
    APPEND_BYTES_MAX,
    BYTES_PER_TURN,
    INLINE_INFLATED_MAX,
    OpenedSet,
    PackedSet,
    SetLimits,
)
from braidlog.storage.formats.kafka.record_batches import KAFKA_BATCHES
from braidlog.storage.formats.kafka.set_layout import SET_MESSAGES_MAX
from braidlog.storage.formats.record import Record
from tests.protocols.kafka import forms as m
from tests.protocols.kafka.frames import RawKafka, message, message_set, produce
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
from tests.storage.formats.kafka.test_record_batches import timed

BASE = 1000


# Through the wire.


@pytest.mark.parametrize("acks", [1, -1, 2, 32767, -2, -32768])
async def test_any_acks_but_0_are_answered_with_the_base_offset(
    client: RawKafka, acks: int
) -> None:
    assert await produce_one(client, message_set(b"a", b"b"), acks) == m.Produced(0, 0)
    assert await produce_one(client, message_set(b"c"), acks) == m.Produced(0, 2)


async def test_an_answered_message_is_on_disk(broker: Broker, client: RawKafka) -> None:
    await produce_one(client, message_set(b"a"))
    partition = broker.topics.partition(FOO_NAME, 0)
    assert partition.log.durable_offset == 1


async def test_acks_0_has_no_answer(client: RawKafka) -> None:
    await client.send(produce(FOO, {0: message_set(b"a")}, acks=0))
    assert values(await fetch_one(client, 0)) == [(0, b"a")]


@pytest.mark.parametrize("fault", ["partition", "crc"])
async def test_a_failed_acks_0_closes_without_later_answers(client: RawKafka, fault: str) -> None:
    damaged = message(b"a")[:-1] + b"b"
    sets = {7: message_set(b"a")} if fault == "partition" else {0: damaged}
    await client.send(
        m.ConsumerMetadataRequest(b"g"),
        produce(FOO, sets, acks=0),
        m.ConsumerMetadataRequest(b"g"),
    )
    assert await client.frame() is not None
    assert await client.frame() is None


async def test_a_failed_acks_0_closes_once_other_partitions_are_readable(
    broker: Broker, client: RawKafka, open_client: OpenClient
) -> None:
    partition = broker.topics.partition(FOO_NAME, 0)
    for at in range(20):
        other = await second_client(open_client)
        await other.send(produce(FOO, {0: message_set(b"%d" % at), 7: message_set(b"x")}, acks=0))
        assert await other.frame() is None
        assert partition.high_watermark == at + 1


async def test_a_bad_partition_does_not_affect_the_others(client: RawKafka) -> None:
    reply = await client.call(produce(FOO, {5: message_set(b"a"), 0: message_set(b"b")}))
    assert reply == m.ProduceReply({FOO: {5: m.Produced(3, -1), 0: m.Produced(0, 0)}})


async def test_a_bad_message_rejects_its_whole_set(client: RawKafka) -> None:
    damaged = message(b"b")[:-1] + b"x"
    assert await produce_one(client, message(b"a") + damaged) == m.Produced(2, -1)
    assert (await fetch_one(client, 0)).high_watermark == 0


async def test_the_limit_of_a_message_is_exact(client: RawKafka) -> None:
    largest = bytes(1_000_012 - 26)
    assert await produce_one(client, message(largest + b"x")) == m.Produced(10, -1)
    assert await produce_one(client, message(largest)) == m.Produced(0, 0)


@pytest.mark.parametrize("data", [b"", message(b"abc")[:-1]], ids=["nothing", "a partial one"])
async def test_empty_set_succeeds_with_base_offset_minus_1(client: RawKafka, data: bytes) -> None:
    await produce_one(client, message_set(b"a"))
    assert await produce_one(client, data) == m.Produced(0, -1)


async def test_large_set_is_stored_in_batches_of_limited_size(
    broker: Broker, client: RawKafka
) -> None:
    data = message_set(*(bytes([at]) * 700_000 for at in range(5)))
    assert await produce_one(client, data) == m.Produced(0, 0)
    partition = broker.topics.partition(FOO_NAME, 0)
    batches = await partition.read(0, 10 * APPEND_BYTES_MAX)
    assert [len(batch.body) <= APPEND_BYTES_MAX for batch in batches] == [True] * 5
    fetched = await fetch_one(client, 0, 10 * APPEND_BYTES_MAX)
    assert [(offset, value[:1]) for offset, value in values(fetched)] == [
        (at, bytes([at])) for at in range(5)
    ]


@pytest.mark.slow
async def test_thousand_pipelined_produces_are_answered_in_order(
    broker: Broker, client: RawKafka
) -> None:
    rounds = broker.durability.durable_ticket
    await client.send(*(produce(FOO, {0: message_set(b"%d" % at)}) for at in range(1000)))
    for at in range(1000):
        reply = await client.answer(m.ProduceRequest)
        assert reply == m.ProduceReply({FOO: {0: m.Produced(0, at)}})
    assert broker.durability.durable_ticket - rounds < 100  # The requests shared syncs.


def gzipped(inner: bytes) -> bytes:
    """Return a compressed set."""
    value = gzip.compress(inner)
    body = b"\x00\x01\xff\xff\xff\xff" + len(value).to_bytes(4, "big") + value
    checked = zlib.crc32(body).to_bytes(4, "big") + body
    return bytes(8) + len(checked).to_bytes(4, "big") + checked


@contextmanager
def no_thread_unpacks() -> Iterator[None]:
    """Make unpacking and packing in threads wait."""
    limiter = unpacking_limiter()
    busy = [object() for _ in range(int(limiter.available_tokens))]
    for borrower in busy:
        limiter.acquire_on_behalf_of_nowait(borrower)
    yield
    for borrower in busy:
        limiter.release_on_behalf_of(borrower)


def incompressible(count: int) -> bytes:
    rng = random.Random(7)
    return message_set(*(rng.randbytes(1000) for _ in range(count)))


async def test_a_large_compressed_set_gets_offsets_despite_other_appends(
    broker: Broker, client: RawKafka, open_client: OpenClient
) -> None:
    large = gzipped(incompressible(100))
    assert len(large) > INLINE_INFLATED_MAX
    with no_thread_unpacks():
        await client.send(produce(FOO, {0: large}))
        await trio.testing.wait_all_tasks_blocked()
        other = await second_client(open_client)
        assert await produce_one(other, message_set(b"first")) == m.Produced(0, 0)
    assert await client.answer(m.ProduceRequest) == m.ProduceReply({FOO: {0: m.Produced(0, 1)}})
    partition = broker.topics.partition(FOO_NAME, 0)
    (batch,) = await partition.read(1, 1 << 20)
    decoded = KAFKA.decode(batch.body, batch.base_offset, 0)
    assert [record.offset for record in decoded.records] == list(range(1, 101))


@pytest.mark.parametrize("before", [b"", message(b"plain")], ids=["alone", "behind a plain one"])
async def test_a_set_that_unpacks_to_much_delays_no_other(
    client: RawKafka, open_client: OpenClient, before: bytes
) -> None:
    small_bomb = before + gzipped(message(bytes(10 * INLINE_INFLATED_MAX)))
    assert len(small_bomb) < 5000
    other = await second_client(open_client)
    with no_thread_unpacks():
        await client.send(produce(FOO, {0: small_bomb}))
        await trio.testing.wait_all_tasks_blocked()
        assert await other.call(m.OffsetsRequest(-1, {})) == m.OffsetsReply({})
    reply = await client.answer(m.ProduceRequest)
    assert reply == m.ProduceReply({FOO: {0: m.Produced(0, 0)}})


async def test_compressed_sets_of_a_partition_are_packed_in_turn(
    client: RawKafka, open_client: OpenClient
) -> None:
    others = [client, await second_client(open_client), await second_client(open_client)]
    large = gzipped(incompressible(70))
    with no_thread_unpacks():
        for other in others:
            await other.send(produce(FOO, {0: large}))
            await trio.testing.wait_all_tasks_blocked()
    for at, other in enumerate(others):
        reply = await other.answer(m.ProduceRequest)
        assert reply == m.ProduceReply({FOO: {0: m.Produced(0, 70 * at)}})


def context_of(broker: Broker) -> KafkaContext:
    address = m.BrokerAddress(1, b"localhost", 9092)
    connection: Any = SimpleNamespace(
        check=lambda action, resource: None, written_topics=WrittenTopics()
    )
    groups = GroupCoordinator()
    return KafkaContext(
        broker,
        connection,
        KafkaOptions(),
        NameSpace("public/default"),
        address,
        groups,
        Presence(connection, groups),
        KafkaLogin(connection, broker.authentication),
    )


@pytest.mark.parametrize(
    "first",
    [gzipped(incompressible(70)), message_set(bytes(BYTES_PER_TURN - 100))],
    ids=["waits for a thread", "takes a whole turn"],
)
async def test_a_right_lost_in_the_midst_of_a_request_ends_its_sets(
    broker: Broker, client: RawKafka, first: bytes
) -> None:
    checks: list[Resource] = []

    def check(action: Action, resource: Resource) -> None:
        checks.append(resource)
        if len(checks) > 1:
            raise NotAuthorized("taken back")

    context = context_of(broker)
    context.connection.check = check  # type: ignore[method-assign]
    sets = {0: bytearray(first), 1: message_set(b"a"), 7: message_set(b"b")}
    result = handle_produce(context, produce(FOO, sets))
    assert isinstance(result, GeneratorType)
    answer = await run(result)
    assert answer is not None
    results = m.short(answer.reply).topics[FOO].items()
    refused = Code.TOPIC_AUTHORIZATION_FAILED
    assert [(index, result.error) for index, result in results] == [
        (0, Code.NONE),
        (1, refused),
        (7, refused),
    ]


async def test_a_set_that_is_always_overtaken_is_stored_unpacked(
    broker: Broker, client: RawKafka
) -> None:
    partition = broker.topics.partition(FOO_NAME, 0)

    class Restless(OpenedSet):
        """Appends as another protocol's producer whenever a set has been packed."""

        def at(self, base_offset: int) -> Prepared:
            trio.from_thread.run_sync(foreign_append, broker, "foo", [b"x"])
            return super().at(base_offset)

    class RestlessSet(PackedSet):
        def open(self, inflated_max: int | None = None) -> OpenedSet:
            opened = super().open(inflated_max)
            return Restless(opened.content, opened.limits)

    large = memoryview(gzipped(incompressible(70)))
    producing = _Producing(context_of(broker), m.ProduceRequest(1, 1000, {}))
    packed = RestlessSet(large, SetLimits(1 << 20, 1 << 20, 1 << 20))
    produced = await producing._append_in_thread(partition, packed)
    assert (produced.error_code, produced.base_offset) == (0, PACK_TRIES_MAX)
    await broker.durability.all_durable()
    (batch,) = await partition.read(PACK_TRIES_MAX, 1 << 20)
    assert not batch.header.flags
    decoded = KAFKA.decode(batch.body, batch.base_offset, 0)
    assert [record.offset for record in decoded.records] == list(range(4, 74))


async def test_the_unpacked_size_of_a_request_has_a_limit(
    broker: Broker, open_client: OpenClient
) -> None:
    client = RawKafka(await open_client("kafka", inflated_bytes_max=10_000))
    await broker.topics.create(FOO_NAME, 3)
    wrapper = gzipped(message(bytes(4_000)))
    reply = await client.call(produce(FOO, {0: wrapper, 1: wrapper, 2: wrapper}))
    assert isinstance(reply, m.ProduceReply)
    assert [produced.error for produced in reply.topics[FOO].values()] == [0, 0, 10]


async def test_a_compressed_set_above_the_unpacked_limit_is_too_large(
    broker: Broker, open_client: OpenClient
) -> None:
    client = RawKafka(await open_client("kafka", inflated_bytes_max=10_000))
    await client.call(m.MetadataRequest([FOO]))
    for size, error in ((9_000, 0), (11_000, 10)):
        wrapper = gzipped(message(bytes(size)))
        assert (await produce_one(client, wrapper)).error == error


def tiny_batch() -> bytes:
    body = KAFKA_BATCHES.encode([Record(0, 0, value=b"")], 0)
    assert len(body) < 80
    return body


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damaged_message", "most"),
    [
        (message(b""), SET_MESSAGES_MAX),
        (timed(b"", 1000), SET_MESSAGES_MAX),
        (tiny_batch(), kafka_batches.SET_BATCHES_MAX),
    ],
    ids=["format 0", "format 1", "batches"],
)
async def test_a_set_of_very_many_messages_is_refused_without_a_long_turn(
    client: RawKafka, damaged_message: bytes, most: int
) -> None:
    """No turn of the loop is long (`tests/turns.py`), even for the largest accepted set."""
    assert await produce_one(client, damaged_message * (most + 1)) == m.Produced(10, -1)
    assert (await fetch_one(client, 0)).high_watermark == 0
    assert (await produce_one(client, damaged_message * most)).error == 0
    assert (await fetch_one(client, 0)).high_watermark == most


@pytest.mark.slow
async def test_a_set_that_unpacks_to_very_many_messages_is_refused(client: RawKafka) -> None:
    assert await produce_one(client, gzipped(message(b"") * (SET_MESSAGES_MAX + 1))) == (
        m.Produced(10, -1)
    )
    assert (await fetch_one(client, 0)).high_watermark == 0
