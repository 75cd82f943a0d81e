"""POLL: the first offset of each strategy, and the offset that auto commit stores.

There is no waiting in this protocol.
"""

from __future__ import annotations

from collections.abc import Callable

from braidlog.broker.runtime.steps import Steps
from braidlog.protocols.iggy import messages as m
from braidlog.protocols.iggy import names
from braidlog.protocols.iggy import replies as r
from braidlog.protocols.iggy.context import PROTOCOL, IggyAnswer, IggyContext
from braidlog.protocols.iggy.errors import ErrorCode, Refusal
from braidlog.protocols.iggy.readers import (
    FIRST_PARTITION,
    NO_PARTITION,
    NotOwnPartition,
    ReadTarget,
    target,
)
from braidlog.protocols.iggy.reading import (
    PolledMessages,
    end_of,
    first_not_older,
    last_of,
    read,
    read_unless,
    reserved,
    shown,
)
from braidlog.protocols.iggy.topics import current_offset

# How often LAST looks further back, twice as far each time, if records are left out for Iggy's
# readers.
LAST_WIDENINGS_MAX = 8

ReadStart = Callable[[IggyContext, ReadTarget, m.PollMessages], Steps[tuple[int, PolledMessages]]]


def poll(context: IggyContext, request: m.PollMessages) -> Steps[IggyAnswer]:
    """Return up to `count` messages of a partition.

    Raises Refusal, PartitionNotFound and the errors of a read.
    """
    behaviour = context.dialect.behaviour
    if request.count == 0 and not behaviour.zero_polls:
        raise Refusal(ErrorCode.INVALID_MESSAGES_COUNT)
    try:
        return (yield from _poll_own(context, request))
    except NotOwnPartition:
        if behaviour.checks_owner:
            raise
        return IggyAnswer([r.PolledHead(NO_PARTITION, 0, 0)])


def _poll_own(context: IggyContext, request: m.PollMessages) -> Steps[IggyAnswer]:
    """Poll as `poll`. Raises NotOwnPartition, too."""
    behaviour = context.dialect.behaviour
    topic = names.get_topic(context.broker, request.stream, request.topic)
    reader = target(context, topic, request.consumer, request.partition, turn=True)
    if reader is None:
        return IggyAnswer(
            [r.PolledHead(FIRST_PARTITION if behaviour.owned_only else NO_PARTITION, 0, 0)]
        )
    if request.count == 0:
        return IggyAnswer([_head(context, reader, 0)])
    with (yield from reserved(context, request.max_bytes)) as context.room:
        return (yield from _polled(context, reader, request))


def _polled(context: IggyContext, reader: ReadTarget, request: m.PollMessages) -> Steps[IggyAnswer]:
    """Read and convert, with memory reserved."""
    start, slice_read = yield from STRATEGIES[request.strategy.kind](context, reader, request)
    if request.fits_only and slice_read.size > request.max_bytes:
        return IggyAnswer([_head(context, reader, 0, start)])
    context.room.keep(slice_read.size * context.dialect.form.copies)
    if request.auto_commit and slice_read.next_offset > start:
        # Lazy: on disk within the flush interval. Messages of a lost answer count as read, as in
        # Iggy.
        reader.commit(context, slice_read.next_offset, lazy=True)
    elif slice_read.count and request.consumer.kind is m.ConsumerKind.GROUP:
        reader.polled(context, end_of(context, start, slice_read))
    context.broker.metrics.records_out(
        PROTOCOL,
        reader.partition.metrics_name,
        slice_read.count,
        slice_read.size,
        reader.partition.traffic,
    )
    head = _head(context, reader, slice_read.count, slice_read.next_offset)
    tail = yield from shown(context, reader.partition, slice_read.parts)
    return IggyAnswer([head], tail=tail)


def _head(
    context: IggyContext, reader: ReadTarget, count: int, next_offset: int = 0
) -> r.PolledHead:
    return r.PolledHead(
        reader.index,
        current_offset(reader.partition),
        count,
        incarnation=reader.partition.partition_id,
        generation=reader.generation,
        metadata_op=context.broker.last_change,
        next_offset=next_offset,
    )


def _from_offset(
    context: IggyContext, reader: ReadTarget, request: m.PollMessages
) -> Steps[tuple[int, PolledMessages]]:
    start = max(request.strategy.value, reader.partition.log_start_offset)
    return start, (yield from read(context, reader.partition, start, request.count))


def _from_first(
    context: IggyContext, reader: ReadTarget, request: m.PollMessages
) -> Steps[tuple[int, PolledMessages]]:
    start = reader.partition.log_start_offset
    return start, (yield from read(context, reader.partition, start, request.count))


def _from_timestamp(
    context: IggyContext, reader: ReadTarget, request: m.PollMessages
) -> Steps[tuple[int, PolledMessages]]:
    start: int = yield first_not_older(reader.partition, request.strategy.value)
    return start, (yield from read(context, reader.partition, start, request.count))


def _from_last(
    context: IggyContext, reader: ReadTarget, request: m.PollMessages
) -> Steps[tuple[int, PolledMessages]]:
    """The last `count` messages, or as many of the newest as an answer holds; looks further back if
    some records are left out for Iggy.
    """
    partition = reader.partition
    end, first = partition.high_watermark, partition.log_start_offset
    span = request.count
    for _ in range(LAST_WIDENINGS_MAX):
        start = max(end - span, first)
        slice_read = yield from read(context, partition, start, span)
        if slice_read.count >= request.count or start == first or slice_read.next_offset < end:
            break
        span *= 2
    while (
        slice_read.next_offset < end and span > 1
    ):  # Too many for an answer: drop the older messages.
        span = max(min(slice_read.next_offset - start, span * 3 // 4), 1)
        start = max(end - span, first)
        slice_read = yield from read(context, partition, start, span)
    return start, last_of(context, slice_read, request.count)


def _from_next(
    context: IggyContext, reader: ReadTarget, request: m.PollMessages
) -> Steps[tuple[int, PolledMessages]]:
    """Read from the subscription's position, without messages that other listeners acknowledged
    individually.
    """
    partition, subscription = reader.partition, reader.subscription(context)
    position = subscription.position(reader.index) if subscription else None
    if subscription is None or position is None:
        return (yield from _from_first(context, reader, request))
    start = max(position, partition.log_start_offset)
    acked = subscription.acked(reader.index)
    if not acked:
        return start, (yield from read(context, partition, start, request.count))
    slice_read = yield from read_unless(context, partition, start, request.count, acked.next_gap)
    return start, slice_read


STRATEGIES: dict[m.PollingKind, ReadStart] = {
    m.PollingKind.OFFSET: _from_offset,
    m.PollingKind.TIMESTAMP: _from_timestamp,
    m.PollingKind.FIRST: _from_first,
    m.PollingKind.LAST: _from_last,
    m.PollingKind.NEXT: _from_next,
}
