"""Which partition a key or a turn means.

Pure numbers; `dialects.py` says which rule a dialect has.
"""

from __future__ import annotations

import xxhash


def xxhash32_from_one(key: bytes, count: int) -> int:
    """D1 to D3: xxHash32 with seed 0, modulo `count`, where 0 stands for the last partition."""
    return (xxhash.xxh32_intdigest(key) - 1) % count


def take_turn(turns: dict[int, int], topic_id: int, count: int) -> int:
    """The partition of a balanced SEND: one step a SEND, over all connections, first the first
    partition.
    """
    index = turns.get(topic_id, 0) % count
    turns[topic_id] = index + 1
    return index
