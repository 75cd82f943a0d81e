"""One connection, as the groups see it whose members speak over it. Knows no request.

A living client is heard of again within a third of its session: that is how often clients are told
to send heartbeats at least. So a member whose connection has ended is not waited for much longer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from broker.server.connection import Connection
    from protocols.kafka.group_table import GroupTable
    from protocols.kafka.membership import Group, Member

# Memberships that speak over one connection: a client has one, or a few. Of more, the oldest are
# waited for as long as their sessions last.
MEMBERSHIPS_MAX = 100


class Presence:
    """What the end of a connection means to groups."""

    def __init__(self, connection: Connection, groups: GroupTable) -> None:
        """Nobody speaks over it yet."""
        self._connection = connection
        self._groups = groups
        self._spoken: dict[bytes, Group] = {}  # member id -> group

    def heard(self, group: Group, member: Member) -> None:
        """A member has spoken over this connection: it is alive."""
        member.heard(trio.current_time())
        member.speaks_over = self
        self._spoken[member.member_id] = group
        if len(self._spoken) > MEMBERSHIPS_MAX:
            del self._spoken[next(iter(self._spoken))]
        self._watch(group)

    def _watch(self, group: Group) -> None:
        """See to it that dead members are found, if nobody does: who did may have died itself."""
        if not group.watched:
            group.watched = True
            self._connection.nursery.start_soon(self._groups.watch, group)

    def ended(self) -> None:
        """The connection has ended: its members are dead unless they are heard of soon."""
        now = trio.current_time()
        for member_id, group in self._spoken.items():
            member = group.members.get(member_id)
            if member is None or member.speaks_over is not self:
                continue
            member.speaks_over = None
            member.lost(now)
            self._groups.wake(group)
            if not group.watched:  # The task that finds dead members was this connection's.
                self._groups.call_at(group, member.due)
