"""Named consumer groups: the catalogue stores the groups, `membership.py` the members."""

from __future__ import annotations

from typing import Final
from zlib import crc32

import trio

from braidlog.broker import errors
from braidlog.broker.access.rights import Action, Resource
from braidlog.broker.positions.members import SubscriptionMember
from braidlog.broker.topics.topic import Topic
from braidlog.protocols.iggy import messages as m
from braidlog.protocols.iggy import names
from braidlog.protocols.iggy import replies as r
from braidlog.protocols.iggy.context import PROTOCOL, IggyAnswer, IggyContext
from braidlog.protocols.iggy.errors import Absent, ErrorCode, Refusal

PIECE_GROUPS: Final = 200  # Groups of a list between two checkpoints: some ms of work.


def get_group(context: IggyContext, request: m.GetGroup) -> IggyAnswer:
    """Return a group with its members. Raises Absent, Refusal."""
    try:
        topic = names.get_topic(context.broker, request.stream, request.topic)
    except Absent as error:
        if context.dialect.behaviour.group_needs_topic:
            raise Refusal(error.code) from None
        raise
    group = names.get_group(context.broker, topic, request.group)
    members = context.shared.groups.members(topic.meta.topic_id, group.name, len(topic.partitions))
    infos = [r.MemberInfo(member.member_id, member.partitions) for member in members]
    infos += [
        r.MemberInfo(crc32(f"{other.protocol} {other.name}".encode()), list(other.partitions))
        for other in _others(context, topic, group)
    ]
    return IggyAnswer([_group_info(context, topic, group), *infos])


async def get_groups(context: IggyContext, request: m.GetGroups) -> IggyAnswer:
    """Return the groups of a topic that the client may see. Raises Refusal."""
    topic = names.get_topic(context.broker, request.stream, request.topic)
    infos = []
    for number, group in enumerate(names.groups(context.broker, topic), 1):
        if context.allows(Action.DESCRIBE, Resource.of_group(group.name.encode(), topic.name)):
            infos.append(_group_info(context, topic, group))
        if number % PIECE_GROUPS == 0:
            await trio.lowlevel.checkpoint()
    return IggyAnswer(infos)


def create_group(context: IggyContext, request: m.CreateGroup) -> IggyAnswer:
    """Create a group. Raises Refusal.

    If another listener's subscription has that name, the group continues from that subscription's
    position.
    """
    broker = context.broker
    topic = names.get_topic(broker, request.stream, request.topic)
    name = names.unnamed_group(request.group_id) if request.name is None else request.name
    names.check_group_name(name)
    named, number = broker.named_groups, request.group_id
    if number is not None and named.find(topic, number) is not None:
        raise Refusal(ErrorCode.GROUP_ID_ALREADY_EXISTS)
    if named.find(topic, name) is not None:
        raise Refusal(ErrorCode.GROUP_NAME_ALREADY_EXISTS)
    names.check_chosen(request.group_id, ErrorCode.INVALID_GROUP_ID)
    try:
        ticket = named.create(topic, name, number)
    except errors.LimitExceeded as error:
        raise Refusal(ErrorCode.TOO_MANY_GROUPS, str(error)) from None
    group = names.get_group(broker, topic, name)
    return IggyAnswer([_group_info(context, topic, group)], ticket=ticket)


def delete_group(context: IggyContext, request: m.DeleteGroup) -> IggyAnswer:
    """Delete a group with its memberships and stored offsets. Raises Refusal."""
    broker = context.broker
    topic = names.get_topic(broker, request.stream, request.topic)
    group = names.get_group(broker, topic, request.group)
    subscription = broker.subscriptions.find(topic, group.name.encode())
    if subscription is not None:
        broker.subscriptions.delete(topic, subscription.name)
    return IggyAnswer(ticket=broker.named_groups.delete(topic, group.group_id))


def join_group(context: IggyContext, request: m.JoinGroup) -> IggyAnswer:
    """Make the connection a member; a second join changes nothing. Raises Refusal."""
    topic = names.get_topic(context.broker, request.stream, request.topic)
    group = names.get_group(context.broker, topic, request.group)
    context.shared.groups.join(
        topic.meta.topic_id,
        group.name,
        context.client.client_id,
        gently=context.dialect.behaviour.cooperative_join,
    )
    return IggyAnswer()


def leave_group(context: IggyContext, request: m.LeaveGroup) -> IggyAnswer:
    """End the connection's membership. A missing membership is an error in V only.

    Raises Refusal.
    """
    topic = names.get_topic(context.broker, request.stream, request.topic)
    group = names.get_group(context.broker, topic, request.group)
    left = context.shared.groups.leave(topic.meta.topic_id, group.name, context.client.client_id)
    if not left and context.dialect.behaviour.leave_is_checked:
        raise Refusal(ErrorCode.GROUP_MEMBER_NOT_FOUND)
    return IggyAnswer()


def leave_forbidden(context: IggyContext) -> None:
    """End the memberships in groups that the client may no longer read."""
    groups, client_id = context.shared.groups, context.client.client_id
    for topic_id, name in groups.joined(client_id):
        topic = context.broker.topics.find_by_id(topic_id)
        if topic is None:
            continue
        if not context.allows(Action.CONSUME, Resource.of_group(name.encode(), topic.name)):
            groups.leave(topic_id, name, client_id)


def sync_group(context: IggyContext, request: m.SyncGroup) -> IggyAnswer:
    """Return the partitions assigned to the caller; none for a client that is not a member. Raises
    Refusal.
    """
    topic = names.get_topic(context.broker, request.stream, request.topic)
    group = names.get_group(context.broker, topic, request.group)
    groups, topic_id = context.shared.groups, topic.meta.topic_id
    member = groups.member(topic_id, group.name, context.client.client_id, len(topic.partitions))
    if member is None:
        return IggyAnswer()
    return IggyAnswer(
        [r.Assignment(groups.generation(topic_id, group.name), member.polled_partitions)]
    )


def _group_info(context: IggyContext, topic: Topic, group: names.NamedGroup) -> r.GroupInfo:
    count = len(topic.partitions)
    members = context.shared.groups.members(topic.meta.topic_id, group.name, count)
    others = _others(context, topic, group)
    return r.GroupInfo(group.group_id, count, len(members) + len(others), group.name)


def _others(
    context: IggyContext, topic: Topic, group: names.NamedGroup
) -> list[SubscriptionMember]:
    """Return the readers under the group's name in other protocols."""
    return context.broker.members.others(topic, group.name.encode(), PROTOCOL)
