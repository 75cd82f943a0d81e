"""Polls that wait for messages (W): each runs in a task, beside the other commands of its
connection.

A poll waits until enough messages are there, its time is over, or the client cancels the poll. A
poll reads nothing and commits nothing before its answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

import trio

from braidlog.broker.commit.waiters import common_deadline
from braidlog.broker.runtime.steps import run
from braidlog.broker.topics.partition import Partition
from braidlog.broker.topics.topic import Topic
from braidlog.protocols.iggy import messages as m
from braidlog.protocols.iggy import names
from braidlog.protocols.iggy import replies as r
from braidlog.protocols.iggy.context import IggyAnswer, IggyContext
from braidlog.protocols.iggy.errors import ErrorCode, Refusal
from braidlog.protocols.iggy.polling import poll
from braidlog.protocols.iggy.readers import NotOwnPartition, ReadTarget, assigned, target
from braidlog.protocols.iggy.reading import first_not_older

US: Final = 1_000_000
# Longest time that a client may name for the wait and for the whole request, as in Iggy.
ASKED_WAIT_MAX_S, TIMEOUT_MAX_S = 600, 630
TIMEOUT_OVER_WAIT_US: Final = US  # A request's time exceeds its wait by at least this.
WAIT_MAX_S: Final = 30.0  # A longer wait is answered then, as in server 0.10.
BYTES_MIN: Final = 40 + 256 + 48  # Heads of an answer, of a batch and of a message.
# A waiting group member looks this often whether the partition is still its own.
LOOK_S: Final = 1.0
PLACES_PER_TURN: Final = 100  # Partitions that a request looks at between two checkpoints.

ReadStart = tuple[Partition, int]
"""A partition, and the offset from which its records are wanted."""


async def poll_deferred(context: IggyContext, request: m.PollDeferred) -> IggyAnswer:
    """Return messages as `poll`, once there are `min_count`, or when the wait is over.

    Raises Refusal, PartitionNotFound and the errors of a read.
    """
    _check(request)
    wait_s = min(request.wait_us / US, context.wait_max_s, WAIT_MAX_S)
    deadline = common_deadline(trio.current_time(), wait_s)
    seen = 0  # A read found nothing for this client below this offset.
    while True:
        wanted = await _wanted(context, request)
        if wanted is not None:
            partition, start = wanted
            last = max(start, seen) + request.min_count - 1
            if await _wait(context, partition, last, deadline, is_group=_is_group(request)):
                continue  # The member may have lost the partition meanwhile.
            seen = partition.high_watermark
        answer = await read_in_turn(context, lambda: run(poll(context, request)))
        head = answer.records[0]
        assert isinstance(head, r.PolledHead)
        if wanted is None or head.messages_count or is_over(context, deadline):
            return answer


async def wait_for_messages(context: IggyContext, request: m.WaitForMessages) -> IggyAnswer:
    """Return the partitions that have messages for the client, once there are any or the wait is
    over; none if the member owns none of the partitions.

    Raises Refusal, PartitionNotFound.
    """
    check_times(request.wait_us, request.request_timeout_us)
    wait_s = min(request.wait_us / US, context.wait_max_s, WAIT_MAX_S)
    deadline = common_deadline(trio.current_time(), wait_s)
    # Neither an incarnation nor an owner is named here.
    context = replace(context, incarnation=None, generation=0)
    while True:
        topic = names.get_topic(context.broker, request.stream, request.topic)
        starts: list[ReadStart] = []
        for number, (index, strategy) in enumerate(request.targets.items(), 1):
            if number % PLACES_PER_TURN == 0:
                await trio.lowlevel.checkpoint()
            with suppress(NotOwnPartition):  # Moved to another member: not ready here.
                reader = target(context, topic, request.consumer, index, turn=True)
                if reader is not None:
                    starts.append((reader.partition, await start_of(context, reader, strategy)))
        ready = [partition.index for partition, at in starts if partition.high_watermark > at]
        if ready or not starts or is_over(context, deadline):
            context.recheck()
            return IggyAnswer([r.ReadyPartitions(ready)])
        await until_records(context, topic, request.consumer, starts, 1, deadline)


def is_over(context: IggyContext, deadline: float) -> bool:
    """Return True if no wait goes on: its time is over, or the broker stops."""
    return trio.current_time() >= deadline or context.broker.stopping.is_set()


async def until_records(
    context: IggyContext,
    topic: Topic,
    consumer: m.ConsumerRef,
    starts: Sequence[ReadStart],
    count: int,
    deadline: float,
) -> bool:
    """Wait for `count` records behind the starts together. Return False if the wait ends before:
    at the deadline, and if the caller has to find the starts anew, because a group's member has
    other partitions now, or a partition was deleted.

    A record wakes every wait for its partition, so that a look at a thousand partitions is cheap:
    only the ends are compared. Raises Absent if the group was deleted.
    """
    is_group = consumer.kind is m.ConsumerKind.GROUP
    mine = assigned(context, topic, consumer)
    while not is_over(context, deadline):
        if sum(max(partition.high_watermark - at, 0) for partition, at in starts) >= count:
            return True
        if any(partition.removed for partition, _ in starts):
            await trio.lowlevel.checkpoint()  # The caller may look again at once.
            return False
        ends = [(partition, max(at, partition.high_watermark)) for partition, at in starts]
        # No record wakes a member that loses a partition.
        end = min(deadline, trio.current_time() + LOOK_S) if is_group else deadline
        with trio.move_on_at(end):
            await context.broker.wait_any(ends)
        if is_group and assigned(context, topic, consumer) != mine:
            return False
    return False


async def read_in_turn(
    context: IggyContext, read: Callable[[], Awaitable[IggyAnswer]]
) -> IggyAnswer:
    """Return the result of `read`, once no other waiting poll of the connection reads, and the
    client has read earlier answers.

    An append may end the waits of many polls. If all of them read at once, other connections would
    wait, and a client that does not read its answers would hold the memory. Raises NotAuthorized if
    the client has lost the right to read during the wait, and the errors of `read`.
    """
    async with context.reads:
        await context.connection.outbox.drained()
        context.recheck()
        return await read()


async def _wait(
    context: IggyContext, partition: Partition, last: int, deadline: float, *, is_group: bool
) -> bool:
    """Wait until `last` can be read, or the deadline. Return True if the caller has to look again
    and go on waiting.
    """
    if partition.high_watermark > last or is_over(context, deadline):
        return False
    end = min(deadline, trio.current_time() + LOOK_S) if is_group else deadline
    with trio.move_on_at(end) as scope:
        await partition.wait_for(last)
    return scope.cancelled_caught and end < deadline


async def _wanted(context: IggyContext, request: m.PollDeferred) -> tuple[Partition, int] | None:
    """Return the partition and the offset to wait for; None if the answer does not depend on a
    wait. Raises Refusal, NotOwnPartition, PartitionNotFound.
    """
    topic = names.get_topic(context.broker, request.stream, request.topic)
    reader = target(context, topic, request.consumer, request.partition, turn=True)
    if reader is None or not request.wait_us:
        return None
    return reader.partition, await start_of(context, reader, request.strategy)


async def start_of(context: IggyContext, reader: ReadTarget, strategy: m.PollingStrategy) -> int:
    """Return the offset from which a poll waits for messages."""
    first = reader.partition.log_start_offset
    if strategy.kind is m.PollingKind.OFFSET:
        return max(strategy.value, first)
    if strategy.kind is m.PollingKind.TIMESTAMP:
        return await first_not_older(reader.partition, strategy.value)
    if strategy.kind is m.PollingKind.NEXT:
        return max(reader.position(context) or 0, first)
    return first


def _is_group(request: m.PollDeferred) -> bool:
    return request.consumer.kind is m.ConsumerKind.GROUP


def _check(request: m.PollDeferred) -> None:
    """Check the limits of a waiting poll, as Iggy does. Raises Refusal."""
    check_times(request.wait_us, request.request_timeout_us)
    for is_good, problem in (
        (
            1 <= request.min_count <= request.count,
            f"at least {request.min_count} of at most {request.count} messages",
        ),
        (request.max_bytes >= BYTES_MIN, f"at most {request.max_bytes} bytes of messages"),
    ):
        if not is_good:
            raise Refusal(ErrorCode.INVALID_COMMAND, problem)


def check_times(wait_us: int, timeout_us: int) -> None:
    """Check the times of a request that waits. Raises Refusal."""
    if wait_us > ASKED_WAIT_MAX_S * US:
        raise Refusal(
            ErrorCode.INVALID_COMMAND, f"wait of {wait_us} us exceeds {ASKED_WAIT_MAX_S} s"
        )
    is_covered = not wait_us or timeout_us >= wait_us + TIMEOUT_OVER_WAIT_US
    if timeout_us > TIMEOUT_MAX_S * US or not is_covered:
        problem = f"a request of {timeout_us} us that waits {wait_us} us"
        raise Refusal(ErrorCode.INVALID_COMMAND, problem)
