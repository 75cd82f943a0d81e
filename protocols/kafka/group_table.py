"""A broker's groups with members, and the tasks that wait for group changes. Knows no request."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import trio

from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.long_polls import LongPolls
from braidlog.protocols.kafka.members import KafkaMembers
from braidlog.protocols.kafka.membership import KafkaGroup, MemberRefused
from braidlog.protocols.kafka.names import PROTOCOL

if TYPE_CHECKING:
    from collections.abc import Callable

    from braidlog.broker.broker import Broker

# Groups with members now or lately; a group takes some kilobytes.
GROUPS_MAX = 10_000
# Names, members' metadata and assignments, of all groups. A member's metadata is some hundred
# bytes.
KEPT_BYTES_MAX = 64 * 1024 * 1024


class GroupTable:
    """All groups with members in a listener's namespace. One table per broker and namespace."""

    def __init__(self, initial_delay_s: float = 0.0) -> None:
        """Start empty. A group waits `initial_delay_s` for more members after the first."""
        self._initial_delay_s = initial_delay_s
        self._groups: dict[bytes, KafkaGroup] = {}
        self._sizes: dict[bytes, int] = {}
        self._size = 0
        self._waiting: dict[bytes, trio.lowlevel.ParkingLot] = {}
        self.polls = LongPolls()

    def find(self, name: bytes) -> KafkaGroup | None:
        """Return the group, after removing dead members; None if the table lacks the group."""
        group = self._groups.get(name)
        if group is not None:
            self.changing(group, group.advance)
        return self._groups.get(name)

    def get(self, name: bytes) -> KafkaGroup:
        """Return the group, created if needed. Raises MemberRefused."""
        group = self.find(name)
        if group is None:
            if len(self._groups) >= GROUPS_MAX:
                self._drop_empty()
            if len(self._groups) >= GROUPS_MAX:
                raise MemberRefused(Code.CONSUMER_COORDINATOR_NOT_AVAILABLE)
            group = self._groups[name] = KafkaGroup(
                name, call=self.polls.call, initial_delay_s=self._initial_delay_s
            )
        return group

    def names(self) -> list[bytes]:
        """Return the groups that have or had members."""
        return list(self._groups)

    def forget(self, name: bytes) -> None:
        """Remove a deleted group."""
        if self._groups.pop(name, None) is not None:
            self._size -= self._sizes.pop(name, 0)

    def check_room(self, size: int) -> None:
        """Check that `size` more bytes can be kept for a client. Raises MemberRefused."""
        if self._size + size > KEPT_BYTES_MAX:
            self._drop_empty()
        if self._size + size > KEPT_BYTES_MAX:
            raise MemberRefused(Code.CONSUMER_COORDINATOR_NOT_AVAILABLE)

    def weigh(self, group: KafkaGroup) -> None:
        """Update the count of the bytes that a group keeps."""
        if self._groups.get(group.name) is group:
            size = group.size
            self._size += size - self._sizes.get(group.name, 0)
            self._sizes[group.name] = size

    def changing(self, group: KafkaGroup, change: Callable[[float], object]) -> None:
        """Change a group at the current time, and wake the tasks that wait for the change."""
        before = group.changes
        change(trio.current_time())
        if group.changes != before:
            self.wake(group)

    def wake(self, group: KafkaGroup) -> None:
        """Wake the tasks that wait for a change of a group."""
        self.weigh(group)
        lot = self._waiting.get(group.name)
        if lot is not None:
            lot.unpark_all()

    async def wait(self, group: KafkaGroup, seconds: float = math.inf) -> None:
        """Return when the group has changed or its next deadline is due, at the latest after
        `seconds`.
        """
        lot = self._waiting.setdefault(group.name, trio.lowlevel.ParkingLot())
        try:
            with trio.move_on_at(min(group.next_due(), trio.current_time() + seconds)):
                await lot.park()
        finally:
            # Other woken tasks may wait again by now, in a newer lot.
            if not lot and self._waiting.get(group.name) is lot:
                del self._waiting[group.name]
        self.changing(group, group.advance)

    async def watch(self, group: KafkaGroup) -> None:
        """Remove dead members at their deadlines while the group has members. The caller has set
        `watched`.
        """
        try:
            while group.members and self._groups.get(group.name) is group:
                await self.wait(group)
        finally:
            group.watched = False

    def call_at(self, group: KafkaGroup, at: float) -> None:
        """Schedule the members' next contact at that time: the first contact removes the dead
        members.
        """
        for member in group.members.values():
            self.polls.call(member.client, at)

    def _drop_empty(self) -> None:
        now = trio.current_time()
        for name, group in list(self._groups.items()):
            self.changing(group, group.advance)
            group.forget_promises(now)
            if not group.members and not group.promised:
                self.forget(name)
            else:
                self.weigh(group)


_TABLES: WeakKeyDictionary[Broker, dict[str, GroupTable]] = WeakKeyDictionary()


def groups_of(broker: Broker, namespace: str, initial_delay_s: float = 0.0) -> GroupTable:
    """Return the groups shared by all listeners of a namespace; the first listener's delay
    applies.
    """
    tables = _TABLES.setdefault(broker, {})
    table = tables.get(namespace)
    if table is None:
        table = tables[namespace] = GroupTable(initial_delay_s)
        broker.members.add_source(KafkaMembers(table.find, namespace).of, PROTOCOL)
    return table
