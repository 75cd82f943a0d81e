"""SEND: chosen partitions, stored records, and refusals."""

import struct
import zlib

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from braidlog.protocols.iggy.sending import _is_cut
from tests.protocols.iggy import description
from tests.protocols.iggy.description import named
from tests.protocols.iggy.foreign import partition_of
from tests.protocols.iggy.talk import BALANCED, FIRST, OFFSET, OK, Talk, to_partition
from tests.protocols.iggy.test_partitioning import KEYS


def message(payload: bytes = b"x", headers: list | None = None, number: int = 7) -> dict:
    return {"id": number.to_bytes(16, "little"), "headers": headers or [], "payload": payload}


async def send(talk: Talk, *messages: dict, partitioning: dict | None = None) -> int:
    return await talk.status(
        101,
        stream=named("st"),
        topic=named("tp"),
        partitioning=partitioning or to_partition(1),
        messages=messages,
    )


async def test_a_message_is_polled_with_offset_time_and_checksum(broker, talk):
    await talk.create_topic()
    before = broker.now_us()
    header = {"key": "kind", "kind": 2, "value": b"order"}
    assert await send(talk, message(b"hello", [header]), message(b"world", number=8)) == 0
    first, second = (await talk.poll(FIRST))["messages"]
    assert before <= first["timestamp"] <= broker.now_us()
    assert first == {
        "offset": 0,
        "state": 1,
        "timestamp": first["timestamp"],
        "id": (7).to_bytes(16, "little"),
        "checksum": zlib.crc32(b"hello"),
        "headers": [header],
        "payload": b"hello",
    }
    assert (second["offset"], second["payload"]) == (1, b"world")


async def test_message_without_id_gets_one(talk):
    await talk.create_topic()
    await send(talk, message(number=0), message(number=0))
    first, second = (await talk.poll(FIRST))["messages"]
    assert bytes(16) not in (first["id"], second["id"])
    assert first["id"] != second["id"]


async def test_messages_of_a_send_are_a_single_batch(broker, talk):
    await talk.create_topic()
    await send(talk, *[message(b"%d" % number) for number in range(100)])
    batches = await partition_of(broker).read(0, 1 << 20)
    assert [batch.header.record_count for batch in batches] == [100]


async def test_answer_means_that_the_messages_are_on_disk(broker, talk):
    await talk.create_topic()
    await send(talk, message())
    assert partition_of(broker).log.durable_offset == 1


async def test_balanced_takes_partitions_in_turn_over_all_connections(connect, talk):
    await talk.create_topic(partitions=3)
    other = await connect()
    await other.login()
    for number, sender in enumerate([talk, other, talk, other]):
        await send(sender, message(b"%d" % number), message(b"-"), partitioning=BALANCED)
    payloads_of = [await talk.payloads(FIRST, partition=number) for number in (1, 2, 3)]
    assert payloads_of == [[b"0", b"-", b"3", b"-"], [b"1", b"-"], [b"2", b"-"]]


@pytest.mark.parametrize(("key", "of_3"), [(key, of_3) for key, _, of_3, _, _ in KEYS])
async def test_key_chooses_the_partition_and_becomes_the_records_key(broker, talk, key, of_3):
    await talk.create_topic(partitions=3)
    await send(talk, message(b"keyed"), partitioning={"kind": 3, "value": key})
    assert await talk.payloads(FIRST, partition=of_3) == [b"keyed"]
    (batch,) = await partition_of(broker, index=of_3 - 1).read(0, 1000)
    assert bytes(key) in bytes(batch.body)[: 4 + len(key)]
    (polled,) = (await talk.poll(FIRST, partition=of_3))["messages"]
    assert polled["headers"] == []  # Iggy's own readers do not see the key.


@pytest.mark.parametrize(
    ("messages", "partitioning", "status"),
    [
        ([], to_partition(1), 4009),
        ([message()], to_partition(0), 3007),
        ([message()], to_partition(2), 3007),
        ([message(b"")], to_partition(1), 3),
        ([message(b"ok"), message(b"")], to_partition(1), 3),
        ([message(headers=[{"key": "", "kind": 1, "value": b"v"}])], to_partition(1), 3),
        ([message(headers=[{"key": "k", "kind": 99, "value": b"v"}])], to_partition(1), 3),
        ([message(headers=[{"key": "k", "kind": 1, "value": b""}])], to_partition(1), 3),
    ],
)
async def test_an_invalid_send_is_refused_and_stores_nothing(talk, messages, partitioning, status):
    await talk.create_topic()
    assert await send(talk, *messages, partitioning=partitioning) == status
    assert await talk.payloads(FIRST) == []


async def test_topic_without_partitions_takes_nothing(talk):
    await talk.create_topic(partitions=0)
    assert await send(talk, message(), partitioning=BALANCED) == 3008
    assert await send(talk, message()) == 3008


