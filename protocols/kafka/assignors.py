"""Share out the partitions of topics to the members of a consumer group (KIP-848). Pure functions.

`uniform` gives every member as many partitions as the others, and moves few of them when members
come and go. Of equal members, the next to send a heartbeat gives up or gets a partition: a member
learns of its partitions from the answer. `range_` gives each member neighbouring partitions of each
topic, so that topics with as many partitions and equal keys are read by the same members.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

# Comparisons of loads in one assignment, some 20 ms. Beyond that, members with different topics may
# stay less balanced; each new partition still goes to the member with the fewest.
LEVEL_LOOKS_MAX = 100_000

Place = tuple[bytes, int]
"""A topic's id, and the number of a partition."""
Places = frozenset[Place]
NOWHERE: Places = frozenset()


def by_topic(places: Places) -> dict[bytes, list[int]]:
    """Return the numbers of partitions by topic id, both sorted."""
    topics: dict[bytes, list[int]] = {}
    for topic_id, index in sorted(places):
        topics.setdefault(topic_id, []).append(index)
    return topics


class AssignedMember(NamedTuple):
    """A member, as assignors see it."""

    member_id: bytes
    topics: frozenset[bytes]  # ids of the topics that the member subscribes to, and that exist
    target: Places = NOWHERE  # what the member has been assigned
    instance_id: bytes | None = None
    due: float = 0.0  # The member with the least sends the next heartbeat.


Shares = dict[bytes, Places]
"""Partitions by member id."""
Assignor = Callable[[Sequence[AssignedMember], Mapping[bytes, int]], Shares]


def uniform(subscribers: Sequence[AssignedMember], counts: Mapping[bytes, int]) -> Shares:
    """Balance the number of partitions; `counts` has the number of each topic's partitions."""
    balance = _Balance(subscribers, counts)
    balance.keep()
    balance.fill()
    balance.level()
    return {member_id: frozenset(places) for member_id, places in balance.shares.items()}


class _Balance:
    """A uniform assignment in the making."""

    def __init__(self, subscribers: Sequence[AssignedMember], counts: Mapping[bytes, int]) -> None:
        self._subscribers = subscribers = sorted(subscribers, key=lambda member: member.due)
        self._counts = counts
        self._by_topic = _subscribers_by_topic(subscribers)
        self._order = {member.member_id: number for number, member in enumerate(subscribers)}
        self._has_equal_topics = len({member.topics for member in subscribers}) == 1
        self.shares: dict[bytes, set[Place]] = {member.member_id: set() for member in subscribers}
        self._given: set[Place] = set()

    def _places(self) -> Iterator[Place]:
        for topic in sorted(self._by_topic):
            for index in range(self._counts.get(topic, 0)):
                yield topic, index

    def keep(self) -> None:
        """Let members keep what they have, as far as their share goes."""
        total = sum(self._counts.get(topic, 0) for topic in self._by_topic)
        least, larger = divmod(total, len(self._subscribers) or 1)
        for member in reversed(self._subscribers):
            remaining = [place for place in sorted(member.target) if self._may_keep(member, place)]
            if self._has_equal_topics:
                most = least + (larger > 0)
                remaining = remaining[:most]
                larger -= len(remaining) > least
            self._given.update(remaining)
            self.shares[member.member_id].update(remaining)

    def _may_keep(self, member: AssignedMember, place: Place) -> bool:
        topic, index = place
        is_there = topic in member.topics and index < self._counts.get(topic, 0)
        return is_there and place not in self._given

    def fill(self) -> None:
        """Give each partition that nobody has to the subscriber with the fewest."""
        heaps: dict[tuple[bytes, ...], list[tuple[int, int, bytes]]] = {}
        by_topic: dict[bytes, list[tuple[int, int, bytes]]] = {}
        for place in self._places():
            if place in self._given:
                continue
            heap = by_topic.get(place[0])
            if heap is None:
                names = tuple(member.member_id for member in self._by_topic[place[0]])
                heap = by_topic[place[0]] = heaps.setdefault(names, [])
                if not heap:
                    heap.extend((self._load(name), self._order[name], name) for name in names)
                    heapq.heapify(heap)
            load, order, name = heap[0]
            while load != self._load(name):  # It got partitions of other topics meanwhile.
                heapq.heapreplace(heap, (self._load(name), order, name))
                load, order, name = heap[0]
            self.shares[name].add(place)
            heapq.heapreplace(heap, (load + 1, order, name))

    def _load(self, member_id: bytes) -> int:
        return len(self.shares[member_id])

    def level(self) -> None:
        """Move partitions from members with many to subscribers with fewer."""
        if self._has_equal_topics:
            return  # `keep` and `fill` have balanced them.
        looks = 0
        has_moved = True
        while has_moved:
            has_moved = False
            for name in sorted(self.shares, key=self._load, reverse=True):
                for place in sorted(self.shares[name]):
                    others = self._by_topic[place[0]]
                    looks += len(others)
                    if looks > LEVEL_LOOKS_MAX:
                        return
                    least = min((member.member_id for member in others), key=self._load)
                    if self._load(least) + 1 < self._load(name):
                        self.shares[name].remove(place)
                        self.shares[least].add(place)
                        has_moved = True


