"""Owners of keys in a Key_Shared subscription: hashes, slots and their consumers.

As in Apache Pulsar. With AUTO_SPLIT the broker assigns slots, by a hash ring like Apache's. With
STICKY the consumers request ranges, and the numbers of the slots are part of the protocol. Knows no
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
RING_POINTS: Final = 100  # Per consumer, as in Apache.
RANGES_MAX: Final = 1000  # Ranges that a sticky consumer may request.


def key_hash(key: bytes) -> int:
    """Return Apache's Murmur3_32Hash of a key: 31 bits."""
    number: int = mmh3.hash(key, 0, signed=False)
    return number & 0x7FFF_FFFF


class KeyPolicy(abc.ABC):
    """Assigns slots to consumers."""

    is_sticky: bool

    @abc.abstractmethod
    def slot(self, key: bytes) -> int:
        """Return the slot of a key, from 1 on."""

    @abc.abstractmethod
    def owner(self, slot: int) -> Consumer | None:
        """Return the consumer that owns the slot, or None."""

    @abc.abstractmethod
    def add(self, consumer: Consumer) -> None:
        """Add a consumer whose ranges `check` accepted."""

    @abc.abstractmethod
    def remove(self, consumer: Consumer) -> None:
        """Remove a consumer."""

    def check(self, ranges: Sequence[tuple[int, int]]) -> None:  # noqa: B027 (not abstract)
        """Raise InvalidRequest for unacceptable ranges; a policy without ranges accepts every
        consumer.
        """


class KeyRing(KeyPolicy):
    """AUTO_SPLIT: each consumer has many points on a ring, and owns the slots that lead
    up to them.
    """

    is_sticky = False

    def __init__(self) -> None:
        self._points: list[tuple[int, int]] = []  # Slot, number of the consumer; sorted.
        self._consumers: dict[int, Consumer] = {}
        self._numbers: dict[Consumer, int] = {}
        self._gone: set[int] = set()  # Numbers that may still have points: removed together.
        self._next = 0

    def slot(self, key: bytes) -> int:
        """Return the hash modulo 65535, plus 1, like Apache's ring."""
        return key_hash(key) % (SLOTS - 1) + 1

    def owner(self, slot: int) -> Consumer | None:
        """Return the consumer of the next point on the ring, apart from points of consumers that
        are gone: at most half of all points.
        """
        points, consumers = self._points, self._consumers
        if not consumers:
            return None
        place = bisect_left(points, (slot, -1)) % len(points)
        while (consumer := consumers.get(points[place][1])) is None:
            place = (place + 1) % len(points)
        return consumer

    def add(self, consumer: Consumer) -> None:
        """Add the consumer's points; the number distinguishes consumers with equal names."""
        number = self._next
        self._next += 1
        self._consumers[number] = consumer
        self._numbers[consumer] = number
        for point in range(RING_POINTS):
            slot = self.slot(f"{consumer.name}{number}-{point}".encode())
            insort(self._points, (slot, number))

    def remove(self, consumer: Consumer) -> None:
        """Remove the consumer. Its points are removed with those of others, because a thousand
        consumers may leave together.
        """
        number = self._numbers.pop(consumer)
        del self._consumers[number]
        self._gone.add(number)
        if len(self._gone) > len(self._consumers):
            self._take_out()

    def ranges(self) -> dict[Consumer, list[tuple[int, int]]]:
        """Return the slots of each consumer as ranges, ends included."""
        if self._gone:
            self._take_out()
        ranges: dict[Consumer, list[tuple[int, int]]] = {}
        start, owner = 1, None
        for slot, number in [*self._points, *((SLOTS - 1, n) for _, n in self._points[:1])]:
            consumer = self._consumers[number]
            if consumer is owner and (last := ranges[consumer][-1])[1] == start - 1:
                ranges[consumer][-1] = (last[0], slot)
            elif slot >= start:
                ranges.setdefault(consumer, []).append((start, slot))
            else:
                continue  # Another consumer's point at the same slot.
            start, owner = slot + 1, consumer
        return ranges

    def _take_out(self) -> None:
        gone = self._gone
        self._points = [point for point in self._points if point[1] not in gone]
        gone.clear()


class KeyRanges(KeyPolicy):
    """STICKY: each consumer owns the ranges of slots that the consumer requested."""

    is_sticky = True

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int, Consumer]] = []  # By start; ends included.

    def slot(self, key: bytes) -> int:
        """Return the hash modulo 65536; slot 0 counts as 1."""
        return key_hash(key) % SLOTS or 1

    def owner(self, slot: int) -> Consumer | None:
        """Return the consumer whose range contains the slot."""
        place = bisect_left(self._ranges, slot + 1, key=_start) - 1
        if place < 0:
            return None
        _, end, consumer = self._ranges[place]
        return consumer if slot <= end else None

    def add(self, consumer: Consumer) -> None:
        """Assign the consumer its requested ranges."""
        for start, end in consumer.key_ranges:
            insort(self._ranges, (start, end, consumer), key=_start)

    def remove(self, consumer: Consumer) -> None:
        """Remove the consumer's ranges."""
        self._ranges = [key_range for key_range in self._ranges if key_range[2] is not consumer]

    def check(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Raise InvalidRequest for no ranges, too many ranges, a range that ends before it starts,
        and ranges that overlap with each other or with another consumer's.
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


def _start(key_range: tuple[int, int, Consumer]) -> int:
    return key_range[0]
