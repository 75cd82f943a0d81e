"""Kafka's group coordinator: a broker's groups with members, and the tasks that wait for their
changes. Knows no request.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakKeyDictionary

import trio

from braidlog.protocols.kafka.classic_group import KafkaGroup, MemberRefused
from braidlog.protocols.kafka.consumer_group import ConsumerGroup
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.kept_bytes import ENTRY_BYTES, MEMBER_BYTES, MEMBER_BYTES_MAX
from braidlog.protocols.kafka.long_polls import LongPolls
from braidlog.protocols.kafka.members import KafkaMembers
from braidlog.protocols.kafka.migration import MigrationPolicy, downgrade, upgraded
from braidlog.protocols.kafka.names import PROTOCOL
from braidlog.protocols.kafka.share_group import ShareGroup
from braidlog.protocols.kafka.share_sessions import ShareSessions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from braidlog.broker.broker import Broker
    from braidlog.protocols.kafka.consumer_member import GroupTopics
    from braidlog.protocols.kafka.roster import KafkaMember

# Groups with members now or lately; a group takes some kilobytes.
GROUPS_MAX = 10_000
# Members with their names, metadata and partitions, of all groups: two kilobytes for a usual
# member.
KEPT_BYTES_MAX = 128 * 1024 * 1024

Group = KafkaGroup | ConsumerGroup  # A share group is a consumer group of a special kind.
GroupT = TypeVar("GroupT", bound=Group)


class GroupCoordinator:
    """All groups with members in a listener's namespace. One table per broker and namespace."""

    def __init__(
        self,
        initial_delay_s: float = 0.0,
        policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL,
    ) -> None:
        """Start empty. A group waits `initial_delay_s` for more members after the first."""
        self._initial_delay_s = initial_delay_s
        self.policy = policy
        self._groups: dict[bytes, Group] = {}  # A name has one group, of one type.
        self.share_sessions = ShareSessions()
        self._sizes: dict[bytes, int] = {}
        self._size = 0
        # Identity of a watched group -> the wait until its next deadline.
        self._alarms: dict[int, trio.CancelScope] = {}
        self.polls = LongPolls()

    def any_of(self, name: bytes) -> Group | None:
        """Return the group of any type, after removing dead members; None if it had no members."""
        group = self._groups.get(name)
        if isinstance(group, ConsumerGroup):
            count = len(group.members)
            group.advance(trio.current_time())
            if len(group.members) < count:
                self.note_modern_change(group)
                group = self._groups.get(name)  # May be a classic group again.
        if isinstance(group, KafkaGroup) and trio.current_time() >= group.next_due():
            self.changing(group, group.advance)
        return group

    def find(self, name: bytes) -> KafkaGroup | None:
        """Return the classic group; None if there is none."""
        group = self.any_of(name)
        return group if isinstance(group, KafkaGroup) else None

    def find_modern(self, name: bytes) -> ConsumerGroup | None:
        """Return the group of the consumer protocol; None if there is none."""
        group = self.any_of(name)
        return group if type(group) is ConsumerGroup else None

    def find_share(self, name: bytes) -> ShareGroup | None:
        """Return the share group; None if there is none."""
        group = self.any_of(name)
        return group if isinstance(group, ShareGroup) else None

    def get(self, name: bytes) -> KafkaGroup:
        """Return the classic group, created if needed. Raises MemberRefused."""
        group = self.any_of(name)
        if isinstance(group, KafkaGroup):
            return group
        if group is not None and group.members:
            raise MemberRefused(Code.INCONSISTENT_GROUP_PROTOCOL)
        return self._add(self._new_group(name))

    def get_modern(self, name: bytes) -> ConsumerGroup:
        """Return the group of the consumer protocol, created if needed: `upgrade` comes first.
        Raises MemberRefused.
        """
        group = self.any_of(name)
        if type(group) is ConsumerGroup:
            return group
        if isinstance(group, ShareGroup) and group.members:
            reason = f"Group {name.decode(errors='replace')} is not a consumer group."
            raise MemberRefused(Code.GROUP_ID_NOT_FOUND, reason)
        return self._add(ConsumerGroup(name, may_downgrade=self.policy.downgrades))

    def get_share(self, name: bytes) -> ShareGroup:
        """Return the share group, created if needed. Raises MemberRefused."""
        group = self.any_of(name)
        if isinstance(group, ShareGroup):
            return group
        if group is not None and group.members:
            reason = f"Group {name.decode(errors='replace')} is not a share group."
            raise MemberRefused(Code.GROUP_ID_NOT_FOUND, reason)
        return self._add(ShareGroup(name))

    def _new_group(self, name: bytes) -> KafkaGroup:
        return KafkaGroup(name, call=self.polls.call, initial_delay_s=self._initial_delay_s)

    def _add(self, group: GroupT) -> GroupT:
        """Add a new group; a name without members takes its type. Raises MemberRefused."""
        self.forget(group.name)
        if len(self._groups) >= GROUPS_MAX:
            self._drop_empty()
        if len(self._groups) >= GROUPS_MAX:
            raise MemberRefused(Code.CONSUMER_COORDINATOR_NOT_AVAILABLE)
        self._groups[group.name] = group
        return group

    def upgrade(
        self, name: bytes, topics_of: Callable[[Iterable[bytes]], GroupTopics]
    ) -> ConsumerGroup | None:
        """Let a classic group with members become a consumer group, for a member of that protocol.
        Return None if there is no such group. Raises MemberRefused.
        """
        group = self.find(name)
        if group is None or not group.members:
            return None
        modern = upgraded(group, self.policy, topics_of, trio.current_time())
        group.give_up()
        self.note_change(group)  # Its watch ends.
        self.forget(name)
        self._groups[name] = modern
        self.weigh(modern)
        return modern

    def note_modern_change(self, group: ConsumerGroup) -> None:
        """Take note of a changed group. If only classic members are left, they get a classic
        group.
        """
        if self._groups.get(group.name) is not group or not group.is_left_to_classic:
            self.weigh(group)
            return
        classic = self._new_group(group.name)
        downgrade(group, classic, trio.current_time())
        self.forget(group.name)
        self._groups[group.name] = classic
        self.weigh(classic)

    def names(self) -> list[bytes]:
        """Return the groups that have or had members."""
        return [*self._groups]

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

    def check_member(
        self, group: bytes, texts: Iterable[bytes | None], entries: Iterable[bytes | None] = ()
    ) -> None:
        """Check that there is room for a member with these texts, and these names in a set. Raises
        MemberRefused.
        """
        names = [name or b"" for name in entries]
        size = sum(len(text or b"") for text in texts) + sum(map(len, names))
        if size > MEMBER_BYTES_MAX:
            reason = f"{size} bytes of names and metadata exceed the limit of {MEMBER_BYTES_MAX}"
            raise MemberRefused(Code.INVALID_REQUEST, reason)
        self.check_room(len(group) + MEMBER_BYTES + size + ENTRY_BYTES * len(names))

    def weigh(self, group: Group) -> None:
        """Update the count of the bytes that a group keeps."""
        if self._groups.get(group.name) is group:
            size = group.size
            self._size += size - self._sizes.get(group.name, 0)
            self._sizes[group.name] = size

    def changing(self, group: KafkaGroup, change: Callable[[float], object]) -> None:
        """Change a group at the current time."""
        change(trio.current_time())
        self.note_change(group)

    def note_change(self, group: KafkaGroup) -> None:
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
            if isinstance(group, ConsumerGroup):
                group.advance(now)
                if group.members:
                    self.note_modern_change(group)
                else:
                    self.forget(name)
                continue
            self.changing(group, group.advance)
            group.forget_promises(now)
            if not group.members and not group.promised:
                self.forget(name)
            else:
                self.weigh(group)


_TABLES: WeakKeyDictionary[Broker, dict[str, GroupCoordinator]] = WeakKeyDictionary()


def groups_of(
    broker: Broker,
    namespace: str,
    initial_delay_s: float = 0.0,
    policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL,
) -> GroupCoordinator:
    """Return the groups shared by all listeners of a namespace; the first listener's delay and
    policy apply.
    """
    tables = _TABLES.setdefault(broker, {})
    table = tables.get(namespace)
    if table is None:
        table = tables[namespace] = GroupCoordinator(initial_delay_s, policy)
        placement = broker.placement
        members = KafkaMembers(
            table.any_of,
            table.names,
            namespace,
            lambda name: placement.owner_of_name(name) is None,
        )
        broker.members.add_source(members.of, PROTOCOL, members.joined)
    return table
