"""The id of a data directory: each segment's header names it, so that a file of another directory
is detected and never read (FORMAT.md section 2; `Segment.take_head`). Knows headers, no journal's
records.
"""

import hashlib
import os
import secrets
from collections.abc import Iterator

from braidlog.storage.log.files import Files
from braidlog.storage.log.layout import ALL_JOURNAL_KINDS, CATALOGUE_NAME, PARTITIONS_NAME
from braidlog.storage.log.segment import segment_bases, segment_path
from braidlog.storage.log.segment_header import (
    SEGMENT_HEADER_BYTES,
    BadSegment,
    SegmentHeader,
    unpack_segment_header,
)


def new_directory_id() -> int:
    """A random id, never 0."""
    return secrets.randbelow((1 << 64) - 1) + 1


def id_of_cluster(cluster_id: str) -> int:
    """The id that the segments of a shared store name."""
    return int.from_bytes(hashlib.sha256(cluster_id.encode()).digest()[:8], "little") or 1


def stored_directory_id(files: Files, data_dir: str) -> int:
    """Return the id of a data directory: the id in the newest good segment of its catalogue, 0 if
    that segment has none. Without such a segment, the id that any other file has.
    """
    header = _newest(files, os.path.join(data_dir, CATALOGUE_NAME))
    return named_elsewhere(files, data_dir) if header is None else header.directory_id


def named_elsewhere(files: Files, data_dir: str) -> int:
    """The id that the first file outside the catalogue names, 0 if none names any."""
    return next(_named_elsewhere(files, data_dir), 0)


def is_catalogue_foreign(files: Files, data_dir: str) -> bool:
    """Return True if other files name a data directory, but none names that of the catalogue: then
    the catalogue was put here, and not the other files.
    """
    own_id, is_named = files.directory_id, False
    for directory_id in _named_elsewhere(files, data_dir):
        if directory_id == own_id:
            return False
        is_named = True
    return is_named and own_id != 0


def _named_elsewhere(files: Files, data_dir: str) -> Iterator[int]:
    """Yield the id that the newest segment of each folder but the catalogue names, if any."""
    partitions = os.path.join(data_dir, PARTITIONS_NAME)
    journals = [
        os.path.join(data_dir, name) for name in ALL_JOURNAL_KINDS if name != CATALOGUE_NAME
    ]
    folders = [os.path.join(partitions, name) for name in files.names(partitions)]
    for folder in (*journals, *folders):
        if os.path.isdir(folder) and (header := _newest(files, folder)) and header.directory_id:
            yield header.directory_id


def _newest(files: Files, folder: str) -> SegmentHeader | None:
    """The newest good segment header in a folder; files that compaction made are left out."""
    for base in reversed(segment_bases(files.names(folder))):
        try:
            path = segment_path(folder, base)
            return unpack_segment_header(files.read_head(path, SEGMENT_HEADER_BYTES))
        except (OSError, BadSegment):
            continue
    return None
