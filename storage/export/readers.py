"""Interface to read the log, and its implementation for a broker's folder on this machine.
Implementations for a broker's HTTP listener and a shared store are in `network.py` and `stored.py`.

The rest of the export reads partitions through `ExportLog`. Takes no lock, writes nothing.
"""

import re
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol, Self

from braidlog.storage.errors import OffsetOutOfRange
from braidlog.storage.export.registered import RegisteredSchema, by_version, type_name
from braidlog.storage.formats.batch import Batch
from braidlog.storage.log.folder_reader import list_partitions, open_folder
from braidlog.storage.metadata.catalogue_records import TopicMeta
from braidlog.storage.tools.stored_catalogue import read_catalogue

DEFAULT_PREFIX = "public/default/"


@dataclass(frozen=True, slots=True)
class PartitionState:
    """State of a partition; `size_bytes` is the size of the log, `topic` the full name."""

    topic: str
    partition_id: int
    index: int
    log_start_offset: int
    watermark: int
    size_bytes: int


IsWanted = Callable[[str], bool]  # The argument is a topic's full name.


def every_topic(_: str) -> bool:
    """Accept all topics."""
    return True


class ExportPartition(Protocol):
    """A partition's log, up to its durable end at the time of opening."""

    log_start_offset: int
    high_watermark: int

    def batches(self, from_offset: int, to_offset: int | None = None) -> Iterator[Batch]:
        """Yield batches that hold offsets in `[from_offset, to_offset)`, the first and last batch
        whole.

        Raises: OffsetOutOfRange, DamagedLog; OSError if the place cannot be reached.
        """

    def first_at(self, time_us: int) -> int | None:
        """Return an offset before which every record is older; None if all records are older.

        The offset belongs to a batch, of which single records may still be older. Raises
        DamagedLog, OSError.
        """

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


def check_holds(log: ExportPartition, end: int) -> None:
    """Check that a log still reaches the planned end of a read. Raises OffsetOutOfRange.

    The check fails only if an older state of the log replaced the log.
    """
    if end > log.high_watermark:
        raise OffsetOutOfRange(end, log.log_start_offset, log.high_watermark)


class ExportLog(Protocol):
    """A log with all its partitions."""

    def partitions(self, is_wanted: IsWanted = every_topic) -> list[PartitionState]:
        """Return every partition of the wanted topics, by topic and index. Raises OSError."""

    def open(self, topic: str, index: int, partition_id: int) -> ExportPartition:
        """Open a partition. Raises OSError; FileNotFoundError for a deleted partition."""

    def schemas(self, topics: Collection[str]) -> dict[str, list[RegisteredSchema]]:
        """Return the registered schemas of topics by full name, by version; none for other topics.

        Raises DamagedLog, OSError.
        """


class FolderReader:
    """The data directory of a running or stopped broker."""

    def __init__(self, data_dir: str) -> None:
        self._data_dir = data_dir

    def partitions(self, is_wanted: IsWanted = every_topic) -> list[PartitionState]:
        """Return the partitions up to their watermark slots."""
        states = []
        for folder in list_partitions(self._data_dir):
            if not is_wanted(folder.topic):
                continue
            # Deleted meanwhile.
            with suppress(FileNotFoundError), open_folder(folder.folder) as log:
                states.append(
                    PartitionState(
                        folder.topic,
                        folder.partition_id,
                        folder.index,
                        log.log_start_offset,
                        log.high_watermark,
                        log.size_bytes,
                    )
                )
        return states

    def open(self, topic: str, index: int, partition_id: int) -> ExportPartition:
        """Open the partition's folder."""
        return open_folder(f"{self._data_dir}/partitions/{partition_id}")

    def schemas(self, topics: Collection[str]) -> dict[str, list[RegisteredSchema]]:
        """Return the schemas of the catalogue's journal."""
        catalogue_topics = read_catalogue(self._data_dir).all_topics()
        return {
            meta.name.full: registered_of(meta)
            for meta in catalogue_topics
            if meta.name.full in topics
        }


def registered_of(meta: TopicMeta) -> list[RegisteredSchema]:
    """Return a topic's schemas in the catalogue, by version; none once the last schema was
    deleted.
    """
    known = meta.schemas if meta.schemas and not meta.schemas[-1].is_deletion else ()
    return by_version(
        {
            version: RegisteredSchema(type_name(schema.type), schema.data.decode(errors="replace"))
            for version, schema in enumerate(known)
            if not schema.is_deletion
        }
    )


def topic_matches(pattern: str, topic: str) -> bool:
    """Return True if a pattern matches a whole name: the full name, or the short name in
    public/default.

    Raises re.error.
    """
    names = (topic, topic.removeprefix(DEFAULT_PREFIX))
    return any(re.fullmatch(pattern, name) for name in names)
