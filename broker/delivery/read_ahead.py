"""How much all dispatchers together may have read ahead: one budget of bytes.

A dispatcher asks how much it may read; when the budget is short, the dispatchers that have
delivered nothing for the longest time drop what they hold, and read it again later. A dispatcher
may always read a little; it waits only while the budget for all output is used. Knows no log and no
consumer.
"""

from __future__ import annotations

from typing import Final, Protocol

from braidlog.broker.runtime.output_budget import OutputBudget, Reservation

READ_AHEAD_BYTES_ALL: Final = 64 * 1024 * 1024  # Of all dispatchers.
READ_AHEAD_BYTES_MIN: Final = 16 * 1024  # What each may read when the budget is short.
# What nobody could take for this long is dropped, whether or not the budget is short.
IDLE_S: Final = 1.0
BUSY_S: Final = 0.05  # What was used more recently is kept: it would be read again at once.


class Holder(Protocol):
    """A dispatcher."""

    def drop_ahead(self) -> None:
        """Forget what is read ahead; nothing of it was given out."""


class ReadAhead:
    """The budget for read-ahead, which counts against the budget for all output, too."""

    def __init__(
        self, bytes_max: int = READ_AHEAD_BYTES_ALL, output: OutputBudget | None = None
    ) -> None:
        """`output` is the budget for all output; None where there is no other output."""
        self.bytes_max = bytes_max
        self.bytes_held = 0
        self._output = output or OutputBudget()
        self._output.read_ahead.add(self)
        self._held: dict[Holder, int] = {}  # Least recently used first.
        self._used_at: dict[Holder, float] = {}

    def may_read(self, wanted: int, now: float) -> int:
        """How many of the bytes wanted may be read; idle holders make room for them. `now` is in
        seconds, always of the same clock.
        """
        if self.bytes_held + wanted > self.bytes_max:
            self._reclaim(wanted, now)
        if self.bytes_held + wanted > self.bytes_max or self._output.is_short:
            return min(wanted, READ_AHEAD_BYTES_MIN)
        return wanted

    async def reserve(self, wanted: int) -> Reservation:
        """Memory for a read of so many bytes, until what was read is held. Waits while there is
        none; a small read may use what is kept for peers that read.
        """
        await self._output.some_free(lambda: wanted if wanted > READ_AHEAD_BYTES_MIN else 0)
        return Reservation(self._output, wanted)

    def is_spent(self) -> bool:
        """Whether `reserve` would wait."""
        return self._output.is_spent()

    def hold(self, holder: Holder, size: int, now: float) -> None:
        """The holder has `size` bytes now, instead of what it had."""
        change = size - self._held.pop(holder, 0)
        self.bytes_held += change
        self._output.charge(change)
        if size:
            self._held[holder] = size
            self._used_at[holder] = now
        else:
            self._used_at.pop(holder, None)

    def drop(self) -> None:
        """Drop everything: memory is short."""
        for holder in list(self._held):
            self._drop(holder)

    def sweep(self, now: float) -> None:
        """Drop what nobody could use for a while."""
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
