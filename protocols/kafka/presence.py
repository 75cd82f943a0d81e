"""Tells groups when the connection of their members ends. Knows no request.

A living client is heard from again within a third of its session: clients are advised to send
heartbeats at least that often. So a group does not wait much longer for a member whose connection
has ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from braidlog.broker.server.connection import Connection
    from braidlog.protocols.kafka.classic_group import KafkaGroup
    from braidlog.protocols.kafka.group_coordinator import GroupCoordinator
    from braidlog.protocols.kafka.roster import KafkaMember

# Memberships kept for a connection: a client has one, or a few. Beyond that, groups wait for the
# oldest until their sessions end.
MEMBERSHIPS_MAX = 100


class Presence:
    """The group members that use a connection."""

    def __init__(self, connection: Connection, groups: GroupCoordinator) -> None:
        """No member uses it yet."""
        self._connection = connection
        self._groups = groups
        self._spoken: dict[bytes, KafkaGroup] = {}  # member id -> group
        # Groups whose dead members are found by a task of this connection.
        self._watching: dict[KafkaGroup, None] = {}

    @property
    def is_used(self) -> bool:
        """True if a group learns from the end of this connection that a member is gone."""
        return any(
            (member := group.members.get(member_id)) is not None and member.speaks_over is self
            for member_id, group in self._spoken.items()
        )

    def heard(self, group: KafkaGroup, member: KafkaMember) -> None:
        """Note that a member has spoken over this connection: it is alive."""
        member.heard(trio.current_time())
        member.speaks_over = self
        self._spoken[member.member_id] = group
        if len(self._spoken) > MEMBERSHIPS_MAX:
            del self._spoken[next(iter(self._spoken))]
        self._watch(group)

    def _watch(self, group: KafkaGroup) -> bool:
        """Start the task that finds dead members if it does not run. Return False if it cannot run
        on this connection, which ends.
        """
        connection = self._connection
        if not group.watched and connection.is_open:
            group.watch_begins()
            self._watching[group] = None
            connection.nursery.start_soon(self._run_watch, group)
        return group.watched

    async def _run_watch(self, group: KafkaGroup) -> None:
        await self._groups.watch(group)
        del self._watching[group]  # Cancelled, the group stays for `ended`.

    def ended(self) -> None:
        """Note that the connection has ended: its members are dead unless heard from soon."""
        now = trio.current_time()
        groups = dict(self._watching)  # Its members may speak over other connections, or have left.
        for member_id, group in self._spoken.items():
            member = group.members.get(member_id)
            if member is None or member.speaks_over is not self:
                continue
            member.speaks_over = None
            group.lost(member, now)
            self._groups.note_change(group)
            groups[group] = None
        for group in groups:
            if group.members and not group.watched:
                self._hand_on(group)

    def _hand_on(self, group: KafkaGroup) -> None:
        """Let the connection of another member find the dead; without any, the next request."""
        due = group.next_due()
        if not group.calls_for(due, trio.current_time()):
            return  # Tried before: since then no member has spoken, which would watch the group.
        for member in group.members.values():
            if isinstance(other := member.speaks_over, Presence) and other._watch(group):
                return
        self._groups.call_at(group, due)
