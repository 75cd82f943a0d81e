"""Iggy load (dialect D2) from prepared frames."""

import struct
import time

from conformance.raw.iggy import BY_OFFSET, POLL, SEND, IggyWire, identifier

OK = bytes(8)


def send_frame(topic: str, count: int, payload_bytes: int) -> bytes:
    """A whole SEND of equal messages to partition 1."""
    one = bytes(16) + bytes(4) + struct.pack("<I", payload_bytes) + b"v" * payload_bytes
    body = identifier("default") + identifier(topic) + b"\x02\x04\x01\x00\x00\x00" + one * count
    return struct.pack("<II", 4 + len(body), SEND) + body


def poll_frame(topic: str, offset: int, count: int) -> bytes:
    """A whole POLL by offset of partition 1, nothing stored."""
    body = b"\x01" + identifier("bench") + identifier("default") + identifier(topic)
    body += struct.pack("<IBQIB", 1, BY_OFFSET, offset, count, 0)
    return struct.pack("<II", 4 + len(body), POLL) + body


def pipelined_sends(
    address: tuple[str, int], topic: str, frame: bytes, seconds: float, depth: int
) -> int:
    """Repeat one SEND with `depth` of them in flight on one connection; SENDs answered."""
    done = 0
    with IggyWire(address) as wire:
        wire.create_topic(topic)
        deadline = time.perf_counter() + seconds
        for _ in range(depth):
            wire.send(frame)
        while time.perf_counter() < deadline:
            assert wire.take(8) == OK
            done += 1
            wire.send(frame)
        for _ in range(depth):
            assert wire.take(8) == OK
            done += 1
    return done


def poll_all(address: tuple[str, int], topic: str, log_end: int, count: int) -> int:
    """Poll `count` messages a time from the beginning until `log_end`; bytes of messages taken."""
    taken = offset = 0
    with IggyWire(address) as wire:
        while offset < log_end:
            wire.send(poll_frame(topic, offset, count))
            status, size = struct.unpack("<II", wire.take(8))
            assert status == 0, f"poll failed with {status}"
            answer = wire.take(size)
            (got,) = struct.unpack_from("<I", answer, 12)
            assert got, "a poll brought nothing"
            offset += got
            taken += size - 16
    return taken
