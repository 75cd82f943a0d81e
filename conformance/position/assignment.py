"""The rules of docs/protocols/iggy.md about the assignment of a topic's partitions to the members
of an Iggy group, as simple code. Knows no bytes and no connection; partitions count from 0.

A leave, a change of the topic and a join of a dialect up to D4 assign all partitions again. A
member of a later dialect takes only a share: a partition with uncommitted polls moves once a client
of any protocol has committed the polls, or made them void by a reset, or after REVOKE_S.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

REVOKE_S = 30.0

Positions = Sequence[int | None]  # Of the group in each partition; None: never set.


@dataclass(slots=True, eq=False)
class ModelMember:
    """A member's partitions, in ascending order; the member may poll no partition in `leaving`."""

    partitions: list[int] = field(default_factory=list)
    leaving: set[int] = field(default_factory=set)
    current: int | None = None  # Partition of the latest turn; the first partition before that.
    turn: int = 0

    @property
    def polled(self) -> list[int]:
        """Return the partitions that the member may poll."""
        return [partition for partition in self.partitions if partition not in self.leaving]

    def deal(self, partitions: list[int]) -> None:
        """Assign partitions and restart the turns."""
        self.partitions, self.leaving, self.turn = partitions, set(), 0
        self.current = partitions[0] if partitions else None

    def take_turn(self) -> int | None:
        """Return the partition that the member polls next; None without a partition."""
        polled = self.polled
        if not polled:
            return None
        self.current = polled[self.turn % len(polled)]
        self.turn = (self.turn + 1) % len(polled)
        return self.current


@dataclass(slots=True)
class ModelMove:
    """A partition on its way to another member, since some time, from a position of the group."""

    owner: ModelMember
    to: ModelMember
    begun_s: float
    position: int | None

    def has_ended(self, position: int | None, uncommitted: int) -> bool:
        """Return True if the polls up to an offset are committed or void at that position."""
        if position is None:
            return self.position is not None
        return position >= uncommitted or position < (self.position or 0)


@dataclass(slots=True)
class ModelAssignment:
    """The members in the order of joining, and the partitions of each."""

    count: int  # Partitions of the topic.
    members: list[ModelMember] = field(default_factory=list)
    # By partition: the offset behind the polled messages.
    uncommitted: dict[int, int] = field(default_factory=dict)
    moves: dict[int, ModelMove] = field(default_factory=dict)

    def deal(self) -> None:
        """Assign partition `i` to the `i mod m`th member."""
        members = len(self.members)
        for number, member in enumerate(self.members):
            member.deal(list(range(number, self.count, members)))
        self.uncommitted.clear()
        self.moves.clear()

    def resize(self, count: int) -> None:
        """Change the number of partitions."""
        self.count = count
        self.deal()

    def join(
        self, member: ModelMember, positions: Positions, *, takes_share: bool, now_s: float
    ) -> None:
        """Add a member, which takes all partitions `i mod m`, or only a share."""
        self.members.append(member)
        if takes_share and len(self.members) > 1:
            self._take_share(member, positions, now_s)
        else:
            self.deal()

    def leave(self, member: ModelMember) -> None:
        """Remove a member."""
        self.members.remove(member)
        self.deal()

    def polled(self, member: ModelMember, partition: int, end: int) -> None:
        """Record a poll of a member's own partition up to an offset, without a commit."""
        if partition in member.partitions:
            self.uncommitted[partition] = max(self.uncommitted.get(partition, 0), end)

    def committed(self, partition: int, position: int | None) -> None:
        """Record the position after a commit of any client of Iggy."""
        if (position or 0) >= self.uncommitted.get(partition, 0):
            self.uncommitted.pop(partition, None)
            if partition in self.moves:
                self.finish(partition)

    def settle(self, positions: Positions) -> None:
        """Complete the moves of partitions whose polls are committed or void."""
        for partition, move in [*self.moves.items()]:
            if move.has_ended(positions[partition], self.uncommitted.get(partition, 0)):
                self.finish(partition)

    def finish(self, partition: int) -> None:
        """Complete a move."""
        move = self.moves.pop(partition)
        self.uncommitted.pop(partition, None)
        owner, to = move.owner, move.to
        owner.partitions.remove(partition)
        owner.leaving.discard(partition)
        if owner.current == partition:
            owner.current = owner.partitions[0] if owner.partitions else None
        to.partitions = sorted([*to.partitions, partition])
        if to.current is None:
            to.current = partition

    def _take_share(self, member: ModelMember, positions: Positions, now_s: float) -> None:
        """Take partitions from the members with the most, counting moves as done."""
        for at, end in [*self.uncommitted.items()]:
            if (positions[at] or 0) >= end:
                del self.uncommitted[at]
        share = max(self.count // len(self.members), 1)
        for _ in range(share):
            fullest = max(self.members, key=self._size)
            if self._size(fullest) <= share:
                return
            free = fullest.polled
            if not free:  # All its partitions leave: pass on the move that it waits for.
                next(move for move in self.moves.values() if move.to is fullest).to = member
                continue
            committed = [at for at in free if at not in self.uncommitted]
            partition = (committed or free)[-1]
            self.moves[partition] = ModelMove(fullest, member, now_s, positions[partition])
            fullest.leaving.add(partition)
            if committed:
                self.finish(partition)

    def _size(self, member: ModelMember) -> int:
        coming = sum(move.to is member for move in self.moves.values())
        return len(member.polled) + coming
