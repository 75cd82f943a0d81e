"""Fetch over the wire: its answers, its waits, and its wake-ups."""

import random

import pytest
import trio
import trio.testing

from braidlog.broker.broker import Broker
from braidlog.broker.reading.result import ReadResult
from braidlog.protocols.kafka.fetch import _joined
from braidlog.protocols.kafka.wire.fetch import FetchTopic
from braidlog.storage.formats.kafka.message_sets import KAFKA
from braidlog.storage.log.gaps import append_gap
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
from tests.storage.formats.kafka.sets import prepare
from tests.waiting import until


async def test_a_fetch_returns_produced_messages_with_offsets(client: RawKafka) -> None:
    await produce_one(client, message_set(b"a", b"b"))
    await produce_one(client, message_set(b"c"))
    fetched = await fetch_one(client, 1)
    assert (fetched.error, fetched.high_watermark) == (0, 3)
    assert values(fetched) == [(1, b"b"), (2, b"c")]


@pytest.mark.parametrize("offset", [-2, -1, 2, 1 << 62])
async def test_offset_outside_the_log_is_error_1_at_once(client: RawKafka, offset: int) -> None:
    await produce_one(client, message_set(b"a"))
    reply = await client.call(fetch(FOO, {0: (offset, 100)}, wait_ms=3_600_000))
    assert reply == m.FetchReply({FOO: {0: m.Fetched(1, -1, [])}})


async def test_an_offset_below_the_log_start_is_error_1_even_without_room(
    client: RawKafka,
) -> None:
    await produce_one(client, message_set(b"a"))
    assert await fetch_one(client, -1, 0) == m.Fetched(1, -1, [])


async def test_a_set_is_cut_at_max_bytes_anywhere(client: RawKafka) -> None:
    data = message_set(b"aaaa", b"bbbb")
    await produce_one(client, data)
    whole = message(b"aaaa", None, 0) + message(b"bbbb", None, 1)
    for bytes_max in range(len(whole) + 1):
        fetched = await fetch_one(client, 0, bytes_max)
        assert b"".join(bytes(part) for part in fetched.parts) == whole[:bytes_max]
        assert fetched.high_watermark == 2


async def test_missing_partitions_are_refused_one_by_one(client: RawKafka) -> None:
    reply = await client.call(fetch(FOO, dict.fromkeys(range(10, 90), (0, 100))))
    assert reply == m.FetchReply({FOO: {index: m.Fetched(3, -1, []) for index in range(10, 90)}})


async def test_of_a_partition_named_twice_the_last_entry_is_answered(client: RawKafka) -> None:
    await produce_one(client, message_set(b"a", b"b"))
    request = m.full(fetch(FOO, {0: (7, 100)}))
    request.topics = [*request.topics, *m.full(fetch(FOO, {0: (1, 100)})).topics]
    reply = await client.call_whole(request, 4)
    (topic,) = reply.responses
    (partition,) = topic.partitions
    assert (partition.error_code, partition.high_watermark) == (0, 2)


async def test_a_fetch_that_continues_a_session_is_refused_whole(client: RawKafka) -> None:
    request = m.full(fetch(FOO, {0: (0, 100)}))
    request.session_id, request.session_epoch = 12345, 7
    reply = await client.call_whole(request, 7)
    assert (reply.error_code, reply.session_id, reply.responses) == (70, 0, [])


async def test_a_topic_without_partitions_is_not_answered(client: RawKafka) -> None:
    request = m.full(fetch(FOO, {0: (0, 100)}))
    request.topics = [FetchTopic(topic=b"empty"), *request.topics]
    reply = await client.call_whole(request, 4)
    assert [topic.topic for topic in reply.responses] == [FOO]


@pytest.mark.parametrize(("wait_ms", "bytes_min"), [(0, 1), (-1, 1), (3_600_000, 0)])
async def test_a_fetch_without_a_wait_is_answered_at_once(
    client: RawKafka, wait_ms: int, bytes_min: int
) -> None:
    reply = await client.call(fetch(FOO, {0: (0, 100)}, wait_ms=wait_ms, bytes_min=bytes_min))
    assert reply == m.FetchReply({FOO: {0: m.Fetched(0, 0, [])}})


async def test_no_partitions_and_unknown_ones_do_not_wait(client: RawKafka) -> None:
    request = m.FetchRequest(-1, 3_600_000, 1, {})
    assert await client.call(request) == m.FetchReply({})
    reply = await client.call(fetch(FOO, {0: (0, 100), 9: (0, 100)}, wait_ms=3_600_000))
    assert reply == m.FetchReply({FOO: {0: m.Fetched(0, 0, []), 9: m.Fetched(3, -1, [])}})


