"""`log dump`: the batches of a topic as stored, and their records.

Beside a running broker, the dump reads up to the watermark slot, otherwise everything stored.
Unreadable offsets are reported in their place, never skipped. Knows no terminal.
"""

import os
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from braidlog.storage.errors import StorageError, UnreadableBody
from braidlog.storage.formats.api import BatchFlag
from braidlog.storage.formats.batch import HEADER_BYTES, BatchHeader
from braidlog.storage.formats.record import Record
from braidlog.storage.formats.registry import codec_for
from braidlog.storage.log.files import FileGone, storage_error
from braidlog.storage.log.folder_reader import HANDLES_MAX, PartitionFolder, list_partitions
from braidlog.storage.log.local_files import LocalFiles
from braidlog.storage.log.recovery import LogIdentity
from braidlog.storage.log.scan import BadBatch, read_checked
from braidlog.storage.log.segment_header import KIND_PARTITION
from braidlog.storage.log.watermark import read_watermark
from braidlog.storage.metadata.names import (
    InvalidTopicName,
    TopicName,
    parse_topic,
    split_partition,
)
from braidlog.storage.tools.survey import Good, SurveyWalk, segments_of

LOOKS_MAX = 5  # At the same place, where a broker removes files meanwhile.


class NoSuchTopic(StorageError):
    """No folder of the data directory belongs to that topic or partition."""


@dataclass(slots=True)
class DumpedBatch:
    """A good batch: header, place, and access to its records."""

    header: BatchHeader
    path: str
    file_pos: int
    good: Good


@dataclass(slots=True)
class Unreadable:
    """Offsets `[offset, next_offset)` that cannot be read, and the reason."""

    offset: int
    next_offset: int | None
    path: str
    file_pos: int
    reason: str


FoundT = TypeVar("FoundT", "DumpedBatch | Unreadable", "Record | Unreadable")


def parse_place(text: str) -> tuple[TopicName, int | None]:
    """Return topic and partition of `t`, `t/3`, `tenant/ns/t` or `tenant/ns/t/3`: an odd number of
    parts is a topic, an even number ends with a partition.

    Raises InvalidTopicName.
    """
    parts = text.partition("://")[2].split("/") if "://" in text else text.split("/")
    if len(parts) % 2:
        return parse_topic(text), None
    head, _, tail = text.rpartition("/")
    if not tail.isdecimal():
        raise InvalidTopicName(f"{text!r}: {tail!r} is no number of a partition")
    return parse_topic(head), int(tail)


def find_partitions(data_dir: str | os.PathLike[str], text: str) -> list[PartitionFolder]:
    """Return the folders of a topic, or of a partition, as `parse_place` and Pulsar name it.

    Raises InvalidTopicName, NoSuchTopic, StorageFailed.
    """
    name, index = parse_place(text)
    try:
        folders = list_partitions(data_dir)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NoSuchTopic(f"{os.fspath(data_dir)} is no data directory of a broker") from error
    except OSError as error:
        raise storage_error(error, "read", os.fspath(data_dir)) from error
    matches = among(folders, name, index)
    split = split_partition(name.topic)
    if not matches and split is not None and index is None:  # `orders-partition-0`, as in Pulsar.
        matches = among(folders, TopicName(name.tenant, name.namespace, split[0]), split[1])
    if not matches:
        known = sorted({part.topic for part in folders})
        examples = ", ".join(known[:10]) + (", ..." if len(known) > 10 else "")
        raise NoSuchTopic(f"no folder there is that of {text}; there are: {examples or 'none'}")
    return matches


def among(
    folders: list[PartitionFolder], name: TopicName, index: int | None
) -> list[PartitionFolder]:
    """Return the folders of a topic, or of a single partition."""
    return [part for part in folders if part.topic == name.full and index in (None, part.index)]


