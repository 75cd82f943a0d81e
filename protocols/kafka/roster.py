"""The members of a group, with the counts and deadlines that requests need. Knows no rule of a
rebalance.

A request costs the same in a group of three and of a thousand: all sums are kept up to date here,
and no request walks over all members.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from braidlog.protocols.kafka.deadlines import Deadlines
from braidlog.protocols.kafka.kept_bytes import MEMBER_BYTES, entries_size

# A living member sends a request within this share of its session timeout. Clients send a heartbeat
# every 0.07 (Java) to 0.3 (kafka-python) of the timeout by default; Kafka's documentation advises a
# third at most.
HEARD_SHARE = 0.3
RECONNECT_S = 0.5  # Minimum time for a member to reconnect.

Client = tuple[bytes, bytes]
"""Client id and host."""


@dataclass(slots=True, eq=False)
class KafkaMember:
    """A member of a group; times are in seconds of the caller's clock."""

    member_id: bytes
    instance_id: bytes | None
    client: Client
    session_s: float
    rebalance_s: float
    protocols: Mapping[bytes, bytes]
    due: float  # time at which the member counts as dead
    parked: bool = False  # the member's JoinGroup is not answered yet
    assignment: bytes = b""
    speaks_over: object = None  # the member's last connection, while open
    # The former id of a static leader that has come back in this generation: its assignments stand.
    led_as: bytes = b""
    # Each wakes a request of this member that waits for the group. Called once.
    wakers: list[Callable[[], None]] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Bytes kept for the member: protocols with their metadata, assignment, names."""
        own_bytes = sum(map(len, self.protocols.values())) + entries_size(self.protocols.keys())
        names = len(self.member_id) + len(self.instance_id or b"") + sum(map(len, self.client))
        return MEMBER_BYTES + own_bytes + len(self.assignment) + names

    def heard(self, now: float) -> None:
        """Note a sign of life."""
        self.due = now + self.session_s

    def lost(self, now: float) -> None:
        """Note that the member's connection has ended. A static member may stay away for its
        session timeout.
        """
        if self.instance_id is None:
            heard = min(self.due - self.session_s, now)
            again = max(heard + self.session_s * HEARD_SHARE, now + RECONNECT_S)
            self.due = min(self.due, again)

    def wake(self) -> None:
        """Wake the waiting requests: the group has an answer for the member."""
        wakers, self.wakers = self.wakers, []
        for wake in wakers:
            wake()


class Roster:
    """The members of a group in order of arrival.

    `absent` holds the ids of members that have not joined the generation in preparation.
    """

    def __init__(self) -> None:
        """Start without members."""
        self.members: dict[bytes, KafkaMember] = {}
        self.absent: set[bytes] = set()
        self.size = 0  # bytes kept for all members
        self._instances: dict[bytes, bytes] = {}  # instance id -> member id
        self._supporters: Counter[bytes] = Counter()  # protocol -> members that name it
        self._dues: Deadlines[KafkaMember] = Deadlines(self.has)

    def has(self, member: KafkaMember) -> bool:
        """Return True if this very object is in: a member that joins again gets a new object."""
        return self.members.get(member.member_id) is member

    def add(self, member: KafkaMember) -> None:
        """Add a member, which then counts as joined, or replace the member with the same id."""
        known = self.members.get(member.member_id)
        if known is not None:
            self._uncount(known)
            known.wake()
        self.members[member.member_id] = member
        self.absent.discard(member.member_id)
        self.size += member.size
        self._supporters.update(list(member.protocols))
        if member.instance_id is not None:
            self._instances[member.instance_id] = member.member_id
        self._dues.add(member.due, member, len(self.members))

    def remove(self, member: KafkaMember) -> None:
        """Remove a member, and wake its waiting requests."""
        del self.members[member.member_id]
        self.absent.discard(member.member_id)
        self._uncount(member)
        member.wake()

    def _uncount(self, member: KafkaMember) -> None:
        self.size -= member.size
        self._supporters.subtract(list(member.protocols))
        for name in member.protocols:
            if not self._supporters[name]:
                del self._supporters[name]
        instance = member.instance_id
        if instance is not None and self._instances.get(instance) == member.member_id:
            del self._instances[instance]

    def instance(self, instance_id: bytes) -> KafkaMember | None:
        """Return the static member of that name."""
        return self.members.get(self._instances.get(instance_id, b""))

    def shared(self, protocols: Iterable[bytes]) -> Iterable[bytes]:
        """Return those of the protocols that all members support, in the given order."""
        count = len(self.members)
        return (name for name in protocols if self._supporters[name] == count)

    def fits(self, protocols: Iterable[bytes], member_id: bytes) -> bool:
        """Return True if all members except `member_id` share one of the protocols."""
        own = self.members.get(member_id)
        others = len(self.members) - (own is not None)
        supported = () if own is None else own.protocols
        return any(self._supporters[name] - (name in supported) == others for name in protocols)

    def assign(self, member: KafkaMember, assignment: bytes) -> None:
        """Store a member's assignment."""
        self.size += len(assignment) - len(member.assignment)
        member.assignment = assignment

    def lost(self, member: KafkaMember, now: float) -> None:
        """Note that a member's connection has ended: the deadline may come sooner."""
        member.lost(now)
        self._dues.add(member.due, member, len(self.members))

    def next_due(self) -> float:
        """Return a time before which no member dies."""
        return self._dues.next_due()

    def take_dead(self, now: float, is_safe: Callable[[KafkaMember], bool]) -> list[KafkaMember]:
        """Return the members that are due and not safe; `next_due` is then above `now`."""
        dead = []
        for member in self._dues.take_due(now):
            if member.due <= now and not is_safe(member):
                dead.append(member)
            else:  # A sign of life after this moment sets no earlier deadline.
                at = now + member.session_s
                at = min(at, member.due) if member.due > now else at
                self._dues.add(at, member, len(self.members))
        return dead
