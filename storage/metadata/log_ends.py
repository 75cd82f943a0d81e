"""The known durable end of each partition's log, in the cursors' journal (FORMAT.md, section 9.2).

Files of an older backup, or a log that was cut short, end below that. Knows numbers of partitions,
no topic and no log.
"""

from collections.abc import Iterable, Mapping
from typing import ClassVar

import msgspec


class EndsSet(msgspec.Struct, array_like=True, forbid_unknown_fields=True, tag=7, gc=False):
    """By partition id, everything below that offset was on disk; 0: no longer known."""

    # Of a record with this change: earlier programs do not know the change.
    LAYOUT: ClassVar[int] = 4
    ends: dict[int, int]


class LogEnds:
    """The durable ends of partitions in the journal."""

    def __init__(self) -> None:
        self._ends: dict[int, int] = {}

    def get(self, partition_id: int) -> int:
        """Return the known durable end of a partition; 0 if unknown."""
        return self._ends.get(partition_id, 0)

    def apply(self, change: EndsSet) -> None:
        for number, end in change.ends.items():
            if end:
                self._ends[number] = end
            else:
                self._ends.pop(number, None)

    def news(self, ends: Mapping[int, int]) -> EndsSet | None:
        """Return the change with the news in these ends (0: the partition is gone), None without
        news.
        """
        new = {
            number: end
            for number, end in ends.items()
            if (self.get(number) < end if end else number in self._ends)
        }
        return EndsSet(new) if new else None

    def gone(self, known: Iterable[int]) -> EndsSet | None:
        """Return the change that forgets all partitions but the known, None if nothing is to
        forget.
        """
        gone = self._ends.keys() - set(known)
        return EndsSet(dict.fromkeys(sorted(gone), 0)) if gone else None

    def state(self) -> list[EndsSet]:
        """Return all ends as a change, for a snapshot."""
        return [EndsSet(dict(self._ends))] if self._ends else []
