"""The append path alone, in this process, beside the bare system call for the same bytes.

Only this file of `conformance/` looks inside the broker: no socket can show this ratio.
"""

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from braidlog.storage.directory.data_dir import DataDir
from braidlog.storage.directory.directory import NewPartition
from braidlog.storage.formats.api import BodyFormat, BodyInfo
from braidlog.storage.log.committer import Committer
from braidlog.storage.log.settings import LogSettings

BODY_BYTES = (10 * 1024, 128 * 1024)
HEADER_BYTES = 128

# The two sides alternate every few milliseconds, so that other load affects both.
PIECES = 60
PIECE_BYTES = 2 * 1024 * 1024


def append_ratios(folder: Path) -> dict[int, float]:
    """Return body size -> median of (time of LocalLog.append) / (time of a pwritev of the
    bytes).
    """
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        return {size: _ratio(Path(scratch) / str(size), size) for size in BODY_BYTES}


def _ratio(folder: Path, size: int) -> float:
    body, header, count = os.urandom(size), bytes(HEADER_BYTES), PIECE_BYTES // size
    folder.mkdir()
    directory = DataDir.open(folder / "log")
    committer = Committer(directory.files)
    log = directory.create_partitions(
        [NewPartition(1, "public/default/bench", 0)], LogSettings(), committer
    )[0]
    info = BodyInfo(record_count=1)
    fd = os.open(folder / "bare", os.O_CREAT | os.O_RDWR)
    pos = 0

    def bare() -> None:
        nonlocal pos
        pos += os.pwritev(fd, [header, body], pos)

    def append() -> None:
        log.append([body], info, body_format=BodyFormat.KAFKA, append_us=1)

    ratios = []
    for _ in range(PIECES):
        spent = _time(bare, count)
        ratios.append(_time(append, count) / spent)
    os.close(fd)
    directory.close(committer)
    return statistics.median(ratios)


def _time(work: Callable[[], None], count: int) -> float:
    """Return processor time: both sides write into the page cache and never wait, but other
    programs run.
    """
    started = time.thread_time()
    for _ in range(count):
        work()
    return time.thread_time() - started
