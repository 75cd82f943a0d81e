"""Offsets, settings and findings of a log, as its parts read them. Only the log changes them."""

from dataclasses import dataclass
from typing import Protocol

from braidlog.storage.log.recovery import RecoveryReport
from braidlog.storage.log.settings import LogSettings


class Extent(Protocol):
    """A log from the view of its parts. Any thread may read."""

    @property
    def partition_id(self) -> int:
        """Number of the partition; never used again for another partition."""

    @property
    def folder(self) -> str:
        """Folder of the segment files."""

    @property
    def settings(self) -> LogSettings:
        """Settings in force."""

    @property
    def recovery(self) -> RecoveryReport:
        """Findings of this start."""

    @property
    def takes_appends(self) -> bool:
        """False once the log is sealed or closed, and while its end is damaged."""

    @property
    def log_start_offset(self) -> int:
        """First offset kept."""

    @property
    def log_end_offset(self) -> int:
        """Offset of the next record."""

    @property
    def durable_offset(self) -> int:
        """Offset below which all records are durable."""

    @property
    def high_watermark(self) -> int:
        """Offset below which records may be delivered; never decreases."""

    @property
    def is_closed(self) -> bool:
        """True once the log is closed for reads and appends; a log is never reopened."""


@dataclass(slots=True, frozen=True)
class ClosedExtent:
    """The last values of a closed log. Its parts hold these instead of the log, so that the log and
    the parts form no reference cycle.
    """

    partition_id: int
    folder: str
    settings: LogSettings
    recovery: RecoveryReport
    log_start_offset: int
    log_end_offset: int
    durable_offset: int
    high_watermark: int
    takes_appends: bool = False
    is_closed: bool = True

    @classmethod
    def of(cls, extent: Extent) -> "ClosedExtent":
        """Return the present values of a log."""
        return cls(
            extent.partition_id,
            extent.folder,
            extent.settings,
            extent.recovery,
            extent.log_start_offset,
            extent.log_end_offset,
            extent.durable_offset,
            extent.high_watermark,
        )
