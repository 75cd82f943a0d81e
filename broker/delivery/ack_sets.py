"""Ack sets: how Pulsar says which messages of a batch are acknowledged.

Little-endian words of 64 bits, as signed numbers; a set bit i says that message i is still wanted
(Pulsar's protocol, CommandAck). Knows entries by their offsets only.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol


class Covering(Protocol):
    """An entry, with or without its bytes."""

    offset: int
    record_count: int

    @property
    def end(self) -> int:
        """Offset after the last record."""


class Told(Covering, Protocol):
    """An entry that says which of its messages are still wanted."""

    ack_set: tuple[int, ...]


class Acked(Protocol):
    """What a subscription has acknowledged."""

    def acked_ranges(self, start: int, end: int) -> list[tuple[int, int]]:
        """The acknowledged parts of the entry `[start, end)`."""


def acked_ranges(entry: Covering, ack_set: Sequence[int]) -> list[tuple[int, int]]:
    """The offset ranges of an entry that an ack set says are acknowledged; no ack set: all."""
    if not ack_set:
        return [(entry.offset, entry.end)]
    wanted = 0
    for index, word in enumerate(ack_set[: -(-entry.record_count // 64)]):
        wanted |= (word & 0xFFFF_FFFF_FFFF_FFFF) << (64 * index)
    return [
        (entry.offset + start, entry.offset + end)
        for start, end in _runs_of_ones(~wanted & ((1 << entry.record_count) - 1))
    ]


def _runs_of_ones(bits: int) -> Iterator[tuple[int, int]]:
    """(start, end) of each run of set bits, lowest first."""
    at = 0
    while bits:
        zeros = (bits & -bits).bit_length() - 1
        bits >>= zeros
        ones = (~bits & (bits + 1)).bit_length() - 1
        bits >>= ones
        at += zeros
        yield at, at + ones
        at += ones


def ack_set_of(entry: Covering, acked: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """The words that tell a client which messages of the entry are still wanted; empty when all
    are.

    `acked` are ranges within the entry. Raises nothing; a fully acknowledged entry has only zero
    words.
    """
    if not acked:
        return ()
    wanted = (1 << entry.record_count) - 1
    for start, end in acked:
        wanted &= ~(((1 << (end - start)) - 1) << (start - entry.offset))
    words = []
    for _ in range(-(-entry.record_count // 64)):
        word = wanted & 0xFFFF_FFFF_FFFF_FFFF
        words.append(word - (1 << 64) if word >> 63 else word)
        wanted >>= 64
    return tuple(words)


def wanted_count(ack_set: Sequence[int]) -> int:
    """How many messages are wanted by an ack set that `ack_set_of` made and that is not empty."""
    return sum((word & 0xFFFF_FFFF_FFFF_FFFF).bit_count() for word in ack_set)


def merged(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same ranges, sorted and joined where they touch: one change of the cursor instead of a
    thousand.
    """
    ranges.sort()
    merged = [ranges[0]]
    for start, end in ranges:
        last_start, last_end = merged[-1]
        if start <= last_end:
            merged[-1] = (last_start, max(last_end, end))
        else:
            merged.append((start, end))
    return merged


def tell_acked(entry: Told, state: Acked) -> None:
    """Set the entry's ack set if some of its messages are acknowledged."""
    if entry.record_count > 1 and (acked := state.acked_ranges(entry.offset, entry.end)):
        entry.ack_set = ack_set_of(entry, acked)
