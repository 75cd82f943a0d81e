"""Hand-made frames of Iggy's dialect W (protocol 0.12). The calls are those of `IggyWire`, and
partitions count from 1.
"""

import os
import struct

import xxhash

from conformance.clients.raw.iggy import (
    BY_OFFSET,
    CONSUMER,
    GET_OFFSET,
    GROUP,
    JOIN_GROUP,
    LEAVE_GROUP,
    NEXT,
    POLL,
    identifier,
    text8,
)
from conformance.clients.raw.wire import TIMEOUT_S, Wire

HEADER_BYTES = 256
SIZE_POS, CODE_POS, STATUS_POS = 48, 196, 216
REQUEST, ROUTE, POLL_DEFERRED, CANCEL_DEFERRED, FETCH = 5, 105, 106, 108, 109
ANY_BYTES = (1 << 32) - 1
DEFERRED_SLACK_US = 2_000_000  # A request's time exceeds its wait by at least 1 s.
BIND_SESSION, SYNC_GROUP = 15, 606
REGISTER, NON_REPLICATED, LOGOUT, SEND, STORE_OFFSET, DELETE_OFFSET = 1, 2, 3, 160, 161, 162
OF_GROUP = {JOIN_GROUP: 148, LEAVE_GROUP: 149}
WITH_RESULT = {REGISTER, *OF_GROUP.values(), STORE_OFFSET, DELETE_OFFSET}
VERSION, SDK, SECRET = 12 << 10, "0.12.0", bytes(range(32))
POLL_HEAD = struct.Struct("<IQIQQQ")  # partition, current offset, messages, context
# partition, status, current offset, messages, context, next offset, bytes of messages
FETCHED = struct.Struct("<IIQIQQQQI")
# partition, base offset, append time, earliest client time, bytes of the batch, checksum, messages
BATCH = struct.Struct("<QQQQQQI")
# checksum, id, offset delta, time delta, bytes of headers, bytes of payload, reserved
FRAME = struct.Struct("<Q16sIIIIQ")
CHECKED_POS = 8
# flags, id, epoch, sequence: in the head of a batch, and in its checksum
PRODUCER, PRODUCER_CHECKED = struct.Struct("<B3xQHxxI"), struct.Struct("<BQHI")
SENT_US = 1_700_000_000_000_000
PARTITION_NOT_OWNED = 5009


class NotAssigned(Exception):
    """A partition is not the member's."""


