"""A group of the consumer protocol (KIP-848): members, epochs and who holds which partitions. Knows
no clock, no broker and no request.

The broker assigns. A change of members, of their topics or of the topics' partitions begins a new
group epoch. An assignment is then made for all members, in a large group at most once every
`ASSIGN_S`. A member moves to the new epoch by itself, in its heartbeats: first it gives up
partitions that it no longer has, then it gets those that their former holders have given up. Nobody
else has to stop.

Positions are not here: they belong to the subscription of the group's name. Rules:
group-coordinator/.../modern/consumer of apache/kafka 4.3.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from itertools import islice

from braidlog.protocols.kafka.assignors import (
    ASSIGNORS,
    DEFAULT,
    NOWHERE,
    AssignedMember,
    Place,
    Places,
    Shares,
)
from braidlog.protocols.kafka.classic_group import EMPTY_KEPT_S, GROUP_MEMBERS_MAX, MemberRefused
from braidlog.protocols.kafka.consumer_member import (
    AWAY_EPOCH,
    JOIN_EPOCH,
    NO_WISHES,
    ClassicSide,
    ConsumerMember,
    GroupTopics,
    MemberWishes,
)
from braidlog.protocols.kafka.deadlines import Deadlines
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.kept_bytes import PLACE_BYTES
from braidlog.protocols.kafka.roster import Client

SESSION_S = 45.0  # Kafka's group.consumer.session.timeout.ms
HEARTBEAT_S = 5.0  # Kafka's group.consumer.heartbeat.interval.ms
# A classic member's protocols that are compared with those of all others; Java's has two.
PROTOCOLS_TRIED = 20
SMALL_MEMBERS = 50  # So many are assigned at each change: that takes under a millisecond.
ASSIGN_S = 1.0  # Kafka's group.consumer.assignment.interval.ms


class State(enum.Enum):
    """The state of a group; the values are what tools show."""

    EMPTY = b"Empty"
    ASSIGNING = b"Assigning"  # The members have no assignment of the group's epoch yet.
    RECONCILING = b"Reconciling"  # Some member is on the way to its assignment.
    STABLE = b"Stable"


class ConsumerGroup:
    """A group with its members.

    `_holders` has each partition that a member has or still has to give up, with that member: no
    partition is given to a second member before.
    """

    protocol_type = b"consumer"  # as tools show it

    def __init__(self, name: bytes, *, may_downgrade: bool = True) -> None:
        """Start without members. `may_downgrade`: if only classic members are left, they get a
        classic group.
        """
        self.name = name
        self.stands = False  # A downgrade keeps the assignments.
        self._may_downgrade = may_downgrade
        self.epoch = 0
        self.target_epoch = 0  # of the last assignment
        self.assignor = DEFAULT
        self.members: dict[bytes, ConsumerMember] = {}
        self.emptied_at = -math.inf
        self._names_size = self._places = 0
        self.topics = GroupTopics()
        self._session_s = SESSION_S
        self._assign_s: float | None = None
        self._assigned_at = self._looked_at = -math.inf
        self._instances: dict[bytes, bytes] = {}  # instance id -> member id
        self._holders: dict[Place, ConsumerMember] = {}
        self._dues: Deadlines[ConsumerMember] = Deadlines(self._has)
        self._off_target: set[bytes] = set()  # ids of members not at their targets

    def set_times(self, session_s: float, assign_s: float | None) -> None:
        """Set the time after which a silent member is dead, and the least time between two
        assignments; None: `ASSIGN_S`, for large groups alone.
        """
        self._session_s, self._assign_s = session_s, assign_s

    def _has(self, member: ConsumerMember) -> bool:
        return self.members.get(member.member_id) is member

    @property
    def state(self) -> State:
        """Return the state that tools show."""
        if not self.members:
            return State.EMPTY
        if self.epoch > self.target_epoch:
            return State.ASSIGNING
        return State.RECONCILING if self._off_target else State.STABLE

    @property
    def state_name(self) -> bytes:
        """Return the name of that state in Kafka."""
        return self.state.value

    @property
    def size(self) -> int:
        """Bytes kept for the group's clients, and for the partitions that they are given."""
        return len(self.name) + self._names_size + PLACE_BYTES * self._places

    def _new_epoch(self) -> None:
        """Begin a new epoch. Changes before the next assignment share an epoch."""
        if self.epoch == self.target_epoch:
            self.epoch += 1

    def exists(self, now: float) -> bool:
        """Return True if the group has members, or its last member left a short time ago."""
        return bool(self.members) or now < self.emptied_at + EMPTY_KEPT_S

    # Joining, leaving.

    def join(
        self,
        member_id: bytes,
        instance_id: bytes | None,
        client: Client,
        wanted: MemberWishes,
        now: float,
        *,
        classic: ClassicSide | None = None,
    ) -> ConsumerMember:
        """Add a member, or let one begin anew. Raises MemberRefused."""
        known = self.members.get(member_id)
        former = None if instance_id is None else self._instance(instance_id)
        if former is not None and former.member_id != member_id:
            is_modern = classic is None and former.classic is None
            if is_modern and not former.is_away:
                raise MemberRefused(Code.UNRELEASED_INSTANCE_ID)
            self.stands = former.classic is None
            return self._replace(former, member_id, client, wanted, now, classic)
        if known is not None and known.instance_id != instance_id:
            raise MemberRefused(Code.FENCED_INSTANCE_ID)
        if known is not None:
            self.speak(known, classic)
            self.subscribe(known, wanted)
            self.heard(known, now)
            return known
        if len(self.members) >= GROUP_MEMBERS_MAX:
            raise MemberRefused(Code.GROUP_MAX_SIZE_REACHED)
        member = ConsumerMember(member_id, instance_id, client, classic=classic)
        self._add(member, now)
        self._new_epoch()
        self.subscribe(member, wanted)
        return member

    def _replace(
        self,
        former: ConsumerMember,
        member_id: bytes,
        client: Client,
        wanted: MemberWishes,
        now: float,
        classic: ClassicSide | None,
    ) -> ConsumerMember:
        """Let a static member come back with a new id, to the partitions that it had."""
        self._drop(former)
        member = ConsumerMember(
            member_id,
            former.instance_id,
            client,
            former.rack_id,
            former.rebalance_s,
            former.topics,
            former.pattern,
            former.matches,
            former.matched_at,
            former.assignor,
            target=former.target,
            classic=classic,
        )
        self._add(member, now)
        self.subscribe(member, wanted)
        self._off_target.add(member_id)
        return member

    def _add(self, member: ConsumerMember, now: float) -> None:
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self._instances[member.instance_id] = member.member_id
        self._names_size += member.size
        self._places += len(member.target)
        self.heard(member, now)
        self._dues.add(member.due, member, len(self.members))
        self._off_target.add(member.member_id)

    def _drop(self, member: ConsumerMember) -> None:
        del self.members[member.member_id]
        self._off_target.discard(member.member_id)
        instance = member.instance_id
        if instance is not None and self._instances.get(instance) == member.member_id:
            del self._instances[instance]
        self._names_size -= member.size
        self._places -= len(member.target)
        self._release(member, member.assigned | member.revoking)

    def remove(self, member: ConsumerMember, now: float) -> None:
        """Remove a member; the others share its partitions."""
        self._drop(member)
        if member.classic is None and self.is_left_to_classic:
            self.stands = False
            return  # The members keep their epoch, as their generation.
        self._new_epoch()
        if not self.members:
            self.emptied_at = now
            self.target_epoch = self.epoch
            self.topics = GroupTopics()

    def go_away(self, member: ConsumerMember) -> None:
        """Let a static member go; it may come back in its session, and keeps its partitions."""
        member.epoch = AWAY_EPOCH

    def subscribe(self, member: ConsumerMember, wanted: MemberWishes) -> None:
        """Take over what a heartbeat says of the subscription."""
        if wanted == NO_WISHES:
            return
        self._names_size -= member.size
        before = (member.topics, member.pattern, member.assignor)
        if wanted.topics is not None:
            member.topics = wanted.topics
        if wanted.pattern is not None and wanted.pattern != member.pattern:
            member.pattern, member.matches = wanted.pattern, frozenset()
            member.matched_at = -math.inf
        if wanted.assignor is not None:
            member.assignor = wanted.assignor
        if wanted.rack_id is not None:
            member.rack_id = wanted.rack_id
        if wanted.rebalance_s is not None:
            member.rebalance_s = wanted.rebalance_s
        self._names_size += member.size
        if (member.topics, member.pattern, member.assignor) != before:
            self._new_epoch()

    # Being there.

    def _instance(self, instance_id: bytes) -> ConsumerMember | None:
        return self.members.get(self._instances.get(instance_id, b""))

    def find(self, member_id: bytes, instance_id: bytes | None = None) -> ConsumerMember:
        """Return the member that sent a request. Raises MemberRefused."""
        if instance_id is not None:
            static = self._instance(instance_id)
            if static is None:
                raise MemberRefused(Code.UNKNOWN_MEMBER_ID)
            if static.member_id != member_id:
                raise MemberRefused(Code.FENCED_INSTANCE_ID)
        member = self.members.get(member_id)
        if member is None:
            raise MemberRefused(Code.UNKNOWN_MEMBER_ID)
        return member

    def check_epoch(self, member: ConsumerMember, epoch: int, owned: Places | None) -> None:
        """Check the epoch of a heartbeat. The former epoch is right if the last answer may have
        been lost: then the member has nothing that it may not have. Raises MemberRefused.
        """
        if epoch == member.epoch:
            return
        is_former = epoch == member.former_epoch
        if not is_former or owned is None or not owned <= member.assigned:
            reason = (
                f"The consumer group member has the epoch {epoch}, and the group coordinator knows "
                f"{member.epoch}. The member must abandon all its partitions and rejoin."
            )
            raise MemberRefused(Code.FENCED_MEMBER_EPOCH, reason)

    def heard(self, member: ConsumerMember, now: float) -> None:
        """Note a sign of life."""
        classic = member.classic
        member.due = now + (self._session_s if classic is None else classic.session_s)

    def advance(self, now: float) -> None:
        """Remove the members that are dead, and those that take no step in their time."""
        for member in self._dues.take_due(now):
            due = min(member.due, member.step_due)
            if due <= now:
                self.remove(member, now)
            else:
                self._dues.add(due, member, len(self.members))

    # Assigning.

    def assign(self, topics: GroupTopics, now: float) -> None:
        """Make an assignment for a new epoch, or for topics that have changed. Not too often."""
        self._looked_at = now
        if topics != self.topics:
            self.topics = topics
            self._new_epoch()
        if self.epoch == self.target_epoch or not self.members:
            return
        if not self._may_assign(now):
            return
        self._assigned_at = now
        subscribers = [
            AssignedMember(
                member.member_id,
                frozenset(topics.ids[name] for name in self.names_of(member) if name in topics.ids),
                member.target,
                member.instance_id,
                math.inf if member.is_away else member.due,
            )
            for member in self.members.values()
        ]
        shares = self._shares(subscribers, topics.counts)
        self.target_epoch = self.epoch
        for member in self.members.values():
            member.target = shares[member.member_id]
            self._off_target.add(member.member_id)
        self._places = sum(map(len, shares.values()))

    def _shares(self, subscribers: Sequence[AssignedMember], counts: Mapping[bytes, int]) -> Shares:
        """Return the partitions of each member."""
        self.assignor = self._choose_assignor()
        return ASSIGNORS[self.assignor](subscribers, counts)

    def wants_topics(self, now: float) -> bool:
        """Return True if it is time to look at the topics, and to assign."""
        if self.epoch > self.target_epoch and self._may_assign(now):
            return True
        return now >= self._looked_at + ASSIGN_S

    def _may_assign(self, now: float) -> bool:
        if self._assign_s is not None:
            return now >= self._assigned_at + self._assign_s
        is_small = len(self.members) <= SMALL_MEMBERS
        return is_small or now >= self._assigned_at + ASSIGN_S

    def match(self, member: ConsumerMember, names: frozenset[bytes], now: float) -> None:
        """Take over the names of topics that match a member's pattern."""
        member.matched_at = now
        if names != member.matches:
            self._names_size -= member.size
            member.matches = names
            self._names_size += member.size
            self._new_epoch()

    def names(self) -> frozenset[bytes]:
        """Return the names of all topics that members subscribe to."""
        return frozenset().union(*map(self.names_of, self.members.values()))

    @staticmethod
    def names_of(member: ConsumerMember) -> frozenset[bytes]:
        """Return the names of the topics that a member subscribes to, those of its pattern too."""
        return member.topics | member.matches if member.matches else member.topics

    def _choose_assignor(self) -> bytes:
        """Return the assignor that most members want."""
        wanted = [other.assignor for other in self.members.values() if other.assignor is not None]
        if not wanted:
            return DEFAULT
        return max(sorted(set(wanted)), key=wanted.count)

    def has_its_share(self, member: ConsumerMember) -> bool:
        """Return True if the member needs nothing before the next change."""
        return self.epoch == self.target_epoch and member.member_id not in self._off_target

    def reconcile(self, member: ConsumerMember, owned: Places | None, now: float) -> bool:
        """Bring a member nearer to its target, after what it says it has. Return True if what it
        may have has changed.
        """
        self.heard(member, now)
        if member.revoking:
            if owned is None or owned & member.revoking:
                return False  # It has not given up all of them.
            self._release(member, member.revoking)
            member.revoking, member.step_due = NOWHERE, math.inf
        elif member.epoch == self.target_epoch and member.assigned == member.target:
            self._off_target.discard(member.member_id)
            return False
        return self._next_step(member, owned, now)

    def _next_step(self, member: ConsumerMember, owned: Places | None, now: float) -> bool:
        before, target = member.assigned, member.target
        lost = before - target
        if lost and (owned is None or owned & lost):
            member.assigned, member.revoking = before & target, lost
            member.step_due = math.inf
            self.await_step(member, now)
            return True
        self._release(member, lost)
        free = {place for place in target if self._holders.get(place, member) is member}
        for place in free:
            self._holders[place] = member
        member.assigned = frozenset(free)
        if member.epoch != self.target_epoch:
            member.former_epoch, member.epoch = member.epoch, self.target_epoch
        member.place_epochs.update(dict.fromkeys(member.assigned - before, member.epoch))
        if member.assigned == target:
            self._off_target.discard(member.member_id)
        return member.assigned != before

    def _release(self, member: ConsumerMember, places: Places) -> None:
        for place in places:
            if self._holders.get(place) is member:
                del self._holders[place]
            member.place_epochs.pop(place, None)

    def restart(self, member: ConsumerMember, now: float) -> None:
        """Let a member begin without partitions: it joins, or joins again."""
        self._release(member, member.assigned | member.revoking)
        member.assigned = member.revoking = NOWHERE
        member.step_due = math.inf
        member.epoch = member.former_epoch = JOIN_EPOCH
        self._off_target.add(member.member_id)
        self.heard(member, now)

    # Members of the classic protocol, which KIP-848's online migration lets in.

    def adopt(
        self, members: Sequence[ConsumerMember], epoch: int, topics: GroupTopics, now: float
    ) -> None:
        """Take over the members of a classic group at its generation, with their partitions. Of
        members with the same partition the first has the partition.
        """
        self.epoch = self.target_epoch = epoch
        self.topics = topics
        for member in members:
            free = frozenset(place for place in member.assigned if place not in self._holders)
            member.assigned = member.target = free
            self._holders.update(dict.fromkeys(free, member))
            member.epoch = member.former_epoch = epoch
            member.place_epochs = dict.fromkeys(free, epoch)
            self._add(member, now)
            self._off_target.discard(member.member_id)

    @property
    def is_left_to_classic(self) -> bool:
        """Return True if all members speak the classic protocol, and may get a classic group."""
        members = self.members.values()
        is_classic = bool(members) and all(member.classic is not None for member in members)
        return is_classic and self._may_downgrade

    def speak(self, member: ConsumerMember, classic: ClassicSide | None) -> None:
        """Note the protocol of a member's last request."""
        if member.classic is classic:
            return
        self._names_size -= member.size
        member.classic = classic
        self._names_size += member.size

    def supports(self, protocols: Mapping[bytes, bytes], member_id: bytes) -> bool:
        """Return True if all other classic members share one of these protocols."""
        others = [
            member.classic.protocols
            for member in self.members.values()
            if member.classic is not None and member.member_id != member_id
        ]
        tried = islice(protocols, PROTOCOLS_TRIED)
        return any(all(name in theirs for theirs in others) for name in tried)

    def find_leaving(self, member_id: bytes, instance_id: bytes | None) -> ConsumerMember:
        """Return a member that leaves; tools name an instance alone. Raises MemberRefused."""
        if instance_id is not None and not member_id:
            member_id = self._instances.get(instance_id, b"")
        return self.find(member_id, instance_id)

    def must_rejoin(self, member: ConsumerMember) -> bool:
        """Return True if a classic member has to join again: for a new assignment, to give up
        partitions, or for partitions that are free now.
        """
        if member.epoch < self.target_epoch or member.revoking:
            return True
        missing = member.target - member.assigned
        return bool(missing) and all(place not in self._holders for place in missing)

    def await_step(self, member: ConsumerMember, now: float) -> None:
        """Remove a member that does not take its next step within its rebalance timeout."""
        if member.step_due == math.inf:
            member.step_due = now + member.rebalance_s
            self._dues.add(member.step_due, member, len(self.members))

    def end_step(self, member: ConsumerMember, now: float) -> None:
        """Note that a classic member has fetched its partitions."""
        self.heard(member, now)
        member.step_due = math.inf
