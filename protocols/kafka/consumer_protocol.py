"""What members of consumer groups tell each other through the broker: the topics that each wants,
and the partitions that each was assigned.

Kafka's ConsumerProtocolSubscription and ConsumerProtocolAssignment; only version 0 of each, which
all later ones begin with. Knows no group.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence

from broker.server.endings import ProtocolError
from protocols.reader import BigEndianReader

PROTOCOL_TYPE = b"consumer"
VERSION = 0
_HEAD = struct.Struct(">hi")  # version, topics
_NO_DATA = struct.pack(">i", -1)


def wanted_topics(metadata: bytes) -> list[bytes]:
    """The topics that a member subscribes to; none where it says something else."""
    reader = BigEndianReader(memoryview(metadata))
    try:
        _, count = reader.unpack(_HEAD)
        return [_name(reader) for _ in range(min(count, reader.left))]
    except ProtocolError:
        return []


def assigned_partitions(assignment: bytes) -> dict[bytes, list[int]]:
    """By topic, the partitions that a member was given; none where it says something else."""
    reader = BigEndianReader(memoryview(assignment))
    found: dict[bytes, list[int]] = {}
    try:
        _, count = reader.unpack(_HEAD)
        for _ in range(min(count, reader.left)):
            name = _name(reader)
            size = reader.i32()
            packed = reader.take(4 * size)
            found.setdefault(name, []).extend(one for (one,) in struct.iter_unpack(">i", packed))
    except ProtocolError:
        return {}
    return found


def _name(reader: BigEndianReader) -> bytes:
    return bytes(reader.take(reader.i16()))


def subscription_of(topics: Iterable[bytes]) -> bytes:
    """The reverse of `wanted_topics`."""
    names = list(topics)
    return _HEAD.pack(VERSION, len(names)) + b"".join(map(_text, names)) + _NO_DATA


def assignment_of(partitions: Mapping[bytes, Sequence[int]]) -> bytes:
    """The reverse of `assigned_partitions`."""
    parts = [_HEAD.pack(VERSION, len(partitions))]
    for name, numbers in partitions.items():
        parts.append(_text(name) + struct.pack(f">i{len(numbers)}i", len(numbers), *numbers))
    return b"".join(parts) + _NO_DATA


def _text(name: bytes) -> bytes:
    return struct.pack(">h", len(name)) + name