class PartitionDump:
    """Reads a partition's folder."""

    def __init__(self, part: PartitionFolder, *, running: bool) -> None:
        """`running`: a broker is writing there."""
        self._files = LocalFiles(part.folder, handles_max=HANDLES_MAX, read_only=True)
        self._identity = LogIdentity(part.folder, KIND_PARTITION, part.partition_id)
        self._running = running

    def batches(self, from_offset: int = 0) -> Iterator[DumpedBatch | Unreadable]:
        """Batches that end above the offset. Raises FileGone, if the partition is deleted."""
        return self._looking_again(self._batches, from_offset)

    def records(self, from_offset: int = 0) -> Iterator[Record | Unreadable]:
        """Records from the offset on. Raises FileGone, if the partition is deleted."""
        return self._looking_again(self._records, from_offset)

    def _looking_again(
        self, look: Callable[[int], Iterator[FoundT]], offset: int
    ) -> Iterator[FoundT]:
        """Yield the events from the offset on; look again for the rest if the broker removed a file
        meanwhile: by retention, or by compaction.
        """
        looks_left = LOOKS_MAX
        while True:
            try:
                for item in look(offset):
                    yield item
                    offset, looks_left = max(offset, end_of(item)), LOOKS_MAX
                return
            except FileGone:
                looks_left -= 1
                if not looks_left or not os.path.isdir(self._identity.folder):
                    raise

    def _batches(self, from_offset: int) -> Iterator[DumpedBatch | Unreadable]:
        identity = self._identity
        slot = read_watermark(identity.folder, identity.partition_id)
        segments = segments_of(self._files, identity, slot)
        stop = slot.durable_offset if self._running else None
        bases = [segment.base_offset for segment in segments]
        first = max(bisect_right(bases, from_offset) - 1, 0)
        walk = SurveyWalk(segments, slot, identity.folder, stop)
        for event in walk.events(check_bodies_from=from_offset, first=first):
            if isinstance(event, Good):
                if event.header.next_offset > from_offset:
                    yield DumpedBatch(event.header, event.segment.path, event.file_pos, event)
            elif event.header is not None:
                continue  # The segment's own header is wrong, its batches are not.
            elif event.next_offset is None or event.next_offset > from_offset:
                place = (event.path, event.file_pos, event.reason)
                yield Unreadable(event.offset, event.next_offset, *place)

    def _records(self, from_offset: int) -> Iterator[Record | Unreadable]:
        for batch in self._batches(from_offset):
            if isinstance(batch, Unreadable):
                yield batch
            else:
                yield from self._records_of(batch, from_offset)

    def _records_of(self, batch: DumpedBatch, from_offset: int) -> Iterator[Record | Unreadable]:
        header = batch.header
        if header.flags & BatchFlag.GAP:
            return
        pos = batch.file_pos + HEADER_BYTES + header.positions_bytes
        place = (batch.path, batch.file_pos)
        try:
            body = read_checked(batch.good.segment, header.body_bytes, pos, header.base_offset)
            codec = codec_for(header.body_format)
        except (BadBatch, UnreadableBody) as error:
            yield Unreadable(header.base_offset, header.next_offset, *place, str(error))
            return
        decoded = codec.decode(body, header.base_offset, header.append_us, start_offset=from_offset)
        yield from decoded.records
        if decoded.failed is not None and decoded.failed_offset is not None:
            reason = str(decoded.failed)
            yield Unreadable(decoded.failed_offset, header.next_offset, *place, reason)

    def close(self) -> None:
        """Close the files."""
        self._files.close()


def end_of(item: DumpedBatch | Record | Unreadable) -> int:
    """Return the offset after the item."""
    if isinstance(item, DumpedBatch):
        return item.header.next_offset
    if isinstance(item, Unreadable):
        return item.offset if item.next_offset is None else item.next_offset
    return item.offset + 1


def flag_names(flags: int) -> list[str]:
    """The flags of a batch by name."""
    return [flag.name.lower() for flag in BatchFlag if flags & flag]
