"""Produce, Fetch and related requests in the versions of later clients, over the wire."""

import gzip
import struct

import pytest

from braidlog.broker.broker import Broker
from braidlog.protocols.kafka.wire.api_versions import ApiVersionsRequest
from braidlog.protocols.kafka.wire.init_producer_id import InitProducerIdRequest
from braidlog.storage.formats.kafka.record_batches import KAFKA_BATCHES
from braidlog.storage.formats.record import Record
from conformance.clients.raw.kafka import message as message_in_set
from tests.protocols.kafka import forms as m
from tests.protocols.kafka.frames import RawKafka, message_set
from tests.protocols.kafka.talk import FOO, fetch_one, foreign_append, produce_one, values
from tests.storage.formats.kafka.test_record_batches import timed


def batch_of(*values: bytes, time_ms: int = 5) -> bytes:
    records = [Record(at, 0, time_ms * 1000, None, None, value) for at, value in enumerate(values)]
    return KAFKA_BATCHES.encode(records, 0)


def records_of(fetched: m.Fetched) -> list[tuple[int, bytes | None, int | None]]:
    decoded = KAFKA_BATCHES.decode(b"".join(map(bytes, fetched.parts)), 0, 0)
    assert decoded.failed is None
    return [(record.offset, record.value, record.publish_us) for record in decoded.records]


async def fetch_v(
    client: RawKafka, version: int, target: tuple[int, int], bytes_max: int = 1 << 20
) -> m.Fetched:
    request = m.FetchRequest(-1, 0, 1, {FOO: {0: m.FetchTarget(*target)}}, bytes_max)
    reply = await client.call_with_table(request, version)
    return reply.topics[FOO][0]


@pytest.mark.parametrize("version", range(4, 13))
async def test_old_and_new_clients_read_each_others_records(client: RawKafka, version: int) -> None:
    await produce_one(client, message_set(b"old"))
    sent = m.ProduceRequest(-1, 1000, {FOO: {0: memoryview(batch_of(b"a", b"b"))}})
    produced = (await client.call_with_table(sent, min(version, 8))).topics[FOO][0]
    assert (produced.error, produced.base_offset) == (0, 1)
    fetched = await fetch_v(client, version, (0, 1 << 20))
    assert (fetched.error, fetched.high_watermark) == (0, 3)
    records = records_of(fetched)
    assert records[1:] == [(1, b"a", 5000), (2, b"b", 5000)]
    assert records[0][:2] == (0, b"old")
    assert values(await fetch_one(client, 0)) == [(0, b"old"), (1, b"a"), (2, b"b")]


async def test_batches_are_accepted_in_the_oldest_version_too(client: RawKafka) -> None:
    """As aiokafka 0.14 sends them."""
    assert await produce_one(client, batch_of(b"a")) == m.Produced(0, 0)
    assert records_of(await fetch_v(client, 4, (0, 1000))) == [(0, b"a", 5000)]


async def test_messages_of_format_1_keep_their_times(client: RawKafka) -> None:
    sent = m.ProduceRequest(1, 1000, {FOO: {0: memoryview(timed(b"a", 7, key=b"k"))}})
    assert (await client.call_with_table(sent, 2)).topics[FOO][0].error == 0
    assert records_of(await fetch_v(client, 4, (0, 1000))) == [(0, b"a", 7000)]


async def test_the_first_batch_is_whole_for_later_clients(
    client: RawKafka,
) -> None:
    large = batch_of(bytes(5000))
    for _ in range(2):
        await produce_one(client, large)
    assert [offset for offset, _, _ in records_of(await fetch_v(client, 4, (0, 10)))] == [0]
    fetched = await fetch_v(client, 4, (0, 1 << 20), bytes_max=7000)
    assert [offset for offset, _, _ in records_of(fetched)] == [0]


async def test_large_records_of_an_older_set_are_read_once(client: RawKafka) -> None:
    """As a single batch the records exceed the read size, and the rest of the read size."""
    values = [bytes(530_000), bytes(530_000)]
    packed = gzip.compress(message_set(*values), compresslevel=1)
    await produce_one(client, message_in_set(None, packed, 1))
    offset, read = 0, list[tuple[int, bytes | None]]()
    while offset < len(values):
        fetched = await fetch_v(client, 4, (offset, 8 << 20), bytes_max=8 << 20)
        read += [(at, value) for at, value, _ in records_of(fetched)]
        offset = read[-1][0] + 1
    assert read == list(enumerate(values))


async def test_transactions_are_refused(client: RawKafka) -> None:
    sent = m.ProduceRequest(-1, 1000, {FOO: {0: memoryview(batch_of(b"a"))}}, b"tx")
    assert (await client.call_with_table(sent, 3)).topics[FOO][0].error == 53
    assert (
        await client.call_with_table(
            InitProducerIdRequest(transactional_id=b"tx", transaction_timeout_ms=1000), 0
        )
    ).error_code == 53


