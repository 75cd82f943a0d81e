"""Iggy load from prepared frames, in the dialects whose messages differ: D2, D5, V and W."""

import os
import struct
import time
from abc import ABC, abstractmethod

import xxhash

from conformance.clients.raw.iggy import (
    BY_OFFSET,
    LOGIN,
    POLL,
    SEND,
    IggyWire,
    frame,
    identifier,
    poll_body,
    send_body,
    text8,
)
from conformance.clients.raw.wire import Wire

OK = bytes(8)
AT = identifier("default")
VSR_HEAD = 256
POLL_HEAD = 16  # Partition, current offset and count, before the messages of an answer.
ROUTE, ROUTE_HEAD = 105, struct.Struct("<Q")  # A route begins with the partition's incarnation.


class DialectFrames(ABC):
    """Frames of an Iggy dialect. Dialect D2 creates the topic beforehand."""

    poll_head = POLL_HEAD

    def open(self, address: tuple[str, int], topic: str = "") -> Wire:
        """Return a connection that has logged in, and may use the first partition of `topic`."""
        wire = Wire(address)
        wire.send(self.login())
        self.answer(wire)
        return wire

    @abstractmethod
    def login(self) -> bytes:
        """Return a whole LOGIN frame."""

    @abstractmethod
    def sends(self, topic: str, count: int, payload_bytes: int) -> bytes:
        """Return a whole SEND of equal messages to the first partition."""

    @abstractmethod
    def polls(self, topic: str, offset: int, count: int) -> bytes:
        """Return a whole POLL by offset of the first partition, without storing the offset."""

    def answer(self, wire: Wire) -> memoryview:
        """Return the payload of the next answer, valid until the next call. Raises AssertionError
        for an error answer.
        """
        status, size = struct.unpack("<II", wire.take(8))
        assert status == 0, f"error {status}"
        return wire.take_view(size)


class D2(DialectFrames):
    """Crates 0.5 and 0.6: the wire has messages in their stored form."""

    def login(self) -> bytes:
        version = struct.pack("<I", 7) + b"0.6.202" + bytes(4)
        return frame(LOGIN, text8("iggy") + text8("iggy") + version)

    def sends(self, topic: str, count: int, payload_bytes: int) -> bytes:
        message = bytes(16) + bytes(4) + struct.pack("<I", payload_bytes) + b"v" * payload_bytes
        return frame(SEND, send_body(topic, message * count))

    def polls(self, topic: str, offset: int, count: int) -> bytes:
        return frame(POLL, poll_body(topic, count, BY_OFFSET, offset, "bench"))


class D5(DialectFrames):
    """Crates 0.9 and 0.10: the wire has messages in their stored form, the later form."""

    def login(self) -> bytes:
        version = struct.pack("<I", 6) + b"0.10.0" + bytes(4)
        return frame(LOGIN, text8("iggy") + text8("iggy") + version)

    def sends(self, topic: str, count: int, payload_bytes: int) -> bytes:
        message = bytes(40) + struct.pack("<QIIQ", 1, 0, payload_bytes, 0) + b"v" * payload_bytes
        ends = (struct.pack("<IIQ", 0, len(message) * at, 0) for at in range(1, count + 1))
        return frame(SEND, target_of(topic, count) + b"".join(ends) + message * count)

    def polls(self, topic: str, offset: int, count: int) -> bytes:
        return frame(POLL, poll_from_zero(topic, offset, count))


