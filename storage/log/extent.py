"""Offsets, settings and findings of a log, as its parts read them. Only the log changes them."""

from typing import Protocol

from braidlog.storage.log.recovery import RecoveryReport
from braidlog.storage.log.settings import LogSettings


class Extent(Protocol):
    """A log as its parts see it. Any thread may read."""

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
