"""Hand-made requests of Kafka 0.8 (protocol guide of 0.8: Produce, Fetch, Metadata, OffsetCommit
and OffsetFetch).
"""

import struct
import zlib
from collections.abc import Mapping

from conformance.clients.raw.wire import Wire

ENTRY_HEAD_BYTES = 16  # offset, size, checksum
GZIP = 1  # A message's attributes: the value is a packed set.

PRODUCE, FETCH, OFFSETS, METADATA, OFFSET_COMMIT, OFFSET_FETCH = 0, 1, 2, 3, 8, 9
JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP = 11, 13, 14
CREATE_TOPICS = 19
MEMBER_SESSION_MS = 30_000
CREATE_TIMEOUT_MS = 30_000


def string(text: bytes | None) -> bytes:
    """Return an int16 length, then the bytes; None is null."""
    return struct.pack(">h", -1) if text is None else struct.pack(">h", len(text)) + text


def data(value: bytes | None) -> bytes:
    """Return an int32 length, then the bytes; None is null."""
    return struct.pack(">i", -1) if value is None else struct.pack(">i", len(value)) + value


def message(
    key: bytes | None, value: bytes | None, attributes: int = 0, *, offset: int = 0
) -> bytes:
    """Return a message set of a single message, magic 0."""
    body = struct.pack(">bb", 0, attributes) + data(key) + data(value)
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def parse_set(body: bytes) -> list[tuple[int, bytes | None, bytes | None]]:
    """Return (offset, key, value) of each whole message of an uncompressed set; check the CRCs.

    The set may be cut anywhere, as in a fetch.
    """
    messages = []
    pos = 0
    while pos + ENTRY_HEAD_BYTES <= len(body):
        offset, size, crc = struct.unpack_from(">qiI", body, pos)
        end = pos + 12 + size
        if end > len(body):
            break
        assert zlib.crc32(body[pos + 16 : end]) == crc, f"CRC of offset {offset}"
        key, after_key = _data_at(body, pos + 18)
        value, _ = _data_at(body, after_key)
        messages.append((offset, key, value))
        pos = end
    return messages


def _data_at(body: bytes, pos: int) -> tuple[bytes | None, int]:
    (size,) = struct.unpack_from(">i", body, pos)
    if size < 0:
        return None, pos + 4
    return body[pos + 4 : pos + 4 + size], pos + 4 + size


def frame(key: int, version: int, body: bytes, correlation_id: int = 7) -> bytes:
    """Return a whole request."""
    request = struct.pack(">hhi", key, version, correlation_id) + string(b"raw") + body
    return struct.pack(">i", len(request)) + request


def produce_body(topic: str, message_set: bytes, *, partition: int = 0, acks: int = 1) -> bytes:
    """Return a Produce v0 of a single set."""
    body = struct.pack(">hii", acks, 30_000, 1) + string(topic.encode())
    return body + struct.pack(">iii", 1, partition, len(message_set)) + message_set


def fetch_body(topic: str, offset: int, *, bytes_max: int = 1 << 20, wait_ms: int = 5000) -> bytes:
    """Return a Fetch v0 of partition 0 with a minimum of 1 byte."""
    body = struct.pack(">iiii", -1, wait_ms, 1, 1) + string(topic.encode())
    return body + struct.pack(">iiqi", 1, 0, offset, bytes_max)


