"""Age of unread records: the append time of the batch at a group's position.

The time of a group that has not moved since the last scrape is in a cache. Knows partitions, no
group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braidlog.broker.errors import BrokerError
from braidlog.broker.reading.look import look_at

if TYPE_CHECKING:
    from braidlog.broker.topics.partition import Partition

# Batches read per scrape; the next scrapes add the ages of more groups. A read of a batch may go to
# the disk if the group is far behind.
LOOKS_MAX = 500
KNOWN_MAX = 100_000  # Positions in the cache, at some 100 bytes each.

Place = tuple[int, int]  # Partition id and offset.


class Ages:
    """Append times at positions, kept from one scrape to the next."""

    def __init__(self, looks_max: int = LOOKS_MAX) -> None:
        """A scrape reads at most `looks_max` batches."""
        self._looks_max = looks_max
        self._known: dict[Place, int] = {}
        self._before: dict[Place, int] = {}
        self._looks_left = self._looks_max

    def begin(self) -> None:
        """Begin a scrape; times that the scrape does not request are forgotten afterwards."""
        self._before, self._known = self._known, {}
        self._looks_left = self._looks_max

    async def since_us(self, partition: Partition, position: int | None) -> int | None:
        """Return the append time of the record at the position, or of the first record kept; None
        if unknown in this scrape.
        """
        offset = max(position or 0, partition.log_start_offset)
        place = (partition.partition_id, offset)
        time_us = self._before.get(place, self._known.get(place))
        if time_us is None:
            if not self._looks_left or offset >= partition.high_watermark:
                return None
            self._looks_left -= 1
            try:
                async with look_at(partition, offset) as look:
                    if not look.batches:
                        return None
                    time_us = look.batches[0].header.append_us
            except BrokerError:  # Damaged or deleted: readers get the error.
                return None
        if len(self._known) < KNOWN_MAX:
            self._known[place] = time_us
        return time_us
