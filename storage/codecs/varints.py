"""Protobuf messages in a row that differ in one number only, put together without protobuf.

A number's varint ends with what stays the same for 128 numbers in a row. So do the bytes around it:
they come from the message itself, serialised twice. Layout: Protocol Buffers, "Encoding", base 128
varints. Knows no message.
"""

from collections.abc import Callable
from typing import Final

LOW_BITS: Final = 7
LOW_MASK: Final = (1 << LOW_BITS) - 1
# The first byte of a varint, by the number's lowest bits: where more bytes follow, and alone.
_LONG: Final = tuple(bytes((low | 0x80,)) for low in range(1 << LOW_BITS))
_SHORT: Final = tuple(bytes((low,)) for low in range(1 << LOW_BITS))


def lows(number: int) -> tuple[bytes, ...]:
    """The first bytes of the varints of all numbers with `number >> LOW_BITS`, by `LOW_MASK`."""
    return _LONG if number >> LOW_BITS else _SHORT


def around(serialize: Callable[[int], bytes], number: int) -> tuple[bytes, bytes]:
    """The bytes before and behind `lows(n)[n & LOW_MASK]` in `serialize(n)`, the same for every n
    that has `number >> LOW_BITS`.

    The field has to be written for 0 too.
    """
    lowest, highest = serialize(number & ~LOW_MASK), serialize(number | LOW_MASK)
    place = next(at for at, byte in enumerate(lowest) if byte != highest[at])
    return lowest[:place], lowest[place + 1 :]
