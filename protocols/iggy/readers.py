"""Who reads which partition: a consumer by itself the one it names, a group's member the next of
its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker.subscriptions.subscriptions import Subscription
from broker.topics.partition import Partition
from broker.topics.topic import Topic
from protocols.iggy import names
from protocols.iggy.context import Context
from protocols.iggy.errors import ErrorCode, Refusal
from protocols.iggy.membership import Member
from protocols.iggy.messages import Consumer, ConsumerKind

FIRST_PARTITION = 0  # What a consumer means that names none, from crate 0.6 on.


@dataclass(slots=True)
class Target:
    """A partition and the subscription that it is read by."""

    topic: Topic
    partition: Partition
    name: bytes

    @property
    def index(self) -> int:
        """The partition's number, from 0."""
        return self.partition.index

    def subscription(self, context: Context) -> Subscription | None:
        """The subscription, if anything was ever stored in it."""
        return context.broker.subscriptions.find(self.topic, self.name)

    def position(self, context: Context) -> int | None:
        """The next offset wanted; None: never set."""
        subscription = self.subscription(context)
        return None if subscription is None else subscription.position(self.index)

    def commit(self, context: Context, position: int, *, lazy: bool = False) -> int:
        """Set the next offset wanted; return the ticket."""
        subscription = context.broker.subscriptions.open(self.topic, self.name)
        return subscription.commit(self.index, position, lazy=lazy)


def target(
    context: Context, topic: Topic, consumer: Consumer, partition: int | None, *, turn: bool
) -> Target | None:
    """What a poll (`turn`) or an offset command is about; None for a group's member without a
    partition.

    A group that names a partition gets it, member or not; else it is the next of the member's own,
    or without a turn the one of its latest poll. Raises Refusal, PartitionNotFound.
    """
    name = names.subscription_name(context.broker, topic, consumer)
    if partition is None:
        if consumer.kind is ConsumerKind.CONSUMER:
            partition = FIRST_PARTITION
        else:
            member = _member(context, topic, name)
            partition = member.next_partition() if turn else member.current
            if partition is None:
                return None
    if not topic.partitions:
        raise Refusal(ErrorCode.NO_PARTITIONS)
    return Target(topic, topic.partition(partition), name.encode())


def _member(context: Context, topic: Topic, name: str) -> Member:
    member = context.shared.groups.member(
        topic.meta.topic_id, name, context.client.client_id, len(topic.partitions)
    )
    if member is None:
        raise Refusal(ErrorCode.GROUP_MEMBER_NOT_FOUND)
    return member
