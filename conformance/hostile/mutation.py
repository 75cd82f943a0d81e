"""Makes bad frames from valid frames at random, from a seed. Knows layouts, no command.

The mutations target weak points: length and count fields become extremes, bits flip, pieces are cut
out or repeated, noise follows a valid beginning, texts are no UTF-8. The leading length is
corrected most of the time, so that the error reaches the parser of the rest.
"""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from conformance.clients.raw import pulsar

if TYPE_CHECKING:
    from conformance.hostile.rows import CommandRow

Mutator = Callable[[random.Random, bytearray], None]

# Integers as written; each is cut to the size of the field.
EXTREMES = (0, 1, -1, -2, 127, 128, 255, 2**15 - 1, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1)
NO_UTF8 = (b"\xff\xfe", b"\xc3\x28", b"\xed\xa0\x80", b"\xf0\x28\x8c\x28", b"\x80")
TEXT = re.compile(rb"[\x20-\x7e]{3,}")
NOISE_BYTES_MAX = 300
LOOK_BYTES = 24  # Search range for a length or a count, from a random place.
# Probability of a correct leading length, and of an unchanged frame.
LENGTH_IS_RIGHT = 0.97
IS_LEFT_ALONE = 0.35
IS_WRAPPED = 0.8  # Probability of a bad body behind correct checksums and lengths.


@dataclass(frozen=True, slots=True)
class FrameLayout:
    """The frame layout of a protocol: the byte order, and the place of the length."""

    byte_order: str  # ">" or "<"; "" for frames without a length
    head_bytes: int  # the length and the command's code
    is_protobuf: bool = False
    length_pos: int = 0
    uncounted_bytes: int = 4  # at the beginning, not counted by the length

    def with_length(self, body: bytes) -> bytes:
        """Return a whole frame with this body, behind the length if the layout has a length."""
        return struct.pack(f"{self.byte_order}I", len(body)) + body if self.byte_order else body

    def corrected(self, frame: bytes) -> bytes:
        """Return the frame with a correct length."""
        end = self.length_pos + 4
        if not self.byte_order or len(frame) < end:
            return frame
        size = struct.pack(f"{self.byte_order}I", max(len(frame) - self.uncounted_bytes, 0))
        return frame[: self.length_pos] + size + frame[end:]

    def is_whole(self, frame: bytes) -> bool:
        """Return True if the frame's length is correct."""
        return self.corrected(frame) == frame


KAFKA = FrameLayout(">", 12)
IGGY = FrameLayout("<", 8)
IGGY_V = FrameLayout("<", 256, length_pos=48, uncounted_bytes=0)
PULSAR = FrameLayout(">", 8, is_protobuf=True)
HTTP = FrameLayout("", 0)
ZOOKEEPER = FrameLayout(">", 12)


RAW = FrameLayout("", 0)


def mutated(chance: random.Random, row: CommandRow, layout: FrameLayout) -> bytes:
    """Return a frame made from a row, bad more often than not."""
    if row.wrap is not None and chance.random() < IS_WRAPPED:
        return row.wrap(mutate(chance, row.inner, RAW))
    return mutate(chance, row.frame, layout)


def mutate(chance: random.Random, frame: bytes, layout: FrameLayout) -> bytes:
    """Return a frame made from a valid frame, bad more often than not."""
    if chance.random() < IS_LEFT_ALONE:
        return frame
    if layout.is_protobuf and chance.random() < 0.7:
        return _mutated_command(chance, frame)
    head = min(layout.head_bytes, len(frame))
    if chance.random() < 0.05:
        head = layout.length_pos + 4 if layout.byte_order else 0
    rest = bytearray(frame[head:])
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        chance.choice(_mutators(layout))(chance, rest)
    whole = frame[:head] + bytes(rest)
    return whole if chance.random() > LENGTH_IS_RIGHT else layout.corrected(whole)


