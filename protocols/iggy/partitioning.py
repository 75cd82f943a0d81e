"""Which partition a key or a turn leads to.

Pure numbers; `dialects.py` says which rule a dialect has.
"""

from __future__ import annotations

import mmh3
import xxhash


def xxhash32_from_one(key: bytes, count: int) -> int:
    """D1 to D3: xxHash32 with seed 0, modulo `count`, where 0 stands for the last partition."""
    return (xxhash.xxh32_intdigest(key) - 1) % count


def murmur3_from_one(key: bytes, count: int) -> int:
    """D0: MurmurHash3 x64-128, seed 0, modulo `count`, where 0 stands for the last partition."""
    return (int(mmh3.hash128(key, 0, True, signed=False)) - 1) % count


def xxhash32_from_zero(key: bytes, count: int) -> int:
    """D4 and later: xxHash32 with seed 0, modulo `count`."""
    return int(xxhash.xxh32_intdigest(key)) % count


def take_turn(turns: dict[int, int], topic_id: int, count: int) -> int:
    """Return the partition of a balanced SEND: the next partition for each SEND, over all
    connections, beginning with the first.
    """
    index = turns.get(topic_id, 0) % count
    turns[topic_id] = index + 1
    return index