@pytest.mark.parametrize("listener", ["kafka", "another"])
async def test_waiting_fetch_is_woken_by_an_append_of_any_protocol(
    broker: Broker, client: RawKafka, open_client: OpenClient, listener: str
) -> None:
    await client.send(fetch(FOO, {0: (0, 1000)}, wait_ms=3_600_000))
    await trio.testing.wait_all_tasks_blocked()
    if listener == "kafka":
        await produce_one(await second_client(open_client), message_set(b"a"))
    else:
        foreign_append(broker, "foo", [b"a"])
    reply = await client.answer(m.FetchRequest)
    assert isinstance(reply, m.FetchReply)
    assert values(reply.topics[FOO][0]) == [(0, b"a")]
    assert reply.topics[FOO][0].high_watermark == 1


async def test_min_bytes_count_over_all_partitions_and_all_appends(
    broker: Broker, client: RawKafka, open_client: OpenClient
) -> None:
    await broker.topics.create(TopicName("public", "default", "wide"), 3)
    producer = await second_client(open_client)
    size = len(message(bytes(74)))  # 100
    targets = dict.fromkeys(range(3), (0, 1000))
    request = fetch(b"wide", targets, wait_ms=3_600_000, bytes_min=3 * size)
    replies: list[m.Reply] = []

    async def wait() -> None:
        replies.append(await client.call(request))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        for index in (2, 0, 2):
            await trio.testing.wait_all_tasks_blocked()
            assert not replies
            await producer.call(produce(b"wide", {index: message(bytes(74))}))
    (reply,) = replies
    assert isinstance(reply, m.FetchReply)
    sizes = {index: fetched.size for index, fetched in reply.topics[b"wide"].items()}
    assert sizes == {0: size, 1: 0, 2: 2 * size}


async def test_a_waiting_fetch_delays_later_requests(
    broker: Broker, client: RawKafka, open_client: OpenClient
) -> None:
    await client.send(
        fetch(FOO, {0: (0, 100)}, wait_ms=3_600_000),
        m.ConsumerMetadataRequest(b"g"),
    )
    await trio.testing.wait_all_tasks_blocked()
    await produce_one(await second_client(open_client), message_set(b"a"))
    assert isinstance(await client.answer(m.FetchRequest), m.FetchReply)
    assert isinstance(await client.answer(m.ConsumerMetadataRequest), m.ConsumerMetadataReply)


async def test_a_fetch_behind_a_produce_sees_its_records(client: RawKafka) -> None:
    await client.send(produce(FOO, {0: message_set(b"a")}), fetch(FOO, {0: (0, 100)}))
    assert await client.answer(m.ProduceRequest) == m.ProduceReply({FOO: {0: m.Produced(0, 0)}})
    reply = await client.answer(m.FetchRequest)
    assert isinstance(reply, m.FetchReply)
    assert values(reply.topics[FOO][0]) == [(0, b"a")]


async def test_half_closed_client_still_gets_the_answer_to_its_fetch(
    client: RawKafka, open_client: OpenClient
) -> None:
    await client.send(fetch(FOO, {0: (0, 100)}, wait_ms=3_600_000))
    await client.stream.send_eof()
    await trio.testing.wait_all_tasks_blocked()
    await produce_one(await second_client(open_client), message_set(b"a"))
    assert await client.frame() is not None
    assert await client.frame() is None


async def test_deleting_a_topic_ends_the_wait_with_error_3(
    broker: Broker, client: RawKafka
) -> None:
    await client.send(fetch(FOO, {0: (0, 100)}, wait_ms=3_600_000))
    await trio.testing.wait_all_tasks_blocked()
    await broker.topics.delete(FOO_NAME)
    reply = await client.answer(m.FetchRequest)
    assert reply == m.FetchReply({FOO: {0: m.Fetched(3, -1, [])}})


async def test_foreign_records_are_messages_at_their_offsets(
    broker: Broker, client: RawKafka
) -> None:
    await produce_one(client, message_set(b"kafka"))
    foreign_append(broker, "foo", [b"x", b"y"])
    await produce_one(client, message_set(b"kafka again"))
    assert values(await fetch_one(client, 0)) == [
        (0, b"kafka"),
        (1, b"x"),
        (2, b"y"),
        (3, b"kafka again"),
    ]
    assert values(await fetch_one(client, 2)) == [(2, b"y"), (3, b"kafka again")]


async def test_a_first_foreign_record_above_max_bytes_is_whole(
    broker: Broker, client: RawKafka
) -> None:
    large = bytes(5000)
    foreign_append(broker, "foo", [large, b"small"])
    await produce_one(client, message_set(b"last"))
    assert values(await fetch_one(client, 0, 100)) == [(0, large)]
    assert values(await fetch_one(client, 1, 100)) == [(1, b"small"), (2, b"last")]


