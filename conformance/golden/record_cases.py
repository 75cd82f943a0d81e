"""Requests about records and offsets: good and bad."""

import struct
from collections.abc import Iterator
from typing import Final

from crc32c import crc32c

from braidlog.protocols.kafka.schema import Struct
from braidlog.protocols.kafka.wire import (
    delete_records,
    describe_producers,
    fetch,
    list_offsets,
    offset_for_leader_epoch,
    produce,
)
from braidlog.storage.formats.kafka.records import varint_bytes
from conformance.golden.asking import MISSING_ID
from conformance.golden.case import MISSING, TOPIC, Build, Case, Ids, same

TIMES_MS: Final = (1_700_000_000_000, 1_700_000_000_500, 1_700_000_000_250)
PRODUCE_SINCE: Final = 3  # Kafka 4 lists versions 0 to 2, and closes the connection.


def batch(*, damaged: bool = False, time_ms: int = TIMES_MS[0]) -> bytes:
    """Return a record batch of three records."""
    records = b""
    for number, moment in enumerate(TIMES_MS):
        body = b"\0" + varint_bytes(moment - TIMES_MS[0]) + varint_bytes(number) + b"\2k\2v\0"
        records += varint_bytes(len(body)) + body
    last_ms = max(time_ms, max(TIMES_MS))
    head = struct.pack(">hiqqqhii", 0, 2, time_ms, last_ms, -1, -1, -1, 3)
    checksum = crc32c(records, crc32c(head)) ^ damaged
    prefix = struct.pack(">qiibI", 0, 9 + len(head) + len(records), -1, 2, checksum)
    return prefix + head + records


def produced(topic: bytes, index: int = 0, acks: int = -1, data: bytes | None = None) -> Build:
    def build(version: int, ids: Ids) -> Struct:
        sent = produce.PartitionProduceData(
            index=index, records=memoryview(batch() if data is None else data)
        )
        named = produce.TopicProduceData(
            name=topic, topic_id=ids.get(topic, MISSING_ID), partition_data=[sent]
        )
        return produce.ProduceRequest(
            transactional_id=None, acks=acks, timeout_ms=1000, topic_data=[named]
        )

    return build


def _fetch(topic: bytes, index: int = 0, offset: int = 0, epoch: int = -1) -> Build:
    def build(version: int, ids: Ids) -> Struct:
        wanted = fetch.FetchPartition(
            partition=index,
            current_leader_epoch=epoch,
            fetch_offset=offset,
            partition_max_bytes=100,
        )
        named = fetch.FetchTopic(
            topic=topic, topic_id=ids.get(topic, MISSING_ID), partitions=[wanted]
        )
        return fetch.FetchRequest(
            max_wait_ms=0, min_bytes=0, max_bytes=1000, session_epoch=-1, topics=[named]
        )

    return build


def _offsets(topic: bytes, time_ms: int, index: int = 0, epoch: int = -1) -> Build:
    wanted = list_offsets.ListOffsetsPartition(
        partition_index=index, timestamp=time_ms, current_leader_epoch=epoch
    )
    named = list_offsets.ListOffsetsTopic(name=topic, partitions=[wanted])
    return lambda version, ids: list_offsets.ListOffsetsRequest(replica_id=-1, topics=[named])


def _epoch(topic: bytes, epoch: int) -> Build:
    wanted = offset_for_leader_epoch.OffsetForLeaderPartition(
        partition=0, current_leader_epoch=-1, leader_epoch=epoch
    )
    named = offset_for_leader_epoch.OffsetForLeaderTopic(topic=topic, partitions=[wanted])
    request = offset_for_leader_epoch.OffsetForLeaderEpochRequest(replica_id=-1, topics=[named])
    return same(request)


