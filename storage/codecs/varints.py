"""Protobuf messages in a row that differ in one number only, put together without protobuf.

A number's varint ends with what stays the same for 128 numbers in a row. So do the bytes around it:
they come from the message itself, serialised twice. Layout: Protocol Buffers, "Encoding", base 128
varints. Knows no message.
"""

from collections.abc import Callable
from typing import Final

LOW_BITS: Final = 7
LOW_MASK: Final = (1 << LOW_BITS) - 1
# The first byte of a varint that has more than one, by the number's lowest bits.
LOW: Final = tuple(bytes((low | 0x80,)) for low in range(1 << LOW_BITS))


def around(serialize: Callable[[int], bytes], number: int) -> tuple[bytes, bytes]:
    """The bytes before and behind `LOW[n & LOW_MASK]` in `serialize(n)`, the same for every n that
    has `number >> LOW_BITS`, which must not be 0.
    """
    assert number >> LOW_BITS, "a varint of one byte has no part that stays"
    lowest, highest = serialize(number & ~LOW_MASK), serialize(number | LOW_MASK)
    place = next(at for at, byte in enumerate(lowest) if byte != highest[at])
    return lowest[:place], lowest[place + 1 :]
