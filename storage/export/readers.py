"""How the log is read: a small interface, and its implementation for a broker's folder here.
Others are for a broker's HTTP listener (`network.py`) and a shared store (`stored.py`).

Everything above reads partitions through `LogReader`. Takes no lock, writes nothing.
"""

import re
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from braidlog.storage.errors import OffsetOutOfRange
from braidlog.storage.export.registered import RegisteredSchema, by_version, type_name
from braidlog.storage.log.batch import Batch
from braidlog.storage.log.reader import ReadOnlyLog, list_partitions
from braidlog.storage.metadata.catalogue_records import TopicMeta
from braidlog.storage.tools.stored_catalogue import read_catalogue

DEFAULT_PREFIX = "public/default/"


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A partition as it was found; `size_bytes` is that of its log, `topic` its full name."""

    topic: str
    partition_id: int
    index: int
    log_start_offset: int
    watermark: int
    size_bytes: int


IsWanted = Callable[[str], bool]  # Of a topic's full name.


def every_topic(_: str) -> bool:
    """All are wanted."""
    return True


class PartitionReader(Protocol):
    """One partition's log, as far as it was durable when this was opened."""

    log_start_offset: int
    high_watermark: int

    def batches(self, from_offset: int, to_offset: int | None = None) -> Iterator[Batch]:
        """Batches that hold offsets in `[from_offset, to_offset)`, the first and last ones whole.

        Raises: OffsetOutOfRange, DamagedLog; OSError where the place cannot be reached.
        """

    def first_at(self, time_us: int) -> int | None:
        """An offset before which every record is older; None if all are.

        It is a batch's: single records in that may still be older. Raises DamagedLog, OSError.
        """

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


def check_holds(log: PartitionReader, end: int) -> None:
    """Check that a log still reaches an offset up to which it was planned to be read: it does,
    unless an older state of it took its place. Raises OffsetOutOfRange.
    """
    if end > log.high_watermark:
        raise OffsetOutOfRange(end, log.log_start_offset, log.high_watermark)


class LogReader(Protocol):
    """A log with all its partitions."""

    def partitions(self, is_wanted: IsWanted = every_topic) -> list[PartitionState]:
        """Every partition of the wanted topics now, by topic and index. Raises OSError."""

    def open(self, topic: str, index: int, partition_id: int) -> PartitionReader:
        """One of them. Raises OSError; FileNotFoundError if it is gone."""

    def schemas(self, topics: Collection[str]) -> dict[str, list[RegisteredSchema]]:
        """The registered schemas of topics by full name, by version; none for others.

        Raises DamagedLog, OSError.
        """


class FolderReader:
    """The data directory of a running or stopped broker."""

    def __init__(self, data_dir: str) -> None:
        self._data_dir = data_dir

    def partitions(self, is_wanted: IsWanted = every_topic) -> list[PartitionState]:
        """As far as the watermark slots say."""
        states = []
        for found in list_partitions(self._data_dir):
            if not is_wanted(found.topic):
                continue
            with suppress(FileNotFoundError), ReadOnlyLog(found.folder) as log:  # Deleted since.
                states.append(
                    PartitionState(
                        found.topic,
                        found.partition_id,
                        found.index,
                        log.log_start_offset,
                        log.high_watermark,
                        log.size_bytes,
                    )
                )
        return states

    def open(self, topic: str, index: int, partition_id: int) -> PartitionReader:
        """The partition's folder."""
        return ReadOnlyLog(f"{self._data_dir}/partitions/{partition_id}")

    def schemas(self, topics: Collection[str]) -> dict[str, list[RegisteredSchema]]:
        """From the catalogue's journal."""
        found = read_catalogue(self._data_dir).all_topics()
        return {meta.name.full: registered_of(meta) for meta in found if meta.name.full in topics}


def registered_of(meta: TopicMeta) -> list[RegisteredSchema]:
    """A topic's schemas as the catalogue has them, by version; none once the last was deleted."""
    known = meta.schemas if meta.schemas and not meta.schemas[-1].is_deletion else ()
    return by_version(
        {
            version: RegisteredSchema(type_name(one.type), one.data.decode(errors="replace"))
            for version, one in enumerate(known)
            if not one.is_deletion
        }
    )


def topic_matches(pattern: str, topic: str) -> bool:
    """Whether a regular expression matches a whole name: the full one, or in public/default the
    short one. Raises re.error.
    """
    names = (topic, topic.removeprefix(DEFAULT_PREFIX))
    return any(re.fullmatch(pattern, name) for name in names)
