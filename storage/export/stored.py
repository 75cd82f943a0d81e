"""The log of a cluster, read from its shared store without its brokers (docs/cluster.md).

Driver and tasks ask PostgreSQL for the places of records and read ranges of objects. Both only
read. Needs the extra `shared`. Passwords and keys come from the local environment, as for libpq and
S3's clients: a place (`places.store_place`) holds none.
"""

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from urllib.parse import parse_qsl

from braidlog.storage.errors import StorageError
from braidlog.storage.export.readers import (
    ExportPartition,
    IsWanted,
    PartitionState,
    every_topic,
    registered_of,
)
from braidlog.storage.export.registered import RegisteredSchema
from braidlog.storage.metadata.names import parse_topic
from braidlog.storage.shared.reader import StoreLook

GET_TIMEOUT_MS = 30_000  # Timeout of a range of some MiB; retried without an answer.
DATABASE_VARIABLE = "BRAIDLOG_SHARED__DATABASE"  # The brokers' own variable, if set.


def open_store(place: str) -> "StoreReader":
    """Open the log at the place of a store. Raises OSError, also if the extra is missing."""
    store, _, query = place.partition("?")
    options = dict(parse_qsl(query))
    database = options.get("database") or os.environ.get(DATABASE_VARIABLE)
    if database is None:
        raise OSError(f"{store}: option database is wanted, or {DATABASE_VARIABLE}")
    try:
        from braidlog.storage.shared.obstore import ObstoreObjects, StoreSetting
        from braidlog.storage.shared.postgres import PostgresLedger
    except ImportError as error:
        raise OSError(
            f"{error.name} is missing: pip install 'braidlog[spark,shared]', in a clone"
            " '.[spark,shared]'"
        ) from error
    try:
        objects = ObstoreObjects(
            store, options.get("endpoint"), timeout_ms=GET_TIMEOUT_MS, makes_folder=False
        )
    except StoreSetting as error:
        raise OSError(str(error)) from error
    return StoreReader(StoreLook(PostgresLedger(database, read_only=True), objects))


class StoreReader:
    """A cluster's log, read directly from its stores. Implements `ExportLog`."""

    def __init__(self, look: StoreLook) -> None:
        self._look = look

    def partitions(self, is_wanted: IsWanted = every_topic) -> list[PartitionState]:
        """Return the partitions of the catalogue, up to the published rounds."""
        with _reached():
            topics = {
                meta.name.full: meta.partition_ids
                for meta in self._look.catalogue().all_topics()
                if is_wanted(meta.name.full)
            }
            by_id = self._look.partitions(topics)
        states = []
        for topic, numbers in sorted(topics.items()):
            for index, number in enumerate(numbers):
                pieces = by_id.get(number)
                start, end = (pieces.log_start, pieces.log_end) if pieces else (0, 0)
                size = sum(segment.size for segment in pieces.segments) if pieces else 0
                states.append(PartitionState(topic, number, index, start, end, size))
        return states

    def open(self, topic: str, index: int, partition_id: int) -> ExportPartition:
        with _reached():
            log = self._look.open(topic, partition_id)
            if log.size_bytes == 0 and not self._is_there(topic, partition_id):
                log.close()
                raise FileNotFoundError(f"{topic} partition {index} is gone")
            return log

    def _is_there(self, topic: str, partition_id: int) -> bool:
        meta = self._look.catalogue().topic(parse_topic(topic))
        return meta is not None and partition_id in meta.partition_ids

    def schemas(self, topics: Collection[str]) -> dict[str, list[RegisteredSchema]]:
        """Return the schemas from the journals of the topics' shards."""
        with _reached():
            catalogue_topics = self._look.catalogue(with_data_of=topics).all_topics()
        return {
            meta.name.full: registered_of(meta)
            for meta in catalogue_topics
            if meta.name.full in topics
        }


@contextmanager
def _reached() -> Iterator[None]:
    """Raise OSError for a place that cannot be reached, or that belongs to no cluster."""
    try:
        yield
    except StorageError as error:
        raise OSError(str(error)) from error
