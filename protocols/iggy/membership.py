"""Consumer groups whose partitions the broker deals out: who is a member, and whose turn is which
partition.

Membership lives in memory only and ends with the connection; which groups exist, and how far each
has read, is in the catalogue and the cursor store. Knows no protocol, no connection and no topic
but their numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, field

GroupKey = tuple[int, str]  # The catalogue's topic id, the group's name.


@dataclass(slots=True)
class Member:
    """One reader of a group.

    `current` is the partition of its latest turn, or its first before that.
    """

    member_id: int
    partitions: list[int] = field(default_factory=list)
    current: int | None = None
    has_polled: bool = False
    _turn: int = 0

    def next_partition(self) -> int | None:
        """The partition whose turn it is; None for a member without any."""
        if not self.partitions:
            return None
        self.current = self.partitions[self._turn]
        self.has_polled = True
        self._turn = (self._turn + 1) % len(self.partitions)
        return self.current

    def deal(self, partitions: list[int]) -> None:
        """Give the member these partitions instead; its turns begin anew."""
        self.partitions = partitions
        self.current = partitions[0] if partitions else None
        self.has_polled = False
        self._turn = 0


class Groups:
    """The members of every group of a broker."""

    def __init__(self) -> None:
        self._members: dict[GroupKey, dict[int, Member]] = {}
        self._dealt: dict[GroupKey, int] = {}  # Number of partitions at the last deal.
        self._generations: dict[GroupKey, int] = {}  # Rises with every deal.
        self._joined: dict[int, list[GroupKey]] = {}

    def join(self, topic_id: int, name: str, member_id: int) -> None:
        """Make somebody a member; joining twice changes nothing."""
        key = (topic_id, name)
        members = self._members.setdefault(key, {})
        if member_id not in members:
            members[member_id] = Member(member_id)
            self._joined.setdefault(member_id, []).append(key)
            self._dealt.pop(key, None)

    def leave(self, topic_id: int, name: str, member_id: int) -> bool:
        """End a membership; False: there was none."""
        key = (topic_id, name)
        members = self._members.get(key, {})
        if members.pop(member_id, None) is None:
            return False
        self._joined[member_id].remove(key)
        if not self._joined[member_id]:
            del self._joined[member_id]
        self._dealt.pop(key, None)
        if not members:
            del self._members[key]
        return True

    def leave_all(self, member_id: int) -> None:
        """End every membership of somebody who is gone."""
        for topic_id, name in list(self._joined.get(member_id, ())):
            self.leave(topic_id, name, member_id)

    def drop(self, topic_id: int, name: str) -> None:
        """End every membership of a group that is gone."""
        for member_id in list(self._members.get((topic_id, name), ())):
            self.leave(topic_id, name, member_id)
        self._generations.pop((topic_id, name), None)

    def generation(self, topic_id: int, name: str) -> int:
        """How often the partitions of a group were dealt while it was known."""
        return self._generations.get((topic_id, name), 0)

    def joined(self, member_id: int) -> list[GroupKey]:
        """The groups of a member, in the order in which they were joined."""
        return list(self._joined.get(member_id, ()))

    def members(self, topic_id: int, name: str, partitions_count: int) -> list[Member]:
        """The members in the order in which they joined, with their partitions.

        All partitions are dealt anew after a change of the members or of the number of partitions:
        partition `i` goes to member `i mod m`, and every member's turns begin anew.
        """
        key = (topic_id, name)
        members = list(self._members.get(key, {}).values())
        if members and self._dealt.get(key) != partitions_count:
            for number, member in enumerate(members):
                member.deal(list(range(number, partitions_count, len(members))))
            self._dealt[key] = partitions_count
            self._generations[key] = self._generations.get(key, 0) + 1
        return members

    def member(
        self, topic_id: int, name: str, member_id: int, partitions_count: int
    ) -> Member | None:
        """One member, with its partitions; None if it has not joined."""
        self.members(topic_id, name, partitions_count)
        return self._members.get((topic_id, name), {}).get(member_id)
