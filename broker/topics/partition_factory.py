"""Creates partitions over their folders, by `broker/topics/settings.py`. Knows no connection."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING

import structlog
import trio

from braidlog.broker.commit.durability import CommitRounds
from braidlog.broker.config.settings import LogConfig
from braidlog.broker.runtime.output_budget import OutputBudget
from braidlog.broker.runtime.threads import run_in_thread
from braidlog.broker.topics.partition import Partition
from braidlog.broker.topics.partition_calls import Callbacks
from braidlog.broker.topics.producer_memory import ProducerMemories, ProducerMemory
from braidlog.broker.topics.settings import log_settings
from braidlog.storage.directory.directory import Directory, NewPartition
from braidlog.storage.errors import StorageFull
from braidlog.storage.log.files import FileGone
from braidlog.storage.log.log import Log
from braidlog.storage.log.settings import Durability, LogSettings

if TYPE_CHECKING:
    from braidlog.broker.topics.topic import Topic
    from braidlog.storage.metadata.catalogue_records import Setting
    from braidlog.storage.metadata.names import TopicName

# Pause between attempts that a full or read-only disk prevented: short for an operator who freed
# space, and no load for a disk.
TIDY_S = 10.0

# Pause between checks for free space: a full disk takes milliseconds to refuse, and thousands of
# callers may ask.
LOOK_S = 0.1

# Space beyond the record: header, perhaps a new segment, an index, other clients' records.
ROOM_BESIDE_BYTES = 64 * 1024

log = structlog.get_logger()


class Partitions:
    """Partition factory of `broker/topics/topics.py`. All calls may raise storage errors."""

    def __init__(
        self, data_dir: Directory, config: LogConfig, durability: CommitRounds, output: OutputBudget
    ) -> None:
        self._data_dir = data_dir
        self._config = config
        self._durability = durability
        self.memories = ProducerMemories(data_dir.files)
        self._discarded: deque[Partition] = deque()
        self._has_discarded = trio.Event()
        self._looking: trio.Event | None = None  # Set at the end of the current check.
        self._looked_at: float | None = None
        self._found_room = True
        self._known_settings: dict[tuple[tuple[str, Setting], ...], LogSettings] = {}
        self._callbacks = Callbacks(
            on_append=durability.appended,
            report=durability.report_storage_error,
            has_room=self.has_room,
            output=output,
        )
        # Folders may remain from an earlier run, or because the disk refused to remove them.
        self._has_left = True

    async def create(
        self, topic: Topic, first_index: int, partition_ids: Sequence[int]
    ) -> Sequence[Partition]:
        """Create and open folders and files in a worker thread, on disk when this returns: either
        all, or none.

        A new topic has a name and settings, but no number yet. Creation takes milliseconds, during
        which the broker serves other clients. Raises InvalidRequest for invalid settings,
        StorageFull, StorageFailed.
        """
        new = [
            NewPartition(partition_id, topic.name.full, index)
            for index, partition_id in enumerate(partition_ids, first_index)
        ]
        logs = await run_in_thread(
            self._data_dir.create_partitions,
            new,
            self._settings(topic),
            self._durability.committer,
        )
        return [self._of(topic, index, opened) for index, opened in enumerate(logs, first_index)]

    def in_turn(self, partition_ids: Sequence[int]) -> Iterator[int]:
        """Yield these numbers, for a caller that opens each partition before the next."""
        return self._data_dir.in_turn(partition_ids)

    def open(self, topic: Topic, index: int, partition_id: int) -> Partition:
        """Open an existing partition. Raises DamagedLog, StorageFull, StorageFailed."""
        named = NewPartition(partition_id, topic.name.full, index)
        opened = self._data_dir.open_of_topic(
            named, self._settings(topic), self._durability.committer
        )
        _tell_recovery(topic, index, opened)
        return self._of(topic, index, opened)

    def _of(self, topic: Topic, index: int, opened: Log) -> Partition:
        memory = ProducerMemory(opened, self.memories)
        waiters = self._durability.waiters
        return Partition(topic.meta, index, opened, memory, waiters, self._callbacks)

    async def has_room(self, size_bytes: int = 0) -> bool:
        """Return whether a record of that size can be stored. A thread checks at most every LOOK_S;
        callers in between share the result, whatever their size. Raises StorageFailed.
        """
        while self._looking is not None:
            await self._looking.wait()
        looked_at = self._looked_at
        if looked_at is None or trio.current_time() - looked_at >= LOOK_S:
            over = self._looking = trio.Event()
            try:
                look, wanted = self._data_dir.reserve.has_room, size_bytes + ROOM_BESIDE_BYTES
                self._found_room = await run_in_thread(look, wanted)
                self._looked_at = trio.current_time()
            finally:
                self._looking = None
                over.set()
        return self._found_room

    def is_open(self, partition: Partition) -> bool:
        """Return whether this broker stores the partition's records."""
        return self._data_dir.is_open(partition.partition_id)

    def tidy_soon(self) -> None:
        """Schedule the removal of folders, which `run` performs."""
        self._has_discarded.set()

    def discard(self, partition: Partition) -> None:
        """Close the partition and queue its folder for deletion."""
        self._discarded.append(partition)
        self._has_discarded.set()

    def retire_discarded(self) -> Iterator[None]:
        """Close every discarded partition and queue its folder for deletion.

        Each step closes a single partition: a busy disk may take milliseconds for each. Raises
        StorageFailed.
        """
        while self._discarded:
            self._data_dir.retire_partition(self._discarded.popleft().partition_id)
            yield

    async def run(self) -> None:
        """Remove the files of discarded partitions and refill the reserve, until cancelled; in a
        thread, as a topic may have thousands of partitions. Raises StorageFailed.
        """
        while True:
            await self._tidy()
            with trio.move_on_after(TIDY_S):
                await self._has_discarded.wait()

    async def _tidy(self) -> None:
        data_dir = self._data_dir
        if self._has_discarded.is_set() or self._has_left:
            self._has_discarded, self._has_left = trio.Event(), False
            for _ in self.retire_discarded():
                await trio.lowlevel.checkpoint()
            stops = trio.from_thread.check_cancelled
            try:
                await run_in_thread(data_dir.remove_retired, stops)
            except StorageFull as error:
                log.warning("folders_left", reason=str(error))
                self._has_left = True
        if not data_dir.reserve.is_whole:
            await run_in_thread(data_dir.reserve.make)

    def alter(self, topic: Topic, changed: Mapping[str, Setting]) -> None:
        """Apply these settings to the topic's logs.

        Raises InvalidRequest, with nothing changed, and storage errors.
        """
        settings = log_settings(self._config, changed)
        for partition in topic.partitions:
            partition.log.alter(settings)

    def check(self, settings: Mapping[str, Setting]) -> None:
        """Check planned settings of topics. Raises InvalidRequest for an invalid value,
        UnwritableChange for a value that this store does not support.
        """
        self._data_dir.check_settings(log_settings(self._config, settings))

    async def alter_one(self, partition: Partition, changed: Mapping[str, Setting]) -> None:
        """Apply these settings to a partition's log; waits for the disk in a thread. Raises as
        `alter`.
        """
        settings, partition_log = log_settings(self._config, changed), partition.log
        written = Durability.WRITTEN
        if settings.durability == written != partition_log.settings.durability:
            partition_log.keep_reservation()
            with suppress(FileGone):  # The topic was deleted meanwhile.
                await run_in_thread(partition_log.reserve_ahead)
        if not partition.removed:
            partition_log.alter(settings)

    async def prepare_names(self, topics: Sequence[tuple[Topic, TopicName]]) -> None:
        """Write the new names into the folders in a worker thread, on disk when this returns.

        Raises FileGone if a topic was deleted meanwhile, StorageFull, StorageFailed.
        """
        await run_in_thread(self._data_dir.prepare_names, _named(topics))

    async def take_names(self, topics: Sequence[tuple[Topic, TopicName]]) -> None:
        """Replace the folders' names by the prepared names, in a thread. Raises StorageFailed."""
        await run_in_thread(self._data_dir.take_names, _named(topics))

    def _settings(self, topic: Topic) -> LogSettings:
        """Return log settings, cached from the last topic: most are equal, and a start opens
        thousands.
        """
        settings = topic.settings
        key = tuple(settings.items())
        if key not in self._known_settings:
            self._known_settings = {key: log_settings(self._config, settings)}
        return self._known_settings[key]


def _named(topics: Sequence[tuple[Topic, TopicName]]) -> Sequence[NewPartition]:
    return [
        NewPartition(partition.partition_id, name.full, partition.index)
        for topic, name in topics
        for partition in topic.partitions
    ]


def _tell_recovery(topic: Topic, index: int, opened: Log) -> None:
    report = opened.recovery
    if report.is_clean:
        return
    tell = log.bind(topic=topic.name.full, partition=index)
    for cut in report.cuts:
        tell.warning("torn_tail_cut", **asdict(cut))
    for damage in report.damages:
        tell.error("damage_found", **asdict(damage))
    if report.gap is not None:
        tell.warning("gap_after_unclean_start", offsets=list(report.gap))
