"""Random valid frames of each classic dialect, built from the reference's layouts, not the
product's.

Only commands whose layout changed between dialects: other commands cannot be confused.
"""

import random
import struct
from collections.abc import Iterator

DIALECTS = ("D0", "D1a", "D1b", "D2", "D3", "D4", "D5")
POLL, SEND, FLUSH, GET, STORE, DELETE = 100, 101, 102, 120, 121, 122
STREAM, TOPIC, CHANGE_TOPIC, SEGMENTS, GROUP, GET_GROUP, TOKEN = 202, 302, 304, 503, 602, 600, 42


class Frames:
    """Frames of a dialect. `nasty`: numbers and names that look like parts of other layouts."""

    def __init__(self, dialect: str, chance: random.Random, *, nasty: bool) -> None:
        self._age = DIALECTS.index(dialect)
        self._chance = chance
        self._nasty = nasty

    def all(self) -> Iterator[tuple[int, bytes]]:
        """Yield the code and payload of a frame of each command."""
        at = self._topic_names()
        for code, tail in ((POLL, self._strategy()), (GET, b""), (STORE, self._u64())):
            yield code, self._consumer() + at + self._partition() + tail
        yield SEND, self._send(at)
        yield STREAM, self._chosen(4) + self._str8()
        yield TOPIC, self._new_topic()
        yield GROUP, at + self._chosen(4) + (self._str8() if self._age else b"")
        yield GET_GROUP, at + (self._identifier() if self._age else self._number())
        if self._age >= 1:
            yield CHANGE_TOPIC, at + self._topic_settings() + self._str8()
            yield TOKEN, self._str8() + (self._u64() if self._age >= 3 else self._number())
        if self._age >= 3:
            yield DELETE, self._consumer() + at + self._partition()
            yield FLUSH, at + self._number() + b"\1"
        if self._age >= 4:
            yield SEGMENTS, at + self._number() + self._number()

    def _number(self) -> bytes:
        pick = self._chance
        if self._nasty and pick.random() < 0.5:
            return bytes(
                (pick.choice((1, 2, 4, 6, 9, 40)), *pick.choices((0, 1, 2, 4, 9, 40), k=3))
            )
        return struct.pack("<I", pick.randrange(1, 300))

    def _u64(self) -> bytes:
        pick = self._chance
        if self._nasty and pick.random() < 0.5:
            return self._number() + self._number()
        return struct.pack("<Q", pick.choice((0, (1 << 64) - 1, pick.randrange(1 << 40))))

    def _text(self) -> bytes:
        letters = "abc-19." if self._nasty else "abcdef-123"
        size = self._chance.choice((1, 2, 3, 4, 5, 9, 40, 60) if self._nasty else range(1, 20))
        return "".join(self._chance.choices(letters, k=size)).encode()

    def _str8(self) -> bytes:
        text = self._text()
        return bytes([len(text)]) + text

    def _identifier(self) -> bytes:
        return b"\1\4" + self._number() if self._chance.random() < 0.5 else b"\2" + self._str8()

    def _topic_names(self) -> bytes:
        return self._identifier() + self._identifier()

    def _consumer(self) -> bytes:
        kind = self._chance.choice((b"\1", b"\2"))
        return kind + (self._identifier() if self._age else self._number())

    def _partition(self) -> bytes:
        if self._age < 5:
            return self._number()
        return b"\1" + self._number() if self._chance.random() < 0.7 else bytes(5)

    def _strategy(self) -> bytes:
        kind = bytes([self._chance.randrange(1, 6)])
        return kind + self._u64() + self._number() + bytes([self._chance.randrange(2)])

    def _chosen(self, until: int) -> bytes:
        """Return a number that a client chooses, before D4."""
        if self._age > until:
            return b""
        number = struct.unpack("<I", self._number())[0] % (1 << 24)
        return struct.pack("<I", max(number, 1))

    def _topic_settings(self) -> bytes:
        if self._age < 2:
            return self._number()
        compression = bytes([self._chance.randrange(1, 3)])
        expiry = self._u64() if self._age >= 3 else self._number()
        return compression + expiry + self._u64() + bytes([self._chance.randrange(4)])

    def _new_topic(self) -> bytes:
        count = struct.pack("<I", self._chance.randrange(1, 1000))
        settings = self._chosen(4) + count + self._topic_settings()
        return self._identifier() + settings + self._str8()

    def _send(self, at: bytes) -> bytes:
        target = at + b"\2\4" + self._number()
        count = self._chance.randrange(1, 4)
        payloads = [self._text() for _ in range(count)]
        if self._age < 4:
            heads = [bytes(16) + struct.pack("<II", 0, len(payload)) for payload in payloads]
            return target + b"".join(map(bytes.__add__, heads, payloads))
        head_bytes = 64 if self._age == 6 else 56
        messages = [
            bytes(48) + struct.pack("<II", 0, len(payload)) + bytes(head_bytes - 56) + payload
            for payload in payloads
        ]
        end, index = 0, b""
        for message in messages:
            end += len(message)
            index += struct.pack("<IIQ", 0, end, 0)
        target += struct.pack("<I", count)
        return struct.pack("<I", len(target)) + target + index + b"".join(messages)
