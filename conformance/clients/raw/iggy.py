"""Hand-made frames of Iggy's classic dialect D2 (crates 0.5 to 0.6: login with a version, consumer
as identifier).
"""

import struct
from dataclasses import dataclass

from conformance.clients.raw.wire import TIMEOUT_S, Wire

PING, LOGIN, POLL, SEND, GET_OFFSET, STORE_OFFSET, DELETE_OFFSET = 1, 38, 100, 101, 120, 121, 122
CREATE_STREAM, GET_TOPIC, CREATE_TOPIC, UPDATE_TOPIC = 202, 300, 302, 304
CREATE_PARTITIONS, DELETE_PARTITIONS = 402, 403
GET_GROUP, GET_GROUPS, CREATE_GROUP, DELETE_GROUP = 600, 601, 602, 603
JOIN_GROUP, LEAVE_GROUP = 604, 605
STRING_KIND, UINT32_KIND, RAW_KIND = 2, 11, 1
BY_OFFSET, FIRST, NEXT = 1, 3, 5
NEVER = (1 << 64) - 1
POLL_HEAD_BYTES = 16  # Partition, current offset and count, before the messages.
TOPIC_PARTITIONS_POS = 12  # Behind the topic's number and creation time.
GROUP_HEAD = struct.Struct("<IIIB")  # Number, partitions, members, length of the name.
MEMBER_HEAD = struct.Struct("<II")  # Number, partitions.
CONSUMER, GROUP = b"\x01", b"\x02"  # Kinds of consumers.
BY_TURN = 0  # Instead of a partition: the next of a member's own.


def identifier(name: str) -> bytes:
    """Return a text identifier."""
    return struct.pack("<BB", 2, len(name.encode())) + name.encode()


def text8(value: str) -> bytes:
    """Return a u8 length, then UTF-8."""
    return struct.pack("<B", len(value.encode())) + value.encode()


def to_partition(number: int) -> bytes:
    """Return a SEND's partitioning; partitions count from 1."""
    return struct.pack("<BBI", 2, 4, number)


TO_PARTITION_1 = to_partition(1)


def headers_block(headers: list[tuple[bytes, int, bytes]]) -> bytes:
    """Return each (key, kind, value), behind the total length."""
    body = b"".join(
        struct.pack("<I", len(key)) + key + struct.pack("<BI", kind, len(value)) + value
        for key, kind, value in headers
    )
    return struct.pack("<I", len(body)) + body


def frame(code: int, payload: bytes) -> bytes:
    """Return a whole request."""
    return struct.pack("<II", 4 + len(payload), code) + payload


def send_body(topic: str, messages: bytes, partitioning: bytes = TO_PARTITION_1) -> bytes:
    """Return a SEND of packed messages to a topic of stream `default`."""
    return identifier("default") + identifier(topic) + partitioning + messages


def poll_body(
    topic: str, count: int, strategy: int, value: int, consumer: str, *, commits: bool = False
) -> bytes:
    """Return a POLL of partition 1; with `commits`, the returned messages are
    stored as consumed.
    """
    body = b"\x01" + identifier(consumer) + identifier("default") + identifier(topic)
    return body + struct.pack("<IBQIB", 1, strategy, value, count, commits)


@dataclass(slots=True)
class Polled:
    """A polled message."""

    offset: int
    timestamp_us: int
    message_id: int
    headers: list[tuple[bytes, int, bytes]]
    payload: bytes


