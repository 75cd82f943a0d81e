"""The append path alone, in this process, beside the bare system call for the same bytes.

The one place of `conformance/` that looks inside the broker: no socket can show this ratio.
"""

import os
import statistics
import tempfile
import time
from pathlib import Path

from storage.codecs.api import BodyFormat, BodyInfo
from storage.log.committer import Committer
from storage.log.data_dir import DataDir
from storage.log.settings import LogSettings

BODY_BYTES = 10 * 1024
APPENDS = 5000
ROUNDS_EACH = 3


def append_ratio(folder: Path, rounds: int) -> float:
    """Median of (time of PartitionLog.append) / (time of pwritev of header and body)."""
    body = os.urandom(BODY_BYTES)
    ratios = []
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        for number in range(rounds * ROUNDS_EACH):
            bare = _bare(Path(scratch) / f"bare-{number}", body)
            ratios.append(_appended(Path(scratch) / f"log-{number}", body) / bare)
    return statistics.median(ratios)


def _bare(path: Path, body: bytes) -> float:
    header = bytes(128)
    pos = 0
    fd = os.open(path, os.O_CREAT | os.O_RDWR)
    started = time.perf_counter()
    for _ in range(APPENDS):
        pos += os.pwritev(fd, [header, body], pos)
    spent = time.perf_counter() - started
    os.close(fd)
    path.unlink()
    return spent


def _appended(folder: Path, body: bytes) -> float:
    directory = DataDir.open(folder)
    committer = Committer(directory.files)
    log = directory.create_partition(1, "public/default/bench", 0, LogSettings(), committer)
    info = BodyInfo(record_count=1)
    started = time.perf_counter()
    for _ in range(APPENDS):
        log.append([body], info, body_format=BodyFormat.KAFKA, append_us=1)
    spent = time.perf_counter() - started
    directory.close(committer)
    return spent
