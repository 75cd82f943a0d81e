"""A single consumer reads the partition it names; a group member reads the next of its assigned
partitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from braidlog.broker.positions.subscriptions import Subscription
from braidlog.broker.topics.partition import Partition
from braidlog.broker.topics.topic import Topic
from braidlog.protocols.iggy import names
from braidlog.protocols.iggy.context import IggyContext
from braidlog.protocols.iggy.errors import ErrorCode, Refusal
from braidlog.protocols.iggy.membership import GroupKey, IggyMember
from braidlog.protocols.iggy.messages import ConsumerKind, ConsumerRef

FIRST_PARTITION = 0  # The partition of a consumer that names none, from crate 0.6 on.
NO_PARTITION = -1  # As an index: the partition in the answer to a poll without a partition.


class NotOwnPartition(Refusal):
    """A group member names a partition that is not its own, or (W) was when the member polled, but
    has had another owner since. In V a poll gets an empty answer.
    """

    def __init__(self, context: IggyContext) -> None:
        checks_owner = context.dialect.behaviour.checks_owner
        code = ErrorCode.GROUP_PARTITION_NOT_OWNED if checks_owner else ErrorCode.RESOURCE_NOT_FOUND
        super().__init__(code, "not a partition of this member")


@dataclass(slots=True)
class ReadTarget:
    """A partition, and the subscription that reads it. `generation`: that of the member that owns
    the partition; 0 without an owner.
    """

    topic: Topic
    partition: Partition
    name: bytes
    generation: int = 0

    @property
    def index(self) -> int:
        """The partition's number, from 0."""
        return self.partition.index

    def subscription(self, context: IggyContext) -> Subscription | None:
        """The subscription, if anything was ever stored in it."""
        return context.broker.subscriptions.find(self.topic, self.name)

    def position(self, context: IggyContext) -> int | None:
        """The next offset wanted; None: never set."""
        subscription = self.subscription(context)
        return None if subscription is None else subscription.position(self.index)

    def commit(self, context: IggyContext, position: int, *, lazy: bool = False) -> int:
        """Set the next offset wanted; return the ticket. Raises TopicNotFound if the partition was
        deleted during the read: another partition may have its number by now. Raises
        NotOwnPartition if another member became the owner during the read.
        """
        self.partition.check_here()
        groups = context.shared.groups
        if self.generation not in (0, groups.owner_generation(self._group, self.index)):
            raise NotOwnPartition(context)
        subscription = context.broker.subscriptions.open(self.topic, self.name)
        ticket = subscription.commit(self.index, position, lazy=lazy)
        # Further than `position` if other clients have acknowledged what follows.
        reached = subscription.position(self.index) or 0
        groups.committed(self._group, self.index, reached)
        return ticket

    def polled(self, context: IggyContext, end: int) -> None:
        """Note that a group member, if this reader is a member, received messages up to the offset
        `end`, exclusive.
        """
        context.shared.groups.polled(self._group, context.client.client_id, self.index, end)

    @property
    def _group(self) -> GroupKey:
        return (self.topic.meta.topic_id, self.name.decode())


def target(
    context: IggyContext,
    topic: Topic,
    consumer: ConsumerRef,
    partition: int | None,
    *,
    turn: bool,
    owned: bool = True,
) -> ReadTarget | None:
    """Return the target of a poll (`turn`) or an offset command; None for a group member without a
    partition.

    A group reader that names a partition gets it, member or not, if the dialect allows that. Else
    the target is the next of the member's own partitions, or without `turn` the partition of its
    latest poll. `owned`: in V, only the member's own; in W, the client also names the incarnation
    and the owner's generation. Raises Refusal, PartitionNotFound, NotOwnPartition.
    """
    if not topic.partitions:
        raise Refusal(ErrorCode.NO_PARTITIONS)
    behaviour = context.dialect.behaviour
    name = names.subscription_name(context.broker, topic, consumer)
    if consumer.kind is not ConsumerKind.GROUP:
        if partition is None and behaviour.needs_partition:
            raise Refusal(ErrorCode.PARTITION_NOT_FOUND)
        chosen: int | None = FIRST_PARTITION if partition is None else partition
    elif behaviour.owned_only and owned:
        chosen = _owned(context, topic, name, partition, turn=turn)
    elif partition is not None and behaviour.group_takes_partition:
        chosen = partition
    else:
        chosen = _in_turn(context, topic, name, turn=turn)
    if chosen is None:
        return None
    reader = ReadTarget(topic, topic.partition(chosen), name.encode())
    if owned:
        context.check_incarnation(reader.partition)
        if behaviour.owned_only:
            _check_owner(context, reader, is_group=consumer.kind is ConsumerKind.GROUP)
    return reader


def assigned(context: IggyContext, topic: Topic, consumer: ConsumerRef) -> Sequence[int]:
    """Return the partitions that a group's member may poll now; none for another reader.

    Raises Absent.
    """
    if consumer.kind is not ConsumerKind.GROUP:
        return ()
    name = names.subscription_name(context.broker, topic, consumer)
    member = context.shared.groups.member(
        topic.meta.topic_id, name, context.client.client_id, len(topic.partitions)
    )
    return () if member is None else member.polled_partitions


def _check_owner(context: IggyContext, reader: ReadTarget, *, is_group: bool) -> None:
    """Set the generation of a group's reader, and check that the client means this owner of the
    partition, not an earlier owner; 0 means the present owner. Raises NotOwnPartition.
    """
    if is_group:
        group = (reader.topic.meta.topic_id, reader.name.decode())
        reader.generation = context.shared.groups.owner_generation(group, reader.index)
    if context.generation not in (0, reader.generation):
        raise NotOwnPartition(context)


def _in_turn(context: IggyContext, topic: Topic, name: str, *, turn: bool) -> int | None:
    member = _member(context, topic, name)
    if turn:
        return member.next_partition()
    if not member.has_polled and not context.dialect.behaviour.group_takes_partition:
        raise Refusal(ErrorCode.PARTITION_NOT_FOUND)
    return member.current


def _owned(
    context: IggyContext, topic: Topic, name: str, partition: int | None, *, turn: bool
) -> int | None:
    """Return the partition that a member names, if assigned to the member; for a poll (`turn`),
    only if the partition is not about to move. Raises NotOwnPartition.
    """
    if partition is None:
        return None
    member = context.shared.groups.member(
        topic.meta.topic_id, name, context.client.client_id, len(topic.partitions)
    )
    if member is None or partition not in (member.polled_partitions if turn else member.partitions):
        raise NotOwnPartition(context)
    return partition


def _member(context: IggyContext, topic: Topic, name: str) -> IggyMember:
    member = context.shared.groups.member(
        topic.meta.topic_id, name, context.client.client_id, len(topic.partitions)
    )
    if member is None:
        raise Refusal(ErrorCode.GROUP_MEMBER_NOT_FOUND)
    return member
