"""The export folder's own records: intents, staged files, commits. Exactly once for every reader of
it.

    OUT/topic=<percent-encoded name>/date=YYYY-MM-DD/<name>+<partition>+<partition
    id>+<first>+<end>.parquet
    OUT/_export/lock  intent/<run>.json  commits/<run>.json  staging/<run>/  deadletter/run=<run>/

A run's intent fixes its ranges before anything is written, and file names follow from the intent
alone: a run that is repeated after a crash overwrites its own files. The commit record is the truth
of what was exported. Knows files and JSON; no Spark, no Parquet.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

import msgspec

from storage.spark.ranges import Range

NAME_CHARS_MAX = 80  # Of the topic in a file's name, which must stay below 255 bytes.


class FolderBusy(Exception):
    """Another export is writing to the same folder."""


class StagedFile(msgspec.Struct, frozen=True):
    """A file that a task wrote, and where it belongs; times in microseconds, UTC."""

    staged: str
    final: str
    rows: int
    bytes: int
    first_us: int
    last_us: int


class Intent(msgspec.Struct, frozen=True):
    """What a run is going to export."""

    run: int
    topic: str
    ranges: list[Range]


class Commit(msgspec.Struct, frozen=True):
    """What has been exported; `positions` maps every partition id to its next offset."""

    run: int
    topic: str
    positions: dict[int, int]
    files: list[StagedFile]
    dead_letters: int = 0


class ExportFolder:
    """The target folder of an export."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._records = root / "_export"
        for name in ("intent", "commits", "staging"):
            (self._records / name).mkdir(parents=True, exist_ok=True)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One export at a time. Raises FolderBusy."""
        with (self._records / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise FolderBusy(f"another export is writing to {self.root}") from None
            yield

    def last_commit(self) -> Commit | None:
        """The newest commit record, None before the first run."""
        runs = sorted(int(path.stem) for path in (self._records / "commits").glob("*.json"))
        if not runs:
            return None
        return msgspec.json.decode(self._record("commits", runs[-1]).read_bytes(), type=Commit)

    def open_intent(self, run: int) -> Intent | None:
        """The intent of a run that was begun and not committed."""
        path = self._record("intent", run)
        return msgspec.json.decode(path.read_bytes(), type=Intent) if path.exists() else None

    def write_intent(self, intent: Intent) -> None:
        """Durable when it returns."""
        _write_record(self._record("intent", intent.run), msgspec.json.encode(intent))

    def staging(self, run: int) -> Path:
        """Where the tasks of a run put their files; made if missing."""
        folder = self._records / "staging" / f"{run:020d}"
        folder.mkdir(exist_ok=True)
        return folder

    def final_path(self, topic: str, part: Range, day: str) -> str:
        """Where the file of a range and a day belongs, relative to the root."""
        name = quote(topic.rpartition("/")[2], safe="")[:NAME_CHARS_MAX]
        file = f"{name}+{part.index:05d}+{part.partition_id}+{part.start:020d}+{part.end:020d}"
        return f"topic={quote(topic, safe='')}/date={day}/{file}.parquet"

    def dead_letter_path(self, run: int, part: Range) -> str:
        """Where the unreadable bodies of a range belong, relative to the root."""
        name = f"{part.partition_id}+{part.start:020d}+{part.end:020d}.parquet"
        return f"_export/deadletter/run={run:020d}/{name}"

    def publish(self, files: list[StagedFile]) -> None:
        """Move staged files to their final names, durably."""
        folders: set[Path] = set()
        for file in files:
            final = self.root / file.final
            for folder in _missing_parents(final, self.root):
                folder.mkdir(exist_ok=True)
                folders.update((folder, folder.parent))
            os.replace(file.staged, final)
            folders.add(final.parent)
        for folder in folders:
            _sync(folder)

    def commit(self, commit: Commit) -> None:
        """Make the run final, then remove its litter."""
        _write_record(self._record("commits", commit.run), msgspec.json.encode(commit))
        self._record("intent", commit.run).unlink(missing_ok=True)
        shutil.rmtree(self._records / "staging" / f"{commit.run:020d}", ignore_errors=True)

    def _record(self, kind: str, run: int) -> Path:
        return self._records / kind / f"{run:020d}.json"


def day_of(time_us: int) -> str:
    """The UTC date of a record, as in the folder's name."""
    return datetime.fromtimestamp(time_us // 1_000_000, UTC).strftime("%Y-%m-%d")


def sync_file(path: Path) -> None:
    """Make a written file durable."""
    _sync(path)


def _write_record(path: Path, data: bytes) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_bytes(data)
    _sync(fresh)
    fresh.replace(path)
    _sync(path.parent)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _missing_parents(path: Path, root: Path) -> list[Path]:
    """Folders between root and path that are not there, the outermost first."""
    missing = []
    folder = path.parent
    while folder != root and not folder.exists():
        missing.append(folder)
        folder = folder.parent
    return missing[::-1]
