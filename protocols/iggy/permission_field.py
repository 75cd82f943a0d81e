"""The bytes of a user's permissions: ten flags, then those of single streams and topics by number.

Layout: apache/iggy, `core/common/src/types/permissions` (0.0.81 to 0.11, the same in all).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from braidlog.protocols.iggy.errors import ErrorCode
from braidlog.protocols.iggy.fields import U32, FieldRefused
from braidlog.protocols.iggy.user_messages import (
    GLOBAL_PERMISSIONS,
    STREAM_PERMISSIONS,
    TOPIC_PERMISSIONS,
    Permissions,
    StreamPermissions,
)
from braidlog.protocols.reader import LittleEndianReader

# Limit of a user's streams and topics with permissions, taken together: each makes some grants,
# which are stored separately.
PERMITTED_MAX = 1_000


class Permitted:
    """A flag for permissions, then their length in bytes, then the permissions.

    Streams and topics are counted from `base` on the wire, from 1 in the broker.
    """

    def __init__(self, base: int) -> None:
        self._shift = 1 - base

    def read(self, reader: LittleEndianReader) -> Permissions | None:
        if reader.u8() != 1:
            return None
        return _Block(reader.take(reader.u32()), self._shift).permissions()

    def write(self, permissions: Permissions | None) -> bytes:
        if permissions is None:
            return U32.pack(0)
        parts = [_flags(GLOBAL_PERMISSIONS, permissions.granted)]
        parts.append(bool(permissions.streams).to_bytes())
        left = len(permissions.streams)
        for stream_id, stream in permissions.streams.items():
            left -= 1
            parts += (U32.pack(stream_id - self._shift), _flags(STREAM_PERMISSIONS, stream.granted))
            parts.append(bool(stream.topics).to_bytes())
            more = len(stream.topics)
            for topic_id, granted in stream.topics.items():
                more -= 1
                parts += (U32.pack(topic_id - self._shift), _flags(TOPIC_PERMISSIONS, granted))
                parts.append(bool(more).to_bytes())
            parts.append(bool(left).to_bytes())
        block = b"".join(parts)
        return struct.pack("<BI", 1, len(block)) + block


class _Block:
    """Reads a block. Raises ProtocolError, FieldRefused for more than PERMITTED_MAX."""

    def __init__(self, block: memoryview, shift: int) -> None:
        """`shift` turns a number on the wire into the broker's."""
        self._reader = LittleEndianReader(block)
        self._shift = shift
        self._count = 0

    def permissions(self) -> Permissions:
        """All permissions of the block; bytes after them are ignored, as in Iggy."""
        granted = self._granted(GLOBAL_PERMISSIONS)
        streams: dict[int, StreamPermissions] = {}
        more = self._flag()
        while more:
            stream_id = self._number()
            streams[stream_id] = StreamPermissions(
                self._granted(STREAM_PERMISSIONS), self._topics()
            )
            more = self._flag()
        return Permissions(granted, streams)

    def _topics(self) -> dict[int, frozenset[str]]:
        topics: dict[int, frozenset[str]] = {}
        more = self._flag()
        while more:
            topic_id = self._number()
            topics[topic_id] = self._granted(TOPIC_PERMISSIONS)
            more = self._flag()
        return topics

    def _number(self) -> int:
        self._count += 1
        if self._count > PERMITTED_MAX:
            raise FieldRefused(
                ErrorCode.FEATURE_UNAVAILABLE, f"permissions for more than {PERMITTED_MAX} topics"
            )
        return self._reader.u32() + self._shift

    def _granted(self, names: Sequence[str]) -> frozenset[str]:
        flags = self._reader.take(len(names))
        return frozenset(name for name, flag in zip(names, flags, strict=True) if flag == 1)

    def _flag(self) -> bool:
        return self._reader.u8() == 1


def _flags(names: Sequence[str], granted: frozenset[str]) -> bytes:
    return bytes(name in granted for name in names)


PERMISSIONS_FROM_1, PERMISSIONS_FROM_0 = Permitted(1), Permitted(0)
