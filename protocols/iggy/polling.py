"""POLL: the first offset of each strategy, and the offset that auto commit stores.

There is no waiting in this protocol.
"""

from __future__ import annotations

from collections.abc import Callable

from braidlog.broker.runtime.steps import Steps
from braidlog.protocols.iggy import messages as m
from braidlog.protocols.iggy import names
from braidlog.protocols.iggy import replies as r
from braidlog.protocols.iggy.context import PROTOCOL, Answer, Context
from braidlog.protocols.iggy.errors import ErrorCode, Refusal
from braidlog.protocols.iggy.readers import FIRST_PARTITION, NO_PARTITION, NotOwned, Target, target
from braidlog.protocols.iggy.reading import (
    Taken,
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

Strategy = Callable[[Context, Target, m.PollMessages], Steps[tuple[int, Taken]]]


def poll(context: Context, request: m.PollMessages) -> Steps[Answer]:
    """Return up to `count` messages of a partition.

    Raises Refusal, PartitionNotFound and the errors of a read.
    """
    habits = context.dialect.habits
    if request.count == 0 and not habits.zero_polls:
        raise Refusal(ErrorCode.INVALID_MESSAGES_COUNT)
    topic = names.get_topic(context.broker, request.stream, request.topic)
    try:
        found = target(context, topic, request.consumer, request.partition, turn=True)
    except NotOwned:
        return Answer([r.PolledHead(NO_PARTITION, 0, 0)])
    if found is None:
        return Answer([r.PolledHead(FIRST_PARTITION if habits.owned_only else NO_PARTITION, 0, 0)])
    if request.count == 0:
        return Answer([r.PolledHead(found.index, current_offset(found.partition), 0)])
    with (yield from reserved(context)) as context.room:
        return (yield from _polled(context, found, request))


def _polled(context: Context, found: Target, request: m.PollMessages) -> Steps[Answer]:
    """Read and convert, with memory reserved."""
    start, taken = yield from STRATEGIES[request.strategy.kind](context, found, request)
    context.room.keep(taken.size * context.dialect.form.copies)
    if request.auto_commit and taken.next_offset > start:
        # Lazy: on disk within the flush interval. Messages of a lost answer count as read, as in
        # Iggy.
        found.commit(context, taken.next_offset, lazy=True)
    elif taken.count and request.consumer.kind is m.ConsumerKind.GROUP:
        found.polled(context, taken.next_offset)
    context.broker.metrics.records_out(
        PROTOCOL, found.partition.figures_name, taken.count, taken.size
    )
    head = r.PolledHead(found.index, current_offset(found.partition), taken.count)
    tail = yield from shown(context, found.partition, taken.parts)
    return Answer([head], tail=tail)


def _from_offset(
    context: Context, found: Target, request: m.PollMessages
) -> Steps[tuple[int, Taken]]:
    start = max(request.strategy.value, found.partition.log_start_offset)
    return start, (yield from read(context, found.partition, start, request.count))


def _from_first(
    context: Context, found: Target, request: m.PollMessages
) -> Steps[tuple[int, Taken]]:
    start = found.partition.log_start_offset
    return start, (yield from read(context, found.partition, start, request.count))


def _from_timestamp(
    context: Context, found: Target, request: m.PollMessages
) -> Steps[tuple[int, Taken]]:
    start: int = yield first_not_older(found.partition, request.strategy.value)
    return start, (yield from read(context, found.partition, start, request.count))


def _from_last(
    context: Context, found: Target, request: m.PollMessages
) -> Steps[tuple[int, Taken]]:
    """The last `count` messages, or as many of the newest as an answer holds; looks further back if
    some records are left out for Iggy.
    """
    partition = found.partition
    end, first = partition.high_watermark, partition.log_start_offset
    span = request.count
    for _ in range(LAST_WIDENINGS_MAX):
        start = max(end - span, first)
        taken = yield from read(context, partition, start, span)
        if taken.count >= request.count or start == first or taken.next_offset < end:
            break
        span *= 2
    while taken.next_offset < end and span > 1:  # Too many for an answer: drop the older messages.
        span = max(min(taken.next_offset - start, span * 3 // 4), 1)
        start = max(end - span, first)
        taken = yield from read(context, partition, start, span)
    return start, last_of(context, taken, request.count)


def _from_next(
    context: Context, found: Target, request: m.PollMessages
) -> Steps[tuple[int, Taken]]:
    """Read from the subscription's position, without messages that other listeners acknowledged
    individually.
    """
    partition, subscription = found.partition, found.subscription(context)
    position = subscription.position(found.index) if subscription else None
    if subscription is None or position is None:
        return (yield from _from_first(context, found, request))
    start = max(position, partition.log_start_offset)
    acked = subscription.acked(found.index)
    if not acked:
        return start, (yield from read(context, partition, start, request.count))
    taken = yield from read_unless(context, partition, start, request.count, acked.next_gap)
    return start, taken


STRATEGIES: dict[m.PollingKind, Strategy] = {
    m.PollingKind.OFFSET: _from_offset,
    m.PollingKind.TIMESTAMP: _from_timestamp,
    m.PollingKind.FIRST: _from_first,
    m.PollingKind.LAST: _from_last,
    m.PollingKind.NEXT: _from_next,
}
