"""A member of a group to which the broker assigns partitions, and its topics. Knows no group."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from braidlog.protocols.kafka.assignors import NOWHERE, Place, Places
from braidlog.protocols.kafka.kept_bytes import MEMBER_BYTES, entries_size
from braidlog.protocols.kafka.roster import Client

JOIN_EPOCH, LEAVE_EPOCH, AWAY_EPOCH = 0, -1, -2


@dataclass(slots=True, frozen=True)
class ClassicSide:
    """The part of a member that speaks the classic protocol to this group."""

    session_s: float
    protocols: Mapping[bytes, bytes]  # metadata by name, in the member's order
    version: int = 0  # of the metadata; the member's assignment has the same

    @property
    def protocol_name(self) -> bytes:
        """Return the protocol that the member is told."""
        return next(iter(self.protocols))

    @property
    def size(self) -> int:
        """Bytes kept for the protocols."""
        return entries_size(self.protocols.keys()) + sum(map(len, self.protocols.values()))


@dataclass(slots=True, eq=False)
class ConsumerMember:
    """A member; times are in seconds of the caller's clock."""

    member_id: bytes
    instance_id: bytes | None
    client: Client
    rack_id: bytes | None = None
    rebalance_s: float = 0.0
    topics: frozenset[bytes] = frozenset()  # names that the member subscribes to
    pattern: bytes = b""  # of further names
    matches: frozenset[bytes] = frozenset()  # the names that match, when last looked at
    matched_at: float = -math.inf
    assignor: bytes | None = None
    epoch: int = 0
    former_epoch: int = -1  # accepted once more: the last answer may have been lost
    target: Places = NOWHERE  # what the member shall have
    assigned: Places = NOWHERE  # what the member may have now
    revoking: Places = NOWHERE  # what the member has to give up first
    # The epochs in which the member got the partitions that it has or has to give up (KIP-1251).
    place_epochs: dict[Place, int] = field(default_factory=dict)
    due: float = 0.0  # time at which the member counts as dead
    # Time at which a member that does not take its next step counts as dead: it gives up
    # partitions, or joins again and syncs by the classic protocol.
    step_due: float = math.inf
    classic: ClassicSide | None = None  # None: the member speaks the consumer protocol.

    @property
    def is_away(self) -> bool:
        """Return True if a static member has gone, and may come back in its session."""
        return self.epoch == AWAY_EPOCH

    def may_commit(self, epoch: int, places: Iterable[Place]) -> bool:
        """Return True if a commit's epoch is right: the member's own, or a former epoch in which
        the member had all these partitions already.
        """
        if epoch >= self.epoch:
            return epoch == self.epoch
        epochs = self.place_epochs
        return all(place in epochs and epochs[place] <= epoch for place in places)

    @property
    def size(self) -> int:
        """Bytes kept for the member and its names; those of its partitions are not included."""
        names = len(self.member_id) + len(self.instance_id or b"") + sum(map(len, self.client))
        names += len(self.rack_id or b"") + len(self.pattern)
        own_bytes = 0 if self.classic is None else self.classic.size
        topics = entries_size(self.topics) + entries_size(self.matches)
        return MEMBER_BYTES + names + topics + own_bytes


@dataclass(slots=True)
class MemberWishes:
    """The parts of a member's subscription that a heartbeat gives; None: as before."""

    topics: frozenset[bytes] | None = None
    pattern: bytes | None = None
    assignor: bytes | None = None
    rack_id: bytes | None = None
    rebalance_s: float | None = None


NO_WISHES: Final = MemberWishes()


@dataclass(slots=True)
class GroupTopics:
    """The topics that a group's members subscribe to, as they are now."""

    ids: Mapping[bytes, bytes] = field(default_factory=dict)  # name -> id
    counts: Mapping[bytes, int] = field(default_factory=dict)  # id -> partitions
