"""The contributions of logs and journals to a round of the shared store. Knows no store."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from braidlog.storage.log.committer import SyncPoint
from braidlog.storage.shared.layout import Buffer, SliceEntry
from braidlog.storage.shared.ledger import JournalRow


class SliceSource(Protocol):
    """A file that slices are read from (`storage/log/files.py`)."""

    def read_at(self, size: int, pos: int, *, wait: bool = True) -> bytes | memoryview:
        """At most `size` bytes from `pos`. Raises OSError, FileGone."""


@dataclass(slots=True)
class Slice:
    """Bytes of a segment file that are not published yet; `entry.object_pos` is not known yet."""

    entry: SliceEntry
    file: SliceSource


@dataclass(slots=True)
class SharedPoint(SyncPoint):
    """A member's part of a round. `round` is set once it is published."""

    slices: Sequence[Slice] = ()
    rows: Sequence[JournalRow] = ()
    snapshots: Sequence[tuple[int, int, int]] = ()  # Shard, kind, first place of the snapshot.
    round: int = 0


@dataclass(slots=True)
class Backlog:
    """Bytes appended and not published. Owner's thread, except for reading `bytes`."""

    round_bytes: int
    bytes_max: int
    gathering: int = 0  # Since the last round began.
    in_flight: int = 0  # In the round under way.
    full_rounds: int = 0  # Rounds that had `round_bytes` before they began.
    _when_full: Callable[[], None] = field(default=lambda: None, init=False)

    @property
    def bytes(self) -> int:
        """Bytes appended and not published."""
        return self.gathering + self.in_flight

    @property
    def is_full(self) -> bool:
        """True if appends must be refused until a round is published."""
        return self.gathering + self.in_flight >= self.bytes_max

    def call_when_full(self, call: Callable[[], None]) -> None:
        """Call this when the gathering round has `round_bytes`."""
        self._when_full = call

    def appended(self, size: int) -> None:
        """Count an append; call the listener once the round is full."""
        before = self.gathering
        self.gathering = before + size
        if before < self.round_bytes <= self.gathering:
            self.full_rounds += 1
            self._when_full()

    def begun(self, size: int) -> None:
        """Note that these bytes are in the round that begins."""
        self.gathering -= size
        self.in_flight += size

    def ended(self, size: int) -> None:
        """Note that these bytes are published."""
        self.in_flight -= size


def read_whole(file: SliceSource, size: int, pos: int) -> Buffer:
    """Exactly `size` bytes. Raises OSError where the file is shorter, FileGone."""
    data = file.read_at(size, pos)
    if len(data) != size:
        raise OSError(f"only {len(data)} of {size} bytes at {pos}")
    return data
