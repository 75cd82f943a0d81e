"""What a read found for its reader."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from braidlog.storage.formats.api import Buffer, Part
    from braidlog.storage.formats.record import Record


@dataclass(slots=True)
class ReadResult:
    """Records in the reader's format: `parts`, `size` bytes together, are whole entries in
    order.
    """

    first_offset: int  # of the first record given; where the read began if there is none
    next_offset: int  # where the next read goes on, past records left out
    parts: list[Part] = field(default_factory=list)
    size: int = 0
    record_count: int = 0
    left_out: int = 0  # records walked over that this format cannot carry, or that were skipped
    as_stored: bool = False  # whether the first part is stored in the format asked for

    @property
    def in_memory(self) -> list[Buffer]:
        """The parts, of a read that is not `in_place`."""
        # None of them is a StoredPart then, which no type says.
        return self.parts  # type: ignore[return-value]

    def add_all(self, bodies: Sequence[Part], record_count: int, first_offset: int) -> None:
        """As `add`, with several parts."""
        if not self.parts:
            self.first_offset = first_offset
        self.parts += bodies
        self.size += sum(map(len, bodies))
        self.record_count += record_count

    def add(self, body: Part, record_count: int, first_offset: int) -> None:
        """Add records after those that are there."""
        if not self.parts:
            self.first_offset = first_offset
        self.parts.append(body)
        self.size += len(body)
        self.record_count += record_count


def record_bytes(record: Record) -> int:
    """Bytes of a record's key, value and headers."""
    size = len(record.key or b"") + len(record.value or b"")
    return size + sum(len(header.name) + len(header.value) for header in record.headers)