class KafkaWire(Wire):
    """A connection of Kafka 0.8 with a single request in flight."""

    def ask(self, key: int, version: int, body: bytes) -> bytes:
        """Send a request and return the body of the answer."""
        self.send(frame(key, version, body))
        answer = self.take_frame()
        assert answer[:4] == struct.pack(">i", 7), "correlation id"
        return answer[4:]

    def create(self, topic: str) -> None:
        """Create the topic by a Metadata request."""
        self.ask(METADATA, 0, struct.pack(">i", 1) + string(topic.encode()))

    def create_topic(self, topic: str, partitions: int) -> None:
        """Create the topic by CreateTopics v2, which today's brokers serve too; with a single
        replica.
        """
        named = string(topic.encode()) + struct.pack(">ihii", partitions, 1, 0, 0)
        body = struct.pack(">i", 1) + named + struct.pack(">ib", CREATE_TIMEOUT_MS, 0)
        answer = self.ask(CREATE_TOPICS, 2, body)
        (error,) = struct.unpack_from(">h", answer, 8 + len(string(topic.encode())))
        assert error == 0, f"CreateTopics: error {error}"

    def produce(
        self, topic: str, message_set: bytes, acks: int = 1, *, partition: int = 0
    ) -> tuple[int, int]:
        """Return (error code, base offset) of a produced set."""
        body = produce_body(topic, message_set, partition=partition, acks=acks)
        answer = self.ask(PRODUCE, 0, body)
        return struct.unpack_from(">hq", answer, len(answer) - 10)

    def fetch(self, topic: str, offset: int, wait_ms: int = 5000) -> tuple[int, int, bytes]:
        """Return (error code, high watermark, message set) of partition 0; waits for a byte."""
        answer = self.ask(FETCH, 0, fetch_body(topic, offset, wait_ms=wait_ms))
        place = 4 + len(string(topic.encode())) + 8
        error, watermark, size = struct.unpack_from(">hqi", answer, place)
        return error, watermark, answer[len(answer) - size :]

    def commit(self, group: str, topic: str, offset: int, *, partition: int = 0) -> int:
        """Return the error code of an OffsetCommit v1."""
        (code,) = self.commit_all(group, topic, {partition: offset})
        return code

    def commit_all(self, group: str, topic: str, offsets: Mapping[int, int]) -> list[int]:
        """Return the error codes of an OffsetCommit v1 for these partitions, in their order."""
        body = string(group.encode()) + struct.pack(">i", -1) + string(b"") + struct.pack(">i", 1)
        body += string(topic.encode()) + struct.pack(">i", len(offsets))
        for partition, offset in offsets.items():
            body += struct.pack(">iqq", partition, offset, -1) + string(b"")
        answer = self.ask(OFFSET_COMMIT, 1, body)
        codes = dict(struct.iter_unpack(">ih", answer[-6 * len(offsets) :]))
        return [int(codes[partition]) for partition in offsets]

    def commit_as_member(self, group: str, topic: str, offset: int, *, partition: int = 0) -> int:
        """Return the error code of an OffsetCommit v2 by the only member of a group of today's
        clients.

        The member joins for the commit and then leaves.
        """
        name = string(group.encode())
        join = name + struct.pack(">i", MEMBER_SESSION_MS) + string(b"") + string(b"consumer")
        answer = self.ask(JOIN_GROUP, 0, join + struct.pack(">i", 1) + string(b"range") + data(b""))
        error, generation = struct.unpack_from(">hi", answer)
        assert error == 0, f"JoinGroup: error {error}"
        pos = 6
        for _ in range(2):  # The chosen protocol and the leader; the member's own id follows.
            pos += 2 + int(struct.unpack_from(">h", answer, pos)[0])
        member = answer[pos : pos + 2 + int(struct.unpack_from(">h", answer, pos)[0])]
        mine = struct.pack(">i", generation) + member
        answer = self.ask(SYNC_GROUP, 0, name + mine + struct.pack(">i", 1) + member + data(b""))
        assert answer[:2] == b"\0\0", "SyncGroup"
        body = name + mine + struct.pack(">qi", -1, 1) + string(topic.encode())
        body += struct.pack(">iiq", 1, partition, offset) + string(b"")
        error = int(struct.unpack(">h", self.ask(OFFSET_COMMIT, 2, body)[-2:])[0])
        self.ask(LEAVE_GROUP, 0, name + member)
        return error

    def committed(self, group: str, topic: str, *, partition: int = 0) -> int:
        """Return the offset of OffsetFetch v1, -1 for none."""
        body = string(group.encode()) + struct.pack(">i", 1)
        body += string(topic.encode()) + struct.pack(">ii", 1, partition)
        answer = self.ask(OFFSET_FETCH, 1, body)
        assert answer[-2:] in (b"\0\0", b"\0\3"), f"OffsetFetch: error {answer[-2:]!r}"
        return int(struct.unpack_from(">q", answer, 4 + len(string(topic.encode())) + 8)[0])
