"""The result of a read, for its reader."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from braidlog.storage.formats.api import Buffer, Part
    from braidlog.storage.formats.record import Record


@dataclass(slots=True)
class ReadResult:
    """Records in the reader's format: `parts`, `size` bytes together, are whole entries
    in order.
    """

    # of the first returned record; the start of the read if no record is returned
    first_offset: int
    next_offset: int  # start of the next read, past records left out
    parts: list[Part] = field(default_factory=list)
    size: int = 0
    record_count: int = 0
    left_out: int = 0  # skipped records, and records that this format cannot carry
    as_stored: bool = False  # True if the first part is stored in the requested format
    # True if records of other formats ask for a delivery time. Only Pulsar and HTTP store such
    # records.
    has_delays: bool = False

    @property
    def in_memory(self) -> list[Buffer]:
        """Return the parts of a read that is not `in_place`."""
        # No part is a StoredPart then, but no type says so.
        return self.parts  # type: ignore[return-value]

    def add_all(self, bodies: Sequence[Part], record_count: int, first_offset: int) -> None:
        """Add several parts, as `add` does."""
        if not self.parts:
            self.first_offset = first_offset
        self.parts += bodies
        self.size += sum(map(len, bodies))
        self.record_count += record_count

    def add(self, body: Part, record_count: int, first_offset: int) -> None:
        """Add records after the present records."""
        if not self.parts:
            self.first_offset = first_offset
        self.parts.append(body)
        self.size += len(body)
        self.record_count += record_count


def record_bytes(record: Record) -> int:
    """Return the bytes of a record's key, value and headers."""
    size = len(record.key or b"") + len(record.value or b"")
    return size + sum(len(header.name) + len(header.value) for header in record.headers)
