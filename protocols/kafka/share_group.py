"""A share group (KIP-932): members, epochs and their partitions. Knows no clock, no broker and no
request.

Several members may have a partition, so nobody has to give up a partition first: a member moves to
the group's epoch with its next heartbeat. `broker/delivery/share_queue.py` locks the records.
Rules: group-coordinator/.../modern/share of apache/kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from braidlog.protocols.kafka.assignors import AssignedMember, Places, Shares, simple
from braidlog.protocols.kafka.classic_group import MemberRefused
from braidlog.protocols.kafka.consumer_group import ConsumerGroup
from braidlog.protocols.kafka.consumer_member import ConsumerMember
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.kept_bytes import ENTRY_BYTES

ASSIGNOR: Final = b"simple"


class ShareGroup(ConsumerGroup):
    """A share group with its members.

    `initialized` has the ids of the topics that members were assigned or the group was moved on,
    until the group's positions there are deleted; `has_initialized` stays true. As in Kafka, the
    group exists from its first member or move until it is deleted. Kafka keeps the like for all
    share groups; here a restart forgets this, and the positions tell.
    """

    protocol_type = b"share"

    def __init__(self, name: bytes) -> None:
        """Start without members."""
        super().__init__(name)
        self.assignor = ASSIGNOR
        self.initialized: set[bytes] = set()
        self.has_initialized = False

    @property
    def size(self) -> int:
        """See `ConsumerGroup`."""
        return super().size + ENTRY_BYTES * len(self.initialized)

    def exists(self, now: float) -> bool:
        """Return True if the group has or had members, or was moved."""
        return self.epoch > 0

    def create(self) -> None:
        """Let a group without members exist."""
        if not self.epoch:
            self.epoch = self.target_epoch = 1

    def note_move(self, topic_id: bytes) -> None:
        """Note that a client has set a position in a topic."""
        self.initialized.add(topic_id)
        self.has_initialized = True

    def forget(self, topic_id: bytes) -> bool:
        """Note that the positions in a topic were deleted; return True if members were assigned the
        topic before.
        """
        was_assigned = topic_id in self.initialized
        self.initialized.discard(topic_id)
        return was_assigned

    @property
    def state_name(self) -> bytes:
        """See `ConsumerGroup`: a share group is never on the way to an assignment."""
        return b"Stable" if self.members else b"Empty"

    def check_epoch(self, member: ConsumerMember, epoch: int, owned: Places | None) -> None:
        """Check the epoch of a heartbeat; the former epoch is right if the last answer may have
        been lost. Raises MemberRefused.
        """
        if epoch in (member.epoch, member.former_epoch):
            return
        side = "larger" if epoch > member.epoch else "smaller"
        reason = (
            f"The share group member has a {side} member epoch ({epoch}) than the one known by the "
            f"group coordinator ({member.epoch}). The member must abandon all its partitions and "
            "rejoin."
        )
        raise MemberRefused(Code.FENCED_MEMBER_EPOCH, reason)

    def _shares(self, subscribers: Sequence[AssignedMember], counts: Mapping[bytes, int]) -> Shares:
        for subscriber in subscribers:
            self.initialized.update(topic for topic in subscriber.topics if counts.get(topic))
        self.has_initialized |= bool(self.initialized)
        return simple(subscribers, counts)

    def _next_step(self, member: ConsumerMember, owned: Places | None, now: float) -> bool:
        before, member.assigned = member.assigned, member.target
        if member.epoch != self.target_epoch:
            member.former_epoch, member.epoch = member.epoch, self.target_epoch
        self._off_target.discard(member.member_id)
        return member.assigned != before
