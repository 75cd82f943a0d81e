"""Makes partitions over their folders, as `broker/topic_settings.py` says. Knows no connection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import structlog
import trio

from broker.config import LogConfig
from broker.durability import Durability
from broker.partition import Partition
from broker.topic_settings import log_settings
from storage.errors import StorageFull
from storage.log.data_dir import DataDir, NewPartition
from storage.log.partition_log import PartitionLog
from storage.log.settings import LogSettings

if TYPE_CHECKING:
    from broker.topic import Topic
    from storage.metadata.catalogue_records import Setting

log = structlog.get_logger()


class Partitions:
    """The factory behind `broker/topics.py`."""

    def __init__(self, data_dir: DataDir, config: LogConfig, durability: Durability) -> None:
        self._data_dir = data_dir
        self._config = config
        self._durability = durability
        self._discarded = trio.Event()

    def create(
        self, topic: Topic, first_index: int, partition_ids: Sequence[int]
    ) -> Sequence[Partition]:
        """Make folders and files, on disk when this returns, and open them: all, or none is left.

        Raises InvalidRequest for settings that cannot be, StorageFull, StorageFailed.
        """
        new = [
            NewPartition(partition_id, topic.name.full, index)
            for index, partition_id in enumerate(partition_ids, first_index)
        ]
        made = self._data_dir.create_partitions(
            new, self._settings(topic), self._durability.committer
        )
        return [
            Partition(topic, index, opened, self._durability)
            for index, opened in enumerate(made, first_index)
        ]

    def open(self, topic: Topic, index: int, partition_id: int) -> Partition:
        """Open the partition that is there. Raises DamagedLog, StorageFull, StorageFailed."""
        opened = self._data_dir.open_partition(
            partition_id, self._settings(topic), self._durability.committer
        )
        _tell_recovery(topic, index, opened)
        return Partition(topic, index, opened, self._durability)

    def discard(self, partition: Partition) -> None:
        """Close the partition and give its folder up: nothing names it any more. `run` removes it.

        Raises StorageFailed.
        """
        try:
            self._data_dir.retire_partition(partition.partition_id)
        except StorageFull as error:  # The next start sets aside what is left.
            log.warning("partition_left", partition_id=partition.partition_id, reason=str(error))
        self._discarded.set()

    async def run(self) -> None:
        """Remove the files of discarded partitions until cancelled, in a thread: a topic may have
        thousands. Raises StorageFailed.
        """
        while True:
            await self._discarded.wait()
            self._discarded = trio.Event()
            try:
                await trio.to_thread.run_sync(self._data_dir.remove_retired)
            except StorageFull as error:  # The next start does it.
                log.warning("folders_left", reason=str(error))

    def alter(self, topic: Topic, changed: Mapping[str, Setting]) -> None:
        """Let the topic's logs follow these settings.

        Raises InvalidRequest, with nothing changed, and errors of storage.
        """
        settings = log_settings(self._config, changed)
        for partition in topic.partitions:
            partition.log.alter(settings)

    def alter_one(self, partition: Partition, changed: Mapping[str, Setting]) -> None:
        """Let one partition's log follow these settings. Raises as `alter`."""
        partition.log.alter(log_settings(self._config, changed))

    def _settings(self, topic: Topic) -> LogSettings:
        return log_settings(self._config, topic.meta.settings)


def _tell_recovery(topic: Topic, index: int, opened: PartitionLog) -> None:
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
