"""A partition as protocols use it: append, read, wait. Turns storage errors into broker errors.
Knows no protocol.

An append never waits; the response waits for the ticket that the append returns. Once that ticket
is durable the records are on disk, and no reader sees them before. Appends and warm reads run in
the loop (microseconds), cold reads in a thread. The high watermark wakes readers, never a timer.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from sys import intern
from typing import TYPE_CHECKING, NoReturn

import trio

from braidlog.broker import errors
from braidlog.broker.commit.storage_errors import to_broker_error
from braidlog.broker.limits import READ_BYTES_MAX, TAKEOVER_S
from braidlog.broker.reading.unpacking import run_reading
from braidlog.broker.runtime.output_budget import OutputReservation
from braidlog.broker.topics.partition_calls import Appended, Callbacks
from braidlog.broker.topics.unreadable import UnreadablePlaces
from braidlog.broker.traffic import PartitionTraffic
from braidlog.storage import errors as storage_errors
from braidlog.storage.formats.api import BodyInfo, Buffer, WriteAtOnce
from braidlog.storage.log.files import FileGone
from braidlog.storage.log.segment_header import SEGMENT_HEADER_BYTES
from braidlog.storage.log.sequences import StoredBatch
from braidlog.storage.log.settings import UnreadableRecords

if TYPE_CHECKING:
    from braidlog.broker.commit.waiters import AtOnce, Wait, Waiters
    from braidlog.broker.topics.producer_memory import ProducerMemory
    from braidlog.storage.formats.batch import Batch
    from braidlog.storage.log.in_place import PlacedRun
    from braidlog.storage.log.log import Log
    from braidlog.storage.log.segment_reading import Trusted
    from braidlog.storage.log.sequences import SequenceTable
    from braidlog.storage.log.settings import CompressionType
    from braidlog.storage.metadata.catalogue_records import TopicMeta


# Called with the number of bytes before a large batch is read.
BeforeLarge = Callable[[int], Awaitable[None]]


def batches_bytes(segments_bytes: int, segments_count: int) -> int:
    """Return the bytes of the batches in so many segments, without the segments' own headers."""
    return segments_bytes - segments_count * SEGMENT_HEADER_BYTES