def _records() -> Iterator[Case]:
    yield Case("produce three records", produced(TOPIC), PRODUCE_SINCE)
    yield Case("produce to a missing topic", produced(MISSING), PRODUCE_SINCE)
    yield Case("produce to a missing partition", produced(TOPIC, 7), PRODUCE_SINCE)
    yield Case(
        "produce with a wrong checksum", produced(TOPIC, data=batch(damaged=True)), PRODUCE_SINCE
    )
    yield Case("produce with acks 5", produced(TOPIC, 1, acks=5), PRODUCE_SINCE)
    yield Case(
        "produce a time out of range", produced(TOPIC, data=batch(time_ms=2**62)), PRODUCE_SINCE
    )
    yield Case("fetch from the start", _fetch(TOPIC), since=4)
    yield Case("fetch at the end", _fetch(TOPIC, 1))
    yield Case("fetch beyond the end", _fetch(TOPIC, 1, offset=99_999))
    yield Case("fetch from a missing topic", _fetch(MISSING))
    yield Case("fetch from a missing partition", _fetch(TOPIC, 7))
    yield Case("fetch with a later epoch", _fetch(TOPIC, epoch=9), since=9)
    for note, moment in (
        ("latest", -1),
        ("earliest", -2),
        ("latest time", -3),
        ("earliest local", -4),
        ("latest tiered", -5),
        ("earliest pending", -6),
        ("unknown", -9),
        ("first", TIMES_MS[0]),
        ("middle", TIMES_MS[0] + 300),
        ("future", 4_000_000_000_000),
    ):
        yield Case(f"offsets, {note}", _offsets(TOPIC, moment, 1 if moment == -1 else 0))
    yield Case("offsets of a missing topic", _offsets(MISSING, -1))
    yield Case("offsets of a missing partition", _offsets(TOPIC, -1, 7))
    yield Case("offsets with a later epoch", _offsets(TOPIC, -1, epoch=9), since=4)
    yield Case("end of epoch 0", _epoch(TOPIC, 0))
    yield Case("end of a later epoch", _epoch(TOPIC, 9))
    yield Case("end of an epoch of a missing topic", _epoch(MISSING, 0))
    for note, index, offset in (("some", 0, 1), ("too many", 0, 99_999), ("none", 7, 0)):
        place = delete_records.DeleteRecordsPartition(partition_index=index, offset=offset)
        topic = delete_records.DeleteRecordsTopic(name=TOPIC, partitions=[place])
        body = delete_records.DeleteRecordsRequest(topics=[topic], timeout_ms=1000)
        yield Case(f"delete records, {note}", same(body))
    wanted = [describe_producers.TopicRequest(name=TOPIC, partition_indexes=[0, 7])]
    yield Case("producers", same(describe_producers.DescribeProducersRequest(topics=wanted)))


def _refused_records() -> Iterator[Case]:
    for offset in (-2, -1):
        place = delete_records.DeleteRecordsPartition(partition_index=1, offset=offset)
        topic = delete_records.DeleteRecordsTopic(name=TOPIC, partitions=[place])
        body: Struct = delete_records.DeleteRecordsRequest(topics=[topic], timeout_ms=1000)
        yield Case(f"delete records below {offset}", same(body))
    place = delete_records.DeleteRecordsPartition(partition_index=0, offset=0)
    topic = delete_records.DeleteRecordsTopic(name=MISSING, partitions=[place])
    body = delete_records.DeleteRecordsRequest(topics=[topic], timeout_ms=1000)
    yield Case("delete records of a missing topic", same(body))
    wanted = list_offsets.ListOffsetsPartition(partition_index=1, timestamp=-1)
    named = list_offsets.ListOffsetsTopic(name=TOPIC, partitions=[wanted, wanted])
    body = list_offsets.ListOffsetsRequest(replica_id=-1, topics=[named])
    yield Case("offsets of a partition twice", same(body))
    producers = describe_producers.TopicRequest(name=MISSING, partition_indexes=[0])
    body = describe_producers.DescribeProducersRequest(topics=[producers])
    yield Case("producers of a missing topic", same(body))
    epoch = offset_for_leader_epoch.OffsetForLeaderPartition(
        partition=7, current_leader_epoch=-1, leader_epoch=0
    )
    about = offset_for_leader_epoch.OffsetForLeaderTopic(topic=TOPIC, partitions=[epoch])
    body = offset_for_leader_epoch.OffsetForLeaderEpochRequest(replica_id=-1, topics=[about])
    yield Case("end of an epoch of a missing partition", same(body))


RECORD_CASES: Final = tuple(_records())
REFUSED_RECORD_CASES: Final = tuple(_refused_records())
