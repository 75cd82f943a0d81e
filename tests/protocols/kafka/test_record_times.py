"""Limits of records that a topic's settings set: times, sizes, keys. Codes as of Kafka 4.3.1."""

import pytest

from braidlog.broker.broker import Broker
from braidlog.protocols.kafka.record_times import outside
from braidlog.protocols.kafka.wire.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from braidlog.storage.formats.kafka.record_batches import APPEND_TIME, KAFKA_BATCHES, refs
from braidlog.storage.formats.record import Record
from tests.protocols.kafka import forms as m
from tests.protocols.kafka.frames import RawKafka, message_set
from tests.protocols.kafka.talk import FOO, FOO_NAME
from tests.protocols.kafka.test_later_versions import batch_of
from tests.storage.formats.kafka.test_record_batches import PACK, batch, timed

LATEST = 2**63 - 1


def records_at(*times_ms: int) -> bytes:
    records = [
        Record(at, 0, time_ms * 1000, None, b"k", b"v") for at, time_ms in enumerate(times_ms)
    ]
    return KAFKA_BATCHES.encode(records, 0)


def test_times_at_the_limits_are_within() -> None:
    sent = memoryview(records_at(9, 10, 20, 21))
    assert [place for place, _ in outside(sent, 2, 10, 20)] == [0, 3]
    assert not outside(sent, 2, 9, 21)
    for codec, pack in PACK.items():
        packed = batch(pack(bytes(sent[61:])), 4, attributes=codec)
        assert len(outside(memoryview(packed), 2, 5_000_000_000_000, LATEST)) == 4
    assert [place for place, _ in outside(memoryview(timed(b"a", 9)), 1, 10, 20)] == [0]
    assert not outside(memoryview(message_set(b"without a time")), 0, 10, 20)
    assert not outside(memoryview(bytes(70)), 2, 10, 20)


async def produced(client: RawKafka, data: bytes, version: int = 9) -> m.Produced:
    sent = m.ProduceRequest(-1, 1000, {FOO: {0: memoryview(data)}})
    result: m.Produced = (await client.call_with_table(sent, version)).topics[FOO][0]
    return result


@pytest.mark.parametrize(
    ("setting", "distance_ms", "code"),
    [
        ("timestamp_after_max_ms", 900, 0),
        ("timestamp_after_max_ms", 600_000, 32),
        ("timestamp_before_max_ms", -600_000, 32),
        ("timestamp_before_max_ms", 600_000, 0),
    ],
)
async def test_a_time_beyond_the_topics_limit_is_refused(
    broker: Broker, client: RawKafka, setting: str, distance_ms: int, code: int
) -> None:
    await broker.topics.alter_settings(FOO_NAME, {setting: 300_000})
    now_ms = broker.now_us() // 1000
    result = await produced(client, records_at(now_ms, now_ms + distance_ms))
    assert (result.error, [place for place, _ in result.wrong]) == (code, [1] if code else [])
    assert broker.topics.get(FOO_NAME).partitions[0].next_offset == (0 if code else 2)


async def test_a_batch_beyond_the_topics_size_is_refused(broker: Broker, client: RawKafka) -> None:
    await broker.topics.alter_settings(FOO_NAME, {"batch_bytes_max": 200})
    assert (await produced(client, batch_of(bytes(300)))).error == 10
    assert (await produced(client, batch_of(b"a"))).error == 0


async def test_each_record_without_a_key_is_named(broker: Broker, client: RawKafka) -> None:
    await broker.topics.alter_settings(FOO_NAME, {"cleanup_policy": "compact"})
    keyless = KAFKA_BATCHES.encode(
        [Record(at, 0, 5000, None, key, b"v") for at, key in enumerate((b"k", None, b"", None))], 0
    )
    for version in (8, 9):
        result = await produced(client, keyless, version)
        assert (result.error, [place for place, _ in result.wrong]) == (87, [1, 3])
    assert (await produced(client, keyless, 7)).wrong == []


async def test_append_times_are_served_in_answer_batch_and_offsets(
    broker: Broker, client: RawKafka
) -> None:
    await broker.topics.alter_settings(FOO_NAME, {"timestamp_type": "LogAppendTime"})
    before_ms = broker.now_us() // 1000
    first = await produced(client, records_at(5, 9))
    second = await produced(client, timed(b"v", 7))
    assert (first.error, second.error) == (0, 0)
    assert before_ms <= first.append_ms <= second.append_ms <= broker.now_us() // 1000
    fetched = await client.call_with_table(
        m.FetchRequest(-1, 0, 1, {FOO: {0: m.FetchTarget(0, 1 << 20)}}), 4
    )
    data = b"".join(bytes(part) for part in fetched.topics[FOO][0].parts)
    batches = list(refs(data))
    assert [ref.attributes & APPEND_TIME for ref in batches] == [APPEND_TIME] * 2
    assert [ref.max_ms for ref in batches] == [first.append_ms, second.append_ms]
    assert await offset_at(client, first.append_ms) == (0, first.append_ms)
    assert await offset_at(client, second.append_ms + 1) == (-1, -1)


async def offset_at(client: RawKafka, time_ms: int) -> tuple[int, int]:
    wanted = ListOffsetsPartition(partition_index=0, timestamp=time_ms)
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=FOO, partitions=[wanted])])
    answer = (await client.call_with_table(request, 5)).topics[FOO][0]
    return answer.offset, answer.time_ms


async def test_a_batch_sent_again_gets_its_first_append_time(
    broker: Broker, client: RawKafka
) -> None:
    await broker.topics.alter_settings(FOO_NAME, {"timestamp_type": "LogAppendTime"})
    sent = batch(records_at(5)[61:], 1, pid=7, epoch=0, seq=0)
    first = await produced(client, sent)
    await produced(client, batch(records_at(5)[61:], 1, pid=7, epoch=0, seq=1))
    again = await produced(client, sent)
    assert (again.error, again.base_offset, again.append_ms) == (0, 0, first.append_ms)


async def test_batches_get_the_topics_compression(broker: Broker, client: RawKafka) -> None:
    await broker.topics.alter_settings(FOO_NAME, {"compression_type": "zstd"})
    assert (await produced(client, records_at(5, 9))).append_ms == -1
    (stored,) = await broker.topics.get(FOO_NAME).partitions[0].read(0, 1 << 20)
    assert [ref.attributes for ref in refs(stored.body)] == [4]


@pytest.mark.parametrize("append_times", [False, True])
async def test_a_time_beyond_the_logs_range_is_refused(
    broker: Broker, client: RawKafka, append_times: bool
) -> None:
    if append_times:
        await broker.topics.alter_settings(FOO_NAME, {"timestamp_type": "LogAppendTime"})
    sent = batch(records_at(5)[61:], 1, base_ms=2**62, max_ms=2**62)
    assert (await produced(client, sent)).error == 32
    assert (await produced(client, timed(b"v", 2**62))).error == 32
