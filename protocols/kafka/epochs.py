"""OffsetForLeaderEpoch: where the records of a leader's time end. One broker has led all the time,
which is epoch 0: the one that stands in record batches.
"""

from __future__ import annotations

from typing import Final

from broker.errors import BrokerError
from protocols.kafka.context import Answer, Context
from protocols.kafka.errors import Code
from protocols.kafka.messages import (
    EpochEnd,
    EpochEndsOf,
    OffsetForLeaderEpochReply,
    OffsetForLeaderEpochRequest,
)

EPOCH: Final = 0
UNKNOWN: Final = -1  # as an offset


async def offsets_for_epochs(context: Context, request: OffsetForLeaderEpochRequest) -> Answer:
    """The end of the log for every epoch that has been."""
    await context.own_writes()
    topics = [
        EpochEndsOf(name, [_end(context, name, index, one.epoch) for index, one in targets.items()])
        for name, targets in request.topics.items()
    ]
    return Answer(OffsetForLeaderEpochReply(topics))


def _end(context: Context, name: bytes | None, index: int, epoch: int) -> EpochEnd:
    try:
        partition = context.partition(name, index)
    except BrokerError as error:
        return EpochEnd(context.refused(error), index, UNKNOWN)
    if epoch < EPOCH:
        return EpochEnd(Code.NONE, index, UNKNOWN)
    return EpochEnd(Code.NONE, index, partition.high_watermark, EPOCH)
