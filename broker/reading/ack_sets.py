"""Ack sets: Pulsar's format for the acknowledged messages of a batch.

Little-endian words of 64 bits, as signed numbers. A set bit i means that message i is still wanted
(Pulsar's protocol, CommandAck). Knows only the offsets of entries.
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


class ReportedEntry(Covering, Protocol):
    """An entry that says which messages are still wanted."""

    ack_set: tuple[int, ...]


class Acked(Protocol):
    """The acknowledgements of a subscription."""

    def acked_ranges(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return the acknowledged parts of the entry `[start, end)`."""


def acked_ranges(entry: Covering, ack_set: Sequence[int]) -> list[tuple[int, int]]:
    """Return the offset ranges that an ack set acknowledges; without an ack set, the
    whole entry.
    """
    if not ack_set:
        return [(entry.offset, entry.end)]
    wanted = 0
    for index, word in enumerate(ack_set[: -(-entry.record_count // 64)]):
        wanted |= (word & 0xFFFF_FFFF_FFFF_FFFF) << (64 * index)
    return [
        (entry.offset + start, entry.offset + end)
        for start, end in _runs_of_set_bits(~wanted & ((1 << entry.record_count) - 1))
    ]


def _runs_of_set_bits(bits: int) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of each run of set bits, lowest first."""
    at = 0
    while bits:
        zeros = (bits & -bits).bit_length() - 1
        bits >>= zeros
        run = (~bits & (bits + 1)).bit_length() - 1
        bits >>= run
        at += zeros
        yield at, at + run
        at += run


def ack_set_of(entry: Covering, acked: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """Return the words that tell a client which messages of the entry are still wanted; empty if
    all are.

    `acked` are ranges within the entry. Raises nothing. A fully acknowledged entry has only zero
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
    """Return the number of wanted messages of a non-empty ack set from `ack_set_of`."""
    return sum((word & 0xFFFF_FFFF_FFFF_FFFF).bit_count() for word in ack_set)


def merged(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sort the ranges and join those that touch, so that the cursor changes once instead of a
    thousand times.
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


def tell_acked(entry: ReportedEntry, state: Acked) -> None:
    """Set the entry's ack set if some of its messages are acknowledged."""
    if entry.record_count > 1 and (acked := state.acked_ranges(entry.offset, entry.end)):
        entry.ack_set = ack_set_of(entry, acked)