async def test_producer_ids_are_unique(client: RawKafka) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)
    producer_ids = {(await client.call_with_table(request, 1)).producer_id for _ in range(20)}
    assert len(producer_ids) == 20
    assert min(producer_ids) > 0


@pytest.mark.parametrize("version", [0, 2, 9])
async def test_api_versions_are_answered_in_any_version(client: RawKafka, version: int) -> None:
    head = struct.pack(">hhih", 18, version, 5, -1) + bytes(10)
    await client.stream.send_all(len(head).to_bytes(4, "big") + head)
    frame = await client.frame()
    assert frame is not None
    error, count = struct.unpack_from(">hi", frame, 8)
    assert error == (0 if version < 3 else 35)
    assert struct.unpack_from(">hhh", frame, 14) == (0, 0, 13)
    assert count > 5


@pytest.mark.parametrize("version", [3, 4])
async def test_api_versions_of_a_named_client(client: RawKafka, version: int) -> None:
    request = ApiVersionsRequest(
        client_software_name=b"apache-kafka-java", client_software_version=b"4.3.1"
    )
    reply = await client.call_with_table(request, version)
    assert reply.error_code == 0
    assert {key.api_key: key.max_version for key in reply.api_keys}[0] == 13
    request.client_software_name = b"-x"
    reply = await client.call_with_table(request, version)
    assert (reply.error_code, reply.api_keys) == (42, [])


async def test_offsets_by_time_are_exact_and_have_the_records_time(client: RawKafka) -> None:
    for time_ms in (10, 20, 30):
        await produce_one(client, batch_of(b"a", b"b", time_ms=time_ms))

    async def find(time_ms: int) -> tuple[int, int, int]:
        request = m.OffsetsRequest(-1, {FOO: {0: m.OffsetsTarget(time_ms)}})
        offset = (await client.call_with_table(request, 5)).topics[FOO][0]
        return offset.error, offset.offset, offset.time_ms

    assert [await find(at) for at in (0, 10, 11, 20, 30)] == [
        (0, 0, 10),
        (0, 0, 10),
        (0, 2, 20),
        (0, 2, 20),
        (0, 4, 30),
    ]
    assert [await find(at) for at in (31, -1, -2)] == [(0, -1, -1), (0, 6, -1), (0, 0, -1)]


async def test_offsets_by_time_of_another_protocols_records(
    broker: Broker, client: RawKafka
) -> None:
    foreign_append(broker, "foo", [b"a"])
    await broker.durability.all_durable()
    request = m.OffsetsRequest(-1, {FOO: {0: m.OffsetsTarget(1)}})
    offset = (await client.call_with_table(request, 1)).topics[FOO][0]
    assert offset.offset == 0
    assert offset.time_ms > 1


@pytest.mark.parametrize("version", range(1, 9))
async def test_metadata_distinguishes_no_topics_from_all(client: RawKafka, version: int) -> None:
    reply = await client.call_with_table(m.MetadataRequest([]), version)
    assert not reply.topics
    assert reply.controller_id == 1
    reply = await client.call_with_table(m.MetadataRequest(None), version)
    assert [topic.name for topic in reply.topics] == [FOO]


async def test_metadata_creates_no_topic_if_not_allowed(broker: Broker, client: RawKafka) -> None:
    reply = await client.call_with_table(m.MetadataRequest([b"bar"], False), 4)
    assert [topic.error for topic in reply.topics] == [3]
    reply = await client.call_with_table(m.MetadataRequest([b"bar"], True), 4)
    assert [topic.error for topic in reply.topics] == [0]


@pytest.mark.parametrize("version", range(2, 8))
async def test_commits_and_fetched_positions(client: RawKafka, version: int) -> None:
    targets = {0: m.CommitTarget(7, b"meta"), 5: m.CommitTarget(1, b"")}
    commit = m.OffsetCommitRequest(version, b"g", -1, b"", {FOO: targets})
    reply = await client.call_with_table(commit, version)
    assert reply.topics == {FOO: {0: 0, 5: 3}}
    everything = m.OffsetFetchRequest(2, b"g", None)
    positions = await client.call_with_table(everything, min(version, 5))
    assert positions.topics == {FOO: {0: m.CommittedOffset(7, b"meta", 0)}}
    unknown = m.OffsetFetchRequest(2, b"g", {b"no": {0: None}})
    positions = await client.call_with_table(unknown, min(version, 5))
    assert positions.topics == {b"no": {0: m.CommittedOffset(-1, b"", 0)}}