class IggyWire(Wire):
    """A connection that has logged in."""

    def __init__(self, address: tuple[str, int], *, timeout_s: float = TIMEOUT_S) -> None:
        super().__init__(address, timeout_s=timeout_s)
        login = text8("iggy") + text8("iggy") + struct.pack("<I", 7) + b"0.6.202" + bytes(4)
        self.ok(LOGIN, login)

    def ask(self, code: int, payload: bytes) -> tuple[int, bytes]:
        """Return (status, payload) of the answer."""
        self.send(frame(code, payload))
        status, size = struct.unpack("<II", self.take(8))
        return status, self.take(size)

    def ok(self, code: int, payload: bytes) -> bytes:
        """Return the payload of the answer. Raises AssertionError unless the answer
        is a success.
        """
        status, answer = self.ask(code, payload)
        assert status == 0, f"command {code}: error {status}"
        return answer

    def create_topic(self, topic: str, stream: str = "default", partitions: int = 1) -> None:
        """Create a topic that keeps all messages."""
        tail = struct.pack("<IIBQQB", 0, partitions, 1, NEVER, 0, 0) + text8(topic)
        self.ok(CREATE_TOPIC, identifier(stream) + tail)

    def rename_topic(self, topic: str, name: str) -> None:
        """Rename a topic that keeps all messages."""
        tail = struct.pack("<BQQB", 1, NEVER, 0, 0) + text8(name)
        self.ok(UPDATE_TOPIC, identifier("default") + identifier(topic) + tail)

    def send_messages(
        self,
        topic: str,
        messages: list[tuple[int, list[tuple[bytes, int, bytes]], bytes]],
        partitioning: bytes = TO_PARTITION_1,
    ) -> None:
        """Send messages (id, headers, payload), to partition 1 by default."""
        body = bytearray()
        for message_id, headers, payload in messages:
            body += message_id.to_bytes(16, "little") + headers_block(headers)
            body += struct.pack("<I", len(payload)) + payload
        self.ok(SEND, send_body(topic, bytes(body), partitioning))

    def poll(
        self, topic: str, count: int, strategy: int = FIRST, value: int = 0, consumer: str = "raw"
    ) -> list[Polled]:
        """Return up to `count` messages of partition 1, without storing an offset."""
        answer = self.ok(POLL, poll_body(topic, count, strategy, value, consumer))
        return polled_messages(answer[POLL_HEAD_BYTES:])

    def poll_next(self, topic: str, count: int, consumer: str, *, partition: int = 1) -> list[int]:
        """Return the offsets of a consumer's next messages, which are stored as consumed."""
        return self._poll_next(CONSUMER + identifier(consumer), topic, partition, count)[1]

    def poll_in_turn(
        self, topic: str, count: int, group: str, *, commits: bool = True
    ) -> tuple[int, list[int]]:
        """Return the partition of this group member's turn (0 for none) and the offsets of its next
        messages, which with `commits` are stored as consumed.
        """
        return self._poll_next(GROUP + identifier(group), topic, BY_TURN, count, commits=commits)

    def _poll_next(
        self, consumer: bytes, topic: str, partition: int, count: int, *, commits: bool = True
    ) -> tuple[int, list[int]]:
        body = consumer + identifier("default") + identifier(topic)
        body += struct.pack("<IBQIB", partition, NEXT, 0, count, commits)
        answer = self.ok(POLL, body)
        offsets = [message.offset for message in polled_messages(answer[POLL_HEAD_BYTES:])]
        return int(struct.unpack_from("<I", answer)[0]), offsets

    def store_offset(
        self, topic: str, consumer: str, offset: int, *, partition: int = 1, kind: bytes = CONSUMER
    ) -> None:
        """Store the last consumed offset."""
        body = kind + identifier(consumer) + identifier("default") + identifier(topic)
        self.ok(STORE_OFFSET, body + struct.pack("<IQ", partition, offset))

    def stored_offset(self, topic: str, consumer: str, *, partition: int = 1) -> int | None:
        """Return the last consumed offset, or None."""
        body = CONSUMER + identifier(consumer) + identifier("default") + identifier(topic)
        answer = self.ok(GET_OFFSET, body + struct.pack("<I", partition))
        return int(struct.unpack_from("<Q", answer, 12)[0]) if answer else None

    def delete_offset(self, topic: str, consumer: str, *, partition: int = 1) -> None:
        """Delete the stored offset."""
        body = CONSUMER + identifier(consumer) + identifier("default") + identifier(topic)
        self.ok(DELETE_OFFSET, body + struct.pack("<I", partition))

    def ask_of_group(self, code: int, topic: str, group: str) -> bytes:
        """Return the answer to a command that names only a group of a topic."""
        return self.ok(code, identifier("default") + identifier(topic) + identifier(group))

    def create_group(self, topic: str, group: str) -> None:
        """Create a group; the broker chooses its number."""
        place = identifier("default") + identifier(topic)
        self.ok(CREATE_GROUP, place + struct.pack("<I", 0) + text8(group))

    def change_partitions(self, code: int, topic: str, count: int) -> None:
        """Add `count` partitions, or delete the last `count`."""
        place = identifier("default") + identifier(topic)
        self.ok(code, place + struct.pack("<I", count))

    def partitions_of(self, topic: str) -> int:
        """Return the topic's number of partitions."""
        answer = self.ok(GET_TOPIC, identifier("default") + identifier(topic))
        return int(struct.unpack_from("<I", answer, TOPIC_PARTITIONS_POS)[0])

    def groups_of(self, topic: str) -> list[str]:
        """The names of a topic's groups."""
        answer = self.ok(GET_GROUPS, identifier("default") + identifier(topic))
        pos, names = 0, []
        while pos < len(answer):
            size = GROUP_HEAD.unpack_from(answer, pos)[3]
            pos += GROUP_HEAD.size
            names.append(answer[pos : pos + size].decode())
            pos += size
        return names

    def members_of(self, topic: str, group: str) -> list[list[int]]:
        """Return the partitions of each member, in the order of the answer."""
        answer = self.ask_of_group(GET_GROUP, topic, group)
        _, _, count, size = GROUP_HEAD.unpack_from(answer)
        pos, members = GROUP_HEAD.size + size, []
        while pos < len(answer):
            _, owned = MEMBER_HEAD.unpack_from(answer, pos)
            pos += MEMBER_HEAD.size
            members.append(list(struct.unpack_from(f"<{owned}I", answer, pos)))
            pos += 4 * owned
        assert len(members) == count
        return members


def polled_messages(answer: bytes) -> list[Polled]:
    """Return the messages of a poll's answer, behind its head."""
    messages = []
    pos = 0
    while pos < len(answer):
        offset, _, timestamp = struct.unpack_from("<QBQ", answer, pos)
        message_id = int.from_bytes(answer[pos + 17 : pos + 33], "little")
        (headers_size,) = struct.unpack_from("<I", answer, pos + 37)
        start = pos + 41
        headers = parse_headers(answer[start : start + headers_size])
        (size,) = struct.unpack_from("<I", answer, start + headers_size)
        pos = start + headers_size + 4
        messages.append(Polled(offset, timestamp, message_id, headers, answer[pos : pos + size]))
        pos += size
    return messages


def parse_headers(block: bytes) -> list[tuple[bytes, int, bytes]]:
    """Return (key, kind, value) of each header."""
    headers = []
    pos = 0
    while pos < len(block):
        (size,) = struct.unpack_from("<I", block, pos)
        key = block[pos + 4 : pos + 4 + size]
        pos += 4 + size
        kind, size = struct.unpack_from("<BI", block, pos)
        headers.append((key, kind, block[pos + 5 : pos + 5 + size]))
        pos += 5 + size
    return headers
