"""The stored shape of a produced Kafka set, whatever its format: the single entry of producers.

`prepare` takes the bytes of a client. A small set becomes a `Prepared` body for the next offset at
once. Long work comes back undone: the caller checks a `LargeSet` in pieces, so that other tasks get
turns, and opens a `PackedSet` in a thread; the resulting `OpenedSet` makes the body once the offset
is known. Knows no request, no partition and no event loop.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from braidlog.storage.errors import RecordTooLarge, TooManyRecords
from braidlog.storage.formats.api import BatchWriter, BodyInfo, Buffer, Prepared, WriteAtOnce
from braidlog.storage.formats.kafka import messages_v1, record_batches, set_prepare
from braidlog.storage.formats.kafka.record_batches import KAFKA_BATCHES
from braidlog.storage.formats.kafka.set_layout import SET_MESSAGES_MAX
from braidlog.storage.formats.quick import SPEEDUPS

if TYPE_CHECKING:
    from braidlog.storage.formats.kafka.set_prepare import Messages

# A larger set is stored as several batches, cut between messages, so that reading one message never
# loads a set of 100 MB. What clients send by default stays whole.
APPEND_BYTES_MAX = 1024 * 1024
# Checking and stamping this much takes about a millisecond; then other tasks get a turn.
BYTES_PER_TURN = 256 * 1024
# Sets that unpack to at most this are repacked inline, in less than two milliseconds; larger sets,
# in a thread.
INLINE_INFLATED_MAX = 64 * 1024

# Checks, stamps and writes a plain set or a record batch at once: for sets of at most
# CRC32C_BYTES_MAX. None without the extension.
WRITE: BatchWriter | None = None if SPEEDUPS is None else SPEEDUPS.kafka_append

ENTRY = struct.Struct(">qi")  # offset, size of the message or batch that follows


@dataclass(slots=True)
class SetLimits:
    """Limits of the sets of one request; `inflated_left` falls with each set that is unpacked."""

    message_bytes_max: int
    batch_bytes_max: int
    inflated_left: int


def prepare(
    message_set: memoryview, base_offset: int, limits: SetLimits
) -> Prepared | LargeSet | PackedSet:  # hot: see make bench
    """Check a produced set and stamp its offsets, in place where possible.

    Record batches are stored as they are; messages of format 1 become a record batch, which has a
    field for the times; compressed messages of format 0 are packed again. Raises BodyError.
    """
    magic = magic_of(message_set)
    if magic == record_batches.MAGIC:
        return record_batches.prepare(
            message_set, base_offset, message_bytes_max=limits.batch_bytes_max
        )
    if magic == messages_v1.MAGIC:
        timed = PackedSet(message_set, limits, is_timed=True)
        if len(message_set) > INLINE_INFLATED_MAX or messages_v1.is_compressed(message_set):
            return timed
        return timed.open().at(base_offset)
    if len(message_set) > BYTES_PER_TURN:
        return LargeSet(message_set, base_offset, limits)
    prepared = set_prepare.prepare_plain(message_set, base_offset, limits.message_bytes_max)
    return _packed(message_set, base_offset, limits) if prepared is None else prepared


def write_at_once(message_bytes_max: int, batch_bytes_max: int) -> WriteAtOnce | None:
    """Return the call that stores small sets within both limits; None without the extension."""
    if WRITE is None:
        return None
    return WriteAtOnce(WRITE, min(message_bytes_max, batch_bytes_max))


def producer_of(message_set: memoryview) -> int:
    """Return the id of the idempotent producer of a set; record_batches.NO_PRODUCER for none."""
    if len(message_set) < record_batches.HEAD.size:
        return record_batches.NO_PRODUCER
    if message_set[record_batches.MAGIC_POS] != record_batches.MAGIC:
        return record_batches.NO_PRODUCER
    return record_batches.producer_id(message_set)


def prepare_at_once(
    message_set: memoryview, base_offset: int, limits: SetLimits
) -> Prepared | None:  # hot: see make bench
    """As `prepare`, for the usual set of today's clients, with little work; None for all others."""
    return record_batches.prepare_small(message_set, base_offset, limits.batch_bytes_max)


def has_producer(message_set: memoryview) -> bool:
    """Return True if a set comes from a producer with sequences."""
    return producer_of(message_set) != record_batches.NO_PRODUCER


def magic_of(message_set: memoryview) -> int:
    """Return the format of a set's first message, whatever the request's version (some clients send
    the newest format in the oldest request); 0 for a set without messages.
    """
    pos = record_batches.MAGIC_POS
    return message_set[pos] if len(message_set) > pos else 0


