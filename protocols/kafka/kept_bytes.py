"""Sizes in memory of the things that the broker keeps for members of groups. Knows no group.

A name of a byte takes some hundred bytes as an object in a set, so the sizes of objects count
beside the bytes of names. `tests/protocols/kafka/test_kept_bytes.py` measures them.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

MEMBER_BYTES: Final = 1500  # A member with its entries in all tables.
ENTRY_BYTES: Final = 250  # A name in a set or a dict, and in the group's counts.
PLACE_BYTES: Final = 400  # A partition in a member's target, its assignment and the group's table.
# The names, metadata and assignment of a member: some hundred bytes.
MEMBER_BYTES_MAX: Final = 1024 * 1024


def entries_size(names: Collection[bytes]) -> int:
    """Return the bytes that names in a set take."""
    return sum(map(len, names)) + ENTRY_BYTES * len(names)