async def test_the_whole_answer_is_limited_with_a_turn_for_every_partition(
    broker: Broker, open_client: OpenClient
) -> None:
    client = RawKafka(await open_client("kafka", fetch_bytes_max=1024))
    await broker.topics.create(TopicName("public", "default", "wide"), 3)
    sets = {index: message_set(bytes(900)) for index in range(3)}
    await client.call(produce(b"wide", sets))
    served = []
    for _ in range(3):
        reply = await client.call(fetch(b"wide", dict.fromkeys(range(3), (0, 1 << 20))))
        assert isinstance(reply, m.FetchReply)
        sizes = [fetched.size for fetched in reply.topics[b"wide"].values()]
        assert sum(sizes) <= 1024
        served.append(sizes.index(max(sizes)))
    assert sorted(served) == [0, 1, 2]


async def test_a_gap_in_the_log_is_skipped(broker: Broker, client: RawKafka) -> None:
    partition = broker.topics.partition(FOO_NAME, 0)
    append_gap(partition.log, 10, broker.now_us())
    await broker.durability.all_durable()
    for _ in range(2):
        assert await fetch_one(client, 3) == m.Fetched(0, 10, [])
    assert await produce_one(client, message_set(b"a")) == m.Produced(0, 10)
    assert values(await fetch_one(client, 3)) == [(10, b"a")]


async def test_waiting_fetch_is_answered_when_the_broker_stops(
    broker: Broker, client: RawKafka
) -> None:
    await client.send(fetch(FOO, {0: (0, 100)}, wait_ms=3_600_000))
    await trio.testing.wait_all_tasks_blocked()
    broker.stop()
    reply = await client.answer(m.FetchRequest)
    assert reply == m.FetchReply({FOO: {0: m.Fetched(0, 0, [])}})