def _mutators(layout: FrameLayout) -> tuple[Mutator, ...]:
    def extreme(chance: random.Random, data: bytearray) -> None:
        """Put an extreme at a length or a count, or at a possible place of such a field."""
        size, kind = chance.choice(((1, "B"), (2, "H"), (4, "I"), (4, "I"), (8, "Q")))
        if len(data) < size:
            return
        start = chance.randrange(len(data) - size + 1)
        near = range(start, min(start + LOOK_BYTES, len(data) - size + 1))
        places = [at for at in near if _is_small(data, at, size, layout)]
        at = chance.choice(places) if places else start
        value = chance.choice(EXTREMES) + chance.choice((0, 0, 1, -1))
        order = layout.byte_order or ">"
        struct.pack_into(f"{order}{kind}", data, at, value & ((1 << 8 * size) - 1))

    return (extreme, extreme, flip_bits, cut, repeat, add_noise, break_text, break_text)


def _is_small(data: bytearray, at: int, size: int, layout: FrameLayout) -> bool:
    order = "little" if layout.byte_order == "<" else "big"
    return int.from_bytes(data[at : at + size], order) <= len(data)


def flip_bits(chance: random.Random, data: bytearray) -> None:
    """Flip several bits."""
    for _ in range(chance.randint(1, 8) if data else 0):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def cut(chance: random.Random, data: bytearray) -> None:
    """Cut a piece out, often the end."""
    start = chance.randrange(len(data) + 1)
    end = len(data) if chance.random() < 0.6 else chance.randint(start, len(data))
    del data[start:end]


def repeat(chance: random.Random, data: bytearray) -> None:
    """Insert a piece twice, or many times."""
    start = chance.randrange(len(data) + 1)
    end = min(start + chance.randint(1, 40), len(data))
    data[end:end] = bytes(data[start:end]) * chance.choice((1, 1, 5, 50))


def add_noise(chance: random.Random, data: bytearray) -> None:
    """Keep the beginning, followed by noise."""
    data[chance.randrange(len(data) + 1) :] = chance.randbytes(chance.randint(1, NOISE_BYTES_MAX))


def break_text(chance: random.Random, data: bytearray) -> None:
    """Break a text: invalid UTF-8, or a zero byte."""
    texts = list(TEXT.finditer(data))
    if texts:
        text = chance.choice(texts)
        bad = chance.choice((*NO_UTF8, b"\0"))
        at = chance.randint(text.start(), max(text.end() - len(bad), text.start()))
        data[at : at + len(bad)] = bad


def _mutated_command(chance: random.Random, frame: bytes) -> bytes:
    """Return a Pulsar command with a bad, missing or repeated field."""
    (size,) = struct.unpack_from(">I", frame, 4)
    fields = pulsar.parse(frame[8 : 8 + size])
    inner = next(at for at, (number, _) in enumerate(fields) if number != 1)
    number, value = fields[inner]
    assert isinstance(value, bytes)
    fields[inner] = (number, _mutated_message(chance, value))
    command = pulsar.encode(fields)
    payload = frame[8 + size :]
    return struct.pack(">II", 4 + len(command) + len(payload), len(command)) + command + payload


def _mutated_message(chance: random.Random, message: bytes) -> bytes:
    try:
        fields = pulsar.parse(message)
    except (AssertionError, IndexError):
        fields = []
    if not fields or pulsar.encode(fields) != message:  # A text, not a nested message.
        return chance.choice((*NO_UTF8, b"", b"\0", b"x" * 70_000, chance.randbytes(20), message))
    at = chance.randrange(len(fields))
    number, value = fields[at]
    choice = chance.random()
    if choice < 0.1:
        del fields[at]
    elif choice < 0.2:
        fields.insert(at, fields[at])
    elif isinstance(value, int):
        fields[at] = (number, chance.choice(EXTREMES))
    else:
        fields[at] = (number, _mutated_message(chance, value))
    return pulsar.encode(fields)
