"""A broker's groups with members, and the tasks that wait for group changes. Knows no request."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import trio

from braidlog.protocols.kafka.consumer_group import ConsumerGroup
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.long_polls import LongPolls
from braidlog.protocols.kafka.members import KafkaMembers
from braidlog.protocols.kafka.membership import KafkaGroup, MemberRefused
from braidlog.protocols.kafka.names import PROTOCOL

if TYPE_CHECKING:
    from collections.abc import Callable

    from braidlog.broker.broker import Broker
    from braidlog.protocols.kafka.roster import KafkaMember

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
        self._modern: dict[bytes, ConsumerGroup] = {}
        self._sizes: dict[bytes, int] = {}
        self._size = 0
        # Identity of a watched group -> the wait until its next deadline.
        self._alarms: dict[int, trio.CancelScope] = {}
        self.polls = LongPolls()

    def find(self, name: bytes) -> KafkaGroup | None:
        """Return the group, after removing dead members; None if the table lacks the group."""
        group = self._groups.get(name)
        if group is not None and trio.current_time() >= group.next_due():
            self.changing(group, group.advance)
        return group

    def get(self, name: bytes) -> KafkaGroup:
        """Return the group, created if needed. Raises MemberRefused."""
        group = self.find(name)
        if group is None:
            modern = self.find_modern(name)
            if modern is not None and modern.members:
                raise MemberRefused(Code.INCONSISTENT_GROUP_PROTOCOL)
            self.forget(name)  # A name without members takes the type of the next member.
            self._check_count()
            group = self._groups[name] = KafkaGroup(
                name, call=self.polls.call, initial_delay_s=self._initial_delay_s
            )
        return group

    def find_modern(self, name: bytes) -> ConsumerGroup | None:
        """Return the group of the consumer protocol, after removing dead members; None if it has
        had no members.
        """
        group = self._modern.get(name)
        if group is not None:
            group.advance(trio.current_time())
        return group

    def get_modern(self, name: bytes) -> ConsumerGroup:
        """Return the group of the consumer protocol, created if needed. Raises MemberRefused."""
        group = self.find_modern(name)
        if group is None:
            classic = self.find(name)
            if classic is not None and classic.members:
                reason = (
                    f"group {name.decode(errors='replace')} has members of the classic protocol"
                )
                raise MemberRefused(Code.GROUP_ID_NOT_FOUND, reason)
            self.forget(name)  # A name without members takes the type of the next member.
            self._check_count()
            group = self._modern[name] = ConsumerGroup(name)
        return group

    def names(self) -> list[bytes]:
        """Return the groups that have or had members."""
        return [*self._groups, *self._modern]

    def forget(self, name: bytes) -> None:
        """Remove a deleted group."""
        for groups in (self._groups, self._modern):
            if groups.pop(name, None) is not None:
                self._size -= self._sizes.pop(name, 0)

    def _check_count(self) -> None:
        """Check that one more group can be kept. Raises MemberRefused."""
        if len(self._groups) + len(self._modern) >= GROUPS_MAX:
            self._drop_empty()
        if len(self._groups) + len(self._modern) >= GROUPS_MAX:
            raise MemberRefused(Code.CONSUMER_COORDINATOR_NOT_AVAILABLE)

    def check_room(self, size: int) -> None:
        """Check that `size` more bytes can be kept for a client. Raises MemberRefused."""
        if self._size + size > KEPT_BYTES_MAX:
            self._drop_empty()
        if self._size + size > KEPT_BYTES_MAX:
            raise MemberRefused(Code.CONSUMER_COORDINATOR_NOT_AVAILABLE)

    def weigh(self, group: KafkaGroup | ConsumerGroup) -> None:
        """Update the count of the bytes that a group keeps."""
        if group in (self._groups.get(group.name), self._modern.get(group.name)):
            size = group.size
            self._size += size - self._sizes.get(group.name, 0)
            self._sizes[group.name] = size

    def changing(self, group: KafkaGroup, change: Callable[[float], object]) -> None:
        """Change a group at the current time."""
        change(trio.current_time())
        self.settle(group)

    def settle(self, group: KafkaGroup) -> None:
        """Take note of a changed group: of its bytes, and of its next deadline."""
        self.weigh(group)
        alarm = self._alarms.get(id(group))
        if alarm is None:
            return
        due = group.next_due() if group.members else -math.inf  # The watch of an empty group ends.
        alarm.deadline = min(alarm.deadline, due)

    async def wait(self, member: KafkaMember, seconds: float = math.inf) -> None:
        """Return when the group has something for the member, at the latest after `seconds`."""
        woken = trio.Event()
        member.wakers.append(woken.set)
        try:
            with trio.move_on_after(seconds):
                await woken.wait()
        finally:
            if woken.set in member.wakers:
                member.wakers.remove(woken.set)

    async def watch(self, group: KafkaGroup) -> None:
        """Remove dead members at their deadlines while the group has members. The caller has set
        `watched`.
        """
        try:
            while group.members and self._groups.get(group.name) is group:
                with trio.CancelScope(deadline=group.next_due()) as alarm:
                    self._alarms[id(group)] = alarm
                    await trio.sleep_forever()
                self.changing(group, group.advance)
        finally:
            group.watch_ends()
            self._alarms.pop(id(group), None)

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
        for name, modern in list(self._modern.items()):
            modern.advance(now)
            if modern.members:
                self.weigh(modern)
            else:
                self.forget(name)


_TABLES: WeakKeyDictionary[Broker, dict[str, GroupTable]] = WeakKeyDictionary()


def groups_of(broker: Broker, namespace: str, initial_delay_s: float = 0.0) -> GroupTable:
    """Return the groups shared by all listeners of a namespace; the first listener's delay
    applies.
    """
    tables = _TABLES.setdefault(broker, {})
    table = tables.get(namespace)
    if table is None:
        table = tables[namespace] = GroupTable(initial_delay_s)
        members = KafkaMembers(table.find, table.find_modern, namespace)
        broker.members.add_source(members.of, PROTOCOL)
    return table
