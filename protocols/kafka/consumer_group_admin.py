"""ConsumerGroupDescribe: how tools see groups of the consumer protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from braidlog.broker.access.rights import Resource
from braidlog.protocols.kafka.authorized import operations
from braidlog.protocols.kafka.classic_group import MemberRefused
from braidlog.protocols.kafka.classic_groups import checked_name
from braidlog.protocols.kafka.context import KafkaAnswer, KafkaContext
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.group_topics import may_name
from braidlog.protocols.kafka.wire.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)

if TYPE_CHECKING:
    from braidlog.protocols.kafka.assignors import Places
    from braidlog.protocols.kafka.consumer_group import ConsumerGroup
    from braidlog.protocols.kafka.consumer_member import ConsumerMember

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1  # The protocol of a member.
HIDDEN = b"The group has described topic(s) that the client is not authorized to describe."


def describe_consumer_groups(
    context: KafkaContext, request: ConsumerGroupDescribeRequest
) -> KafkaAnswer:
    """State, epochs and members of each group, with the assignments made and those reached."""
    groups = [
        _described(context, name, shows_operations=request.include_authorized_operations)
        for name in dict.fromkeys(request.group_ids)
    ]
    return KafkaAnswer(ConsumerGroupDescribeResponse(groups=groups))


def _described(
    context: KafkaContext, name: bytes | None, *, shows_operations: bool
) -> DescribedGroup:
    try:
        group = context.groups.find_modern(checked_name(context, name))
    except MemberRefused as error:
        return DescribedGroup(error_code=error.code, group_id=name)
    if group is None or not group.exists(trio.current_time()):
        reason = b"Group %s not found." % (name or b"")
        return DescribedGroup(
            error_code=Code.GROUP_ID_NOT_FOUND, error_message=reason, group_id=name
        )
    if not all(may_name(context, topic) for topic in group.names()):
        return DescribedGroup(
            error_code=Code.TOPIC_AUTHORIZATION_FAILED, error_message=HIDDEN, group_id=name
        )
    described = DescribedGroup(
        group_id=name,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=group.assignor,
        members=[_member(group, member) for member in group.members.values()],
    )
    if shows_operations:
        names = context.names
        resource = Resource.of_group_within(group.name, names.tenant, names.namespace)
        described.authorized_operations = operations(context, resource)
    return described


def _member(group: ConsumerGroup, member: ConsumerMember) -> Member:
    client_id, host = member.client
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=client_id,
        client_host=host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.pattern,
        assignment=_assignment(group, member.assigned),
        target_assignment=_assignment(group, member.target),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _assignment(group: ConsumerGroup, places: Places) -> Assignment:
    names = {topic_id: name for name, topic_id in group.topics.ids.items()}
    by_topic: dict[bytes, list[int]] = {}
    for topic_id, index in sorted(places):
        by_topic.setdefault(topic_id, []).append(index)
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, topic_name=names[topic_id], partitions=indexes)
            for topic_id, indexes in by_topic.items()
            if topic_id in names  # Else it is deleted.
        ]
    )
