"""Consumer groups whose partitions the broker assigns: the members, and the next partition of each.

When a member leaves, all partitions are assigned anew. A member that joins in the later dialects
gets no more than its share, and a partition that was polled but not committed stays with its owner
until the polled messages are committed, by any protocol's client, for REVOKE_S at most. Membership
is kept in memory only and ends with the connection; the catalogue and the cursor store know which
groups exist and their positions. Knows no protocol, and of connections and topics only their
numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

GroupKey = tuple[int, str]  # The catalogue's topic id, the group's name.
# Returns a group's position in a partition; None: never set, or the group was deleted.
PositionOf = Callable[[GroupKey, int], int | None]

# Time limit for an owner to commit its polls of a partition that moves to another member.
REVOKE_S = 30.0


@dataclass(slots=True)
class IggyMember:
    """A reader of a group.

    `partitions` are its own; those in `leaving` it may no longer poll. `current` is the partition
    of its latest turn, or its first partition before any turn.
    """

    member_id: int
    partitions: list[int] = field(default_factory=list)
    leaving: set[int] = field(default_factory=set)
    current: int | None = None
    has_polled: bool = False
    _turn: int = 0

    @property
    def polled_partitions(self) -> list[int]:
        """The partitions that it may poll."""
        if not self.leaving:
            return self.partitions
        return [partition for partition in self.partitions if partition not in self.leaving]

    def next_partition(self) -> int | None:
        """Take the next turn: the partition to read; None for a member without any."""
        mine = self.polled_partitions
        if not mine:
            return None
        self.current = mine[self._turn % len(mine)]
        self.has_polled = True
        self._turn = (self._turn + 1) % len(mine)
        return self.current

    def deal(self, partitions: list[int]) -> None:
        """Replace the member's partitions; its turns begin again."""
        self.partitions = partitions
        self.leaving = set()
        self.current = partitions[0] if partitions else None
        self.has_polled = False
        self._turn = 0

    def give(self, partition: int) -> None:
        """Give the member another partition."""
        self.partitions = sorted((*self.partitions, partition))
        if self.current is None:
            self.current = partition

    def take(self, partition: int) -> None:
        """Take one of its partitions away."""
        self.partitions = [other for other in self.partitions if other != partition]
        self.leaving.discard(partition)
        if self.current == partition:
            self.current = self.partitions[0] if self.partitions else None


@dataclass(slots=True)
class Move:
    """A partition on its way to another member. `position` is the group's position at the start of
    the move.
    """

    owner: IggyMember
    to: IggyMember
    due_s: float
    position: int | None


@dataclass(frozen=True, slots=True)
class Ownership:
    """The owner of a partition, and the group's generation at which the owner got the partition."""

    member_id: int
    generation: int


