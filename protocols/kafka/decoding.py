"""Bytes of a request to its type, one function for each api key and version that is served.

Layouts: Kafka 0.8.2 protocol guide, checked against a running 0.8.2.2 broker. Knows no connection
and no broker. Everything that cannot be parsed raises ProtocolError, which ends the connection as
0.8 does; bytes left over behind a body are ignored (librdkafka 0.11 sends such).
"""

import struct
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from broker.server.endings import ProtocolError
from protocols.kafka.messages import (
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
from protocols.reader import BigEndianReader

# A request names at most so many topics and partitions: ten times what one broker is meant to hold.
# Without it a frame of the largest size, full of empty names, would become gigabytes of objects.
ENTRIES_MAX = 100_000
# With more than these a request is decoded, and answered, in a thread: it takes ten milliseconds.
ENTRIES_INLINE_MAX = 5000

PRODUCE_HEAD = struct.Struct(">hi")  # required acks, timeout in ms
PRODUCE_TARGET = struct.Struct(">ii")  # partition, bytes of the message set
FETCH_HEAD = struct.Struct(">iii")  # replica id, longest wait in ms, bytes wanted at least
FETCH_TARGET = struct.Struct(">iqi")  # partition, offset, bytes at most
OFFSETS_TARGET = struct.Struct(">iqi")  # partition, time in ms, offsets at most
COMMIT_TARGET_V0 = struct.Struct(">iq")  # partition, offset; then metadata
COMMIT_TARGET_V1 = struct.Struct(">iqq")  # partition, offset, time in ms; then metadata

T = TypeVar("T")


class ManyEntries(Exception):
    """The request names more topics and partitions than may be decoded in the loop."""


class RequestReader(BigEndianReader):
    """Kafka's strings and arrays on top of its integers."""

    __slots__ = ("_entries", "_inline_max")

    def __init__(self, view: memoryview, pos: int = 0, *, inline_max: int = ENTRIES_MAX) -> None:
        """Begin to read a request at byte `pos` of its frame.

        With more than `inline_max` topics and partitions ManyEntries is raised.
        """
        super().__init__(view, pos)
        self._entries = 0
        self._inline_max = inline_max

    def string(self) -> bytes | None:
        """A string; any negative length is null, as it is for 0.8."""
        size = self.i16()
        return None if size < 0 else bytes(self.take(size))

    def entries(self) -> Iterator[int]:
        """Counts through an array; a negative count is an empty one. Raises ProtocolError."""
        count = self.i32()
        self.add_entries(max(count, 0))
        return iter(range(count))

    def add_entries(self, count: int) -> None:
        """So many topics or partitions follow. Raises ProtocolError, ManyEntries."""
        self._entries += count
        if self._entries > ENTRIES_MAX:
            raise ProtocolError(f"request names more than {ENTRIES_MAX} topics and partitions")
        if self._entries > self._inline_max:
            raise ManyEntries

    def by_partition(self, target: Callable[["RequestReader"], tuple[int, T]]) -> ByPartition[T]:
        """An array of topics, each with an array of what `target` reads of a partition.

        What is named twice is there once, the last one (0.8 builds a map).
        """
        topics: dict[bytes | None, dict[int, T]] = {}
        for _ in self.entries():
            name = self.string()
            for _ in self.entries():
                partition, value = target(self)
                topics.setdefault(name, {})[partition] = value
        return topics


def decode_produce(reader: RequestReader) -> ProduceRequest:
    """Produce v0."""
    acks, timeout_ms = reader.unpack(PRODUCE_HEAD)
    return ProduceRequest(acks, timeout_ms, reader.by_partition(_produce_target))


def decode_fetch(reader: RequestReader) -> FetchRequest:
    """Fetch v0."""
    replica_id, wait_ms_max, bytes_min = reader.unpack(FETCH_HEAD)
    return FetchRequest(replica_id, wait_ms_max, bytes_min, reader.by_partition(_fetch_target))


def decode_offsets(reader: RequestReader) -> OffsetsRequest:
    """Offsets v0."""
    replica_id = reader.i32()
    return OffsetsRequest(replica_id, reader.by_partition(_offsets_target))


def decode_metadata(reader: RequestReader) -> MetadataRequest:
    """Metadata v0. The only array whose count must not be negative."""
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


# What is served, by api key and version. 0.8 read other versions of keys 0 to 3 and 10 as v0, which
# their senders cannot read back; they are closed on, as later brokers do.
DECODERS: Mapping[tuple[int, int], Callable[[RequestReader], RequestBody]] = {
    (0, 0): decode_produce,
    (1, 0): decode_fetch,
    (2, 0): decode_offsets,
    (3, 0): decode_metadata,
    (8, 0): decode_offset_commit_v0,
    (8, 1): decode_offset_commit_v1,
    (9, 0): decode_offset_fetch_v0,
    (9, 1): decode_offset_fetch_v1,
    (10, 0): decode_consumer_metadata,
}


def _produce_target(reader: RequestReader) -> tuple[int, memoryview]:
    partition, size = reader.unpack(PRODUCE_TARGET)
    return partition, reader.take(size)


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