class V(DialectFrames):
    """Crate 0.11: the wire has batches; the broker converts them to stored messages and back."""

    protocol, version, secret = 11 << 10, "0.11.0", b""

    def __init__(self) -> None:
        self._session = self._incarnation = 0
        self._client = os.urandom(16)  # In W a second connection of a client ends the first.

    def open(self, address: tuple[str, int], topic: str = "") -> Wire:
        wire = Wire(address)
        wire.send(self.login())
        (self._session,) = struct.unpack_from("<Q", self.answer(wire), 8)
        return wire

    def login(self) -> bytes:
        body = struct.pack("<I", self.protocol) + text8("bench") + text8(self.version) + self.secret
        return self._frame(1, body + text8("iggy") + text8("iggy") + bytes(4))

    def sends(self, topic: str, count: int, payload_bytes: int) -> bytes:
        frames, sums = [], []
        for at in range(count):
            rest = struct.pack("<QQIIIIQ", at + 1, 9, at, 0, 0, payload_bytes, 0)
            checked = rest + b"v" * payload_bytes
            sums.append(struct.pack("<Q", xxhash.xxh3_64_intdigest(checked)))
            frames.append(sums[-1] + checked)
        size = VSR_HEAD + sum(map(len, frames))
        known = (0, 0, 0, 1_700_000_000_000_000, size)
        checked = struct.pack("<QQQQQI", *known, count) + b"".join(sums)
        head = struct.pack("<QQQQQQI", *known, xxhash.xxh3_64_intdigest(checked), count)
        batch = head.ljust(VSR_HEAD, b"\0") + b"".join(frames)
        return self._frame(160, target_of(topic, count) + batch)

    def polls(self, topic: str, offset: int, count: int) -> bytes:
        return self._frame(2, poll_from_zero(topic, offset, count), POLL)

    def answer(self, wire: Wire) -> memoryview:
        head = wire.take(VSR_HEAD)
        (size,) = struct.unpack_from("<I", head, 48)
        (status,) = struct.unpack_from("<I", head, 216)
        assert (head[60], status) == (8, 0), f"reply {head[60]}, error {status}"
        return wire.take_view(size - VSR_HEAD)

    def _frame(self, operation: int, body: bytes, code: int = 0) -> bytes:
        head = bytearray(VSR_HEAD)
        struct.pack_into("<I", head, 48, VSR_HEAD + len(body))
        head[60], head[176] = 5, operation
        head[128:144] = self._client
        struct.pack_into("<QI", head, 184, self._session, 0)
        struct.pack_into("<IQ", head, 196, code, self._incarnation)
        return bytes(head) + body


class W(V):
    """Protocol 0.12: as V, and each SEND and POLL names the incarnation of its partition.
    Implements `DialectFrames`.
    """

    protocol, version, secret = 12 << 10, "0.12.0", bytes(32)
    poll_head = POLL_HEAD + 24

    def open(self, address: tuple[str, int], topic: str = "") -> Wire:
        wire = super().open(address)
        if topic:
            wire.send(self._frame(2, AT + identifier(topic) + bytes(4), ROUTE))
            (self._incarnation,) = ROUTE_HEAD.unpack_from(self.answer(wire))
        return wire


def target_of(topic: str, count: int) -> bytes:
    """Return the destination of a SEND, from D3 on."""
    target = AT + identifier(topic) + b"\x02\x04\x00\x00\x00\x00" + struct.pack("<I", count)
    return struct.pack("<I", len(target)) + target


def poll_from_zero(topic: str, offset: int, count: int) -> bytes:
    """Return a POLL of the dialects that count partitions from 0."""
    body = b"\x01" + identifier("bench") + AT + identifier(topic)
    return body + struct.pack("<BIBQIB", 1, 0, BY_OFFSET, offset, count, 0)


def make_topic(address: tuple[str, int], topic: str) -> None:
    """Create a topic with a single partition."""
    with IggyWire(address) as wire:
        wire.create_topic(topic)


def pipelined_sends(
    dialect: DialectFrames,
    address: tuple[str, int],
    topic: str,
    size: tuple[int, int],
    seconds: float,
) -> int:
    """Repeat a SEND of `size` messages and bytes, four in flight on a connection; return the number
    of answered SENDs.
    """
    done, depth = 0, 4
    make_topic(address, topic)
    with dialect.open(address, topic) as wire:
        frame = dialect.sends(topic, *size)
        deadline = time.perf_counter() + seconds
        for _ in range(depth):
            wire.send(frame)
        while time.perf_counter() < deadline:
            dialect.answer(wire)
            done += 1
            wire.send(frame)
        for _ in range(depth):
            dialect.answer(wire)
            done += 1
    return done


def poll_all(
    dialect: DialectFrames, address: tuple[str, int], topic: str, log_end: int, count: int
) -> int:
    """Poll `count` messages at a time up to `log_end`; return the message bytes."""
    body_bytes = offset = 0
    with dialect.open(address, topic) as wire:
        while offset < log_end:
            wire.send(dialect.polls(topic, offset, count))
            answer = dialect.answer(wire)
            (got,) = struct.unpack_from("<I", answer, 12)
            assert got, "a poll brought nothing"
            offset += got
            body_bytes += len(answer) - dialect.poll_head
    return body_bytes