async def test_a_message_above_a_share_of_memory_is_returned_whole(
    broker: Broker, client: RawKafka
) -> None:
    data = message_set(bytes(300_000))
    await produce_one(client, data)
    broker.output.charge(broker.config.memory.output_bytes // 2 + 1)  # Memory is short.
    fetched = await fetch_one(client, 0, 1_000_000)
    assert fetched.size == len(data)


async def test_the_memory_of_a_waiting_fetch_counts_until_a_disconnect(
    broker: Broker, client: RawKafka
) -> None:
    await produce_one(client, message_set(bytes(5000)))
    wait = fetch(FOO, {0: (0, 1 << 20)}, wait_ms=3_600_000, bytes_min=1 << 20)
    await client.send(wait)
    await until(lambda: broker.output.used > 5000)
    await client.stream.aclose()
    await until(lambda: broker.output.used == 0)


@pytest.mark.slow
async def test_a_fetch_of_many_partitions_is_read_in_pieces(
    broker: Broker, client: RawKafka
) -> None:
    await broker.topics.create(TopicName("public", "default", "wide"), 1500)
    wait = fetch(b"wide", dict.fromkeys(range(1500), (0, 1 << 20)), wait_ms=3_600_000, bytes_min=1)
    await client.send(wait)
    await until(lambda: len(broker.waiters))
    foreign_append(broker, "wide", [b"x"])
    reply = await client.answer(m.FetchRequest)
    assert isinstance(reply, m.FetchReply)
    assert [index for index, part in reply.topics[b"wide"].items() if part.size] == [0]


OLD_VERSIONS = [None, 1, 2, 3]  # None: version 0, by construct


async def fetch_bytes(client: RawKafka, version: int | None, offset: int, bytes_max: int) -> bytes:
    """Return the message set of a partition, with no limit on the whole answer."""
    target = m.FetchTarget(offset, bytes_max)
    request = m.FetchRequest(-1, 0, 1, {FOO: {0: target}}, 1 << 20)
    reply = await client.call(request, version)
    assert isinstance(reply, m.FetchReply)
    fetched = reply.topics[FOO][0]
    assert fetched.error == 0
    parts = fetched.parts  # a single view of a table
    return bytes(parts) if isinstance(parts, memoryview) else b"".join(parts)


@pytest.mark.parametrize("version", OLD_VERSIONS)
async def test_a_fetch_is_filled_to_the_last_byte_over_the_borders_of_stored_sets(
    client: RawKafka, version: int | None
) -> None:
    values = [b"", b"aa", b"b" * 70, b"c", b"d" * 30, b"e"]
    for first, end in ((0, 2), (2, 3), (3, 6)):
        await produce_one(client, message_set(*values[first:end]))
    log = [message(value, None, offset) for offset, value in enumerate(values)]
    for offset in range(len(log)):
        rest = b"".join(log[offset:])
        for bytes_max in range(len(rest) + 2):
            at_least = len(log[offset]) if version == 3 else 0
            wanted = rest[: max(bytes_max, at_least)]
            assert await fetch_bytes(client, version, offset, bytes_max) == wanted


@pytest.mark.parametrize("version", OLD_VERSIONS)
async def test_a_fetch_is_filled_with_parts_of_foreign_messages_behind_the_first(
    broker: Broker, client: RawKafka, version: int | None
) -> None:
    values = [b"own", b"x", b"y" * 50, b"", b"z" * 9, b"own again"]
    await produce_one(client, message_set(values[0]))
    foreign_append(broker, "foo", values[1:5])
    await produce_one(client, message_set(values[5]))
    log = [message(value, None, offset) for offset, value in enumerate(values)]
    for offset in range(len(log)):
        rest = b"".join(log[offset:])
        is_whole = version == 3 or 1 <= offset < 5
        for bytes_max in range(1, len(rest) + 2):
            wanted = rest[: max(bytes_max, len(log[offset]) if is_whole else 0)]
            assert await fetch_bytes(client, version, offset, bytes_max) == wanted


@pytest.mark.parametrize("seed", range(6))
async def test_a_reader_that_drops_cut_messages_reads_every_message_once(
    broker: Broker, client: RawKafka, seed: int
) -> None:
    print("seed", seed)
    chance = random.Random(seed)
    wrote: list[bytes] = []
    for _ in range(30):
        foreign = [chance.randbytes(chance.randrange(200)) for _ in range(chance.randrange(1, 9))]
        wrote += foreign
        if chance.random() < 0.3:
            foreign_append(broker, "foo", foreign)
        else:
            await produce_one(client, message_set(*foreign))
    read: list[tuple[int, bytes]] = []
    while len(read) < len(wrote):
        bytes_max = chance.randrange(300, 3000)
        fetched = await fetch_one(client, len(read), bytes_max)
        if fetched.size < bytes_max:
            assert len(read) + len(values(fetched)) == len(wrote)
        read += values(fetched)
    assert read == list(enumerate(wrote))


async def test_messages_without_room_are_cut_within_the_answers_limit(
    broker: Broker, open_client: OpenClient
) -> None:
    client = RawKafka(await open_client("kafka", fetch_bytes_max=1000))
    await broker.topics.create(TopicName("public", "default", "wide"), 2)
    sets = {index: message_set(*[bytes(100)] * 5) for index in range(2)}
    await client.call(produce(b"wide", sets))
    request = m.FetchRequest(-1, 0, 1, {b"wide": dict.fromkeys(range(2), m.FetchTarget(0, 5000))})
    reply = await client.call(request)
    assert isinstance(reply, m.FetchReply)
    first, second = (fetched.size for fetched in reply.topics[b"wide"].values())
    assert sorted((first, second)) == [1000 - 5 * 126, 5 * 126]


async def test_records_of_acks_0_are_visible_after_the_next_answer(
    broker: Broker, client: RawKafka, open_client: OpenClient
) -> None:
    other = await second_client(open_client)
    for at in range(20):
        await client.send(produce(FOO, {0: message_set(b"%d" % at)}, acks=0))
        await client.call(m.ConsumerMetadataRequest(b"g"))
        assert (await fetch_one(other, at)).high_watermark == at + 1


@pytest.mark.slow
async def test_a_log_of_very_small_batches_has_no_long_turn(
    broker: Broker, client: RawKafka
) -> None:
    """No turn of the loop is long (`tests/turns.py`)."""
    await produce_one(client, message(b"first"))
    partition = broker.topics.partition(FOO_NAME, 0)
    count = 40_000
    for offset in range(1, count):
        body = prepare(memoryview(message(b"")), offset, message_bytes_max=1000)
        partition.append([body.body], body.info, body_format=KAFKA.format, append_us=0)
        if offset % 1000 == 0:
            await trio.lowlevel.checkpoint()
    await until(lambda: partition.high_watermark == count)
    fetched = await fetch_one(client, 0, 16 << 20)
    assert [offset for offset, _ in values(fetched)] == list(range(count))


def test_many_small_parts_are_joined() -> None:
    small = ReadResult(0, 0)
    for offset in range(100):
        small.add(b"%d" % offset, 1, offset)
    assert _joined(small) == [b"".join(small.parts)]
    large = ReadResult(0, 0)
    for offset in range(100):
        large.add(bytes(2000), 1, offset)
    assert _joined(large) is large.parts
