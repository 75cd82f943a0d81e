"""Kafka 0.8 load from prepared frames: the sender does nothing per message."""

import itertools
import ssl
import struct
import time
from collections.abc import Sequence

from conformance.clients.raw.kafka import (
    FETCH,
    PRODUCE,
    KafkaWire,
    fetch_body,
    frame,
    message,
    produce_body,
)

SET_BYTES = 128 * 1024


def message_set(count: int, value_bytes: int) -> bytes:
    """Return a plain magic-0 set of equal messages without key."""
    return message(None, b"v" * value_bytes) * count


def set_of_128k(value_bytes: int) -> tuple[bytes, int]:
    """Return a set of about 128 KiB and its number of messages."""
    count = SET_BYTES // (value_bytes + 26)
    return message_set(count, value_bytes), count


def produce_frame(topic: str, partition: int, body: bytes) -> bytes:
    """Return a whole Produce request with acks -1."""
    return frame(PRODUCE, 0, produce_body(topic, body, partition=partition, acks=-1))


def fetch_frame(topic: str, offset: int, bytes_max: int) -> bytes:
    """Return a whole Fetch request of partition 0 with a minimum of 1 byte."""
    return frame(FETCH, 0, fetch_body(topic, offset, bytes_max=bytes_max))


def produce_answer_bytes(topic: str) -> int:
    """Return the size of the answer to `produce_frame`, length field included."""
    return 4 + 4 + 4 + 2 + len(topic) + 4 + 4 + 2 + 8


def check_produced(answer: bytes) -> None:
    """Check the answer's error code. Raises AssertionError unless the code is 0."""
    (error,) = struct.unpack_from(">h", answer, len(answer) - 10)
    assert error == 0, f"produce failed with error {error}"


def pipelined_produce(
    address: tuple[str, int],
    topic: str,
    bodies: Sequence[bytes],
    seconds: float,
    depth: int,
    tls: ssl.SSLContext | None = None,
) -> int:
    """Produce the sets in turn, repeatedly, `depth` requests in flight; return the acknowledged
    sets.
    """
    frames = itertools.cycle([produce_frame(topic, 0, body) for body in bodies])
    size = produce_answer_bytes(topic)
    done = 0
    with KafkaWire(address, tls) as wire:
        wire.create(topic)
        deadline = time.perf_counter() + seconds
        for _ in range(depth):
            wire.send(next(frames))
        while time.perf_counter() < deadline:
            check_produced(wire.take(size))
            done += 1
            wire.send(next(frames))
        for _ in range(depth):
            check_produced(wire.take(size))
            done += 1
    return done


def fetch_all(
    address: tuple[str, int],
    topic: str,
    log_end: int,
    step: int,
    bytes_max: int,
    tls: ssl.SSLContext | None = None,
) -> int:
    """Fetch in `bytes_max` requests from the beginning until `log_end`; return the bytes of message
    sets.

    `step` is the size of a whole message with its offset and size: all are equal.
    """
    buffer = bytearray(bytes_max + 4096)
    view = memoryview(buffer)
    head = 4 + 4 + 4 + 2 + len(topic) + 4 + 4 + 2 + 8 + 4
    batch_bytes = offset = 0
    with KafkaWire(address, tls) as wire:
        while offset < log_end:
            wire.send(fetch_frame(topic, offset, bytes_max))
            got = 0
            while got < 4 or got < 4 + struct.unpack_from(">i", buffer)[0]:
                piece = wire.socket.recv_into(view[got:])
                if not piece:
                    raise ConnectionError("closed during a fetch")
                got += piece
            messages = (got - head) // step
            assert messages > 0, "a fetch brought nothing"
            (first,) = struct.unpack_from(">q", buffer, head)
            offset = first + messages
            batch_bytes += got - head
    return batch_bytes
