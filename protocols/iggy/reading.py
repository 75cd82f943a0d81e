"""Reads polled messages out of a partition and finds places in it.

Knows no strategy and no command.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import trio

from braidlog.broker.errors import OffsetOutOfRange
from braidlog.broker.reading.look import look_at
from braidlog.broker.reading.transcode import read_steps
from braidlog.broker.reading.unpacking import run_packing
from braidlog.broker.runtime.output_budget import OutputReservation
from braidlog.broker.runtime.steps import Steps
from braidlog.broker.topics.partition import Partition
from braidlog.protocols.iggy.context import PROTOCOL, IggyContext
from braidlog.protocols.iggy.forms import MessageForm
from braidlog.storage.formats.api import Buffer

# Limit of an answer, which has at least a message: a client that wants more polls again.
POLL_BYTES_MAX = 16 * 1024 * 1024
# A larger message is converted in a thread: 62 MiB, of another protocol, takes a tenth of a second.
LARGE_MESSAGE_BYTES = 1024 * 1024


@dataclass(slots=True)
class PolledMessages:
    """The messages that a poll read, and the offset where the next poll continues."""

    next_offset: int
    parts: list[Buffer] = field(default_factory=list)
    size: int = 0
    count: int = 0


def reserved(context: IggyContext, bytes_max: int = 0) -> Steps[OutputReservation]:
    """Memory for an answer of POLL_BYTES_MAX, or of less if memory is short or the client wants no
    more than `bytes_max`.
    """
    outbox = context.connection.outbox
    budget = outbox.budget
    if budget.is_spent(outbox.unsent_bytes):
        yield budget.wait_for_room(lambda: outbox.unsent_bytes)
    copies = context.dialect.form.copies
    size = min(bytes_max, POLL_BYTES_MAX) or POLL_BYTES_MAX
    return budget.reserve_now(size * copies, copies)


def read(
    context: IggyContext, partition: Partition, start: int, count: int, *, size: int = 0
) -> Steps[PolledMessages]:
    """Read up to `count` messages from `start` on, for an answer that holds `size` bytes already,
    of those reserved for it (`reserved`).

    There are none at the high watermark or beyond. Records that retention or a purge removes
    meanwhile are skipped, and so are those that Iggy's readers cannot have; how far is remembered,
    so that polls that do not commit need not skip them again.
    """
    result_slice = PolledMessages(start)
    walked_from, walked_to = context.walked.get(partition.partition_id, (0, 0))
    if walked_from <= start < walked_to:
        result_slice.next_offset = walked_to
    room = context.room.size // context.dialect.form.copies
    end = partition.high_watermark  # A poll does not follow it while others write.
    while not result_slice.count and result_slice.next_offset < end:
        try:
            result = yield from read_steps(
                partition,
                context.dialect.form.codec,
                result_slice.next_offset,
                bytes_max=max(room - size, 1),
                records_max=count,
                trusts_memory=context.dialect.form.trusts_memory,
                memory=context.room,
            )
        except OffsetOutOfRange as error:
            if result_slice.next_offset >= error.log_start_offset:
                raise
            result_slice.next_offset = error.log_start_offset
            continue
        if result.left_out:
            context.broker.metrics.left_out(PROTOCOL, partition.topic.name.full, result.left_out)
        if result.next_offset == result_slice.next_offset:
            break
        result_slice = PolledMessages(
            result.next_offset, result.in_memory, result.size, result.record_count
        )
    if not result_slice.count and result_slice.next_offset > start:
        context.walked[partition.partition_id] = (start, result_slice.next_offset)
    return result_slice


def read_unless(
    context: IggyContext,
    partition: Partition,
    start: int,
    count: int,
    next_gap: Callable[[int], int],
) -> Steps[PolledMessages]:
    """Read without acknowledged messages: `next_gap` returns the first offset, from a given offset
    on, that is not acknowledged.
    """
    result_slice = PolledMessages(start)
    room = context.room.size // context.dialect.form.copies
    end = partition.high_watermark
    while (
        result_slice.count < count and result_slice.size < room and result_slice.next_offset < end
    ):
        position = next_gap(result_slice.next_offset)
        more = yield from read(
            context, partition, position, count - result_slice.count, size=result_slice.size
        )
        if more.next_offset == result_slice.next_offset:
            break
        result_slice.next_offset = more.next_offset
        for offset, message in messages(context, more.parts):
            if next_gap(offset) == offset:
                result_slice.parts.append(message)
                result_slice.size += len(message)
                result_slice.count += 1
    return result_slice


async def first_not_older(partition: Partition, time_us: int) -> int:
    """Offset of the first batch appended at that time or later, the high watermark if none was.

    The log's own index holds publish times, for records that have them, but Iggy's readers see
    append times. Those rise from batch to batch, as long as the clock does.
    """
    low, high = partition.log_start_offset, partition.high_watermark
    while low < high:
        middle = (low + high) // 2
        try:
            async with look_at(partition, middle) as look:
                header = look.batches[0].header if look.batches else None
        except OffsetOutOfRange as error:
            if middle >= error.log_start_offset:
                raise
            low = min(error.log_start_offset, high)  # Removed meanwhile.
            continue
        await trio.lowlevel.checkpoint()
        if header is not None and header.append_us < time_us:
            low = header.next_offset
        else:
            high = middle if header is None else max(min(middle, header.base_offset), low)
    return low


def last_of(context: IggyContext, result_slice: PolledMessages, count: int) -> PolledMessages:
    """Return the last `count` of the read messages."""
    if result_slice.count <= count:
        return result_slice
    last_messages = [message for _, message in messages(context, result_slice.parts)][-count:]
    return PolledMessages(
        result_slice.next_offset, list(last_messages), sum(map(len, last_messages)), count
    )


def end_of(context: IggyContext, start: int, result_slice: PolledMessages) -> int:
    """Return the offset behind the last of the messages, of which there are some.

    The next poll may continue further on, behind records that are hidden from the client.
    """
    end = result_slice.next_offset
    if end - start > result_slice.count:
        for offset, _ in messages(context, result_slice.parts):
            end = offset + 1
    return end


def messages(context: IggyContext, parts: list[Buffer]) -> Iterator[tuple[int, memoryview]]:
    """Offset and bytes of each message, in the stored form that the dialect reads."""
    for part in parts:
        yield from context.dialect.form.codec.polled(memoryview(part))


def shown(
    context: IggyContext, partition: Partition, parts: list[Buffer]
) -> Steps[Sequence[Buffer]]:
    """Return messages in the format that the dialect polls, converted in pieces if the stored
    format differs.
    """
    form = context.dialect.form
    if form.shown is None:
        return parts
    buffers: list[Buffer] = []
    converted_bytes = 0  # Since the last checkpoint: a small answer needs no turn of the loop.
    for piece in _pieces(form, parts):
        if converted_bytes + len(piece) > form.piece_bytes and converted_bytes:
            yield trio.lowlevel.checkpoint()
            converted_bytes = 0
        if len(piece) <= max(form.piece_bytes, LARGE_MESSAGE_BYTES):
            buffers.extend(form.shown(piece, partition.index))
            converted_bytes += len(piece)
        else:
            converted: list[Buffer] = yield run_packing(
                partial(_shown_piece, form.shown, piece, partition.index), len(piece)
            )
            buffers += converted
            del converted
    return buffers


def _shown_piece(
    show: Callable[[memoryview, int], Iterable[Buffer]], piece: memoryview, index: int
) -> list[Buffer]:
    return list(show(piece, index))


def _pieces(form: MessageForm, parts: list[Buffer]) -> Iterator[memoryview]:
    """Yield runs of whole messages of no more than `piece_bytes` each, or a single
    larger message.
    """
    for part in parts:
        view = memoryview(part)
        if len(view) <= form.piece_bytes:
            yield view
            continue
        start = end = 0
        for _, message in form.codec.polled(view):
            if end > start and end + len(message) - start > form.piece_bytes:
                yield view[start:end]
                start = end
            end += len(message)
        yield view[start:end]
