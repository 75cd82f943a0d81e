"""One partition as protocols use it: append, read, wait. Turns storage errors into broker errors.
Knows no protocol.

An append never waits; the answer to it waits for the ticket that it returns. Once that ticket is
durable the records are on disk, and no reader sees them before. Appends and warm reads run in the
loop (microseconds), cold reads in a thread. Readers are woken by the high watermark, never by a
timer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from sys import intern
from typing import TYPE_CHECKING, NoReturn

import trio

from braidlog.broker import errors
from braidlog.broker.commit.storage_errors import to_broker_error
from braidlog.broker.limits import READ_BYTES_MAX
from braidlog.broker.reading.unreadable import UnreadablePlaces
from braidlog.broker.runtime.threads import run_in_thread
from braidlog.storage import errors as storage_errors
from braidlog.storage.formats.api import BodyInfo, Buffer
from braidlog.storage.log.files import FileGone
from braidlog.storage.log.segment import SEGMENT_HEADER_BYTES
from braidlog.storage.log.settings import UnreadableRecords

if TYPE_CHECKING:
    from braidlog.broker.commit.storage_errors import Report
    from braidlog.broker.commit.waiters import AtOnce, Wait, Waiters
    from braidlog.broker.topics.producer_memory import ProducerMemory
    from braidlog.storage.log.batch import Batch
    from braidlog.storage.log.in_place import PlacedRun
    from braidlog.storage.log.log import Log
    from braidlog.storage.log.reading import Trusted
    from braidlog.storage.log.sequences import SequenceTable
    from braidlog.storage.metadata.catalogue_records import TopicMeta


def batches_bytes(segments_bytes: int, segments_count: int) -> int:
    """Bytes of the batches in so many segments: the segments' own headers do not count."""
    return segments_bytes - segments_count * SEGMENT_HEADER_BYTES


@dataclass(slots=True)
class Appended:
    """Where an append went, and what its answer waits for (`Outbox.answer`)."""

    base_offset: int
    ticket: int


@dataclass(frozen=True, slots=True)
class Callbacks:
    """What a partition calls: the same for all of them."""

    on_append: Callable[[Partition], int]
    """After an append that is not durable yet; returns the ticket that its answer waits for."""
    report: Report
    """Hears of every storage error."""
    has_room: Callable[[int], Awaitable[bool]]
    """Whether the disk has room for that many more bytes. Raises errors of storage."""


