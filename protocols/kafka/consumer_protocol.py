"""Messages of consumer group members to each other through the broker: the topics that each wants,
and the partitions that each was assigned.

Kafka's ConsumerProtocolSubscription and ConsumerProtocolAssignment; only version 0 of each, with
which all later ones begin. Knows no group.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from braidlog.broker.runtime.endings import ProtocolError
from braidlog.protocols.reader import BigEndianReader

PROTOCOL_TYPE = b"consumer"
VERSION = 0
VERSION_BYTES = 2
OWNED_VERSION = 1  # From here on a subscription ends with the partitions that the member has.
# Up to so many topics of one member are compared by name. Among more, a topic is searched for as
# bytes, so that a thousand members that name 300,000 each are not walked in one turn.
TOPICS_WALKED_MAX = 100
_HEAD = struct.Struct(">hi")  # version, topics
_NO_DATA = struct.pack(">i", -1)


def wants(metadata: bytes, topic: bytes) -> bool:
    """Return True if a member subscribes to a topic; False for metadata in another format."""
    try:
        return _behind(metadata, topic, lambda reader: None) is not None
    except ProtocolError:
        return False


def topics_of(metadata: bytes) -> Iterator[bytes]:
    """The topics that a member subscribes to. Raises ProtocolError for another format."""
    reader = BigEndianReader(memoryview(metadata))
    _, count = reader.unpack(_HEAD)
    for _ in range(count):
        yield _name(reader)


def listed_topics(metadata: bytes, most: int) -> tuple[bytes, frozenset[bytes]]:
    """Return the topics that a member subscribes to, the first `most` of them, and the bytes that
    list them, from VERSION_BYTES on. Raises ProtocolError for another format.
    """
    reader = BigEndianReader(memoryview(metadata))
    _, count = reader.unpack(_HEAD)
    names = frozenset(_name(reader) for _ in range(min(count, most)))
    return metadata[VERSION_BYTES : reader.pos], names


class MemberSubscription(NamedTuple):
    """The topics that a member subscribes to, and the partitions that it has."""

    version: int
    topics: list[bytes]
    owned: dict[bytes, list[int]]


def parse_subscription(metadata: bytes) -> MemberSubscription:
    """Decode a member's metadata. Raises ProtocolError for another format."""
    reader = BigEndianReader(memoryview(metadata))
    version, count = reader.unpack(_HEAD)
    topics = [_name(reader) for _ in range(count)]
    user_data_size = reader.i32()
    reader.take(max(user_data_size, 0))
    owned = _named_partitions(reader, reader.i32()) if version >= OWNED_VERSION else {}
    return MemberSubscription(version, topics, owned)


def parse_assignment(assignment: bytes) -> dict[bytes, list[int]]:
    """Decode the partitions that a member was assigned. Raises ProtocolError for another format."""
    reader = BigEndianReader(memoryview(assignment))
    _, count = reader.unpack(_HEAD)
    return _named_partitions(reader, count)


def _named_partitions(reader: BigEndianReader, count: int) -> dict[bytes, list[int]]:
    partitions: dict[bytes, list[int]] = {}
    for _ in range(count):
        name, packed = _name(reader), _partitions(reader)
        partitions[name] = [index for (index,) in struct.iter_unpack(">i", packed)]
    return partitions


def given_partitions(assignment: bytes, topic: bytes, most: int) -> list[int] | None:
    """The partitions of a topic that a member was assigned, the first `most` of them; None if it
    was assigned none of that topic, or the assignment is in another format.
    """
    try:
        reader = _behind(assignment, topic, _partitions)
        packed = None if reader is None else _partitions(reader)
    except ProtocolError:
        return None
    if packed is None:
        return None
    return [index for (index,) in struct.iter_unpack(">i", packed[: 4 * most])]


def _behind(
    data: bytes, topic: bytes, pass_over: Callable[[BigEndianReader], object]
) -> BigEndianReader | None:
    """A reader placed after a topic's name; None if it is not named. Raises ProtocolError."""
    named = _text(topic)
    if named not in data:  # Quick, and a member has few of its group's topics.
        return None
    reader = BigEndianReader(memoryview(data))
    _, count = reader.unpack(_HEAD)
    for _ in range(min(count, TOPICS_WALKED_MAX)):
        if _name(reader) == topic:
            return reader
        pass_over(reader)
    topic_pos = data.find(named, reader.pos) if count > TOPICS_WALKED_MAX else -1
    return BigEndianReader(memoryview(data), topic_pos + len(named)) if topic_pos >= 0 else None


def _partitions(reader: BigEndianReader) -> memoryview:
    return reader.take(4 * reader.i32())


def _name(reader: BigEndianReader) -> bytes:
    return bytes(reader.take(reader.i16()))


def subscription_of(topics: Iterable[bytes]) -> bytes:
    """Encode a subscription, as `wants` reads it."""
    names = list(topics)
    return _HEAD.pack(VERSION, len(names)) + b"".join(map(_text, names)) + _NO_DATA


def assignment_of(partitions: Mapping[bytes, Sequence[int]], version: int = VERSION) -> bytes:
    """Encode an assignment, as `given_partitions` reads it. All versions have the same layout."""
    parts = [_HEAD.pack(version, len(partitions))]
    for name, numbers in partitions.items():
        parts.append(_text(name) + struct.pack(f">i{len(numbers)}i", len(numbers), *numbers))
    return b"".join(parts) + _NO_DATA


def _text(name: bytes) -> bytes:
    return struct.pack(">h", len(name)) + name
