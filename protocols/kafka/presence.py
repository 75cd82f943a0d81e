"""One connection, as the groups see it whose members speak over it. Knows no request.

A living client is heard of again within a third of its session: that is how often clients are told
to send heartbeats at least. So a member whose connection has ended is not waited for any longer
than that. And members that send heartbeats between their fetches only (kafkajs) would notice a
rebalance when their long poll ends: it ends early.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import trio

from protocols.kafka.membership import State

if TYPE_CHECKING:
    from broker.server.connection import Connection
    from protocols.kafka.group_table import GroupTable
    from protocols.kafka.membership import Group, Member

# Memberships that speak over one connection: a client has one, or a few. Of more, the oldest are
# waited for as long as their sessions last.
MEMBERSHIPS_MAX = 100
# So long may a fetch still wait whose client is to join its group again: short for a person, long
# for a client that goes on fetching until its next heartbeat.
REJOIN_POLL_S = 0.2


class Presence:
    """What the end of a connection means to groups, and what their rebalances mean to it."""

    def __init__(self, connection: Connection, groups: GroupTable) -> None:
        """Nobody speaks over it yet."""
        self._connection = connection
        self._groups = groups
        self._spoken: dict[bytes, Group] = {}  # member id -> group
        self._poll: trio.CancelScope | None = None

    def heard(self, group: Group, member: Member) -> None:
        """A member has spoken over this connection: it is alive."""
        member.heard(trio.current_time())
        member.presence = self
        self._spoken[member.member_id] = group
        if len(self._spoken) > MEMBERSHIPS_MAX:
            del self._spoken[next(iter(self._spoken))]
        self._watch(group)

    def _watch(self, group: Group) -> None:
        """See to it that dead members are found, if nobody does: who did may have died itself."""
        if not group.watched:
            group.watched = True
            self._connection.nursery.start_soon(self._groups.watch, group)

    @contextmanager
    def polling(self, seconds: float) -> Iterator[None]:
        """Wait within this for so long at most, and shorter where a member is to join again."""
        with trio.move_on_after(seconds) as scope:
            self._poll = scope
            if any(self._is_called(member_id) for member_id in self._spoken):
                self.call()
            try:
                yield
            finally:
                self._poll = None

    def _is_called(self, member_id: bytes) -> bool:
        group = self._spoken[member_id]
        member = group.members.get(member_id)
        return group.state is State.PREPARING and member is not None and not member.joined

    def call(self, at: float = 0.0) -> None:
        """A member that speaks over this connection is to join again, or will be then."""
        poll = self._poll
        if poll is not None:
            end = max(at, trio.current_time()) + REJOIN_POLL_S
            poll.deadline = min(poll.deadline, end)

    def ended(self) -> None:
        """The connection has ended: its members are dead unless they are heard of soon."""
        now = trio.current_time()
        for member_id, group in self._spoken.items():
            member = group.members.get(member_id)
            if member is None or member.presence is not self:
                continue
            member.presence = None
            member.lost(now)
            self._groups.wake(group)
            if not group.watched:  # The task that finds dead members was this connection's.
                _call_others(group, member.due)


def _call_others(group: Group, at: float) -> None:
    """Whoever is heard of next finds the dead: let it not sit in a long poll."""
    for other in group.members.values():
        if other.presence is not None:
            other.presence.call(at)