def _packed(message_set: memoryview, base_offset: int, limits: SetLimits) -> Prepared | PackedSet:
    """Pack a set of compressed messages again, if it and its content are small."""
    packed = PackedSet(message_set, limits)
    if len(message_set) > INLINE_INFLATED_MAX:
        return packed
    try:
        opened = packed.open(INLINE_INFLATED_MAX)
    except RecordTooLarge:
        return packed  # The set unpacks to more, and perhaps to too much: the thread checks.
    return opened.at(base_offset)


@dataclass(slots=True)
class LargeSet:
    """Messages of format 0 that take long to check."""

    message_set: memoryview
    base_offset: int
    limits: SetLimits
    _checked: Messages | None = None

    def check(self) -> Iterator[None]:
        """Check and stamp a piece between two yields. Raises BodyError."""
        pieces = set_prepare.check_pieces(
            self.message_set, self.base_offset, self.limits.message_bytes_max, BYTES_PER_TURN
        )
        for checked in pieces:
            self._checked = checked
            _check_count(checked)
            yield

    def finish(self, base_offset: int) -> Prepared | PackedSet:
        """Return the body after the last piece, or the packed set if a message is compressed."""
        if self._checked is None:
            return _packed(self.message_set, base_offset, self.limits)
        return set_prepare.stamp(self._checked, base_offset)


@dataclass(slots=True)
class PackedSet:
    """A set that takes long to open: compressed, or with messages of format 1."""

    message_set: memoryview
    limits: SetLimits
    is_timed: bool = False

    def open(self, inflated_max: int | None = None) -> OpenedSet:
        """Check and unpack the set, whose offsets are not needed yet. Raises BodyError."""
        limits = self.limits
        if self.is_timed:
            opened, size = messages_v1.records(
                self.message_set, limits.message_bytes_max, limits.inflated_left, SET_MESSAGES_MAX
            )
            for offset, record in enumerate(opened):
                record.offset = offset
            limits.inflated_left -= size
            return OpenedSet(bytearray(KAFKA_BATCHES.encode(opened, 0)), limits)
        left = limits.inflated_left if inflated_max is None else inflated_max
        left = min(left, limits.inflated_left)
        messages = set_prepare.unwrap(self.message_set, limits.message_bytes_max, left)
        limits.inflated_left -= len(messages.data)
        _check_count(messages)
        return OpenedSet(messages, limits)


@dataclass(slots=True)
class OpenedSet:
    """The checked content of a set: a record batch, or messages that are to be packed again."""

    content: bytearray | Messages
    limits: SetLimits

    def at(self, base_offset: int) -> Prepared:
        """Return the body for these offsets. Raises RecordTooLarge."""
        content = self.content
        if isinstance(content, bytearray):
            if content:
                record_batches.rebase(content, base_offset)
            return Prepared(content, KAFKA_BATCHES.inspect(content), record_batches.STORED)
        return set_prepare.pack(content, base_offset, self.limits.message_bytes_max)

    def unpacked_at(self, base_offset: int) -> Prepared:
        """Return the body without packing it again, which is quick. Raises RecordTooLarge."""
        content = self.content
        if isinstance(content, bytearray):
            return self.at(base_offset)
        return set_prepare.stamp(content, base_offset)


def cut(prepared: Prepared, base_offset: int) -> Sequence[tuple[Buffer, BodyInfo]]:
    """Split a stamped body into parts of at most APPEND_BYTES_MAX or a single entry, with each
    part's contents.
    """
    body, info = prepared.body, prepared.info
    end = len(body)
    if end <= APPEND_BYTES_MAX:
        return ((body, info),)
    view = memoryview(body)
    parts: list[tuple[Buffer, BodyInfo]] = []
    start, first = 0, base_offset
    while start < end:
        stop = _part_end(view, start)
        after = base_offset + info.record_count
        if stop < end:
            after = ENTRY.unpack_from(view, stop)[0]
        part = view[start:stop]
        is_batch = prepared.body_format == record_batches.STORED
        part_info = (
            KAFKA_BATCHES.inspect(part) if is_batch else BodyInfo(after - first, flags=info.flags)
        )
        parts.append((part, part_info))
        start, first = stop, after
    return parts if len(parts) > 1 else ((body, info),)


def _part_end(view: memoryview, start: int) -> int:
    """Return the end of the last entry that fits a part beginning at `start`; the first always
    fits.
    """
    limit = min(start + APPEND_BYTES_MAX, len(view))
    unpack = ENTRY.unpack_from
    stop = start + ENTRY.size + unpack(view, start)[1]
    while stop < limit:
        following = stop + ENTRY.size + unpack(view, stop)[1]
        if following > limit:
            break
        stop = following
    return int(stop)


def _check_count(messages: Messages | None) -> None:
    """Check the number of messages. Raises TooManyRecords."""
    if messages is not None and messages.count > SET_MESSAGES_MAX:
        raise TooManyRecords("messages", SET_MESSAGES_MAX)