@pytest.mark.slow
async def test_limits_of_a_send_are_exact(talk):
    await talk.create_topic()
    halves = 10_485_760 // 2
    assert await send(talk, message(bytes(halves)), message(bytes(halves))) == 0
    assert await send(talk, message(bytes(halves)), message(bytes(halves + 1))) == 4022
    most = [{"key": f"k{n}", "kind": 1, "value": bytes(255)} for n in range(401)]
    assert (
        await send(talk, message(headers=[*most, {"key": "l", "kind": 1, "value": bytes(145)}]))
        == 0
    )
    over = [*most, {"key": "l", "kind": 1, "value": bytes(146)}]
    assert await send(talk, message(headers=over)) == 4017
    assert len(await talk.payloads(OFFSET, 2)) == 1


def tiny(count: int, first: int = 0) -> bytes:
    """Return a SEND of messages of one to five letters, to partition 1."""
    texts = [b"%d" % number for number in range(first, first + count)]
    messages = b"".join(bytes(15) + b"\7" + struct.pack("<II", 0, len(t)) + t for t in texts)
    body = b"\2\2st\2\2tp\2\4\1\0\0\0" + messages
    return struct.pack("<II", 4 + len(body), 101) + body


@pytest.mark.slow
async def test_a_large_send_of_small_messages_keeps_its_order_among_others(connect, talk, broker):
    # The loop is watched: no turn may be long for any SEND.
    await talk.create_topic()
    other = await connect()
    await other.login()
    count = 60_000
    async with trio.open_nursery() as nursery:
        nursery.start_soon(talk.stream.send_all, tiny(count))
        sent = 0
        while not partition_of(broker).next_offset > count:
            assert await send(other, message(b"other")) == 0
            sent += 1
    assert await talk.answer() == OK
    payloads: list[bytes] = []
    while len(payloads) < count + sent:
        polled = await talk.poll(OFFSET, len(payloads), count=20_000)
        offsets = [message["offset"] for message in polled["messages"]]
        assert offsets == list(range(len(payloads), len(payloads) + len(offsets)))
        payloads += [message["payload"] for message in polled["messages"]]
    assert [payload for payload in payloads if payload != b"other"] == [
        b"%d" % at for at in range(count)
    ]


async def test_a_large_send_that_is_cut_closes_the_connection(talk, broker):
    await talk.create_topic()
    whole = tiny(20_000)
    cut = struct.pack("<I", len(whole) - 4 - 2) + whole[4:-2]
    assert await talk.exchange(cut) is None
    assert partition_of(broker).next_offset == 0


async def test_cut_send_closes_the_connection_and_stores_nothing(connect, talk):
    await talk.create_topic()
    whole = description.request(
        101,
        stream=named("st"),
        topic=named("tp"),
        partitioning=to_partition(1),
        messages=[message(b"hello")],
    )
    cut = struct.pack("<I", len(whole) - 4 - 2) + whole[4:-2]
    assert await talk.exchange(cut) is None
    again = await connect()
    await again.login()
    assert await again.payloads(FIRST) == []


def test_only_a_message_that_runs_over_the_end_is_cut():
    data = description.MESSAGE.build(message(b"hello", [{"key": "k", "kind": 1, "value": b"v"}]))
    assert not _is_cut(memoryview(data))
    assert not _is_cut(memoryview(data + data))
    assert not _is_cut(memoryview(description.MESSAGE.build(message(b""))))
    for end in range(1, len(data)):
        assert _is_cut(memoryview(data[:end]))
        assert _is_cut(memoryview(data + data[:end]))


async def test_pipelined_sends_share_syncs_and_are_answered_in_order(broker, talk):
    await talk.create_topic()
    request = description.request(
        101,
        stream=named("st"),
        topic=named("tp"),
        partitioning=to_partition(1),
        messages=[message()],
    )
    rounds = broker.committer.durable_ticket
    await talk.stream.send_all(request * 1000)
    received = b""
    while len(received) < 8000:
        received += await talk.stream.receive_some()
    assert received == bytes(8000)
    assert broker.committer.durable_ticket - rounds < 200
    assert len(await talk.payloads(FIRST, count=2000)) == 1000


async def test_a_text_header_that_is_no_utf8_keeps_its_kind_for_readers_of_the_same_format(talk):
    await talk.create_topic()
    header = {"key": "k", "kind": 2, "value": b"\xff"}
    values = {"stream": named("st"), "topic": named("tp"), "partitioning": to_partition(1)}
    assert await talk.status(101, **values, messages=[message(b"x", [header])]) == 0
    (polled,) = (await talk.poll(FIRST))["messages"]
    assert polled["headers"] == [header]


async def test_a_client_waits_for_the_publish_rate_of_the_topic(broker, talk, nursery):
    await talk.create_topic()
    partition = partition_of(broker)
    await broker.topics.alter_settings(partition.topic.name, {"publish_rate_messages": 1})
    assert await send(talk, *[message(number=number) for number in range(1, 51)]) == 0
    nursery.start_soon(send, talk, message())
    await wait_all_tasks_blocked(0.05)
    assert partition.next_offset == 50
