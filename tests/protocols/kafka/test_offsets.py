"""Offsets: the algorithm of 0.8 on numbers, and over the wire."""

import pytest

from braidlog.broker.broker import Broker
from braidlog.protocols.kafka.offsets import known_offsets, offsets_before
from braidlog.protocols.kafka.wire.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tests.protocols.kafka import forms as m
from tests.protocols.kafka.frames import RawKafka, message_set, produce
from tests.protocols.kafka.talk import (
    FOO,
    FOO_NAME,
    foreign_append,
    produce_one,
)
from tests.protocols.kafka.test_later_versions import batch_of

HOUR_MS = 3_600_000
NOW = 1_700_000_000_000
# Checked against 0.8.2.2: segments 0, 10 and 20, log end 30, the files some time apart.
KNOWN = [(0, NOW - 3000), (10, NOW - 2000), (20, NOW - 1000), (30, NOW)]


@pytest.mark.parametrize(
    ("time_ms", "offsets_max", "offsets"),
    [
        (-1, 1, [30]),
        (-1, 2, [30, 20]),
        (-1, 99, [30, 20, 10, 0]),
        (-2, 99, [0]),
        (-2, 1, [0]),
        (NOW - 1, 99, [20, 10, 0]),
        (NOW - 1, 2, [20, 10]),
        (NOW + HOUR_MS, 99, [30, 20, 10, 0]),
        (NOW - 2500, 99, [0]),
        (NOW - 3000, 99, [0]),
        (NOW - 3001, 99, []),
        (0, 99, []),
        (-3, 99, []),
        (-1, 0, []),
        (-2, 0, []),
    ],
)
def test_offsets_before_a_time(time_ms: int, offsets_max: int, offsets: list[int]) -> None:
    assert offsets_before(KNOWN, time_ms, offsets_max) == offsets


@pytest.mark.parametrize(("time_ms", "offsets"), [(-1, [0]), (-2, [0]), (NOW, [0]), (0, [])])
def test_offsets_of_an_empty_partition(time_ms: int, offsets: list[int]) -> None:
    assert offsets_before([(0, NOW)], time_ms, 5) == offsets


@pytest.mark.parametrize("time_ms", [-1, -2, NOW])
def test_without_known_offsets_the_result_is_empty(time_ms: int) -> None:
    assert offsets_before([], time_ms, 5) == []


def test_the_newest_entry_that_is_not_later_counts() -> None:
    touched = [(0, NOW), (10, NOW - 1000), (20, NOW + 5)]
    assert offsets_before(touched, NOW - 500, 9) == [10, 0]


# Through the wire.


async def test_offsets_of_a_partition(client: RawKafka) -> None:
    await produce_one(client, message_set(b"a", b"b"))
    for time_ms, offsets in ((-1, [2, 0]), (-2, [0]), (1 << 62, [2, 0]), (0, [])):
        request = m.OffsetsRequest(-1, {FOO: {0: m.OffsetsTarget(time_ms, 5)}})
        assert await client.call(request) == m.OffsetsReply({FOO: {0: m.OffsetsFound(0, offsets)}})


async def test_negative_number_of_offsets_and_unknown_partition(client: RawKafka) -> None:
    targets = {0: m.OffsetsTarget(-1, -1), 4: m.OffsetsTarget(-1, 1)}
    reply = await client.call(m.OffsetsRequest(-1, {FOO: targets}))
    assert reply == m.OffsetsReply({FOO: {0: m.OffsetsFound(-1, []), 4: m.OffsetsFound(3, [])}})


async def test_the_latest_offset_counts_records_of_acks_0(client: RawKafka) -> None:
    await client.send(produce(FOO, {0: message_set(b"a")}, acks=0))
    reply = await client.call(m.OffsetsRequest(-1, {FOO: {0: m.OffsetsTarget(-1, 1)}}))
    assert reply == m.OffsetsReply({FOO: {0: m.OffsetsFound(0, [1])}})


async def test_an_empty_partition_has_a_single_offset(client: RawKafka) -> None:
    request = m.OffsetsRequest(-1, {FOO: {0: m.OffsetsTarget(-1, 5)}})
    assert await client.call(request) == m.OffsetsReply({FOO: {0: m.OffsetsFound(0, [0])}})


async def test_records_not_yet_on_disk_are_not_counted(broker: Broker, client: RawKafka) -> None:
    foreign_append(broker, "foo", [b"a", b"b"])
    partition = broker.topics.partition(FOO_NAME, 0)
    assert (partition.next_offset, partition.high_watermark) == (2, 0)
    assert offsets_before(known_offsets(partition, NOW), -1, 1) == [0]


async def listed_offset(client: RawKafka, version: int, time_ms: int) -> tuple[int, int, int, int]:
    """Return code, offset, time and leader epoch of a ListOffsets answer for partition 0."""
    target = ListOffsetsPartition(timestamp=time_ms, current_leader_epoch=-1)
    topics = [ListOffsetsTopic(name=FOO, partitions=[target])]
    reply = await client.call_whole(ListOffsetsRequest(replica_id=-1, topics=topics), version)
    result = reply.topics[0].partitions[0]
    return result.error_code, result.offset, result.timestamp, result.leader_epoch


async def test_the_first_record_of_the_latest_time_is_found(client: RawKafka) -> None:
    assert await listed_offset(client, 7, -3) == (0, -1, -1, -1)
    await produce_one(client, message_set(b"without a time"))
    assert await listed_offset(client, 7, -3) == (0, -1, -1, -1)
    for time_ms in (10, 2000, 30, 2000, 999):
        await produce_one(client, batch_of(b"a", b"b", time_ms=time_ms))
    assert await listed_offset(client, 7, -3) == (0, 3, 2000, 0)


@pytest.mark.parametrize(
    ("time_ms", "since", "offset"),
    [(-3, 7, -1), (-4, 8, 0), (-5, 9, -1), (-6, 11, -1), (-7, 99, 0)],
)
async def test_special_times_have_a_first_version(
    client: RawKafka, time_ms: int, since: int, offset: int
) -> None:
    """As Kafka 4.3.1 answers."""
    await produce_one(client, message_set(b"without a time"))
    for version in range(1, 12):
        epoch = 0 if offset >= 0 and version >= 4 else -1
        expected = (35, -1, -1, -1) if version < since else (0, offset, -1, epoch)
        assert await listed_offset(client, version, time_ms) == expected


async def test_records_without_a_time_are_skipped(client: RawKafka) -> None:
    await produce_one(client, message_set(b"without a time"))
    await produce_one(client, batch_of(b"a", time_ms=5))
    assert await listed_offset(client, 5, 0) == (0, 1, 5, 0)
    assert await listed_offset(client, 5, 6) == (0, -1, -1, -1)
