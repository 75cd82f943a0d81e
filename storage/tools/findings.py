"""The results of `log verify`: typed findings, and a summary of each log. Knows no terminal."""

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """Severity of a finding."""

    FAULT = "fault"
    """Something that was acknowledged is wrong or gone; `log repair` is the way past it."""
    WARNING = "warning"
    """Something is wrong that a broker mends by itself: an index, one of two slots."""
    NOTE = "note"
    """Nothing is wrong: what a kill leaves behind, and the next start clears away."""


@dataclass(slots=True, frozen=True)
class Finding:
    """A place with something to report.

    `log` is the name of the log for people. `[offset, next_offset)` are the offsets concerned; None
    without any.
    """

    level: Level
    log: str
    path: str
    file_pos: int
    offset: int | None
    next_offset: int | None
    reason: str


@dataclass(slots=True)
class LogSummary:
    """A checked log: offsets `[log_start_offset, end_offset)`."""

    log: str
    log_start_offset: int = 0
    end_offset: int = 0
    batches: int = 0
    records: int = 0
    size_bytes: int = 0
    unopened: int = 0
    """Batches whose bodies no codec here can open; their checksums are right."""


@dataclass(slots=True)
class VerifyReport:
    """The result of a `log verify`. `broker_pid`: the process that has the directory open; 0
    without such a process.
    """

    data_dir: str
    broker_pid: int
    logs: list[LogSummary]
    faults: int = 0
    warnings: int = 0