class Partition:
    """A partition of a topic. Equal only to itself; created by `broker/topics/topics.py` alone.

    Guarantees: no read returns a record at or above the high watermark; in `synced` mode no record
    below the high watermark can be lost. `append` never waits; `read` waits only for pages that are
    not in memory, `wait_for` for new records. Implements `Channel`.
    """

    is_persistent = True

    def __init__(
        self,
        topic: TopicMeta,
        index: int,
        log: Log,
        memory: ProducerMemory,
        waiters: Waiters,
        calls: Callbacks,
    ) -> None:
        """`memory` belongs to this partition alone."""
        self.topic = topic  # The catalogue's record of the topic.
        # The topic's name in metrics; a single string for all partitions of the topic.
        self.metrics_name = intern(topic.name.full)
        self.index = index
        self.log = log
        self.traffic = PartitionTraffic()
        self.waits: dict[Wait, int] = {}  # kept by `broker/commit/waiters.py`
        self.removed = False
        self._has_moved = False
        self.is_terminated = topic.is_terminated
        self._is_held = False  # See `hold_appends`.
        self._is_closed = self.is_terminated  # True if appends are refused.
        self.unreadable = UnreadablePlaces()  # kept by `broker/reading/reader.py`
        self._waiters = waiters
        self._calls = calls
        self._memory = memory
        self._lane: trio.StrictFIFOLock | None = None
        self._no_room_for = 0  # Bytes of the last append, if the disk was full for it.
        self._appended_ticket = 0
        self._taken_over_at = -math.inf

    def take_over(self) -> None:
        """Note that another broker of the cluster has owned the partition up to now."""
        self._taken_over_at = trio.current_time()

    @property
    def is_new_here(self) -> bool:
        """True for TAKEOVER_S after a takeover: clients may still await the former owner's
        answers.
        """
        return trio.current_time() < self._taken_over_at + TAKEOVER_S

    @property
    def lane(self) -> trio.StrictFIFOLock:
        """Lock for a thread that prepares a body for `next_offset`: first come, first served."""
        if self._lane is None:
            self._lane = trio.StrictFIFOLock()
        return self._lane

    @property
    def partition_id(self) -> int:
        """Number that names the partition's folder."""
        return self.log.partition_id

    @property
    def ledger_id(self) -> int:
        return self.log.partition_id

    def producer_joined(self) -> None:
        """As `Channel.producer_joined`: nothing depends on the number of producers."""

    def producer_left(self) -> None:
        """As `Channel.producer_left`."""

    def stored(self) -> Partition:
        return self

    @property
    def next_offset(self) -> int:
        """Base offset of the next append."""
        return self.log.log_end_offset

    @property
    def high_watermark(self) -> int:
        """Records below this offset may be delivered."""
        return self.log.high_watermark

    @property
    def log_start_offset(self) -> int:
        """First offset that is still stored."""
        return self.log.log_start_offset

    @property
    def size_bytes(self) -> int:
        """Bytes of the segments."""
        return self.log.size_bytes

    def segments(self) -> Sequence[tuple[int, int, int]]:
        """Return (base offset, time of the last append in microseconds, bytes) of each, oldest
        first.
        """
        return self.log.segments()

    def bytes_between(self, offset: int, end_offset: int) -> int:
        """Return the approximate number of stored bytes between two offsets.

        Raises OffsetOutOfRange, DamagedLog, StorageFailed.
        """
        try:
            return self.log.bytes_between(offset, end_offset)
        except storage_errors.StorageError as error:
            raise self._failed(error) from error

    def check_readable(self, offset: int, reader_format: int) -> None:
        """Raise UnreadableRecord if a read from this offset in this format failed and would fail
        again.
        """
        text = self.unreadable.error_text(offset, reader_format)
        if text is None or offset < self.log_start_offset or self.removed:
            return
        if self.log.settings.unreadable_records is UnreadableRecords.REFUSE:
            raise errors.UnreadableRecord(text)

    def append(
        self,
        body: Sequence[Buffer],
        info: BodyInfo,
        *,
        body_format: int,
        append_us: int,
    ) -> Appended:
        """Write a checked body, stamped for `next_offset`, as a batch; `append_us` is
        `Broker.now_us()`.

        Returns at once: the response waits for the ticket, which is 0 if the durability mode does
        not wait. Raises TopicNotFound, TopicTerminated, StorageFull, StorageFailed, DamagedLog.
        """
        if self._is_closed:
            self._refuse_append()
        log = self.log
        try:
            base_offset = log.append(body, info, body_format=body_format, append_us=append_us)
        except storage_errors.StorageError as error:
            raise self._append_failed(error, sum(map(len, body))) from error
        if info.producer_id:
            self._memory.note(info, base_offset, append_us)
        return Appended(base_offset, self._appended(base_offset))

    def append_at_once(self, body: memoryview, once: WriteAtOnce) -> tuple[int, int, int] | None:
        """Append a body as `append`, by a call that also checks and stamps the body. Return the
        base offset, the number of records and the ticket; None, with nothing appended, if `append`
        has to do that.
        """
        if self._is_closed:
            self._refuse_append()
        log = self.log
        base_offset = log.log_end_offset
        try:
            written = log.append_at_once(body, once)
        except storage_errors.StorageError as error:
            raise self._append_failed(error, len(body)) from error
        if written is None:
            return None
        count, _, producer_id, last_sequence = written
        if producer_id:
            _, epoch, first_sequence = once.producer
            stored = StoredBatch(first_sequence, last_sequence, base_offset)
            self._memory.note_stored(producer_id, epoch, stored, once.append_us)
        return base_offset, count, self._appended(base_offset)

    def append_all(
        self, pieces: Sequence[tuple[Buffer, BodyInfo]], *, body_format: int, append_us: int
    ) -> Appended:
        """Write checked bodies, stamped for consecutive offsets, each as a batch: either all or
        none. Returns the position of the first batch; otherwise as `append`.
        """
        if self._is_closed:
            self._refuse_append()
        try:
            base_offset = self.log.append_all(pieces, body_format=body_format, append_us=append_us)
        except storage_errors.StorageError as error:
            raise self._append_failed(error, sum(len(body) for body, _ in pieces)) from error
        offset = base_offset
        for _, info in pieces:
            if info.producer_id:
                self._memory.note(info, offset, append_us)
            offset += info.record_count
        return Appended(base_offset, self._appended(base_offset))

    @property
    def known_sequences(self) -> SequenceTable | None:
        """Return the table of `sequences` without waiting; None before the first load."""
        return self._memory.table

    async def sequences(self) -> SequenceTable:
        """Return the last stored sequences of this partition's producers, current until the caller
        waits again. Every append updates the table. Waits only on the first call after a start.

        Raises TopicNotFound, StorageFull, StorageFailed.
        """
        try:
            return await self._memory.loaded()
        except storage_errors.StorageError as error:
            raise self._failed(error) from error
        except FileGone:
            raise self._gone() from None

    @property
    def appended_ticket(self) -> int:
        """Ticket of the last append: once durable, all earlier appends are durable too. The
        response to a repeated record waits for this ticket.
        """
        return self._appended_ticket

    def check_open(self) -> None:
        """Raise TopicNotFound or TopicTerminated if the partition accepts no more records."""
        if self._is_closed:
            self._refuse_append()

    def _refuse_append(self) -> NoReturn:
        name = self.topic.name.full
        if self.removed:
            raise self._gone()
        if self._is_held:
            raise errors.NotOwner(f"{name} is about to be deleted")
        raise errors.TopicTerminated(f"{name} was terminated")

    def _append_failed(
        self, error: storage_errors.StorageError, size_bytes: int
    ) -> errors.BrokerError:
        if isinstance(error, storage_errors.StorageFull):
            self._no_room_for = size_bytes
        return self._failed(error)

    def _appended(self, base_offset: int) -> int:
        """Wake readers, now or once the append is on disk; return the append's ticket."""
        self._no_room_for = 0
        if self.log.high_watermark > base_offset:  # Durability "written": deliver at once.
            if self.waits:
                self._waiters.wake(self)
            return 0
        self._appended_ticket = ticket = self._calls.on_append(self)
        return ticket

    @property
    def lacked_room(self) -> bool:
        """True if the disk was full for the last append; `check_room` checks again."""
        return self._no_room_for > 0

    async def check_room(self) -> None:
        """Raise StorageFull if the disk was full for the last append and is still full. Raises
        StorageFailed.

        For clients that reconnect and retry forever when a record is refused (Pulsar).
        """
        try:
            if self._no_room_for and not await self._calls.has_room(self._no_room_for):
                raise storage_errors.StorageFull(f"no room yet in {self.log.folder}")
        except storage_errors.StorageError as error:
            raise self._failed(error) from error

    async def read(
        self,
        offset: int,
        bytes_max: int,
        beyond_bytes: int | None = None,
        *,
        before_large: BeforeLarge | None = None,
    ) -> list[Batch]:
        """Read batches up to the high watermark, from the batch that holds or follows `offset`.

        Returns at least a single batch if any exists, more while their bodies stay within
        `bytes_max`, some thousand at most; none at the high watermark. With `beyond_bytes`, an
        estimate of the excess, also the batch in which `bytes_max` ends. Runs inline when the pages
        are in memory, otherwise in a thread. A large batch is read alone, after `before_large` with
        the number of bytes: then the caller reserves memory. Raises OffsetOutOfRange, DamagedLog,
        StorageFailed, and the errors of `before_large`.
        """
        batches = self.read_warm(offset, bytes_max, beyond_bytes)
        if batches is not None:
            return batches
        try:
            bytes_max = min(bytes_max, READ_BYTES_MAX)
            read = partial(self.log.read, offset, bytes_max, beyond_bytes)
            return await run_reading(read, before_large=before_large)
        except storage_errors.StorageError as error:
            raise self._failed(error) from error

    def read_warm(
        self,
        offset: int,
        bytes_max: int,
        beyond_bytes: int | None = None,
        trusted: Trusted | None = None,
    ) -> list[Batch] | None:
        """Read as `read`, but from memory only; None if the disk or a large batch has to be read.

        Bodies that `trusted` describes are not checked a second time.
        """
        if self.removed:
            raise self._gone()
        try:
            bytes_max = min(bytes_max, READ_BYTES_MAX)
            return self.log.read(offset, bytes_max, beyond_bytes, wait=False, trusted=trusted)
        except storage_errors.WouldBlock:
            return None
        except storage_errors.StorageError as error:
            raise self._failed(error) from error

    def room(self) -> OutputReservation:
        """Return an empty reservation of memory for answers: it grows for a large batch."""
        return self._calls.output.reserve_now(0)

    def read_in_place(self, offset: int, bytes_max: int, body_format: int) -> PlacedRun | None:
        """Return batches of that format, from the batch that begins with `offset`, as file ranges
        that a socket can send; often None: then use `read`. Never waits.
        """
        if self.removed:
            raise self._gone()
        return self.log.read_in_place(offset, min(bytes_max, READ_BYTES_MAX), body_format)

    async def read_compacted(
        self, offset: int, bytes_max: int, *, before_large: BeforeLarge | None = None
    ) -> list[Batch]:
        """Read as `read`, but within the compacted view return only the latest record of each key.

        Raises as `read`.
        """
        if self.removed:
            raise self._gone()
        bytes_max = min(bytes_max, READ_BYTES_MAX)
        try:
            try:
                return self.log.read_compacted(offset, bytes_max, wait=False)
            except storage_errors.WouldBlock:
                read = partial(self.log.read_compacted, offset, bytes_max)
                return await run_reading(read, before_large=before_large)
        except storage_errors.StorageError as error:
            raise self._failed(error) from error

    @property
    def wants_keys(self) -> bool:
        """True if the log is compacted, which would keep a record without a key for ever."""
        return self.log.settings.compacts

    @property
    def checks_produced(self) -> bool:
        """True if the topic's settings refuse some valid records of Kafka's producers."""
        return self.log.settings.checks_produced

    @property
    def rewrites_produced(self) -> bool:
        """True if sets of Kafka's producers are not stored as they are."""
        return self.log.settings.rewrites_produced

    @property
    def uses_append_time(self) -> bool:
        """True if records of Kafka's producers get the time of their append."""
        return self.log.settings.uses_append_time

    @property
    def compression_type(self) -> CompressionType:
        """Compression of stored batches of Kafka's producers."""
        return self.log.settings.compression_type

    @property
    def batch_bytes_max(self) -> int | None:
        """The largest batch of Kafka's producers, if the topic has a limit."""
        return self.log.settings.batch_bytes_max

    @property
    def time_limits(self) -> tuple[int | None, int | None]:
        """The greatest times, in ms, of a record before and after the broker's clock."""
        settings = self.log.settings
        return settings.timestamp_before_max_ms, settings.timestamp_after_max_ms

    @property
    def compacted_offset(self) -> int:
        """End offset of the compacted view; 0 without a view."""
        view = self.log.compacted.view
        return 0 if view is None else view.horizon

    def _failed(self, error: storage_errors.StorageError) -> errors.BrokerError:
        if self._has_moved and isinstance(error, storage_errors.LogClosed):
            return self._gone()
        self._calls.report(error)
        return to_broker_error(error, f"{self.topic.name}/{self.index}")

    async def wait_for(self, offset: int, at_once: AtOnce | None = None) -> None:
        """Return when the high watermark is above `offset`, the partition is removed or the
        broker stops. `at_once` as in `Waiters.wait_any`.
        """
        await self._waiters.wait_any([(self, offset)], at_once)

    def terminate(self) -> None:
        """Refuse appends with TopicTerminated from now on: the topic was terminated."""
        self.is_terminated = self._is_closed = True

    def hold_appends(self, *, held: bool) -> None:
        """While held, fail appends with NotOwner: the topic may be deleted at any moment."""
        self._is_held = held
        self._is_closed = held or self.removed or self.is_terminated

    def describe(self, topic: TopicMeta) -> None:
        """Adopt the catalogue's record of the topic."""
        self.topic = topic

    def renamed(self, topic: TopicMeta) -> Partition:
        """Return a new partition over the same log for the topic's new name; then `remove` this
        partition. Appends through this partition also wake readers of the new partition.
        """
        partition = Partition(topic, self.index, self.log, self._memory, self._waiters, self._calls)
        partition.unreadable = self.unreadable
        partition._no_room_for = self._no_room_for
        partition._appended_ticket = self._appended_ticket
        partition._taken_over_at = self._taken_over_at
        self._calls.on_append(partition)
        return partition

    def remove(self) -> None:
        """Fail appends and reads with TopicNotFound from now on and wake waiting readers: the topic
        was deleted.
        """
        self.removed = self._is_closed = True
        self._waiters.wake(self)

    def move_away(self) -> None:
        """Fail appends and reads with NotOwner from now on, otherwise as `remove`: another broker
        owns the topic.
        """
        self._has_moved = True
        self.remove()

    def check_here(self) -> None:
        """Raise TopicNotFound or NotOwner if the partition is no longer on this broker."""
        if self.removed:
            raise self._gone()

    def _gone(self) -> errors.BrokerError:
        name = self.topic.name.full
        if self._has_moved:
            return errors.NotOwner(f"{name} has moved to another broker")
        return errors.TopicNotFound(f"{name} was deleted")
