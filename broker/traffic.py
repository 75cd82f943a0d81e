"""The records and bytes that came to a partition and went from it, since the broker has served it.

Of all protocols together. Knows no partition.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class PartitionTraffic:
    """Counts of a partition; they only grow."""

    records_in: int = 0
    bytes_in: int = 0
    records_out: int = 0
    bytes_out: int = 0