def range_(subscribers: Sequence[AssignedMember], counts: Mapping[bytes, int]) -> Shares:
    """Give each member neighbouring partitions of each topic; the first members get the rest."""
    shares: dict[bytes, set[Place]] = {member.member_id: set() for member in subscribers}
    for topic, members in _subscribers_by_topic(subscribers).items():
        members.sort(key=lambda member: (member.instance_id or member.member_id, member.member_id))
        least, larger = divmod(counts.get(topic, 0), len(members))
        first = 0
        for number, member in enumerate(members):
            end = first + least + (number < larger)
            shares[member.member_id].update((topic, index) for index in range(first, end))
            first = end
    return {member_id: frozenset(places) for member_id, places in shares.items()}


def simple(subscribers: Sequence[AssignedMember], counts: Mapping[bytes, int]) -> Shares:
    """Assign to members of a share group, where several may have a partition: all partitions of a
    topic have as many members, all members as many partitions, and few partitions move.
    """
    shares: dict[bytes, set[Place]] = {member.member_id: set() for member in subscribers}
    for topic, members in sorted(_subscribers_by_topic(subscribers).items()):
        count = counts.get(topic, 0)
        if not count:
            continue
        most = -(-len(members) // count)  # Members of each partition.
        total = most * count
        holders: dict[int, int] = dict.fromkeys(range(count), 0)
        wanting: list[tuple[bytes, int]] = []
        for number, member in enumerate(members):
            # Rounded so that the wishes of all members add up to the total.
            wish = -(-total * (number + 1) // len(members)) - -(-total * number // len(members))
            for place in sorted(member.target):
                is_there = place[0] == topic and place[1] in holders
                if is_there and wish and holders[place[1]] < most:
                    shares[member.member_id].add(place)
                    holders[place[1]] += 1
                    wish -= 1
            wanting.append((member.member_id, wish))
        _fill_up(topic, shares, holders, wanting, most)
    return {member_id: frozenset(places) for member_id, places in shares.items()}


def _fill_up(
    topic: bytes,
    shares: dict[bytes, set[Place]],
    holders: dict[int, int],
    wanting: list[tuple[bytes, int]],
    most: int,
) -> None:
    """Give the members that want more the partitions with the fewest members."""
    heap = [(number, index) for index, number in holders.items() if number < most]
    heapq.heapify(heap)
    for member_id, wish in wanting:
        passed: list[tuple[int, int]] = []
        while wish and heap:
            number, index = heapq.heappop(heap)
            if (topic, index) in shares[member_id]:
                passed.append((number, index))
                continue
            shares[member_id].add((topic, index))
            wish -= 1
            if number + 1 < most:
                passed.append((number + 1, index))
        for entry in passed:
            heapq.heappush(heap, entry)


def _subscribers_by_topic(
    subscribers: Sequence[AssignedMember],
) -> dict[bytes, list[AssignedMember]]:
    by_topic: dict[bytes, list[AssignedMember]] = {}
    for member in subscribers:
        for topic in member.topics:
            by_topic.setdefault(topic, []).append(member)
    return by_topic


DEFAULT = b"uniform"
ASSIGNORS: Mapping[bytes, Assignor] = {DEFAULT: uniform, b"range": range_}
