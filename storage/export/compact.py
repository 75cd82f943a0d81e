"""Merges small neighbouring files of a partition and date in an export folder. Renames files of
earlier releases that readers skip.

A merge or a renaming is a run like any other: staged files, a prepared record that names the files
to replace, then a commit. A reader that lists the folder while files move may see records twice for
that moment, never none: the new file appears before the old files go. Knows Parquet, no log and no
Spark.
"""

import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as parquet

from braidlog.storage.export.commit import Commit, ExportFolder, StagedFile, sync_file
from braidlog.storage.export.files import Compression, parquet_writer
from braidlog.storage.export.layout import FileName

MERGED_BYTES = 256 << 20  # Approximate limit of a merged file; larger files are left alone.
MERGED_FILES_MAX = 1000  # Files per merge: a single record lists their names.
BATCH_ROWS = 64 << 10
GROUP_BYTES = 32 << 20  # Rows per row group.


@dataclass(frozen=True, slots=True)
class SmallFile:
    """An exported file, by its path relative to the root."""

    path: str
    name: FileName
    bytes: int


def compact(folder: ExportFolder, compression: Compression) -> Commit | None:
    """Merge all mergeable files in one run; return None if there are none. The caller holds the
    lock.

    Raises OSError, pyarrow.ArrowException.
    """
    merges = list(_merges(folder.root))
    if not merges:
        return None
    last = folder.last_commit()
    run = folder.next_run()
    folder.drop_intent(run)
    files = [_merged(folder, run, merge, compression) for merge in merges]
    replaced = [file.path for merge in merges for file in merge]
    commit = Commit(run, dict(last.positions) if last else {}, files, replaced=replaced)
    folder.commit(commit)
    return commit


def show_hidden_files(folder: ExportFolder) -> Commit | None:
    """Rename the files that readers skip, in one run; return None if there are none.

    The caller holds the lock. Earlier releases began the file names of topics such as `_schemas`
    with the topic's name. The next run finishes a killed renaming: the prepared record names each
    file and its final path.

    Raises OSError, pyarrow.ArrowException.
    """
    hidden = [
        (path, name)
        for path in sorted(folder.root.glob("topic=*/**/[_.]*.parquet"))
        if (name := FileName.parse(path.name)) is not None
    ]
    if not hidden:
        return None
    last = folder.last_commit()
    run = folder.next_run()
    folder.drop_intent(run)
    files = [_renamed(folder.root, path, name) for path, name in hidden]
    replaced = [str(path.relative_to(folder.root)) for path, _ in hidden]
    commit = Commit(run, dict(last.positions) if last else {}, files, replaced=replaced)
    folder.commit(commit)
    return commit


def _renamed(root: Path, path: Path, name: FileName) -> StagedFile:
    final = str(path.with_name(str(name)).relative_to(root))
    with parquet.ParquetFile(path) as source:
        rows = source.metadata.num_rows
        spans = [_times(batch) for batch in source.iter_batches(BATCH_ROWS, columns=["timestamp"])]
    first_us = min((first for first, _ in spans), default=0)
    last_us = max((last for _, last in spans), default=0)
    size = path.stat().st_size
    return StagedFile(str(path), final, rows, size, first_us, last_us, _topic_of(final))


def _times(rows: pa.Table | pa.RecordBatch) -> tuple[int, int]:
    """Return the first and the last timestamp of these rows."""
    times = pa.compute.min_max(rows["timestamp"].cast(pa.int64())).as_py()
    return times["min"], times["max"]


def _topic_of(path: str) -> str:
    return unquote(path.split("/", 1)[0].removeprefix("topic="))


def _merges(root: Path) -> Iterator[list[SmallFile]]:
    """Yield groups of at least two neighbouring files to merge."""
    for group in _groups(root):
        merge: list[SmallFile] = []
        size = 0
        for file in group:
            if merge and (size + file.bytes > MERGED_BYTES or len(merge) >= MERGED_FILES_MAX):
                if len(merge) > 1:
                    yield merge
                merge, size = [], 0
            merge.append(file)
            size += file.bytes
        if len(merge) > 1:
            yield merge


def _groups(root: Path) -> Iterator[list[SmallFile]]:
    """Yield the files of each folder and partition, by first offset."""
    groups: defaultdict[tuple[str, int], list[SmallFile]] = defaultdict(list)
    for path in sorted(root.glob("topic=*/**/*.parquet")):
        name = FileName.parse(path.name)
        if name is not None:
            file = SmallFile(str(path.relative_to(root)), name, path.stat().st_size)
            groups[str(path.parent), name.partition_id].append(file)
    for group in groups.values():
        yield sorted(group, key=lambda file: file.name.start)


def _merged(
    folder: ExportFolder, run: int, merge: Sequence[SmallFile], compression: Compression
) -> StagedFile:
    name = replace(merge[0].name, end=merge[-1].name.end)
    path = folder.staging(run) / f"{uuid.uuid4().hex}.parquet"
    schema = pa.unify_schemas(
        [parquet.read_schema(folder.root / file.path) for file in merge]
    ).remove_metadata()
    rows = 0
    first_us = last_us = 0
    with parquet_writer(path, schema, compression) as writer:
        for table in _tables(folder.root, merge, schema):
            writer.write_table(table)
            first, last = _times(table)
            first_us = min(first_us, first) if rows else first
            last_us = max(last_us, last) if rows else last
            rows += table.num_rows
    sync_file(path)
    final = str(Path(merge[0].path).parent / str(name))
    size = path.stat().st_size
    return StagedFile(str(path), final, rows, size, first_us, last_us, _topic_of(final))


def _tables(root: Path, merge: Sequence[SmallFile], schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield all rows in the order of the files, in pieces that make good row groups."""
    pending: list[pa.Table] = []
    size = 0
    for file in merge:
        with parquet.ParquetFile(root / file.path) as source:
            for batch in source.iter_batches(BATCH_ROWS):
                table = pa.Table.from_batches([batch])
                pending.append(table)
                size += table.nbytes
                if size >= GROUP_BYTES:
                    yield _joined(pending, schema)
                    pending, size = [], 0
    if pending:
        yield _joined(pending, schema)


def _joined(tables: Sequence[pa.Table], schema: pa.Schema) -> pa.Table:
    """Join the tables; columns that older files lack are null."""
    return pa.concat_tables(tables, promote_options="default").select(schema.names).cast(schema)