class IggyWWire(Wire):
    """A connection that has logged in, or continues the session of an earlier connection."""

    def __init__(
        self,
        address: tuple[str, int],
        *,
        continues: "IggyWWire | None" = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        super().__init__(address, timeout_s=timeout_s)
        version = struct.pack("<I", VERSION) + text8("raw") + text8(SDK)
        self._session = self._requests = 0
        if continues is None:
            self._client = os.urandom(16)
            login = text8("iggy") + text8("iggy") + bytes(4)
            answer = self._ask(REGISTER, version + SECRET + login)
            (self._session,) = struct.unpack_from("<Q", answer, 4)
        else:
            self._client = continues._client
            session = self._client + struct.pack("<QQ", continues._session, 0)
            self._ask(NON_REPLICATED, version + session + SECRET, BIND_SESSION)
            self._session, self._requests = continues._session, continues._requests

    def log_out(self) -> None:
        """End the session."""
        self._ask(LOGOUT, b"")

    def send_messages(self, topic: str, payloads: list[bytes], *, partition: int = 1) -> None:
        """Send messages without headers to a partition."""
        body = _send_body(topic, payloads, partition)
        self._ask(SEND, body, incarnation=self.incarnation(topic, partition))

    def begin_send(
        self, topic: str, payloads: list[bytes], producer: tuple[int, int, int], incarnation: int
    ) -> None:
        """Send a batch of an idempotent producer (id, epoch, sequence) to partition 1;
        `take_sent` takes the answer.
        """
        self.send(self.frame(SEND, _send_body(topic, payloads, 1, producer), 0, incarnation))

    def take_sent(self) -> int | None:
        """Return the base offset of the oldest batch without an answer; None if the batch was
        stored earlier, at a place that the broker has forgotten.
        """
        confirmations = self._answer(SEND)
        (count,) = struct.unpack_from("<I", confirmations)
        return int(struct.unpack_from("<Q", confirmations, 16)[0]) if count else None

    def poll_next(self, topic: str, count: int, consumer: str, *, partition: int = 1) -> list[int]:
        """Return the offsets of a consumer's next messages, which are stored as consumed."""
        body = _poll_next(CONSUMER + identifier(consumer), topic, count, partition)
        answer = self._ask(NON_REPLICATED, body, POLL, self.incarnation(topic, partition))
        return _polled(answer)[1]

    def poll_as_member(
        self,
        topic: str,
        count: int,
        group: str,
        *,
        partition: int,
        commits: bool = True,
        code: int = POLL,
    ) -> tuple[int, list[int]]:
        """Return the generation of the owner, and the offsets of the next messages of a member's
        partition, by POLL, POLL_DEFERRED without a wait, or FETCH. With `commits`, the messages are
        stored as consumed. Raises NotAssigned if the partition is not the member's.
        """
        incarnation = self.incarnation(topic, partition)
        if code == FETCH:
            body = _fetch_next(topic, count, group, partition, incarnation, commits=commits)
            return _fetched(self._ask(NON_REPLICATED, body, FETCH))
        body = _poll_next(GROUP + identifier(group), topic, count, partition, commits=commits)
        if code == POLL_DEFERRED:
            body += struct.pack("<QIIQ", 0, 1, ANY_BYTES, DEFERRED_SLACK_US)
        return _polled(self._ask(NON_REPLICATED, body, code, incarnation))

    def ask_of_group(self, code: int, topic: str, group: str) -> bytes:
        """Return the answer to a command that names only a group of a topic."""
        place = _topic(topic) + identifier(group)
        if code in OF_GROUP:
            return self._ask(OF_GROUP[code], place)
        return self._ask(NON_REPLICATED, place, code)

    def assigned(self, topic: str, group: str) -> tuple[int, list[int]]:
        """Return the group's generation, and the partitions that this member may poll."""
        answer = self.ask_of_group(SYNC_GROUP, topic, group)
        generation, count = struct.unpack_from("<QI", answer)
        return generation, [1 + index for index in struct.unpack_from(f"<{count}I", answer, 12)]

    def store_offset(
        self, topic: str, consumer: str, offset: int, *, partition: int = 1, kind: bytes = CONSUMER
    ) -> None:
        """Store the last consumed offset. Raises NotAssigned if the partition of a group is not the
        member's.
        """
        body = _place(topic, consumer, partition, kind) + struct.pack("<QB", offset, 0)
        self._ask(STORE_OFFSET, body, incarnation=self.incarnation(topic, partition))

    def stored_offset(self, topic: str, consumer: str, *, partition: int = 1) -> int | None:
        """Return the last consumed offset, or None."""
        answer = self._ask(NON_REPLICATED, _place(topic, consumer, partition), GET_OFFSET)
        return int(struct.unpack_from("<Q", answer, 12)[0]) if answer else None

    def delete_offset(self, topic: str, consumer: str, *, partition: int = 1) -> None:
        """Delete the stored offset."""
        body = _place(topic, consumer, partition) + b"\0"
        self._ask(DELETE_OFFSET, body, incarnation=self.incarnation(topic, partition))

    def incarnation(self, topic: str, partition: int = 1) -> int:
        """Return the lasting number of a partition."""
        route = self._ask(NON_REPLICATED, _topic(topic) + struct.pack("<I", partition - 1), ROUTE)
        return int(struct.unpack_from("<Q", route)[0])

    def frame(self, operation: int, body: bytes, code: int = 0, incarnation: int = 0) -> bytes:
        """Return the next request of this session."""
        number, self._requests = self._requests, self._requests + 1
        head = bytearray(HEADER_BYTES)
        struct.pack_into("<I8xB", head, SIZE_POS, HEADER_BYTES + len(body), REQUEST)
        head[128:144] = self._client
        struct.pack_into("<Q", head, 168, number)
        head[176] = operation
        struct.pack_into("<Q4xIQ", head, 184, self._session, code, incarnation)
        return bytes(head) + body

    def end_offset(self, topic: str) -> int:
        """Return the offset of the next message of partition 1."""
        body = poll_body(topic, "end", 0, 1)
        answer = self._ask(NON_REPLICATED, body, POLL, self.incarnation(topic))
        current, count = struct.unpack_from("<QI", answer, 4)
        return int(current) + bool(count)

    def query(self, code: int, body: bytes, incarnation: int = 0) -> bytes:
        """Return a request that changes nothing."""
        return self.frame(NON_REPLICATED, body, code, incarnation)

    def again(self, request: bytes, code: int) -> bytes:
        """Return a command with the number of an earlier request, and without a body."""
        head = bytearray(request[:HEADER_BYTES])
        struct.pack_into("<I", head, SIZE_POS, HEADER_BYTES)
        struct.pack_into("<I", head, CODE_POS, code)
        return bytes(head)

    def _ask(self, operation: int, body: bytes, code: int = 0, incarnation: int = 0) -> bytes:
        """Return the body of the answer. Raises AssertionError unless the answer is a success."""
        self.send(self.frame(operation, body, code, incarnation))
        return self._answer(operation)

    def _answer(self, operation: int) -> bytes:
        answer = self.take(HEADER_BYTES)
        (size,) = struct.unpack_from("<I", answer, SIZE_POS)
        (status,) = struct.unpack_from("<I", answer, STATUS_POS)
        data = self.take(size - HEADER_BYTES)
        is_failure = operation in WITH_RESULT and any(data[:4])
        if operation == STORE_OFFSET and is_failure:
            (status,) = struct.unpack_from("<I", data, 8)
        if status == PARTITION_NOT_OWNED:
            raise NotAssigned
        assert not status and not is_failure, f"operation {operation}: {status} {data[:12].hex()}"
        return data[4:] if operation in WITH_RESULT else data


def _send_body(
    topic: str, payloads: list[bytes], partition: int, producer: tuple[int, int, int] | None = None
) -> bytes:
    """Return the body of a SEND of messages without headers."""
    frames, checksums = b"", b""
    for number, payload in enumerate(payloads):
        checked = FRAME.pack(0, bytes(16), number, 0, 0, len(payload), 0)[CHECKED_POS:] + payload
        checksum = struct.pack("<Q", xxhash.xxh3_64_intdigest(checked))
        frames += checksum + checked
        checksums += checksum
    known = struct.pack("<QQQQQ", 0, 0, 0, SENT_US, HEADER_BYTES + len(frames))
    count = struct.pack("<I", len(payloads))
    written = covered = b""
    if producer is not None:
        number, epoch, sequence = producer
        written = PRODUCER.pack(1, number, epoch, sequence)
        covered = PRODUCER_CHECKED.pack(1, number, epoch, sequence)
    checksum = struct.pack("<Q", xxhash.xxh3_64_intdigest(known + count + covered + checksums))
    head = (known + checksum + count + written).ljust(HEADER_BYTES, b"\0")
    target = _topic(topic) + struct.pack("<BBI", 2, 4, partition - 1) + count
    return struct.pack("<I", len(target)) + target + head + frames


def poll_body(topic: str, consumer: str, start: int, count: int) -> bytes:
    """Return the body of a POLL of partition 1 from an offset on, which stores no offset."""
    head = CONSUMER + identifier(consumer) + _topic(topic)
    return head + struct.pack("<BIBQIB", 1, 0, BY_OFFSET, start, count, 0)


def deferred_poll_body(topic: str, consumer: str, start: int, count: int, wait_us: int) -> bytes:
    """Return the body of a poll that waits; the answer may have any length."""
    times = struct.pack("<QIIQ", wait_us, 1, ANY_BYTES, wait_us + DEFERRED_SLACK_US)
    return poll_body(topic, consumer, start, count) + times


def fetch_body(topic: str, consumer: str, incarnation: int, wait_us: int) -> bytes:
    """Return the body of a FETCH of partition 1 from its first message on."""
    limits = (wait_us, wait_us + DEFERRED_SLACK_US, 1, ANY_BYTES, ANY_BYTES, 0, 1)
    place = struct.pack("<IBQIQQ", 0, BY_OFFSET, 0, ANY_BYTES, incarnation, 0)
    head = CONSUMER + identifier(consumer) + _topic(topic)
    return head + struct.pack("<QQIIIBI", *limits) + place


def _topic(topic: str) -> bytes:
    return identifier("default") + identifier(topic)


def _place(topic: str, consumer: str, partition: int, kind: bytes = CONSUMER) -> bytes:
    return kind + identifier(consumer) + _topic(topic) + struct.pack("<BI", 1, partition - 1)


def _poll_next(
    consumer: bytes, topic: str, count: int, partition: int, *, commits: bool = True
) -> bytes:
    """Return the body of a POLL of the next messages."""
    tail = struct.pack("<BIBQIB", 1, partition - 1, NEXT, 0, count, commits)
    return consumer + _topic(topic) + tail


def _fetch_next(
    topic: str, count: int, group: str, partition: int, incarnation: int, *, commits: bool
) -> bytes:
    """Return the body of a FETCH of the next messages of a member's partition, without a wait."""
    limits = (0, DEFERRED_SLACK_US, 1, count, ANY_BYTES, commits, 1)
    place = struct.pack("<IBQIQQ", partition - 1, NEXT, 0, ANY_BYTES, incarnation, 0)
    head = GROUP + identifier(group) + _topic(topic)
    return head + struct.pack("<QQIIIBI", *limits) + place


def _polled(answer: bytes) -> tuple[int, list[int]]:
    """Return the owner's generation and the offsets of a poll's answer."""
    _, _, count, _, generation, _ = POLL_HEAD.unpack_from(answer)
    return generation, _counted(answer[POLL_HEAD.size :], count)


def _fetched(answer: bytes) -> tuple[int, list[int]]:
    """Return the same of the answer to a FETCH of a single partition. Raises NotAssigned."""
    sections, _, status, _, count, _, generation, *_ = struct.unpack_from(
        "<I" + FETCHED.format[1:], answer
    )
    if status == PARTITION_NOT_OWNED:
        raise NotAssigned
    assert (sections, status) == (1, 0), f"{sections} partitions fetched, error {status}"
    return generation, _counted(answer[4 + FETCHED.size :], count)


def _counted(batches: bytes, count: int) -> list[int]:
    offsets = _offsets(batches)
    assert len(offsets) == count, f"{len(offsets)} messages, not {count}"
    return offsets


def _offsets(batches: bytes) -> list[int]:
    offsets, pos = [], 0
    while pos < len(batches):
        _, base, _, _, size, _, _ = BATCH.unpack_from(batches, pos)
        end, at = pos + size, pos + HEADER_BYTES
        while at < end:
            _, _, delta, _, headers, payload, _ = FRAME.unpack_from(batches, at)
            offsets.append(base + delta)
            at += FRAME.size + headers + payload
        pos = end
    return offsets
