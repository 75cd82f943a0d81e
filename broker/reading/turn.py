"""How long a read has kept the event loop to itself. Knows no clock: work is estimated.

A checkpoint costs as much as a small request of somebody else, and one for each batch makes a read
of small batches as slow as so many requests.
"""

from __future__ import annotations

import trio

from braidlog.broker.runtime.steps import Steps

TURN_US_MAX = 1000  # Microseconds of work between two checkpoints, about.
BATCH_US = 15  # To find a batch and add its records to an answer, however few they are.
# To decode a record and encode it in another format: 1 to 5 microseconds, as formats differ.
RECORD_US = 3
DECODED_BYTES_PER_US = 512
CONVERTED_BYTES_PER_US = 4096


def decoding_us(record_count: int, size_bytes: int) -> int:
    """Microseconds to decode so many records of a body of that size, and to encode them again."""
    return record_count * RECORD_US + size_bytes // DECODED_BYTES_PER_US


class Turn:
    """The work that was done since others had their turn. Several reads in a row may share it."""

    def __init__(self, work_us: int = 0) -> None:
        """`work_us` is work that was done before: from TURN_US_MAX on others come first."""
        self._work_us = work_us

    def add(self, work_us: int) -> None:
        """Count work that was done."""
        self._work_us += work_us

    def give_way(self, work_us: int) -> Steps[None]:
        """Count work that is to be done next; before it others get their turn if ours would become
        too long.
        """
        if self._work_us and self._work_us + work_us > TURN_US_MAX:
            yield trio.lowlevel.checkpoint()
            self._work_us = 0
        self._work_us += work_us
