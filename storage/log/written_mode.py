"""Durability `written` of a log: keeps the reservation ahead of the log end, and lowers it again.

`reservation.py` has the rules of the reservation. Owner's thread, but for `reserve_ahead`.
"""

from contextlib import suppress

from braidlog.storage.errors import StorageFull
from braidlog.storage.log.extent import Extent
from braidlog.storage.log.reservation import RESERVE_OFFSETS, OffsetReservation
from braidlog.storage.log.unsynced import Unsynced


class WrittenMode:
    """The reservation of a log, in and after `written` mode."""

    __slots__ = ("_pending_limit", "_reservation", "_slots_to_lower", "_unsynced")

    def __init__(self, reservation: OffsetReservation, unsynced: Unsynced) -> None:
        self._reservation = reservation
        self._unsynced = unsynced
        self._pending_limit: int | None = None  # Reserved once the round under way is durable.
        self._slots_to_lower = 0  # Since `written` mode was left.

    @property
    def reserved_offset(self) -> int:
        """End of the reservation; 0 without a reservation."""
        return self._reservation.limit

    @property
    def is_used(self) -> bool:
        """True if there is, or was, a reservation."""
        return self._reservation.is_used

    def reserve(self, next_offset: int) -> None:
        """Reserve at least up to there; wait for the disk if need be. Raises StorageFull,
        StorageFailed.
        """
        if next_offset > self._reservation.limit:
            self._reservation.reserve_now(next_offset)

    def reserve_ahead(self, end_offset: int) -> None:
        """Reserve ahead of the log end; for any thread, after `keep`. Waits for the disk. Raises
        StorageFull, StorageFailed, FileGone.
        """
        self._reservation.reserve_now(end_offset)

    def keep(self) -> None:
        """Do not lower the reservation any more."""
        self._slots_to_lower = 0

    def enter(self, end_offset: int) -> None:
        """Begin `written` mode: reserve, unless enough is reserved. May wait for the disk. Raises
        StorageFull, StorageFailed.
        """
        self.keep()
        if self._reservation.limit < end_offset + RESERVE_OFFSETS // 2:
            self._reservation.reserve_now(end_offset)

    def leave(self) -> None:
        """End `written` mode: the reservation is returned once all shown records are durable."""
        self._pending_limit = None
        self._slots_to_lower = 2

    def begin_round(self, end_offset: int) -> None:
        """Extend the reservation with the round that begins, if it is due."""
        with suppress(StorageFull):  # Appends go on up to the limit and are refused there.
            extended = self._reservation.extend(end_offset)
            if extended is not None:
                self._unsynced.hold(extended[0])
                self._pending_limit = extended[1]

    def finish_round(self, extent: Extent) -> bool:
        """Use the offsets that the round has reserved, or lower the reservation. Return True if a
        later round must follow. Raises StorageFailed.
        """
        is_unfinished = False
        if self._slots_to_lower and extent.durable_offset >= extent.high_watermark:
            is_unfinished = self._lower(extent.durable_offset)
        if self._pending_limit is not None:
            with suppress(StorageFull):  # A later round tries again.
                self._reservation.confirm(self._pending_limit)
                self._pending_limit = None
        return is_unfinished

    def _lower(self, durable_offset: int) -> bool:
        """Write into a slot that nothing above the durable offset was given out, and into the other
        slot after the next round: a write torn by a power cut then harms a single slot at most.
        Return True if that round is needed.
        """
        with suppress(StorageFull):  # The slot stays unchanged: a start after a crash leaves a gap.
            file = self._reservation.lower(durable_offset)
            self._slots_to_lower -= 1
            if self._slots_to_lower and file is not None:
                self._unsynced.hold(file)
                return True
        return False

    def release_unused(self, durable_offset: int) -> None:
        """Return the reservation at a clean stop. Waits for the disk. Raises StorageFull,
        StorageFailed.
        """
        self._reservation.release_unused(durable_offset)

    def close(self) -> None:
        """Close the file."""
        self._reservation.close()
