"""Decodes requests by hand: the versions that 0.8 clients send, and every version of Produce. The
tables of `tables.py` decode the others.

Layouts: Kafka 0.8.2 protocol guide, checked against a running 0.8.2.2 broker. Knows no connection
and no broker. Everything that cannot be parsed raises ProtocolError, which ends the connection as
0.8 does; bytes left over after a body are ignored (librdkafka 0.11 sends some).
"""

import struct
from collections.abc import Callable, Mapping
from typing import TypeVar

from braidlog.broker.server.endings import ProtocolError
from braidlog.protocols.kafka.fields import FieldReader
from braidlog.protocols.kafka.messages import (
    ByPartition,
    CommitTarget,
    ConsumerMetadataRequest,
    FetchRequest,
    FetchTarget,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetsRequest,
    OffsetsTarget,
    ProduceRequest,
    RequestBody,
)

PRODUCE_HEAD = struct.Struct(">hi")  # required acks, timeout in ms
PRODUCE_TARGET = struct.Struct(">ii")  # partition, bytes of the message set
ONE_TOPIC = struct.Struct(">hiih")  # The same head, number of topics, size of the first one's name.
ONE_SET = struct.Struct(">iii")  # Number of partitions, the first one, bytes of its message set.
FETCH_HEAD = struct.Struct(">iii")  # replica id, longest wait in ms, bytes wanted at least
FETCH_TARGET = struct.Struct(">iqi")  # partition, offset, bytes at most
OFFSETS_TARGET = struct.Struct(">iqi")  # partition, time in ms, offsets at most
COMMIT_TARGET_V0 = struct.Struct(">iq")  # partition, offset; then metadata
COMMIT_TARGET_V1 = struct.Struct(">iqq")  # partition, offset, time in ms; then metadata

T = TypeVar("T")


# ZooKeeper's ConnectRequest: version, last transaction, timeout, session, size of the password.
ZOOKEEPER_SESSION = struct.Struct(">iqiqi")
ZOOKEEPER_PASSWORD_BYTES = 16
SIZE_BYTES = 4
ZOOKEEPER_SIZES = (
    SIZE_BYTES + ZOOKEEPER_SESSION.size + ZOOKEEPER_PASSWORD_BYTES,
    SIZE_BYTES + ZOOKEEPER_SESSION.size + ZOOKEEPER_PASSWORD_BYTES + 1,
)
ZOOKEEPER_HINT = "the client speaks ZooKeeper (zookeeper.connect): Braidlog does not serve that"


class RequestReader(FieldReader):
    """The tables' reader, and what the functions below share."""

    __slots__ = ()

    def by_partition(self, target: Callable[["RequestReader"], tuple[int, T]]) -> ByPartition[T]:
        """An array of topics, each with an array of what `target` reads of a partition.

        Of a partition that is named twice the last value counts (0.8 builds a map).
        """
        topics: dict[bytes | None, dict[int, T]] = {}
        for _ in range(self.count()):
            name = self.string()
            for _ in range(self.count()):
                partition, value = target(self)
                topics.setdefault(name, {})[partition] = value
        return topics

    def is_zookeeper_session(self) -> bool:
        """Whether the frame asks ZooKeeper for a new session: protocol version, last transaction
        and session are 0, the password has 16 bytes. A flag may follow.
        """
        if len(self._view) not in ZOOKEEPER_SIZES:
            return False
        *zeros, _, session, password_size = ZOOKEEPER_SESSION.unpack_from(self._view, SIZE_BYTES)
        return not any(zeros) and session == 0 and password_size == ZOOKEEPER_PASSWORD_BYTES

    def one_set(self) -> tuple[int, int, bytes, int, memoryview] | None:  # hot: see make bench
        """Read a Produce with one set from `PRODUCE_HEAD` on: required acks, timeout, topic,
        partition, the set. Reads nothing and returns None for any other, and for a truncated one.
        """
        view, pos, end = self._view, self._pos, self._end
        if end - pos < ONE_TOPIC.size + ONE_SET.size:
            return None
        acks, timeout_ms, topics, name_size = ONE_TOPIC.unpack_from(view, pos)
        name_pos = pos + ONE_TOPIC.size
        target_pos = name_pos + name_size
        set_pos = target_pos + ONE_SET.size
        if topics != 1 or name_size < 0 or set_pos > end:
            return None
        partitions, partition, set_size = ONE_SET.unpack_from(view, target_pos)
        set_end = set_pos + set_size
        if partitions != 1 or set_size < 0 or set_end > end:
            return None
        self.add_entries(2)
        self._pos = set_end
        name = bytes(view[name_pos:target_pos])
        return acks, timeout_ms, name, partition, view[set_pos:set_end]


def decode_produce(reader: RequestReader) -> ProduceRequest:
    """Produce v0. Raises ProtocolError for a ZooKeeper client's first frame, which reads so."""
    request = _produce(reader, None, is_null_taken=False)
    if not request.topics and reader.is_zookeeper_session():
        raise ProtocolError("a ZooKeeper session", hint=ZOOKEEPER_HINT)
    return request


def decode_produce_v1(reader: RequestReader) -> ProduceRequest:
    """Produce v1 and v2: a message set may be null."""
    return _produce(reader, None, is_null_taken=True)


