"""The byte budget for the read-ahead of all dispatchers.

A dispatcher asks how much it may read. When the budget is short, the dispatchers that have been
idle longest drop their entries and read them again later. A dispatcher may always read a little,
and waits only while the budget for all output is used up. Knows no log and no consumer.
"""

from __future__ import annotations

from typing import Final, Protocol

from braidlog.broker.runtime.output_budget import OutputBudget, OutputReservation

READ_AHEAD_BYTES_ALL: Final = 64 * 1024 * 1024  # All dispatchers together.
READ_AHEAD_BYTES_MIN: Final = 16 * 1024  # Minimum for each dispatcher when the budget is short.
# Entries that no consumer could take for this long are dropped, even if the budget is not short.
IDLE_S: Final = 1.0
# Entries used more recently are kept, because they would be read again at once.
BUSY_S: Final = 0.05


class Holder(Protocol):
    """A dispatcher."""

    def drop_ahead(self) -> None:
        """Drop the entries read ahead; none of them was delivered."""


class ReadAheadBudget:
    """The budget for read-ahead, which also counts against the budget for all output."""

    def __init__(
        self, bytes_max: int = READ_AHEAD_BYTES_ALL, output: OutputBudget | None = None
    ) -> None:
        """Take `output`, the budget for all output, or None without other output."""
        self.bytes_max = bytes_max
        self.bytes_held = 0
        self._output = output or OutputBudget()
        self._output.read_ahead.add(self)
        self._held: dict[Holder, int] = {}  # Least recently used first.
        self._used_at: dict[Holder, float] = {}

    def may_read(self, wanted: int, now: float) -> int:
        """Return how many of the wanted bytes may be read; idle holders free memory for them. `now`
        is in seconds, always of the same clock.
        """
        if self.bytes_held + wanted > self.bytes_max:
            self._reclaim(wanted, now)
        if self.bytes_held + wanted > self.bytes_max or self._output.is_short:
            return min(wanted, READ_AHEAD_BYTES_MIN)
        return wanted

    async def reserve(self, wanted: int) -> OutputReservation:
        """Reserve memory for a read of `wanted` bytes, until `hold` takes over. Wait while there is
        no memory; a small read may use the reserve for peers that read.
        """
        await self._output.wait_for_room(lambda: wanted if wanted > READ_AHEAD_BYTES_MIN else 0)
        return OutputReservation(self._output, wanted)

    def is_spent(self) -> bool:
        """Return True if `reserve` would wait."""
        return self._output.is_spent()

    def hold(self, holder: Holder, size: int, now: float) -> None:
        """Set the bytes of a holder to `size`."""
        change = size - self._held.pop(holder, 0)
        self.bytes_held += change
        self._output.charge(change)
        if size:
            self._held[holder] = size
            self._used_at[holder] = now
        else:
            self._used_at.pop(holder, None)

    def drop(self) -> None:
        """Drop all read-ahead, because memory is short."""
        for holder in list(self._held):
            self._drop(holder)

    def sweep(self, now: float) -> None:
        """Drop read-ahead that no consumer could take for a while."""
        for holder in list(self._held):
            if now - self._used_at[holder] < IDLE_S:
                return
            self._drop(holder)

    def _reclaim(self, wanted: int, now: float) -> None:
        for holder in list(self._held):
            is_busy = now - self._used_at[holder] < BUSY_S
            if is_busy or self.bytes_held + wanted <= self.bytes_max:
                return
            self._drop(holder)

    def _drop(self, holder: Holder) -> None:
        self.hold(holder, 0, 0.0)
        holder.drop_ahead()