class IggyGroup:
    """The members of a group, and the partitions of each."""

    def __init__(
        self,
        clock_s: Callable[[], float],
        position_of: Callable[[int], int | None],
        first_generation: int,
    ) -> None:
        """`position_of` returns the group's position in a partition, as `PositionOf`."""
        self.members: dict[int, IggyMember] = {}
        self.generation = first_generation  # Rises whenever a partition changes its owner.
        self._clock_s = clock_s
        self._position_of = position_of
        self._dealt: int | None = None  # Partitions at the last deal; None: deal all again.
        self._joined: list[IggyMember] = []  # Since that deal, with `gently`.
        # By partition: the offset after the polled messages.
        self._uncommitted: dict[int, int] = {}
        self._moves: dict[int, Move] = {}  # By partition.
        self._owners: dict[int, Ownership] = {}  # By partition, as of the last deal or move.

    def join(self, member_id: int, *, gently: bool) -> None:
        """Add a member. `gently`: others keep their partitions, except for the new
        member's share.
        """
        member = self.members[member_id] = IggyMember(member_id)
        if gently:
            self._joined.append(member)
        else:
            self._dealt = None

    def leave(self, member_id: int) -> None:
        """Remove a member."""
        del self.members[member_id]
        self._dealt = None
        # The member's partitions have a new owner even if the same member joins again.
        self._owners = {
            partition: owner
            for partition, owner in self._owners.items()
            if owner.member_id != member_id
        }

    def deal_again(self) -> None:
        """Assign all partitions anew: others may have read them meanwhile."""
        self._dealt = None
        self._owners.clear()

    def owner_generation(self, partition: int) -> int:
        """Return the generation at which a partition got its present owner; 0 without an owner."""
        owner = self._owners.get(partition)
        return owner.generation if owner else 0

    def reassign(self, partitions_count: int) -> None:
        """Bring the assignment of that many partitions up to date."""
        if self._dealt != partitions_count:
            self._deal_all(partitions_count)
        elif self._joined:
            self._deal_shares(partitions_count)
        if self._moves:
            now = self._clock_s()
            for partition, move in list(self._moves.items()):
                if now >= move.due_s or self._has_ended(partition, move):
                    self._finish(partition)

    def polled(self, member_id: int, partition: int, next_offset: int) -> None:
        """Note that a member was handed everything below an offset, and has not committed it."""
        member = self.members.get(member_id)
        if member is not None and partition in member.partitions:
            self._uncommitted[partition] = max(self._uncommitted.get(partition, 0), next_offset)

    def committed(self, partition: int, position: int) -> None:
        """Note that everything below a position is committed."""
        if position >= self._uncommitted.get(partition, 0):
            self._uncommitted.pop(partition, None)
            if partition in self._moves:
                self._finish(partition)

    def _has_ended(self, partition: int, move: Move) -> bool:
        """Return True if a client of any protocol has committed the owner's polls, or made the
        polls void: by a reset of the position, or the deletion of the group's positions.
        """
        position = self._position_of(partition)
        if position is None:
            return move.position is not None
        is_set_back = move.position is not None and position < move.position
        return is_set_back or position >= self._uncommitted.get(partition, 0)

    def _deal_all(self, count: int) -> None:
        """Partition `i` goes to member `i mod m`, and every member's turns begin again."""
        members = list(self.members.values())
        for number, member in enumerate(members):
            member.deal(list(range(number, count, len(members))))
        self._dealt = count
        self._joined.clear()
        self._moves.clear()
        self._uncommitted.clear()
        self.generation += 1
        former, self._owners = self._owners, {}
        for member in members:
            for partition in member.partitions:
                owner = former.get(partition)
                if owner is None or owner.member_id != member.member_id:
                    owner = Ownership(member.member_id, self.generation)
                self._owners[partition] = owner

    def _deal_shares(self, count: int) -> None:
        """Give new members their share, taken from the members with the most partitions."""
        for partition, end in list(self._uncommitted.items()):
            position = self._position_of(partition)
            if position is not None and position >= end:  # Committed by another protocol's client.
                del self._uncommitted[partition]
        share = max(count // len(self.members), 1)  # Of few partitions each is somebody's share.
        sizes = {holder.member_id: len(holder.partitions) for holder in self.members.values()}
        for move in self._moves.values():
            sizes[move.owner.member_id] -= 1
            sizes[move.to.member_id] += 1
        for member in self._joined:
            for _ in range(share):
                fullest = max(self.members.values(), key=lambda holder: sizes[holder.member_id])
                if sizes[fullest.member_id] <= share:
                    break
                self._begin(fullest, member)
                sizes[fullest.member_id] -= 1
                sizes[member.member_id] += 1
        self._joined.clear()

    def _begin(self, owner: IggyMember, to: IggyMember) -> None:
        """Move a partition, preferably a partition without uncommitted polls, which moves at once.
        An owner that waits for all of its share passes on a partition that it waits for.
        """
        free = owner.polled_partitions
        if not free:
            next(move for move in self._moves.values() if move.to is owner).to = to
            return
        partition = next((p for p in reversed(free) if p not in self._uncommitted), free[-1])
        due_s = self._clock_s() + REVOKE_S
        self._moves[partition] = Move(owner, to, due_s, self._position_of(partition))
        owner.leaving.add(partition)
        if partition not in self._uncommitted:
            self._finish(partition)

    def _finish(self, partition: int) -> None:
        move = self._moves.pop(partition)
        self._uncommitted.pop(partition, None)
        move.owner.take(partition)
        move.to.give(partition)
        self.generation += 1
        self._owners[partition] = Ownership(move.to.member_id, self.generation)


class Groups:
    """The members of every group of a broker."""

    def __init__(
        self,
        clock_s: Callable[[], float],
        position_of: PositionOf = lambda _key, _partition: None,
        first_generation: Callable[[], int] = lambda: 0,
    ) -> None:
        """`clock_s` is a steady clock in seconds. `first_generation` returns the generation before
        that of a new group's first deal.
        """
        self._clock_s = clock_s
        self._position_of = position_of
        self._first_generation = first_generation
        self._groups: dict[GroupKey, IggyGroup] = {}  # Groups that have or had members.
        self._joined: dict[int, list[GroupKey]] = {}

    def join(self, topic_id: int, name: str, member_id: int, *, gently: bool = False) -> None:
        """Add a member; joining twice changes nothing. `gently`: see `IggyGroup.join`."""
        key = (topic_id, name)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = self._new_group(key)
        if member_id not in group.members:
            group.join(member_id, gently=gently)
            self._joined.setdefault(member_id, []).append(key)

    def leave(self, topic_id: int, name: str, member_id: int) -> bool:
        """End a membership; False: there was none."""
        key = (topic_id, name)
        group = self._groups.get(key)
        if group is None or member_id not in group.members:
            return False
        group.leave(member_id)
        self._joined[member_id].remove(key)
        if not self._joined[member_id]:
            del self._joined[member_id]
        return True

    def leave_all(self, member_id: int) -> None:
        """End every membership of a client that is gone."""
        for topic_id, name in list(self._joined.get(member_id, ())):
            self.leave(topic_id, name, member_id)

    def drop(self, topic_id: int, name: str) -> None:
        """End every membership of a group that is gone."""
        group = self._groups.get((topic_id, name))
        for member_id in list(group.members if group else ()):
            self.leave(topic_id, name, member_id)
        self._groups.pop((topic_id, name), None)

    def drop_topic(self, topic_id: int) -> None:
        """End every membership in the groups of a topic that is gone."""
        for _, name in self._keys(topic_id):
            self.drop(topic_id, name)

    def deal_again(self, topic_id: int) -> None:
        """Assign the partitions of a topic anew in all groups, with the next look at a member:
        meanwhile another broker assigns them.
        """
        for key in self._keys(topic_id):
            self._groups[key].deal_again()

    def owner_generation(self, key: GroupKey, partition: int) -> int:
        """Return the generation at which a partition got its present owner; 0 without an owner."""
        group = self._groups.get(key)
        return group.owner_generation(partition) if group else 0

    def generation(self, topic_id: int, name: str) -> int:
        """Return a number that rises with each change of a group's assignment; 0 for a group that
        never had a member.
        """
        group = self._groups.get((topic_id, name))
        return group.generation if group else 0

    def _keys(self, topic_id: int) -> list[GroupKey]:
        return [key for key in self._groups if key[0] == topic_id]

    def _new_group(self, key: GroupKey) -> IggyGroup:
        def position_of(partition: int) -> int | None:
            return self._position_of(key, partition)

        return IggyGroup(self._clock_s, position_of, self._first_generation())

    def joined(self, member_id: int) -> list[GroupKey]:
        """The groups of a member, in the order in which it joined them."""
        return list(self._joined.get(member_id, ()))

    def joined_count(self, member_id: int) -> int:
        """Return the number of groups of a member."""
        return len(self._joined.get(member_id, ()))

    def members(self, topic_id: int, name: str, partitions_count: int) -> list[IggyMember]:
        """The members in the order in which they joined, with their partitions."""
        group = self._groups.get((topic_id, name))
        if group is None or not group.members:
            return []
        group.reassign(partitions_count)
        return list(group.members.values())

    def member(
        self, topic_id: int, name: str, member_id: int, partitions_count: int
    ) -> IggyMember | None:
        """Return a member, with its partitions; None if it has not joined."""
        group = self._groups.get((topic_id, name))
        if group is None or member_id not in group.members:
            return None
        group.reassign(partitions_count)
        return group.members[member_id]

    def polled(self, key: GroupKey, member_id: int, partition: int, next_offset: int) -> None:
        """See `IggyGroup.polled`."""
        group = self._groups.get(key)
        if group is not None:
            group.polled(member_id, partition, next_offset)

    def committed(self, key: GroupKey, partition: int, position: int) -> None:
        """Note a commit as `IggyGroup.committed`, of any committer."""
        group = self._groups.get(key)
        if group is not None:
            group.committed(partition, position)