class Partition:
    """One partition of a topic. Equal only to itself; made by `broker/topics/topics.py` alone.

    Guarantees: no read returns a record at or above the high watermark; in `synced` mode nothing
    below it can be lost. `append` never waits; `read` waits only for pages that are not in memory,
    `wait_for` for new records.
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
        """`memory` is the partition's own."""
        self.topic = topic  # As the catalogue knows it.
        # What its topic is called in figures; one string for all of its partitions.
        self.figures_name = intern(topic.name.full)
        self.index = index
        self.log = log
        self.waits: dict[Wait, int] = {}  # kept by `broker/commit/waiters.py`
        self.removed = False
        self._has_moved = False
        self.is_terminated = topic.is_terminated
        self._is_closed = self.is_terminated  # It takes no appends.
        self.unreadable = UnreadablePlaces()  # kept by `broker/reading/reader.py`
        self._waiters = waiters
        self._calls = calls
        self._memory = memory
        self._lane: trio.StrictFIFOLock | None = None
        self._no_room_for = 0  # Bytes of the last append, if the disk was full for it.
        self._appended_ticket = 0

    @property
    def lane(self) -> trio.StrictFIFOLock:
        """Held while a thread prepares a body for `next_offset`: first come, first served."""
        if self._lane is None:
            self._lane = trio.StrictFIFOLock()
        return self._lane

    @property
    def partition_id(self) -> int:
        """The number that names its folder."""
        return self.log.partition_id

    @property
    def ledger_id(self) -> int:
        """As `Channel.ledger_id`."""
        return self.log.partition_id

    def producer_joined(self) -> None:
        """As `Channel.producer_joined`: nothing depends on the number of producers."""

    def producer_left(self) -> None:
        """As `Channel.producer_left`."""

    def stored(self) -> Partition:
        """As `Channel.stored`."""
        return self

    @property
    def next_offset(self) -> int:
        """Base offset of the next append."""
        return self.log.log_end_offset

    @property
    def high_watermark(self) -> int:
        """Records below it may be delivered."""
        return self.log.high_watermark

    @property
    def log_start_offset(self) -> int:
        """First offset kept."""
        return self.log.log_start_offset

    @property
    def size_bytes(self) -> int:
        """Bytes of its segments."""
        return self.log.size_bytes

    def segments(self) -> Sequence[tuple[int, int, int]]:
        """(base offset, time of the last append in microseconds, bytes) of each, oldest first."""
        return self.log.segments()

    def bytes_between(self, offset: int, end_offset: int) -> int:
        """About how many stored bytes lie between two offsets.

        Raises OffsetOutOfRange, DamagedLog, StorageFailed.
        """
        try:
            return self.log.bytes_between(offset, end_offset)
        except storage_errors.StorageError as error:
            raise self._failed(error) from error

    def check_readable(self, offset: int, reader_format: int) -> None:
        """Raises UnreadableRecord if a read from there in that format failed, and would again."""
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
        """Write a checked body, stamped for `next_offset`, as one batch; `append_us` is
        `Broker.now_us()`.

        Returns at once: the answer waits for the ticket, 0 where the durability mode does not wait.
        Raises TopicNotFound, TopicTerminated, StorageFull, StorageFailed, DamagedLog.
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
        return self._appended(base_offset)

    def append_all(
        self, pieces: Sequence[tuple[Buffer, BodyInfo]], *, body_format: int, append_us: int
    ) -> Appended:
        """Write checked bodies, stamped for consecutive offsets, as a batch each: all of them, or
        none if that fails. Returns where the first went; otherwise as `append`.
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
        return self._appended(base_offset)

    @property
    def known_sequences(self) -> SequenceTable | None:
        """What `sequences` gives, without waiting; None before the first time."""
        return self._memory.table

    async def sequences(self) -> SequenceTable:
        """The memory of its producers: what each stored last, up to date until the caller waits
        again. Every append is noted in it. Waits only the first time after a start.

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
        """Once this is durable, so is everything appended so far; the answer to a record sent again
        waits for it.
        """
        return self._appended_ticket

    def check_open(self) -> None:
        """Raises TopicNotFound, TopicTerminated where it takes no records any more."""
        if self._is_closed:
            self._refuse_append()

    def _refuse_append(self) -> NoReturn:
        name = self.topic.name.full
        if self.removed:
            raise self._gone()
        raise errors.TopicTerminated(f"{name} was terminated")

    def _append_failed(
        self, error: storage_errors.StorageError, size_bytes: int
    ) -> errors.BrokerError:
        if isinstance(error, storage_errors.StorageFull):
            self._no_room_for = size_bytes
        return self._failed(error)

    def _appended(self, base_offset: int) -> Appended:
        """Wake readers, now or once it is on disk."""
        self._no_room_for = 0
        if self.log.high_watermark > base_offset:  # durability "written": to be delivered at once
            if self.waits:
                self._waiters.wake(self)
            return Appended(base_offset, 0)
        self._appended_ticket = ticket = self._calls.on_append(self)
        return Appended(base_offset, ticket)

    @property
    def lacked_room(self) -> bool:
        """Whether the disk was full for the last append: `check_room` tells whether it still is."""
        return self._no_room_for > 0

    async def check_room(self) -> None:
        """Raises StorageFull if the disk was full for the last append and still is, StorageFailed.

        For clients that reconnect and retry forever when a record is refused (Pulsar).
        """
        try:
            if self._no_room_for and not await self._calls.has_room(self._no_room_for):
                raise storage_errors.StorageFull(f"no room yet in {self.log.folder}")
        except storage_errors.StorageError as error:
            raise self._failed(error) from error

    async def read(
        self, offset: int, bytes_max: int, beyond_bytes: int | None = None
    ) -> list[Batch]:
        """Batches from the one that holds `offset`, or follows it, up to the high watermark.

        At least one if there is one, more while their bodies stay within `bytes_max`, some thousand
        at most; none at the high watermark. With `beyond_bytes`, a guess how far it goes beyond,
        also the one in which `bytes_max` ends. Runs inline when the pages are in memory, in a
        thread otherwise.
        Raises OffsetOutOfRange, DamagedLog, StorageFailed.
        """
        batches = self.read_warm(offset, bytes_max, beyond_bytes)
        if batches is not None:
            return batches
        try:
            bytes_max = min(bytes_max, READ_BYTES_MAX)
            return await run_in_thread(self.log.read, offset, bytes_max, beyond_bytes)
        except storage_errors.StorageError as error:
            raise self._failed(error) from error

    def read_warm(
        self,
        offset: int,
        bytes_max: int,
        beyond_bytes: int | None = None,
        trusted: Trusted | None = None,
    ) -> list[Batch] | None:
        """As `read`, but from memory only; None if the disk has to be read.

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

    def read_in_place(self, offset: int, bytes_max: int, body_format: int) -> PlacedRun | None:
        """Batches of that format from the one that begins with `offset`, as places in a file that a
        socket can send from; often None: then use `read`. Never waits.
        """
        if self.removed:
            raise self._gone()
        return self.log.read_in_place(offset, min(bytes_max, READ_BYTES_MAX), body_format)

    async def read_compacted(self, offset: int, bytes_max: int) -> list[Batch]:
        """As `read`, but as far as there is a compacted view only the latest record of each key.

        Raises as `read`.
        """
        if self.removed:
            raise self._gone()
        bytes_max = min(bytes_max, READ_BYTES_MAX)
        try:
            try:
                return self.log.read_compacted(offset, bytes_max, wait=False)
            except storage_errors.WouldBlock:
                return await run_in_thread(self.log.read_compacted, offset, bytes_max)
        except storage_errors.StorageError as error:
            raise self._failed(error) from error

    @property
    def wants_keys(self) -> bool:
        """Whether its log is compacted, so that a record without a key would stay for ever."""
        return self.log.settings.compacts

    @property
    def compacted_offset(self) -> int:
        """Where the compacted view ends; 0 where there is none."""
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
        """The topic was terminated: appends raise TopicTerminated from now on."""
        self.is_terminated = self._is_closed = True

    def renamed(self, topic: TopicMeta) -> Partition:
        """A new partition over the same log, for the topic's new name; `remove` this one then.
        Readers of the new one are told of what was appended through this one, too.
        """
        heir = Partition(topic, self.index, self.log, self._memory, self._waiters, self._calls)
        heir.unreadable = self.unreadable
        heir._no_room_for = self._no_room_for
        heir._appended_ticket = self._appended_ticket
        self._calls.on_append(heir)
        return heir

    def remove(self) -> None:
        """The topic was deleted: appends and reads raise TopicNotFound from now on, waiting
        readers wake.
        """
        self.removed = self._is_closed = True
        self._waiters.wake(self)

    def move_away(self) -> None:
        """Another broker owns the topic: as `remove`, but appends and reads raise
        NotOwner.
        """
        self._has_moved = True
        self.remove()

    def check_here(self) -> None:
        """Raises TopicNotFound, NotOwner if it is no longer here."""
        if self.removed:
            raise self._gone()

    def _gone(self) -> errors.BrokerError:
        name = self.topic.name.full
        if self._has_moved:
            return errors.NotOwner(f"{name} has moved to another broker")
        return errors.TopicNotFound(f"{name} was deleted")
