"""Estimates how long a read has kept the event loop. Knows no clock.

A checkpoint costs as much as a small request of another client. A checkpoint per batch would make a
read of small batches as slow as that many requests.
"""

from __future__ import annotations

import trio

from braidlog.broker.runtime.steps import Steps

TURN_US_MAX = 1000  # Microseconds of work between two checkpoints, about.
BATCH_US = 15  # To find a batch and add its records to an answer, however few.
# To decode a record and encode the record in another format: 1 to 5 microseconds by format.
RECORD_US = 3
DECODED_BYTES_PER_US = 512
CONVERTED_BYTES_PER_US = 4096


def decoding_us(record_count: int, size_bytes: int) -> int:
    """Return the microseconds to decode a body of this size and record count and encode
    it again.
    """
    return record_count * RECORD_US + size_bytes // DECODED_BYTES_PER_US


class Turn:
    """Work done since other tasks had their turn. Several reads in a row may share a turn."""

    def __init__(self, work_us: int = 0) -> None:
        """`work_us` is earlier work: from TURN_US_MAX on, other tasks come first."""
        self._work_us = work_us

    def add(self, work_us: int) -> None:
        """Count finished work."""
        self._work_us += work_us

    def give_way(self, work_us: int) -> Steps[None]:
        """Count work that comes next; let other tasks run before it if the turn would become too
        long.
        """
        if self._work_us and self._work_us + work_us > TURN_US_MAX:
            yield trio.lowlevel.checkpoint()
            self._work_us = 0
        self._work_us += work_us
