"""FETCH_MESSAGES (W): a wait for messages of several partitions of a topic, and a poll of each.

An error of a partition is part of the answer, and ends the wait. A section of the answer after the
first is left out if its messages do not fit: the client fetches that partition again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import trio

from braidlog.broker.commit.waiters import common_deadline
from braidlog.broker.errors import BrokerError, NotOwner
from braidlog.broker.runtime.steps import run
from braidlog.broker.topics.topic import Topic
from braidlog.protocols.iggy import messages as m
from braidlog.protocols.iggy import names
from braidlog.protocols.iggy import replies as r
from braidlog.protocols.iggy.context import IggyAnswer, IggyContext
from braidlog.protocols.iggy.deferred import (
    BYTES_MIN,
    PLACES_PER_TURN,
    US,
    WAIT_MAX_S,
    ReadStart,
    check_times,
    is_over,
    read_in_turn,
    start_of,
    until_records,
)
from braidlog.protocols.iggy.errors import ErrorCode, Refusal, wire_code
from braidlog.protocols.iggy.fetch_requests import FetchedPlace, FetchMessages
from braidlog.protocols.iggy.polling import poll
from braidlog.protocols.iggy.readers import target
from braidlog.storage.formats.api import Buffer

GROWTH_BYTES: Final = 256  # A batch's head.
SECTIONS_PER_TURN: Final = 20  # Partitions that are read between two checkpoints.
STARTS: Final = (m.PollingKind.OFFSET, m.PollingKind.NEXT)


async def fetch(context: IggyContext, request: FetchMessages) -> IggyAnswer:
    """Return a section for each partition, once all together have `min_count` messages, or when the
    wait is over.

    Raises Refusal, NotOwner and the errors of a read.
    """
    _check(request)
    wait_s = min(request.wait_us / US, context.wait_max_s, WAIT_MAX_S)
    deadline = common_deadline(trio.current_time(), wait_s)
    read_to: dict[int, int] = {}  # A read found nothing for this client below, by partition id.
    while True:
        topic = names.get_topic(context.broker, request.stream, request.topic)
        starts = await _starts(context, request, topic)
        if starts is None or is_over(context, deadline):
            return await _answer_in_turn(context, request)
        starts = [
            (partition, max(at, read_to.get(partition.partition_id, 0))) for partition, at in starts
        ]
        count = request.min_count
        if not await until_records(context, topic, request.consumer, starts, count, deadline):
            continue
        # Records that Iggy's readers cannot have do not count.
        ends = {partition.partition_id: partition.high_watermark for partition, _ in starts}
        answer = await _answer_in_turn(context, request)
        if any(section.messages_count or section.status for section in answer.records[1:]):
            return answer
        read_to = ends


async def _starts(
    context: IggyContext, request: FetchMessages, topic: Topic
) -> list[ReadStart] | None:
    """Return each partition with the offset where its read starts; None if a partition has an
    error, which is the answer.
    """
    starts = []
    for number, wanted in enumerate(request.targets, 1):
        if number % PLACES_PER_TURN == 0:
            await trio.lowlevel.checkpoint()
        own = _for_place(context, wanted)
        try:
            reader = target(own, topic, request.consumer, wanted.partition, turn=True)
            if reader is None:
                return None
            starts.append((reader.partition, await start_of(own, reader, wanted.strategy)))
        except NotOwner:
            raise
        except (Refusal, BrokerError):
            return None
    return starts


def _for_place(context: IggyContext, wanted: FetchedPlace) -> IggyContext:
    return replace(context, incarnation=wanted.incarnation, generation=wanted.generation)


async def _answer_in_turn(context: IggyContext, request: FetchMessages) -> IggyAnswer:
    return await read_in_turn(context, lambda: _answer(context, request))


async def _answer(context: IggyContext, request: FetchMessages) -> IggyAnswer:
    """Read each partition as long as messages fit."""
    names.get_topic(context.broker, request.stream, request.topic)
    sections: list[r.FetchSection] = []
    tail: list[Buffer] = []
    count, left = request.count, request.max_bytes
    for number, wanted in enumerate(request.targets, 1):
        if number % SECTIONS_PER_TURN == 0:
            await trio.lowlevel.checkpoint()
        limit = min(wanted.max_bytes, left)
        if not count or limit < BYTES_MIN:
            break
        # A stored message may become a batch of its own in the answer.
        most = min(count, max(limit // (4 * GROWTH_BYTES), 1))
        own = _for_place(context, wanted)
        poll_request = m.PollMessages(
            *(request.consumer, request.stream, request.topic, wanted.partition),
            *(wanted.strategy, most, request.auto_commit),
            max_bytes=limit - most * GROWTH_BYTES,
            fits_only=bool(tail),
        )
        section, messages = await _section(own, wanted, poll_request)
        sections.append(section)
        tail += messages
        count -= section.messages_count
        left -= section.records_bytes
    return IggyAnswer([r.Count(len(sections)), *sections], tail=tail)


async def _section(
    context: IggyContext, wanted: FetchedPlace, request: m.PollMessages
) -> tuple[r.FetchSection, Sequence[Buffer]]:
    try:
        answer = await run(poll(context, request))
    except Refusal as error:
        return r.FetchSection.failed(wanted.partition, error.code), ()
    except NotOwner:
        raise
    except BrokerError as error:
        return r.FetchSection.failed(wanted.partition, wire_code(error)), ()
    head, size = answer.records[0], sum(map(len, answer.tail))
    assert isinstance(head, r.PolledHead)
    section = r.FetchSection(
        head.partition,
        0,
        head.current_offset,
        head.messages_count,
        head.incarnation,
        head.generation,
        head.metadata_op,
        head.next_offset,
        size,
    )
    return section, answer.tail


def _check(request: FetchMessages) -> None:
    """Check the limits of a fetch, as Iggy does. Raises Refusal."""
    check_times(request.wait_us, request.request_timeout_us)
    problem = ""
    if not 1 <= request.min_count <= request.count:
        problem = f"at least {request.min_count} of at most {request.count} messages"
    elif request.max_bytes < BYTES_MIN:
        problem = f"at most {request.max_bytes} bytes of messages"
    for wanted in request.targets:
        if wanted.strategy.kind not in STARTS:
            problem = f"partition {wanted.partition} is fetched from an offset or the next message"
        elif not BYTES_MIN <= wanted.max_bytes <= request.max_bytes:
            problem = f"at most {wanted.max_bytes} bytes of partition {wanted.partition}"
    if problem:
        raise Refusal(ErrorCode.INVALID_COMMAND, problem)
