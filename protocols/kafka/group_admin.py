"""DescribeGroups, ListGroups, DeleteGroups: how tools see groups, and delete them.

Consumers of other protocols under the group's name are described as members, too.

A group exists if it has members, or if some topic has a subscription of its name, whichever
protocol made that. In a cluster its coordinator asks all brokers for those. A list shows only the
broker's own groups, because tools ask every broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from braidlog.broker.access.listing import sees_all
from braidlog.broker.access.rights import Resource
from braidlog.broker.errors import BrokerError, NotOwner, SubscriptionBusy
from braidlog.broker.runtime.turns import in_turns
from braidlog.protocols.kafka.authorized import operations
from braidlog.protocols.kafka.classic_group import GroupState, KafkaGroup
from braidlog.protocols.kafka.consumer_group import ConsumerGroup
from braidlog.protocols.kafka.consumer_protocol import PROTOCOL_TYPE
from braidlog.protocols.kafka.context import KafkaAnswer, KafkaContext
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.members import described_others
from braidlog.protocols.kafka.names import PROTOCOL, visible
from braidlog.protocols.kafka.seen_members import seen_members
from braidlog.protocols.kafka.share_group import ShareGroup
from braidlog.protocols.kafka.wire.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from braidlog.protocols.kafka.wire.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from braidlog.protocols.kafka.wire.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from braidlog.storage.metadata.names import TopicName

if TYPE_CHECKING:
    from collections.abc import Sequence

    from braidlog.broker.positions.members import SubscriptionMember
    from braidlog.broker.topics.topic import Topic
    from braidlog.protocols.kafka.group_coordinator import Group

DEAD = b"Dead"
# The types of groups: the members assign the partitions, the broker does, or nobody.
CLASSIC, CONSUMER, SHARE = b"classic", b"consumer", b"share"
MISSING_VERSION = 6  # From this version of DescribeGroups on a missing group is an error.
JOINED_PER_TURN = 20  # Joined groups: some microseconds each, a large group a millisecond.
TOPICS_PER_TURN = 200  # Each look at a topic's subscriptions takes some microseconds.


async def describe_groups(context: KafkaContext, request: DescribeGroupsRequest) -> KafkaAnswer:
    """State and members; a group that does not exist is "Dead", which is not an error."""
    groups = [await _described(context, name) for name in dict.fromkeys(request.groups)]
    for group in groups:
        is_dead = group.group_state == DEAD and group.error_code == Code.NONE
        if is_dead and context.version >= MISSING_VERSION:
            group.error_code = Code.GROUP_ID_NOT_FOUND
            if group.error_message is None:
                group.error_message = b"Group %s not found." % (group.group_id or b"")
        if request.include_authorized_operations and group.error_code == Code.NONE:
            named = (group.group_id or b"", *context.namespace)
            group.authorized_operations = operations(context, Resource.of_group_within(*named))
    return KafkaAnswer(DescribeGroupsResponse(groups=groups))


async def _described(context: KafkaContext, name: bytes | None) -> DescribedGroup:
    try:
        context.check_group(name or b"")
    except BrokerError as error:
        context.refused(error)
        return _dead(name, Code.GROUP_AUTHORIZATION_FAILED)
    if not context.coordinates(name or b""):
        return _dead(name, Code.NOT_COORDINATOR)
    other = context.groups.any_of(name or b"")
    is_share = isinstance(other, ShareGroup) and other.exists(trio.current_time())
    if isinstance(other, ConsumerGroup) and (other.members or is_share):
        dead = _dead(name)
        dead.error_message = b"Group %s is not a classic group." % other.name
        return dead
    try:
        topics = await _topics_of(context, name or b"")
        others = described_others(await _others(context, topics, name or b""))
        group = context.groups.find(name or b"")
        seen = [] if group is None else await seen_members(context, group)
        if group is not None and group.members and (seen or topics):
            described, is_stable = group.described(seen), group.state is GroupState.STABLE
            if not is_stable:  # As in Kafka, the members have neither until all are assigned.
                for member in described:
                    member.member_metadata = member.member_assignment = b""
            return DescribedGroup(
                group_id=name,
                group_state=group.state.value,
                protocol_type=group.protocol_type,
                protocol_data=group.protocol_name if is_stable else b"",
                members=[*described, *others],
            )
        if others:
            return DescribedGroup(
                group_id=name,
                group_state=GroupState.STABLE.value,
                protocol_type=PROTOCOL_TYPE,
                members=others,
            )
        peers, namespace = context.broker.peers, context.namespace
        if (
            topics
            or _is_left(context, group)
            or await peers.positions(context.asker, name or b"", namespace)
        ):
            return DescribedGroup(
                group_id=name,
                group_state=GroupState.EMPTY.value,
                protocol_type=b"" if group is None else group.protocol_type,
            )
    except BrokerError as error:
        context.refused(error)
        return _dead(name, Code.CONSUMER_COORDINATOR_NOT_AVAILABLE)
    return _dead(name)


async def group_exists(context: KafkaContext, name: bytes) -> bool:
    """Return True if a group has members, or positions that the client may act on. Raises
    BrokerError.
    """
    group = context.groups.find(name) or context.groups.find_modern(name)
    if (group is not None and group.members) or _is_left(context, group):
        return True
    if await _topics_of(context, name):
        return True
    return bool(await context.broker.peers.positions(context.asker, name, context.namespace))


def _is_left(context: KafkaContext, group: Group | None) -> bool:
    """Return True if the group's last member left lately, and the client may see all topics: those
    of such a group are unknown.
    """
    if group is None or not group.exists(trio.current_time()):
        return False
    place = (context.names.tenant, context.names.namespace)
    return sees_all(context.broker.access, context.connection.principal, place)


def _dead(name: bytes | None, code: Code = Code.NONE) -> DescribedGroup:
    return DescribedGroup(error_code=code, group_id=name, group_state=DEAD)


async def list_groups(context: KafkaContext, request: ListGroupsRequest) -> KafkaAnswer:
    """List the groups of topics that the client may see. The topics of a group that has stored
    nothing yet are unknown: it is shown only to a client that may see all topics.
    """
    listed: dict[bytes, bytes] = {}
    read: set[bytes] = set()  # groups with consumers of other protocols
    subscriptions = context.broker.subscriptions
    async for topic in in_turns(_topics(context), TOPICS_PER_TURN):
        if context.may_see(topic):
            async for name in in_turns(subscriptions.names(topic), TOPICS_PER_TURN):
                if not context.may_see(topic, name):
                    continue
                listed[name] = b""
                if context.broker.members.others(topic, name, PROTOCOL):
                    read.add(name)
    for topic, joined in (await _joined_topics(context, None)).items():
        for name in joined:
            if visible(topic.name) and context.may_see(topic) and context.may_see(topic, name):
                listed.setdefault(name, b"")
                read.add(name)
    names = context.names
    access, principal = context.broker.access, context.connection.principal
    is_whole = sees_all(access, principal, (names.tenant, names.namespace))
    now = trio.current_time()
    for name in context.groups.names():
        group = context.groups.any_of(name)
        if group is not None and (name in listed or (is_whole and group.exists(now))):
            listed[name] = group.protocol_type
    groups = []
    async for name, kind in in_turns(sorted(listed.items()), TOPICS_PER_TURN):
        try:
            context.check_group(name)
        except BrokerError:
            continue
        state, group_type = _kind(context.groups.any_of(name), has_others=name in read)
        is_wanted = _is_wanted(request.types_filter, group_type)
        if is_wanted and _is_wanted(request.states_filter, state):
            groups.append(
                ListedGroup(
                    group_id=name, protocol_type=kind, group_state=state, group_type=group_type
                )
            )
    return KafkaAnswer(ListGroupsResponse(groups=groups))


def _kind(group: Group | None, *, has_others: bool) -> tuple[bytes, bytes]:
    """Return the state and the type of a group as a list shows them."""
    if isinstance(group, ShareGroup):
        return group.state_name, SHARE
    if group is not None and group.members:
        return group.state.value, CLASSIC if isinstance(group, KafkaGroup) else CONSUMER
    kind = CONSUMER if isinstance(group, ConsumerGroup) else CLASSIC
    return (GroupState.STABLE if has_others else GroupState.EMPTY).value, kind


def _is_wanted(words: Sequence[bytes | None], word: bytes) -> bool:
    """Return True if a filter has the word, or none at all; case does not matter."""
    return not words or word.lower() in {(wanted or b"").lower() for wanted in words}


async def delete_groups(context: KafkaContext, request: DeleteGroupsRequest) -> KafkaAnswer:
    """Delete groups that nobody reads in any protocol, and their positions on every topic."""
    answers, ticket = [], 0
    for name in dict.fromkeys(request.groups_names):
        code, needed = await _delete(context, name or b"")
        answers.append(DeletableGroupResult(group_id=name, error_code=code))
        ticket = max(ticket, needed)
    return KafkaAnswer(DeleteGroupsResponse(results=answers), ticket)


async def _delete(context: KafkaContext, name: bytes) -> tuple[Code, int]:
    try:
        context.check_group(name)
    except BrokerError as error:
        context.refused(error)
        return Code.GROUP_AUTHORIZATION_FAILED, 0
    if not context.coordinates(name):
        return Code.NOT_COORDINATOR, 0
    group = context.groups.any_of(name)
    if isinstance(group, ConsumerGroup) and group.members:
        return Code.NON_EMPTY_GROUP, 0
    if isinstance(group, KafkaGroup) and group.members:
        is_seen = await seen_members(context, group) or await _topics_of(context, name)
        return (Code.NON_EMPTY_GROUP if is_seen else Code.GROUP_ID_NOT_FOUND), 0
    ticket = 0
    try:
        topics = await _topics_of(context, name)
        if await _others(context, topics, name):
            return Code.NON_EMPTY_GROUP, 0
        peers = context.broker.peers
        is_known = await peers.end_group(context.asker, name, context.namespace)
        is_known |= bool(topics) or _is_left(context, group)
        context.groups.forget(name)
        for topic in topics:
            ticket = max(ticket, context.broker.subscriptions.delete(topic, name))
    except SubscriptionBusy:  # Somebody reads a topic of another broker.
        return Code.NON_EMPTY_GROUP, ticket
    except NotOwner as error:  # Also if a topic has just moved: tools retry.
        context.refused(error)
        return Code.CONSUMER_COORDINATOR_NOT_AVAILABLE, ticket
    except BrokerError as error:
        return context.refused(error), ticket
    return (Code.NONE if is_known else Code.GROUP_ID_NOT_FOUND), ticket


async def _others(
    context: KafkaContext, topics: list[Topic], name: bytes
) -> list[tuple[Topic, SubscriptionMember]]:
    """Members of other protocols that read topics under the group's name: these topics, and those
    where the group has no position yet.
    """
    read = dict.fromkeys((*topics, *await _joined_topics(context, name)))
    return [
        (topic, other)
        async for topic in in_turns(read, TOPICS_PER_TURN)
        for other in context.broker.members.others(topic, name, PROTOCOL)
    ]


async def _joined_topics(context: KafkaContext, name: bytes | None) -> dict[Topic, list[bytes]]:
    """The topics where members of other protocols have joined groups, or the group of that name, as
    far as the client may act on group and topic; with the names of the groups.
    """
    broker, principal = context.broker, context.connection.principal
    joined: dict[Topic, list[bytes]] = {}
    others = broker.members.joined(name, but=PROTOCOL)
    async for group in in_turns(others, JOINED_PER_TURN):
        if not group.members or (group.tenant, group.namespace) != context.namespace:
            continue
        for topic_name in group.topics:
            topic = broker.topics.find(TopicName(group.tenant, group.namespace, topic_name))
            if topic is not None and broker.access.allows(
                principal, context.action, Resource.of_group(group.name, topic.name)
            ):
                joined.setdefault(topic, []).append(group.name)
    return joined


def _topics(context: KafkaContext) -> list[Topic]:
    names = context.names
    return list(context.broker.topics.list(names.tenant, names.namespace))


async def _topics_of(context: KafkaContext, name: bytes) -> list[Topic]:
    """The topics of this broker with a subscription of that name on which the client may act: the
    check of the group's name covers no topic.
    """
    broker, principal = context.broker, context.connection.principal
    return [
        topic
        async for topic in in_turns(_topics(context), TOPICS_PER_TURN)
        if broker.placement.is_here(topic.name)
        and broker.subscriptions.find(topic, name) is not None
        and broker.access.allows(principal, context.action, Resource.of_group(name, topic.name))
    ]