def decode_produce_v3(reader: RequestReader) -> ProduceRequest:
    """Produce v3 to v8."""
    return _produce(reader, reader.string(), is_null_taken=True)


def decode_fetch(reader: RequestReader) -> FetchRequest:
    """Fetch v0."""
    replica_id, wait_ms_max, bytes_min = reader.unpack(FETCH_HEAD)
    return FetchRequest(replica_id, wait_ms_max, bytes_min, reader.by_partition(_fetch_target))


def decode_offsets(reader: RequestReader) -> OffsetsRequest:
    """Offsets v0."""
    replica_id = reader.i32()
    return OffsetsRequest(replica_id, reader.by_partition(_offsets_target))


def decode_metadata(reader: RequestReader) -> MetadataRequest:
    """Metadata v0. Only here must an array's count not be negative."""
    count = reader.i32()
    if count < 0:
        raise ProtocolError(f"metadata of {count} topics")
    reader.add_entries(count)
    return MetadataRequest(list(dict.fromkeys(reader.string() for _ in range(count))))


def decode_offset_commit_v0(reader: RequestReader) -> OffsetCommitRequest:
    """OffsetCommit v0, which 0.8.1 and 0.8.2 kept in ZooKeeper."""
    group = reader.string()
    topics = reader.by_partition(_commit_target_v0)
    return OffsetCommitRequest(0, group, -1, b"", topics)


def decode_offset_commit_v1(reader: RequestReader) -> OffsetCommitRequest:
    """OffsetCommit v1, which 0.8.2 kept in its offsets topic."""
    group = reader.string()
    generation = reader.i32()
    consumer_id = reader.string()
    topics = reader.by_partition(_commit_target_v1)
    return OffsetCommitRequest(1, group, generation, consumer_id, topics)


def decode_offset_fetch_v0(reader: RequestReader) -> OffsetFetchRequest:
    """OffsetFetch v0."""
    return _offset_fetch(reader, 0)


def decode_offset_fetch_v1(reader: RequestReader) -> OffsetFetchRequest:
    """OffsetFetch v1: the bytes of v0, but other answers."""
    return _offset_fetch(reader, 1)


def decode_consumer_metadata(reader: RequestReader) -> ConsumerMetadataRequest:
    """ConsumerMetadata v0."""
    return ConsumerMetadataRequest(reader.string())


# By api key and version.
DECODERS: Mapping[tuple[int, int], Callable[[RequestReader], RequestBody]] = {
    (0, 0): decode_produce,
    **{(0, version): decode_produce_v1 for version in (1, 2)},
    **{(0, version): decode_produce_v3 for version in range(3, 9)},
    (1, 0): decode_fetch,
    (2, 0): decode_offsets,
    (3, 0): decode_metadata,
    (8, 0): decode_offset_commit_v0,
    (8, 1): decode_offset_commit_v1,
    (9, 0): decode_offset_fetch_v0,
    (9, 1): decode_offset_fetch_v1,
    (10, 0): decode_consumer_metadata,
}


def _produce(
    reader: RequestReader, transactional_id: bytes | None, *, is_null_taken: bool
) -> ProduceRequest:  # hot: see make bench
    one = reader.one_set()
    if one is not None:
        acks, timeout_ms, name, partition, message_set = one
        return ProduceRequest(acks, timeout_ms, {name: {partition: message_set}}, transactional_id)
    acks, timeout_ms = reader.unpack(PRODUCE_HEAD)
    topics: dict[bytes | None, dict[int, memoryview]] = {}
    for _ in range(reader.count()):
        topic = reader.string()
        for _ in range(reader.count()):
            partition, size = reader.unpack(PRODUCE_TARGET)
            if size == -1 and is_null_taken:
                size = 0
            topics.setdefault(topic, {})[partition] = reader.take(size)
    return ProduceRequest(acks, timeout_ms, topics, transactional_id)


def _fetch_target(reader: RequestReader) -> tuple[int, FetchTarget]:
    partition, offset, bytes_max = reader.unpack(FETCH_TARGET)
    return partition, FetchTarget(offset, bytes_max)


def _offsets_target(reader: RequestReader) -> tuple[int, OffsetsTarget]:
    partition, time_ms, offsets_max = reader.unpack(OFFSETS_TARGET)
    return partition, OffsetsTarget(time_ms, offsets_max)


def _commit_target_v0(reader: RequestReader) -> tuple[int, CommitTarget]:
    partition, offset = reader.unpack(COMMIT_TARGET_V0)
    return partition, CommitTarget(offset, reader.string(), None)


def _commit_target_v1(reader: RequestReader) -> tuple[int, CommitTarget]:
    partition, offset, time_ms = reader.unpack(COMMIT_TARGET_V1)
    return partition, CommitTarget(offset, reader.string(), None if time_ms == -1 else time_ms)


def _offset_fetch(reader: RequestReader, version: int) -> OffsetFetchRequest:
    group = reader.string()
    topics = reader.by_partition(lambda targets: (targets.i32(), None))
    return OffsetFetchRequest(version, group, {name: list(parts) for name, parts in topics.items()})
