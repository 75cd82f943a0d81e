"""ConsumerGroupDescribe and ShareGroupDescribe: how tools see groups whose partitions the broker
assigns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from braidlog.broker.access.rights import Resource
from braidlog.protocols.kafka.assignors import by_topic
from braidlog.protocols.kafka.authorized import operations
from braidlog.protocols.kafka.classic_group import MemberRefused
from braidlog.protocols.kafka.classic_groups import checked_name
from braidlog.protocols.kafka.context import KafkaAnswer, KafkaContext
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.group_topics import may_name
from braidlog.protocols.kafka.wire import consumer_group_describe as consumer
from braidlog.protocols.kafka.wire import share_group_describe as share

if TYPE_CHECKING:
    from braidlog.protocols.kafka.assignors import Places
    from braidlog.protocols.kafka.consumer_group import ConsumerGroup
    from braidlog.protocols.kafka.consumer_member import ConsumerMember

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1  # The protocol of a member.
HIDDEN = b"The group has described topic(s) that the client is not authorized to describe."
GroupT = TypeVar("GroupT", consumer.DescribedGroup, share.DescribedGroup)
AssignmentT = TypeVar("AssignmentT", consumer.Assignment, share.Assignment)


def describe_consumer_groups(
    context: KafkaContext, request: consumer.ConsumerGroupDescribeRequest
) -> KafkaAnswer:
    """State, epochs and members of each group, with the assignments made and those reached."""
    find, kind = context.groups.find_modern, consumer.DescribedGroup
    groups = _described(context, request, find, kind, _consumer_member, b"consumer")
    return KafkaAnswer(consumer.ConsumerGroupDescribeResponse(groups=groups))


def describe_share_groups(
    context: KafkaContext, request: share.ShareGroupDescribeRequest
) -> KafkaAnswer:
    """State, epochs and members of each group."""
    find, kind = context.groups.find_share, share.DescribedGroup
    groups = _described(context, request, find, kind, _share_member, b"share")
    return KafkaAnswer(share.ShareGroupDescribeResponse(groups=groups))


def _described(
    context: KafkaContext,
    request: consumer.ConsumerGroupDescribeRequest | share.ShareGroupDescribeRequest,
    find: Callable[[bytes], ConsumerGroup | None],
    kind: type[GroupT],
    describe_member: Callable[[ConsumerGroup, ConsumerMember], Any],
    wanted: bytes,
) -> list[GroupT]:
    """Return a description, or an error, of each group that a request names. `wanted` is the type
    of group in an error.
    """
    described = []
    for name in dict.fromkeys(request.group_ids):
        row = kind(group_id=name)
        described.append(row)
        try:
            group = find(checked_name(context, name))
        except MemberRefused as error:
            row.error_code = error.code
            continue
        if group is None or not group.exists(trio.current_time()):
            row.error_code = Code.GROUP_ID_NOT_FOUND
            other, text = context.groups.any_of(name or b""), b"Group %s not found."
            if other is not None and other is not group and other.exists(trio.current_time()):
                text = b"Group %%s is not a %s group." % wanted
            row.error_message = text % (name or b"")
            continue
        if not all(may_name(context, topic) for topic in group.names()):
            row.error_code, row.error_message = Code.TOPIC_AUTHORIZATION_FAILED, HIDDEN
            continue
        row.group_state, row.group_epoch = group.state_name, group.epoch
        row.assignment_epoch, row.assignor_name = group.target_epoch, group.assignor
        row.members = [describe_member(group, member) for member in group.members.values()]
        if request.include_authorized_operations:
            resource = Resource.of_group_within(group.name, *context.namespace)
            row.authorized_operations = operations(context, resource)
    return described


def _consumer_member(group: ConsumerGroup, member: ConsumerMember) -> consumer.Member:
    client_id, host = member.client
    kind = consumer.Assignment
    return consumer.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=client_id,
        client_host=host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.pattern,
        assignment=_assignment(group, member.assigned, kind, consumer.TopicPartitions),
        target_assignment=_assignment(group, member.target, kind, consumer.TopicPartitions),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _share_member(group: ConsumerGroup, member: ConsumerMember) -> share.Member:
    client_id, host = member.client
    return share.Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=client_id,
        client_host=host,
        subscribed_topic_names=sorted(member.topics),
        assignment=_assignment(group, member.assigned, share.Assignment, share.TopicPartitions),
    )


def _assignment(
    group: ConsumerGroup, places: Places, kind: type[AssignmentT], of_topic: Callable[..., Any]
) -> AssignmentT:
    names = {topic_id: name for name, topic_id in group.topics.ids.items()}
    topics = [
        of_topic(topic_id=topic_id, topic_name=names[topic_id], partitions=indexes)
        for topic_id, indexes in by_topic(places).items()
        if topic_id in names  # Else it is deleted.
    ]
    return kind(topic_partitions=topics)
