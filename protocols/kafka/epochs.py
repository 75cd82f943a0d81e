"""Leader epochs, and OffsetForLeaderEpoch: where the records of a leader epoch end.

In a cluster the epoch of a partition is the number of its shard's owners so far; a broker alone has
epoch 0. A takeover removes no record that a client has read, so the records of every epoch up to
the present epoch end at the high watermark. All record batches have epoch 0 in their headers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, TypeVar

from braidlog.broker.errors import BrokerError, NotOwner
from braidlog.protocols.kafka.by_partition import by_partition
from braidlog.protocols.kafka.context import KafkaAnswer, KafkaContext
from braidlog.protocols.kafka.errors import FencedEpoch, UnknownEpoch
from braidlog.protocols.kafka.messages import Leader
from braidlog.protocols.kafka.wire import fetch, produce, share_acknowledge, share_fetch
from braidlog.protocols.kafka.wire.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

if TYPE_CHECKING:
    from braidlog.storage.metadata.names import TopicName

RECORD_EPOCH: Final = 0  # In the header of every record batch.
EPOCH_MAX: Final = 2**31 - 1
LED_ELSEWHERE: Final = (NotOwner, FencedEpoch)  # The client has a former leader.
EndpointT = TypeVar(
    "EndpointT",
    produce.NodeEndpoint,
    fetch.NodeEndpoint,
    share_fetch.NodeEndpoint,
    share_acknowledge.NodeEndpoint,
)


def epoch_of(context: KafkaContext, name: TopicName) -> int:
    """Return the leader epoch of a topic's partitions."""
    return min(context.broker.placement.epoch(name), EPOCH_MAX)


def check_epoch(context: KafkaContext, name: TopicName, known: int) -> None:
    """Check the leader epoch that a client knows, below 0 for none. Raises FencedEpoch,
    UnknownEpoch.
    """
    if known < 0:
        return
    present = epoch_of(context, name)
    if known != present:
        text = f"the client knows leader epoch {known}, expected {present}"
        raise FencedEpoch(text) if known < present else UnknownEpoch(text)


def leader_in(context: KafkaContext, error: BrokerError, name: TopicName) -> Leader | None:
    """Return the leader that a refusal for a topic names: after an error of LED_ELSEWHERE, if there
    is a leader now.
    """
    if not isinstance(error, LED_ELSEWHERE):
        return None
    address = context.address_of(context.broker.placement.owner(name))
    if address is None:
        return None
    return Leader(address.node_id, epoch_of(context, name), address.host, address.port)


def endpoints(leaders: Iterable[Leader], kind: type[EndpointT]) -> list[EndpointT]:
    """Return the addresses of the leaders that an answer names, each once."""
    return [
        kind(node_id=leader.node_id, host=leader.host, port=leader.port)
        for leader in {leader.node_id: leader for leader in leaders}.values()
    ]


async def offsets_for_epochs(
    context: KafkaContext, request: OffsetForLeaderEpochRequest
) -> KafkaAnswer:
    """Answer the high watermark for each epoch up to the present epoch; no other has begun."""
    await context.own_writes()
    wanted = by_partition(
        (topic.topic, partition.partition, partition)
        for topic in request.topics
        for partition in topic.partitions
    )
    topics = [
        OffsetForLeaderTopicResult(
            topic=name,
            partitions=[_end(context, name, target) for target in targets.values()],
        )
        for name, targets in wanted.items()
    ]
    return KafkaAnswer(OffsetForLeaderEpochResponse(topics=topics))


def _end(
    context: KafkaContext, name: bytes | None, target: OffsetForLeaderPartition
) -> EpochEndOffset:
    end = EpochEndOffset(partition=target.partition)
    epoch = target.leader_epoch
    try:
        topic = context.topic(name)
        partition = topic.partition(target.partition)
        check_epoch(context, topic.name, target.current_leader_epoch)
        if 0 <= epoch <= epoch_of(context, topic.name):
            end.leader_epoch, end.end_offset = epoch, partition.high_watermark
    except BrokerError as error:
        end.error_code = context.refused(error)
    return end
