"""Reopens topics whose shard moves to this broker or away, with their records or without.

Knows no ledger and no client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from braidlog.storage.errors import StorageError

if TYPE_CHECKING:
    from braidlog.broker.cluster.placement import Placement
    from braidlog.broker.commit.storage_errors import Report
    from braidlog.broker.topics.partition_factory import Partitions
    from braidlog.broker.topics.topic import Topic

log = structlog.get_logger()


class Moves:
    """The reopening of topics, and the topics that could not be reopened."""

    def __init__(self, factory: Partitions, placement: Placement, report: Report) -> None:
        self._factory = factory
        self._placement = placement
        self._report = report
        self._left: set[Topic] = set()

    def reopen(self, topic: Topic) -> None:
        """Reopen the partitions if the topic's shard has moved here or away. Raises
        storage errors.
        """
        if self._placement.is_alone:
            return
        is_kept = self._placement.keeps(topic.name)
        for index, partition in enumerate(topic.partitions):
            if self._factory.is_open(partition) != is_kept:
                partition.move_away()
                opened = self._factory.open(topic, index, partition.partition_id)
                if is_kept:
                    opened.take_over()
                topic.replace_partition(index, opened)

    def reopen_changed(self, topic: Topic) -> None:
        """Reopen a topic whose shard may have moved while a change was published. So nothing may
        raise: `reopen_rest` tries again, and until then clients are sent to another broker.
        """
        try:
            self.reopen(topic)
        except StorageError as error:
            self._report(error)
            log.error("topic_not_reopened", topic=topic.name.full, reason=str(error))
            self._left.add(topic)

    def reopen_rest(self) -> None:
        """Reopen the topics that could not be reopened after a change."""
        topics, self._left = self._left, set()
        for topic in topics:
            if not topic.deleted:
                self.reopen_changed(topic)
