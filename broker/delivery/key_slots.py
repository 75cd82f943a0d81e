"""Which consumer of a Key_Shared subscription a key belongs to: hashes, slots and their owners.

As in Apache Pulsar. With AUTO_SPLIT the broker decides, by a ring of hashes like Apache's. With
STICKY the consumers ask for ranges, and the numbers of the slots are part of the protocol. Knows no
entry.
"""

from __future__ import annotations

import abc
from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import Final

import mmh3

from braidlog.broker.delivery.consumer import Consumer
from braidlog.broker.errors import InvalidRequest

SLOTS: Final = 65536
RING_POINTS: Final = 100  # Of each consumer, as in Apache.
RANGES_MAX: Final = 1000  # That one sticky consumer may ask for.


def key_hash(key: bytes) -> int:
    """Apache's Murmur3_32Hash of a key: 31 bits."""
    number: int = mmh3.hash(key, 0, signed=False)
    return number & 0x7FFF_FFFF


class KeyPolicy(abc.ABC):
    """Decides which consumer owns a slot."""

    is_sticky: bool

    @abc.abstractmethod
    def slot(self, key: bytes) -> int:
        """The slot of a key, from 1 on."""

    @abc.abstractmethod
    def owner(self, slot: int) -> Consumer | None:
        """The consumer that owns the slot; None if nobody does."""

    @abc.abstractmethod
    def add(self, consumer: Consumer) -> None:
        """Add a consumer whose ranges `check` accepted."""

    @abc.abstractmethod
    def remove(self, consumer: Consumer) -> None:
        """Remove a consumer."""

    def check(self, ranges: Sequence[tuple[int, int]]) -> None:  # noqa: B027 (not abstract)
        """Raises InvalidRequest for ranges that cannot be accepted; a policy without ranges takes
        every consumer.
        """


class KeyRing(KeyPolicy):
    """AUTO_SPLIT: each consumer has many points on a ring, and the slots that lead up to them."""

    is_sticky = False

    def __init__(self) -> None:
        self._points: list[tuple[int, int]] = []  # Slot, number of the consumer; sorted.
        self._consumers: dict[int, Consumer] = {}
        self._gone: set[int] = set()  # Numbers that may still have points: removed together.
        self._next = 0

    def slot(self, key: bytes) -> int:
        """As Apache's ring counts: the hash modulo 65535, plus 1."""
        return key_hash(key) % (SLOTS - 1) + 1

    def owner(self, slot: int) -> Consumer | None:
        """The consumer of the next point on the ring."""
        if self._gone:
            self._take_out()
        points = self._points
        if not points:
            return None
        place = bisect_left(points, (slot, -1)) % len(points)
        return self._consumers[points[place][1]]

    def add(self, consumer: Consumer) -> None:
        """Give the consumer its points; its number keeps those of equal names apart."""
        number = self._next
        self._next += 1
        self._consumers[number] = consumer
        for point in range(RING_POINTS):
            slot = self.slot(f"{consumer.name}{number}-{point}".encode())
            insort(self._points, (slot, number))

    def remove(self, consumer: Consumer) -> None:
        """Remove the consumer; its points go before the next `owner`: a seek closes a thousand."""
        number = next(n for n, known in self._consumers.items() if known is consumer)
        del self._consumers[number]
        self._gone.add(number)
        if len(self._gone) > len(self._consumers):
            self._take_out()

    def _take_out(self) -> None:
        gone = self._gone
        self._points = [point for point in self._points if point[1] not in gone]
        gone.clear()


class KeyRanges(KeyPolicy):
    """STICKY: each consumer has the ranges of slots that it asked for."""

    is_sticky = True

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int, Consumer]] = []  # By start; ends included.

    def slot(self, key: bytes) -> int:
        """The hash modulo 65536; slot 0 counts as 1."""
        return key_hash(key) % SLOTS or 1

    def owner(self, slot: int) -> Consumer | None:
        """The consumer with a range that holds the slot."""
        place = bisect_left(self._ranges, slot + 1, key=_start) - 1
        if place < 0:
            return None
        _, end, consumer = self._ranges[place]
        return consumer if slot <= end else None

    def add(self, consumer: Consumer) -> None:
        """Give the consumer the ranges that it asked for."""
        for start, end in consumer.key_ranges:
            insort(self._ranges, (start, end, consumer), key=_start)

    def remove(self, consumer: Consumer) -> None:
        """Take the consumer's ranges away."""
        self._ranges = [one for one in self._ranges if one[2] is not consumer]

    def check(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Raises InvalidRequest for no ranges, too many, one that ends before it starts, and
        overlaps with each other or with another consumer's.
        """
        if not 0 < len(ranges) <= RANGES_MAX:
            raise InvalidRequest(f"a consumer has from 1 to {RANGES_MAX} ranges of its own")
        last = -1
        for start, end in sorted(ranges):
            if not 0 <= start <= end:
                raise InvalidRequest(f"Fixed hash range start {start} > end {end}")
            if start <= last:
                raise InvalidRequest("Ranges for KeyShared policy with overlap")
            place = bisect_left(self._ranges, end + 1, key=_start) - 1
            if place >= 0 and self._ranges[place][1] >= start:
                raise InvalidRequest(f"Range conflict with another consumer: {start} to {end}")
            last = end


def _start(one: tuple[int, int, Consumer]) -> int:
    return one[0]
