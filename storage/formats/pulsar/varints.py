"""Protobuf messages that differ in a single number, joined without protobuf.

Within a block of 128 numbers only the first byte of the varint changes. The bytes around the varint
come from the message itself, serialised twice. Layout: Protocol Buffers, "Encoding", base 128
varints. Knows no message.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Final

LOW_BITS: Final = 7
LOW_MASK: Final = (1 << LOW_BITS) - 1
# The first byte of a varint by the number's lowest bits: with and without further bytes.
_LONG: Final = tuple(bytes((low | 0x80,)) for low in range(1 << LOW_BITS))
_SHORT: Final = tuple(bytes((low,)) for low in range(1 << LOW_BITS))


def lows(number: int) -> tuple[bytes, ...]:
    """Return the first varint bytes of all numbers in the block of `number`, by their lowest
    bits.
    """
    return _LONG if number >> LOW_BITS else _SHORT


@lru_cache(1024)  # Many consumers receive entries of the same few blocks.
def highs(number: int) -> bytes:
    """Return the varint bytes after the first, the same for all numbers in the block of
    `number << LOW_BITS`; none for block 0.
    """
    parts = bytearray()
    while number:
        parts.append(number & LOW_MASK | (0x80 if number >> LOW_BITS else 0))
        number >>= LOW_BITS
    return bytes(parts)


def around(serialize: Callable[[int], bytes], number: int) -> tuple[bytes, bytes]:
    """Return the bytes before and after `lows(n)[n & LOW_MASK]` in `serialize(n)`.

    These bytes are the same for every n in the block of `number` (equal `n >> LOW_BITS`). The field
    must be serialised for 0 too.
    """
    lowest, highest = serialize(number & ~LOW_MASK), serialize(number | LOW_MASK)
    place = next(at for at, byte in enumerate(lowest) if byte != highest[at])
    return lowest[:place], lowest[place + 1 :]
