"""The export folder's own records: intents, staged files, commits. Every reader of the folder sees
each record exactly once.

    OUT/topic=<percent-encoded name>/date=YYYY-MM-DD[/hour=HH]/records+<name>+<partition>
    +<partition id>+<first>+<end>.parquet
    OUT/_export/lock  intent/<run>.json  prepared/<run>.json  commits/<run>.json
    OUT/_export/staging/<run>/  deadletter/run=<run>/

A run's intent fixes the ranges before any file is written, and file names follow from the intent
and the records alone. When all tasks are done, the prepared record names every staged file and its
final path. Only then does the run move files. The prepared record becomes the commit record, which
is the truth about exported records. A run that died before its prepared record has published
nothing. A run that died later is completed without the log. Knows files and JSON; no Spark, no
Parquet.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from braidlog.storage.export.ranges import Range


class FolderBusy(Exception):
    """Another export is writing to the same folder."""


class FolderBroken(Exception):
    """The folder's records and files contradict each other; one line for the operator."""


class StagedFile(msgspec.Struct, frozen=True):
    """A file that a task wrote, and its final path; times in microseconds, UTC."""

    staged: str
    final: str
    rows: int
    bytes: int
    first_us: int
    last_us: int
    topic: str = ""


class Intent(msgspec.Struct, frozen=True):
    """The plan of a run: ranges to export."""

    run: int
    ranges: list[Range]
    gaps: list[Range] = []


class Commit(msgspec.Struct, frozen=True):
    """A finished run; `positions` maps every partition id to its next offset.

    `gaps` lists records lost before this run; `replaced` lists files that compaction merged into
    the files of this run.
    """

    run: int
    positions: dict[int, int]
    files: list[StagedFile]
    dead_letters: int = 0
    ranges: list[Range] = []
    gaps: list[Range] = []
    replaced: list[str] = []
    dead_files: list[StagedFile] = []


class ExportFolder:
    """The target folder of an export."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._records = root / "_export"
        for name in ("intent", "prepared", "commits", "staging"):
            (self._records / name).mkdir(parents=True, exist_ok=True)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder: one export at a time. Raises FolderBusy."""
        with (self._records / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise FolderBusy(f"another export is writing to {self.root}") from None
            yield

    def last_commit(self) -> Commit | None:
        """Return the newest commit record, None before the first run."""
        runs = sorted(int(path.stem) for path in (self._records / "commits").glob("*.json"))
        if not runs:
            return None
        return msgspec.json.decode(self._record("commits", runs[-1]).read_bytes(), type=Commit)

    def next_run(self) -> int:
        """Return the number of the next run."""
        last = self.last_commit()
        return last.run + 1 if last else 1

    def finish_prepared(self) -> Commit | None:
        """Publish and commit the prepared files of an earlier run that died.

        Raises FolderBroken.
        """
        path = self._record("prepared", self.next_run())
        if not path.exists():
            return None
        commit = msgspec.json.decode(path.read_bytes(), type=Commit)
        self._publish(commit)
        return commit

    def open_intent(self, run: int) -> Intent | None:
        """Return the intent of a run that was begun and not committed."""
        path = self._record("intent", run)
        return msgspec.json.decode(path.read_bytes(), type=Intent) if path.exists() else None

    def write_intent(self, intent: Intent) -> None:
        """Write an intent durably; remove staged files of an earlier attempt."""
        shutil.rmtree(self._staging(intent.run), ignore_errors=True)
        _write_record(self._record("intent", intent.run), msgspec.json.encode(intent))

    def drop_intent(self, run: int) -> None:
        """Remove the intent of a run that is not prepared and so published nothing."""
        self._record("intent", run).unlink(missing_ok=True)
        shutil.rmtree(self._staging(run), ignore_errors=True)

    def staging(self, run: int) -> Path:
        """Return the folder for the staged files of a run; create a missing folder."""
        folder = self._staging(run)
        folder.mkdir(exist_ok=True)
        return folder

    def commit(self, commit: Commit) -> None:
        """Publish the staged files of a run and make it final. Raises FolderBroken."""
        _sync(self.staging(commit.run))
        _sync(self._records / "staging")
        _write_record(self._record("prepared", commit.run), msgspec.json.encode(commit))
        self._publish(commit)

    def _publish(self, commit: Commit) -> None:
        """Move every file that is not yet moved, then the record; then clean up."""
        self._move([*commit.files, *commit.dead_files])
        current_names = {file.final for file in commit.files}
        for name in commit.replaced:
            if name not in current_names:
                (self.root / name).unlink(missing_ok=True)
        prepared, final = self._record("prepared", commit.run), self._record("commits", commit.run)
        os.replace(prepared, final)
        _sync(final.parent)
        self._record("intent", commit.run).unlink(missing_ok=True)
        shutil.rmtree(self._staging(commit.run), ignore_errors=True)

    def _move(self, files: Sequence[StagedFile]) -> None:
        folders: set[Path] = set()
        for file in files:
            final = self.root / file.final
            for folder in _missing_parents(final, self.root):
                folder.mkdir(exist_ok=True)
                folders.update((folder, folder.parent))
            folders.add(final.parent)
            try:
                os.replace(file.staged, final)
            except FileNotFoundError:
                if not final.exists():
                    raise FolderBroken(f"{file.staged} and {final} are both missing") from None
        for folder in folders:
            _sync(folder)

    def _staging(self, run: int) -> Path:
        return self._records / "staging" / f"{run:020d}"

    def _record(self, kind: str, run: int) -> Path:
        return self._records / kind / f"{run:020d}.json"


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
    """Return the missing folders between root and path, the outermost first."""
    missing = []
    folder = path.parent
    while folder != root and not folder.exists():
        missing.append(folder)
        folder = folder.parent
    return missing[::-1]
