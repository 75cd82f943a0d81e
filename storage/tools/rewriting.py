"""Rewriting a segment and setting files aside, so that a kill at any moment loses nothing.

A file that is replaced is first copied to `set-aside`; a rename then puts a whole, synced file in
its place. For `log repair`; knows batches, not the reason for a repair.
"""

import os
from collections.abc import Iterable
from contextlib import closing
from time import time_ns
from typing import Self

from braidlog.storage.formats.api import BatchFlag, BodyFormat
from braidlog.storage.formats.batch import (
    BATCH_OFFSETS_MAX,
    BatchHeader,
    Buffer,
    body_checksum,
    pack,
)
from braidlog.storage.journal.log import in_batches, pack_records
from braidlog.storage.log.files import File, Files
from braidlog.storage.log.scan import BadBatch, read_checked
from braidlog.storage.log.segment import INDEX_SUFFIX, Segment, segment_path
from braidlog.storage.log.segment_header import (
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    pack_segment_header,
)

COPY_BYTES = 1 << 20

# Bytes read at once around an unreadable place; that place becomes zeros in the copy.
SECTOR_BYTES = 4096

NEW_SUFFIX = ".new"


class SegmentWriter:
    """A segment file in the making, which nobody sees before `finish`. As a context manager, it
    is finished at the end of the block, and abandoned after an error or interrupt.
    """

    def __init__(
        self,
        files: Files,
        folder: str,
        header: SegmentHeader,
        append_us: int | None = None,
        path: str | None = None,
    ) -> None:
        """`path` is the path of the replaced file, if compaction wrote that file. `append_us` is
        the append time of the records, as far as known, None for now: retention by age uses the
        time.

        Raises: StorageFull, StorageFailed.
        """
        self.path = path or segment_path(folder, header.base_offset)
        self._files = files
        self._folder = folder
        self._header = header
        self._append_us = time_ns() // 1000 if append_us is None else append_us
        self._pos = SEGMENT_HEADER_BYTES
        files.unlink(self.path + NEW_SUFFIX)
        self._file = files.create(self.path + NEW_SUFFIX)
        self._file.write_at([pack_segment_header(header)], 0)

    def copy(self, segment: Segment, start_pos: int, end_pos: int) -> None:
        """Add these bytes of another segment file. Raises: DamagedLog, StorageFull,
        StorageFailed.
        """
        while start_pos < end_pos:
            size = min(COPY_BYTES, end_pos - start_pos)
            try:
                data = read_checked(segment, size, start_pos, segment.base_offset)
            except BadBatch as fault:
                raise fault.damage() from None
            if not data:
                return
            self._write([data])
            start_pos += len(data)

    def gap(self, offset: int, next_offset: int) -> None:
        """Cover these offsets with empty batches. Raises: StorageFull, StorageFailed."""
        while offset < next_offset:
            covered = min(next_offset - offset, BATCH_OFFSETS_MAX)
            header = self._batch(offset, covered, 0, BodyFormat.GAP, BatchFlag.GAP, b"")
            self._write([pack(header, self._header.salt)])
            offset += covered

    def snapshot(self, records: Iterable[bytes]) -> int:
        """Add records as the snapshot of a journal, with its end; return the offset after the end.

        Raises: StorageFull, StorageFailed.
        """
        offset = self._header.base_offset
        for piece in in_batches(records):
            self._journal_batch(offset, piece, 0)
            offset += len(piece)
        self._journal_batch(offset, [], BatchFlag.MARKER)
        return offset + 1

    def _journal_batch(self, offset: int, records: list[bytes], flags: int) -> None:
        body = pack_records(records)
        covered = max(len(records), 1)
        header = self._batch(offset, covered, len(records), BodyFormat.JOURNAL, flags, body)
        self._write([pack(header, self._header.salt), body])

    def _batch(
        self, offset: int, covered: int, records: int, body_format: int, flags: int, body: bytes
    ) -> BatchHeader:
        return BatchHeader(
            partition_id=self._header.partition_id,
            base_offset=offset,
            last_offset_delta=covered - 1,
            record_count=records,
            durable_offset=self._header.base_offset,
            append_us=self._append_us,
            body_format=body_format,
            flags=flags,
            body_bytes=len(body),
            body_crc=body_checksum([body]),
        )

    def _write(self, parts: list[Buffer]) -> None:
        self._file.write_at(parts, self._pos)
        self._pos += sum(map(len, parts))

    def finish(self) -> None:
        """Put the segment in its place, durable. Raises: StorageFailed, StorageFull."""
        self._file.datasync()
        self._file.close()
        os.utime(self.path + NEW_SUFFIX, ns=(self._append_us * 1000, self._append_us * 1000))
        # The index of the replaced file would point to wrong places in this file.
        self._files.unlink(self.path.removesuffix(".log") + INDEX_SUFFIX)
        self._files.sync_folder(self._folder)
        self._files.rename(self.path + NEW_SUFFIX, self.path)
        self._files.sync_folder(self._folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.finish()
        else:
            self._abandon()

    def _abandon(self) -> None:
        self._file.close()
        self._files.unlink(self.path + NEW_SUFFIX)


class SetAside:
    """The folder that keeps damaged files for people to look at. Nothing is removed."""

    def __init__(self, files: Files, folder: str) -> None:
        self._files = files
        self._folder = folder

    def copy(self, path: str, name: str) -> None:
        """Keep a copy of a file, durably; a file that is kept already is not copied again.

        Raises: StorageFull, StorageFailed.
        """
        self._make()
        target = self._free_path(name, path)
        if target is None:
            return
        self._files.unlink(target + NEW_SUFFIX)
        with (
            closing(self._files.open(path)) as source,
            closing(self._files.create(target + NEW_SUFFIX)) as copy,
        ):
            copy_bytes(source, copy)
            copy.datasync()
        self._files.rename(target + NEW_SUFFIX, target)
        self._files.sync_folder(self._folder)

    def move(self, path: str, name: str) -> None:
        """Move a file or folder there, durably. Raises: StorageFull, StorageFailed."""
        self._make()
        target = self._free_path(name, None)
        assert target is not None, "only an equal file needs no place"
        self._files.rename(path, target)
        self._files.sync_folder(self._folder)
        self._files.sync_folder(os.path.dirname(path))

    def _make(self) -> None:
        if not os.path.isdir(self._folder):
            self._files.make_folder(self._folder)
            self._files.sync_folder(os.path.dirname(self._folder))

    def _free_path(self, name: str, equal_to: str | None) -> str | None:
        """Return a free path; None if a taken path has an equal file already."""
        number = 1
        candidate = os.path.join(self._folder, name)
        while os.path.lexists(candidate):
            if equal_to is not None and self._are_equal(candidate, equal_to):
                return None
            number += 1
            candidate = os.path.join(self._folder, f"{name}.{number}")
        return candidate

    def _are_equal(self, path: str, other_path: str) -> bool:
        if os.path.getsize(path) != os.path.getsize(other_path):
            return False
        file, other = self._files.open(path), self._files.open(other_path)
        try:
            pos = 0
            while data := read_or_zeros(file, pos):
                if data != read_or_zeros(other, pos):
                    return False
                pos += len(data)
            return True
        finally:
            file.close()
            other.close()


def write_whole(files: Files, path: str, data: bytes) -> None:
    """Put `data` there whole or not at all, durable. Raises: StorageFull, StorageFailed."""
    files.unlink(path + NEW_SUFFIX)
    with closing(files.create(path + NEW_SUFFIX)) as file:
        file.write_at([data], 0)
        file.datasync()
    files.rename(path + NEW_SUFFIX, path)
    files.sync_folder(os.path.dirname(path))


def copy_bytes(source: File, copy: File) -> None:
    """Copy a whole file; unreadable bytes become zeros. Raises: StorageFull, StorageFailed."""
    pos = 0
    while data := read_or_zeros(source, pos):
        copy.write_at([data], pos)
        pos += len(data)


def read_or_zeros(file: File, pos: int) -> bytes:
    """The next bytes of a file, b"" at its end; zeros for a sector that the disk cannot read."""
    for size in (COPY_BYTES, SECTOR_BYTES):
        try:
            return bytes(file.read_at(size, pos))
        except OSError:
            continue
    return bytes(min(SECTOR_BYTES, max(file.size() - pos, 0)))
