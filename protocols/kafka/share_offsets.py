"""DescribeShareGroupOffsets, AlterShareGroupOffsets, DeleteShareGroupOffsets: the positions of
share groups, which are those of the subscriptions of their names. Texts of refusals are Kafka's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from braidlog.broker.errors import (
    BrokerError,
    NotOwner,
    SubscriptionNotFound,
    TopicNotFound,
    Unanswered,
)
from braidlog.protocols.kafka.classic_group import MemberRefused
from braidlog.protocols.kafka.classic_groups import checked_name
from braidlog.protocols.kafka.context import KafkaAnswer, KafkaContext
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.group_places import group_places, may_see
from braidlog.protocols.kafka.names import PROTOCOL
from braidlog.protocols.kafka.offset_fetch import all_positions_once
from braidlog.protocols.kafka.topic_ids import NO_ID, find_topic, id_of
from braidlog.protocols.kafka.wire import alter_share_group_offsets as alter
from braidlog.protocols.kafka.wire import delete_share_group_offsets as delete
from braidlog.protocols.kafka.wire import describe_share_group_offsets as describe

if TYPE_CHECKING:
    from braidlog.broker.topics.topic import Topic

NO_OFFSET = NO_LAG = -1
NOT_EMPTY = b"The group is not empty."
NO_TOPIC = b"This server does not host this topic-partition."
NO_OFFSETS = b"There is no offset information to delete."


async def describe_share_group_offsets(
    context: KafkaContext, request: describe.DescribeShareGroupOffsetsRequest
) -> KafkaAnswer:
    """Return the position of each group in partitions, or in all of topics where it has any."""
    groups = [await _described(context, group) for group in all_positions_once(request.groups)]
    return KafkaAnswer(describe.DescribeShareGroupOffsetsResponse(groups=groups))


async def _described(
    context: KafkaContext, group: describe.DescribeShareGroupOffsetsRequestGroup
) -> describe.DescribeShareGroupOffsetsResponseGroup:
    answer = describe.DescribeShareGroupOffsetsResponseGroup(group_id=group.group_id)
    try:
        name = checked_name(context, group.group_id)
    except MemberRefused as error:
        answer.error_code, answer.error_message = error.code, error.reason.encode() or None
        return answer
    if group.topics is not None:
        answer.topics = [
            await _positions(context, name, topic.topic_name, topic.partitions)
            for topic in group.topics
        ]
        return answer
    try:
        places = await group_places(context, name)
    except NotOwner as error:
        answer.error_code = context.coordinator_refused(error)
        return answer
    known = context.groups.find_share(name)
    assigned = () if known is None else known.initialized
    topics = dict.fromkeys([*places, *_existing(context, name, assigned)])
    answer.topics = [
        await _positions(context, name, topic.name.topic.encode(), range(len(topic.partitions)))
        for topic in topics
    ]
    return answer


def _existing(context: KafkaContext, group: bytes, ids: Iterable[bytes]) -> Iterator[Topic]:
    """Yield the topics of those ids that exist and that the client may see."""
    for topic_id in ids:
        topic = find_topic(context.broker.topics, topic_id)
        if topic is not None and may_see(context, topic, group):
            yield topic


async def _positions(
    context: KafkaContext, group: bytes, name: bytes | None, indexes: Iterable[int]
) -> describe.DescribeShareGroupOffsetsResponseTopic:
    answer = describe.DescribeShareGroupOffsetsResponseTopic(topic_name=name)
    partitions = []
    topic: Topic | None = None
    failure: Code = Code.NONE
    try:
        topic = context.topic(name)
        context.check_group(group, topic.name)
        answer.topic_id = id_of(topic)
    except TopicNotFound:
        pass  # As in Kafka, a missing topic has no position.
    except BrokerError as error:
        failure = context.refused(error)
    for index in indexes:
        partition = describe.DescribeShareGroupOffsetsResponsePartition(
            partition_index=index, start_offset=NO_OFFSET, lag=NO_LAG, error_code=failure
        )
        partitions.append(partition)
        if topic is None or failure != Code.NONE:
            continue
        try:
            standing = await _standing(context, topic, group, index)
        except BrokerError as error:
            partition.error_code = context.coordinator_refused(error)
            partition.error_message = str(error).encode()
            if isinstance(error, NotOwner):
                failure = partition.error_code  # The same broker has the other partitions.
        else:
            if standing is not None:
                partition.start_offset, partition.lag = standing
    answer.partitions = partitions
    return answer


async def _standing(
    context: KafkaContext, topic: Topic, group: bytes, index: int
) -> tuple[int, int] | None:
    """Return the position and the lag on a partition of any broker; None without a position. Raises
    BrokerError.
    """
    try:
        topic.partition(index).check_here()
        subscription = context.broker.subscriptions.find(topic, group)
        position = None if subscription is None else subscription.position(index)
    except NotOwner as owner:
        place, peers = (topic.name.full, index), context.broker.peers
        return await peers.standing(owner.node_id, context.asker, group, place)
    if subscription is None or position is None:
        return None
    return position, subscription.backlog(index)


async def _seek(context: KafkaContext, topic: Topic, group: bytes, index: int, offset: int) -> int:
    """Move the group on a partition of any broker; return the ticket. Raises BrokerError."""
    try:
        topic.partition(index).check_here()
        return context.broker.subscriptions.open(topic, group).seek(index, offset)
    except NotOwner as owner:
        place, peers = (topic.name.full, index), context.broker.peers
        await peers.seek(owner.node_id, context.asker, group, place, offset)
        return 0


async def _delete(context: KafkaContext, topic: Topic, group: bytes) -> tuple[bool, int]:
    """End the group's positions in a topic of any broker; return True if there were any, and the
    ticket. Raises BrokerError.
    """
    subscriptions, peers = context.broker.subscriptions, context.broker.peers
    try:
        if subscriptions.find(topic, group) is None:
            return False, 0
        return True, subscriptions.delete(topic, group)
    except NotOwner as owner:
        had_any = False
        for index in range(len(topic.partitions)):
            place = topic.name.full, index
            try:
                await peers.end_position(owner.node_id, context.asker, group, place, PROTOCOL)
                had_any = True
            except SubscriptionNotFound:
                continue
        return had_any, 0


async def alter_share_group_offsets(
    context: KafkaContext, request: alter.AlterShareGroupOffsetsRequest
) -> KafkaAnswer:
    """Move a group without members: a seek, as of any protocol. As in Kafka, the group exists from
    then on, until it is deleted, if some topic exists.
    """
    try:
        name = _unread(context, request.group_id)
        group = None
        if any(_is_known(context, topic.topic_name) for topic in request.topics):
            group = context.groups.get_share(name)
            group.create()
    except MemberRefused as error:
        refusal = alter.AlterShareGroupOffsetsResponse(
            error_code=error.code, error_message=error.reason.encode() or None
        )
        return KafkaAnswer(refusal)
    ticket, responses = 0, []
    for topic in request.topics:
        answer, moved = await _altered(context, name, topic)
        ticket = max(ticket, moved)
        responses.append(answer)
        if group is not None and not all(part.error_code for part in answer.partitions):
            group.note_move(answer.topic_id)
    if group is not None:
        context.groups.weigh(group)
    return KafkaAnswer(alter.AlterShareGroupOffsetsResponse(responses=responses), ticket)


def _is_known(context: KafkaContext, topic_name: bytes | None) -> bool:
    """Return True if the topic exists and the client may use it."""
    try:
        context.topic(topic_name)
    except BrokerError:  # The answer of the topic tells.
        return False
    return True


async def _altered(
    context: KafkaContext, group: bytes, topic: alter.AlterShareGroupOffsetsRequestTopic
) -> tuple[alter.AlterShareGroupOffsetsResponseTopic, int]:
    """Move the group in a topic; return the outcome and the ticket."""
    answer = alter.AlterShareGroupOffsetsResponseTopic(topic_name=topic.topic_name)
    ticket, partitions = 0, []
    lost: BrokerError | None = None
    for part in topic.partitions:
        result = alter.AlterShareGroupOffsetsResponsePartition(partition_index=part.partition_index)
        partitions.append(result)
        error = lost
        if error is None:
            try:
                named = context.topic(topic.topic_name)
                answer.topic_id = id_of(named)
                context.check_group(group, named.name)
                moved = await _seek(context, named, group, part.partition_index, part.start_offset)
                ticket = max(ticket, moved)
            except (NotOwner, Unanswered) as failed:
                error = lost = failed  # The same broker has the other partitions.
            except BrokerError as refused:
                error = refused
        if error is not None:
            result.error_code = context.coordinator_refused(error)
            result.error_message = str(error).encode()
    answer.partitions = partitions
    return answer, ticket


async def delete_share_group_offsets(
    context: KafkaContext, request: delete.DeleteShareGroupOffsetsRequest
) -> KafkaAnswer:
    """End a group's positions in topics. As in Kafka, the answer leaves topics out for a group that
    never had a partition.
    """
    try:
        name = _unread(context, request.group_id)
    except MemberRefused as error:
        return KafkaAnswer(_no_deletion(error.code, error.reason.encode() or None))
    try:
        has_any = bool(await group_places(context, name))
    except NotOwner as error:
        return KafkaAnswer(_no_deletion(context.coordinator_refused(error), None))
    group = context.groups.find_share(name)
    is_initialized = has_any or (group is not None and group.has_initialized)
    ticket, responses = 0, []
    for topic_name in dict.fromkeys(topic.topic_name for topic in request.topics):
        answer, needed = await _deleted(context, name, topic_name)
        ticket = max(ticket, needed)
        if is_initialized or answer.error_code != Code.UNKNOWN_TOPIC_OR_PARTITION:
            responses.append(answer)
    if group is not None:
        context.groups.weigh(group)
    elif not has_any and not responses:
        return KafkaAnswer(_no_deletion(Code.GROUP_ID_NOT_FOUND, b"Group %s not found." % name))
    return KafkaAnswer(delete.DeleteShareGroupOffsetsResponse(responses=responses), ticket)


async def _deleted(
    context: KafkaContext, group: bytes, topic_name: bytes | None
) -> tuple[delete.DeleteShareGroupOffsetsResponseTopic, int]:
    """End the group's positions in a topic; return the outcome and the ticket."""
    answer = delete.DeleteShareGroupOffsetsResponseTopic(topic_name=topic_name, topic_id=NO_ID)
    try:
        topic = context.topic(topic_name)
        context.check_group(group, topic.name)
        had_any, ticket = await _delete(context, topic, group)
    except TopicNotFound as error:
        answer.error_code, answer.error_message = context.refused(error), NO_TOPIC
        return answer, 0
    except BrokerError as error:
        answer.error_code = context.coordinator_refused(error)
        answer.error_message = str(error).encode()
        return answer, 0
    known = context.groups.find_share(group)
    was_assigned = known is not None and known.forget(id_of(topic))
    if had_any or was_assigned:
        answer.topic_id = id_of(topic)
    else:
        answer.error_code, answer.error_message = Code.UNKNOWN_TOPIC_OR_PARTITION, NO_OFFSETS
    return answer, ticket


def _no_deletion(code: Code, reason: bytes | None) -> delete.DeleteShareGroupOffsetsResponse:
    return delete.DeleteShareGroupOffsetsResponse(error_code=code, error_message=reason)


def _unread(context: KafkaContext, group: bytes | None) -> bytes:
    """Return the name of a group without members. Raises MemberRefused."""
    name = checked_name(context, group)
    known = context.groups.any_of(name)
    if known is not None and known.members:
        raise MemberRefused(Code.NON_EMPTY_GROUP, NOT_EMPTY.decode())
    return name
