"""Delivery rates of a consumer, for monitoring. Knows no protocol."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from braidlog.broker.delivery.consumer import Consumer

WINDOW_US: Final = 10_000_000  # Snapshots of the counts are at least this far apart.


@dataclass(slots=True, frozen=True)
class Rates:
    """Averages per second: messages and bytes sent, messages redelivered and acknowledged."""

    messages_out: float = 0.0
    bytes_out: float = 0.0
    redelivered: float = 0.0
    acked: float = 0.0


class RateMeter:
    """Rates of a consumer, averaged since the second-to-last snapshot of its counts."""

    def __init__(self, began_us: int) -> None:
        self._older = self._newer = (began_us, (0, 0, 0, 0))

    def look(self, consumer: Consumer, now_us: int) -> Rates:
        """Return the rates now; times in microseconds."""
        counts = (
            consumer.messages_out,
            consumer.bytes_out,
            consumer.messages_redelivered,
            consumer.messages_acked,
        )
        since_us, before = self._older
        if now_us - self._newer[0] >= WINDOW_US:
            self._older, self._newer = self._newer, (now_us, counts)
        seconds = (now_us - since_us) / 1_000_000
        if seconds <= 0:
            return Rates()
        return Rates(*((now - then) / seconds for now, then in zip(counts, before, strict=True)))
