"""The id of a data directory: each segment's header names it, so that a file of another directory
is found (FORMAT.md section 2). Knows headers, no journal's records.
"""

import hashlib
import os
import secrets
from collections.abc import Iterable

from braidlog.storage.log.files import Files
from braidlog.storage.log.segment import (
    SEGMENT_HEADER_BYTES,
    BadSegment,
    Segment,
    SegmentHeader,
    segment_bases,
    segment_path,
    unpack_segment_header,
)

CATALOGUE_NAME, CURSORS_NAME, PARTITIONS_NAME = "catalogue", "cursors", "partitions"


def new_directory_id() -> int:
    """A random id, never 0."""
    return secrets.randbelow((1 << 64) - 1) + 1


def id_of_cluster(cluster_id: str) -> int:
    """The id that the segments of a shared store name."""
    return int.from_bytes(hashlib.sha256(cluster_id.encode()).digest()[:8], "little") or 1


def stored_directory_id(files: Files, data_dir: str) -> int:
    """The id that a data directory has: what the newest good segment of its catalogue names, 0 if
    that names none. Without such a segment, what any of its other files names.
    """
    header = _newest(files, os.path.join(data_dir, CATALOGUE_NAME))
    return named_elsewhere(files, data_dir) if header is None else header.directory_id


def named_elsewhere(files: Files, data_dir: str) -> int:
    """The id that the first file outside the catalogue names, 0 if none names any."""
    partitions = os.path.join(data_dir, PARTITIONS_NAME)
    folders = [os.path.join(partitions, name) for name in files.names(partitions)]
    for folder in (os.path.join(data_dir, CURSORS_NAME), *folders):
        if os.path.isdir(folder) and (header := _newest(files, folder)) and header.directory_id:
            return header.directory_id
    return 0


def _newest(files: Files, folder: str) -> SegmentHeader | None:
    """The newest good segment header in a folder; files that compaction made are left out."""
    for base in reversed(segment_bases(files.names(folder))):
        try:
            path = segment_path(folder, base)
            return unpack_segment_header(files.read_head(path, SEGMENT_HEADER_BYTES))
        except (OSError, BadSegment):
            continue
    return None


def foreign_paths(segments: Iterable[Segment], directory_id: int) -> list[str]:
    """The files that name another data directory, of those whose header was read."""
    if not directory_id:
        return []
    known = (0, directory_id)
    return [
        segment.path
        for segment in segments
        if segment.header is not None and segment.header.directory_id not in known
    ]
