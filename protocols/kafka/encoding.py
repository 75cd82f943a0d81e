"""Encodes replies: by hand for the versions that 0.8 clients send and for every Produce, by a
table for the others. Knows no connection and no broker.

Layouts: Kafka 0.8.2 protocol guide, checked against a running 0.8.2.2 broker. All answers of the
served versions begin with the size and the correlation id.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from braidlog.protocols.kafka.fields import INT16, INT32, PIECE_BYTES_MIN, Kind, Writer
from braidlog.protocols.kafka.messages import (
    BrokerAddress,
    ByPartition,
    CommittedOffset,
    ConsumerMetadataReply,
    Fetched,
    FetchReply,
    MetadataReply,
    OffsetCommitReply,
    OffsetFetchReply,
    OffsetsFound,
    OffsetsReply,
    ProduceReply,
    Reply,
)
from braidlog.storage.formats.api import Buffer, Part, StoredPart

FRAME_HEAD = struct.Struct(">ii")  # bytes that follow the first field, correlation id
# Partition, error, base offset, since version 2 the time, since 5 the log's start.
PRODUCED, PRODUCED_V2, PRODUCED_V5 = map(struct.Struct, (">ihq", ">ihqq", ">ihqqq"))
NO_ERRORS = INT32.pack(0)  # Since version 8: which records were wrong.
NO_THROTTLE = INT32.pack(0)
FETCHED = struct.Struct(">ihqi")  # partition, error, high watermark, bytes of the message set
OFFSETS = struct.Struct(">ihi")  # partition, error, number of offsets
PARTITION_METADATA = struct.Struct(">hii")  # error, partition, leader
COMMITTED = struct.Struct(">ih")  # partition, error
POSITION = struct.Struct(">iq")  # partition, offset; then metadata and error


def encode(correlation_id: int, reply: Reply, version: int = 0) -> list[Part]:
    """The whole frame, in parts. Message sets are not copied: they must not change.

    Only Produce needs `version`: any other reply is the same in all versions encoded by hand.
    """
    parts: Sequence[Part]
    if type(reply) is ProduceReply:
        parts = _produce(reply, version)
    else:
        parts = ENCODERS[type(reply)](reply)
    size = sum(map(len, parts)) + INT32.size
    head = FRAME_HEAD.pack(size, correlation_id)
    if len(parts) == 1 and type(parts[0]) is bytes:
        return [head + parts[0]]
    return [head, *parts]


def encode_with(table: Kind, correlation_id: int, reply: Reply, version: int) -> list[Part]:
    """Encode a reply by its table, where it is not encoded by hand."""
    out = Writer()
    table.write(out, reply, version)
    parts = out.parts()
    return [FRAME_HEAD.pack(sum(map(len, parts)) + INT32.size, correlation_id), *parts]


def string(value: bytes | None) -> bytes:
    """A Kafka string: int16 length, then the bytes; None is null."""
    return b"\xff\xff" if value is None else INT16.pack(len(value)) + value


def _int32s(values: Sequence[int]) -> bytes:
    return struct.pack(f">i{len(values)}i", len(values), *values)


def _by_partition(topics: ByPartition[Any], one: Callable[[int, Any], bytes]) -> list[Buffer]:
    out = [INT32.pack(len(topics))]
    for name, partitions in topics.items():
        out += (string(name), INT32.pack(len(partitions)))
        for index, value in partitions.items():
            out.append(one(index, value))
    return [b"".join(out)]


def _produce(reply: ProduceReply, version: int) -> list[Buffer]:  # hot: see make bench
    out = [INT32.pack(len(reply.topics))]
    for name, partitions in reply.topics.items():
        out += (string(name), INT32.pack(len(partitions)))
        for index, one in partitions.items():
            error, offset = one.error, one.base_offset
            if version < 2:
                out.append(PRODUCED.pack(index, error, offset))
            elif version < 5:
                out.append(PRODUCED_V2.pack(index, error, offset, one.append_ms))
            else:
                start = one.log_start_offset
                out.append(PRODUCED_V5.pack(index, error, offset, one.append_ms, start))
            if version >= 8:
                out += (NO_ERRORS, string(one.message))
    if version >= 1:
        out.append(NO_THROTTLE)
    return [b"".join(out)]


def _fetch(reply: FetchReply) -> list[Part]:
    parts: list[Part] = []
    small = bytearray(INT32.pack(len(reply.topics)))
    for name, partitions in reply.topics.items():
        small += string(name)
        small += INT32.pack(len(partitions))
        for index, fetched in partitions.items():
            small += _fetched_head(index, fetched)
            for piece in fetched.parts:
                if len(piece) < PIECE_BYTES_MIN and not isinstance(piece, StoredPart):
                    small += piece
                    continue
                if small:
                    parts.append(bytes(small))
                    small.clear()
                parts.append(piece)
    return [*parts, bytes(small)] if small else parts


def _fetched_head(index: int, fetched: Fetched) -> bytes:
    return FETCHED.pack(index, fetched.error, fetched.high_watermark, fetched.size)


def _offsets(reply: OffsetsReply) -> list[Buffer]:
    def one(index: int, found: OffsetsFound) -> bytes:
        count = len(found.offsets)
        return OFFSETS.pack(index, found.error, count) + struct.pack(f">{count}q", *found.offsets)

    return _by_partition(reply.topics, one)


def _metadata(reply: MetadataReply) -> list[Buffer]:
    out = [INT32.pack(len(reply.brokers))]
    out.extend(map(_address, reply.brokers))
    out.append(INT32.pack(len(reply.topics)))
    for topic in reply.topics:
        out += [INT16.pack(topic.error), string(topic.name), INT32.pack(len(topic.partitions))]
        for partition in topic.partitions:
            out.append(
                PARTITION_METADATA.pack(partition.error, partition.index, partition.leader)
                + _int32s(partition.replicas)
                + _int32s(partition.isr)
            )
    return [b"".join(out)]


def _address(address: BrokerAddress) -> bytes:
    return INT32.pack(address.node_id) + string(address.host) + INT32.pack(address.port)


def _offset_commit(reply: OffsetCommitReply) -> list[Buffer]:
    return _by_partition(reply.topics, COMMITTED.pack)


def _offset_fetch(reply: OffsetFetchReply) -> list[Buffer]:
    def one(index: int, committed: CommittedOffset) -> bytes:
        head = POSITION.pack(index, committed.offset)
        return head + string(committed.metadata) + INT16.pack(committed.error)

    return _by_partition(reply.topics, one)


def _consumer_metadata(reply: ConsumerMetadataReply) -> list[Buffer]:
    return [INT16.pack(reply.error) + _address(reply.coordinator)]


ENCODERS: Mapping[type, Callable[[Any], Sequence[Part]]] = {
    FetchReply: _fetch,
    OffsetsReply: _offsets,
    MetadataReply: _metadata,
    OffsetCommitReply: _offset_commit,
    OffsetFetchReply: _offset_fetch,
    ConsumerMetadataReply: _consumer_metadata,
}
