"""Hand-made requests of Kafka's new groups: members of share groups (KIP-932) and of the consumer
protocol (KIP-848), in flexible versions.
"""

import struct
from collections.abc import Sequence

from conformance.clients.raw.kafka import METADATA, OFFSET_COMMIT, KafkaWire

CONSUMER_GROUP_HEARTBEAT, SHARE_FETCH, SHARE_ACKNOWLEDGE = 68, 78, 79
OPEN_EPOCH, FIRST_EPOCH, CLOSE_EPOCH = 0, 1, -1
JOIN_EPOCH, LEAVE_EPOCH = 0, -1
MEMBER_ID = b"m" * 22
BYTES_MAX = 1 << 20
NO_TAGS = b"\0"
ACCEPT, RELEASE, REJECT = 1, 2, 3

OfferedRecord = tuple[int, int]
"""An offset and its delivery count."""


def varint(number: int) -> bytes:
    """Return an unsigned number, seven bits a byte, the lowest first."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


def compact(text: bytes | None) -> bytes:
    """Return the length plus 1, then the bytes; None is null."""
    return b"\0" if text is None else varint(len(text) + 1) + text


def array(items: Sequence[bytes]) -> bytes:
    """Return the count plus 1, then the items."""
    return varint(len(items) + 1) + b"".join(items)


class FlexibleAnswer:
    """Reads an answer from its beginning."""

    def __init__(self, body: bytes) -> None:
        self._body, self._pos = body, 0

    def take(self, layout: str) -> tuple[int, ...]:
        """Return numbers, as `struct` names them."""
        values = struct.unpack_from(f">{layout}", self._body, self._pos)
        self._pos += struct.calcsize(f">{layout}")
        return values

    def number(self) -> int:
        """Return an unsigned number of variable length."""
        value = shift = 0
        while True:
            byte = self._body[self._pos]
            self._pos += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def bytes(self) -> bytes | None:
        """Return compact bytes."""
        size = self.number() - 1
        if size < 0:
            return None
        self._pos += size
        return self._body[self._pos - size : self._pos]


class ModernWire(KafkaWire):
    """A connection that speaks flexible versions."""

    def ask_flexible(self, key: int, version: int, body: bytes) -> FlexibleAnswer:
        """Send a request; return the answer behind the header."""
        answer = FlexibleAnswer(self.ask(key, version, NO_TAGS + body))
        assert answer.take("B") == (0,), "tags of the header"
        return answer

    def topic_id(self, topic: str) -> bytes:
        """Return the id of an existing topic, by Metadata 12."""
        name = compact(topic.encode())
        body = array([bytes(16) + name + NO_TAGS]) + b"\0\0" + NO_TAGS
        answer = self.ask(METADATA, 12, NO_TAGS + body)
        place = answer.index(name) + len(name)
        return answer[place : place + 16]

    def take_records(
        self, group: str, topic_id: bytes, count: int, *, partition: int = 0
    ) -> list[OfferedRecord]:
        """Open a share session, and take at most `count` records of a partition."""
        part = struct.pack(">i", partition) + array([]) + NO_TAGS
        body = compact(group.encode()) + compact(MEMBER_ID)
        body += struct.pack(">iiiiii", OPEN_EPOCH, 0, 0, BYTES_MAX, count, count) + b"\1\0"
        body += array([topic_id + array([part]) + NO_TAGS]) + array([]) + NO_TAGS
        answer = self.ask_flexible(SHARE_FETCH, 2, body)
        _, error = answer.take("ih")
        assert error == 0, f"ShareFetch: error {error} {answer.bytes()!r}"
        answer.bytes()
        answer.take("i")
        assert answer.number() == 2, "a topic is answered"
        answer.take("16x")
        assert answer.number() == 2, "a partition is answered"
        _, error = answer.take("ih")
        assert error == 0, f"ShareFetch: error {error} {answer.bytes()!r}"
        answer.bytes()
        answer.take("h")
        answer.bytes()
        answer.take("iiB")
        answer.bytes()
        records: list[OfferedRecord] = []
        for _ in range(answer.number() - 1):
            first, last, deliveries, _ = answer.take("qqhB")
            records += ((offset, deliveries) for offset in range(first, last + 1))
        return records

    def settle(
        self, group: str, topic_id: bytes, kinds: dict[int, int], *, partition: int = 0
    ) -> None:
        """Settle records by offset, and end the share session."""
        batches = [
            struct.pack(">qq", offset, offset) + array([bytes([kind])]) + NO_TAGS
            for offset, kind in sorted(kinds.items())
        ]
        part = struct.pack(">i", partition) + array(batches) + NO_TAGS
        body = compact(group.encode()) + compact(MEMBER_ID) + struct.pack(">i", CLOSE_EPOCH)
        body += b"\0" + array([topic_id + array([part]) + NO_TAGS]) + NO_TAGS
        answer = self.ask_flexible(SHARE_ACKNOWLEDGE, 2, body)
        _, error = answer.take("ih")
        assert error == 0, f"ShareAcknowledge: error {error}"
        answer.bytes()
        answer.take("i")
        for _ in range(answer.number() - 1):
            answer.take("16x")
            assert answer.number() == 2, "a partition is answered"
            _, error = answer.take("ih")
            assert error == 0, f"ShareAcknowledge: error {error} {answer.bytes()!r}"

    def commit_by_epoch(self, group: str, topic: str, offset: int, *, partition: int = 0) -> int:
        """Return the error code of an OffsetCommit v9 by the only member of a group of the consumer
        protocol. The member joins for the commit and then leaves.
        """
        epoch = self._beat(group, JOIN_EPOCH, topic)
        part = struct.pack(">iqi", partition, offset, -1) + compact(b"") + NO_TAGS
        body = compact(group.encode()) + struct.pack(">i", epoch) + compact(MEMBER_ID)
        body += compact(None) + array([compact(topic.encode()) + array([part]) + NO_TAGS]) + NO_TAGS
        answer = self.ask_flexible(OFFSET_COMMIT, 9, body)
        answer.take("i")
        assert answer.number() == 2, "a topic is answered"
        answer.bytes()
        assert answer.number() == 2, "a partition is answered"
        _, error = answer.take("ih")
        self._beat(group, LEAVE_EPOCH, None)
        return error

    def _beat(self, group: str, epoch: int, topic: str | None) -> int:
        """Send a heartbeat; return the member's epoch."""
        names = b"\0" if topic is None else array([compact(topic.encode())])
        owned = array([]) if epoch == JOIN_EPOCH else b"\0"
        body = compact(group.encode()) + compact(MEMBER_ID) + struct.pack(">i", epoch)
        body += compact(None) * 2 + struct.pack(">i", 30_000) + names + compact(None) * 2 + owned
        answer = self.ask_flexible(CONSUMER_GROUP_HEARTBEAT, 1, body + NO_TAGS)
        _, error = answer.take("ih")
        assert error == 0, f"ConsumerGroupHeartbeat: error {error} {answer.bytes()!r}"
        answer.bytes()
        answer.bytes()
        return answer.take("i")[0]
