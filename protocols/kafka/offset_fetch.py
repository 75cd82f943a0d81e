"""OffsetFetch: the positions of a group, or from version 8 on of several groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, TypeVar

from braidlog.protocols.kafka.commits import TOPIC_IDS_VERSION, FetchedOffsets, group_positions
from braidlog.protocols.kafka.context import KafkaAnswer, KafkaContext
from braidlog.protocols.kafka.wire.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequestGroup,
)
from braidlog.protocols.kafka.wire.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

if TYPE_CHECKING:
    from braidlog.broker.runtime.steps import Steps

WantedT = TypeVar("WantedT", OffsetFetchRequestGroup, DescribeShareGroupOffsetsRequestGroup)

GROUPS_VERSION: Final = 8  # From here on a request names several groups.


def fetch_offsets(context: KafkaContext, request: OffsetFetchRequest) -> Steps[KafkaAnswer]:
    """Answer with the positions of each group that the request names."""
    if context.version >= GROUPS_VERSION:
        groups = []
        for wanted in all_positions_once(request.groups):
            group = yield from _positions(context, wanted)
            groups.append(group)
        return _durable(context, OffsetFetchResponse(groups=groups))
    partitions = None
    if request.topics is not None:
        partitions = [
            (topic.name, index) for topic in request.topics for index in topic.partition_indexes
        ]
    code, topics = yield from group_positions(context, request.group_id, partitions)
    answers = [
        OffsetFetchResponseTopic(name=name, partitions=list(positions.values()))
        for name, positions in topics.items()
    ]
    return _durable(context, OffsetFetchResponse(topics=answers, error_code=code))


def all_positions_once(groups: Iterable[WantedT]) -> Iterator[WantedT]:
    """Yield the groups of a request, without repeats of a request for all positions of a group:
    these may be many, while named partitions count as entries of the request.
    """
    whole: set[bytes | None] = set()
    for wanted in groups:
        if wanted.topics is None:
            if wanted.group_id in whole:
                continue
            whole.add(wanted.group_id)
        yield wanted


def _durable(context: KafkaContext, reply: OffsetFetchResponse) -> KafkaAnswer:
    """Return an answer that waits until a crash takes back none of its positions."""
    return KafkaAnswer(reply, context.broker.subscriptions.flush_lazy())


def _positions(
    context: KafkaContext, wanted: OffsetFetchRequestGroup
) -> Steps[OffsetFetchResponseGroup]:
    by_id = context.version >= TOPIC_IDS_VERSION
    partitions = None
    if wanted.topics is not None:
        partitions = [
            (topic.topic_id if by_id else topic.name, index)
            for topic in wanted.topics
            for index in topic.partition_indexes
        ]
    code, topics = yield from group_positions(context, wanted.group_id, partitions)
    return OffsetFetchResponseGroup(
        group_id=wanted.group_id, topics=_answers(topics, by_id=by_id), error_code=code
    )


def _answers(topics: FetchedOffsets, *, by_id: bool) -> list[OffsetFetchResponseTopics]:
    """Return the positions in the structures of versions that name groups."""
    answers = []
    for key, positions in topics.items():
        answer = OffsetFetchResponseTopics(partitions=list(map(_position, positions.values())))
        if by_id:
            assert key is not None
            answer.topic_id = key
        else:
            answer.name = key
        answers.append(answer)
    return answers


def _position(position: OffsetFetchResponsePartition) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=position.partition_index,
        committed_offset=position.committed_offset,
        committed_leader_epoch=position.committed_leader_epoch,
        metadata=position.metadata,
        error_code=position.error_code,
    )
