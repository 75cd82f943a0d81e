"""OffsetForLeaderEpoch: where the records of a leader epoch end. There is only epoch 0, the one
that is stamped into every record batch.
"""

from __future__ import annotations

from typing import Final

from braidlog.broker.errors import BrokerError
from braidlog.protocols.kafka.context import Answer, Context
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.messages import (
    EpochEnd,
    EpochEndsOf,
    OffsetForLeaderEpochReply,
    OffsetForLeaderEpochRequest,
)

EPOCH: Final = 0
UNKNOWN: Final = -1  # as an offset


async def offsets_for_epochs(context: Context, request: OffsetForLeaderEpochRequest) -> Answer:
    """Answer the high watermark for epoch 0 and any later one."""
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
