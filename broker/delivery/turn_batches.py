"""Entries to send to each consumer at the end of a turn of the pump. Knows no kind of
subscription.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from braidlog.broker.delivery.consumer import Consumer
    from braidlog.broker.reading.entries import Entry


class TurnBatches:
    """Entries to send to each consumer at the end of a turn."""

    def __init__(self, entries_max: int) -> None:
        """`entries_max`: entries that a consumer takes before the next consumer has its turn."""
        self.current: Consumer | None = None  # The consumer that has its turn.
        self._entries_max = entries_max
        self._left = 0
        self._takes_more: dict[Consumer, bool] = {}
        self._entries: dict[Consumer, list[Entry]] = {}

    @property
    def is_full(self) -> bool:
        """True if the current consumer has used its turn."""
        return self._left <= 0

    def begin(self, consumer: Consumer | None) -> None:
        """Begin the turn of this consumer."""
        self.current = consumer
        self._left = self._entries_max

    def takes_more(self, consumer: Consumer) -> bool:
        """Return True if the consumer's connection had room at the beginning of the turn."""
        takes = self._takes_more.get(consumer)
        if takes is None:
            takes = self._takes_more[consumer] = consumer.takes_more()
        return takes

    def add(self, consumer: Consumer, entry: Entry) -> None:
        """Queue an entry for the consumer."""
        self._entries.setdefault(consumer, []).append(entry)
        self._left -= 1

    def send(self, now_us: int) -> None:
        """Send everything."""
        for consumer, entries in self._entries.items():
            consumer.handed(len(entries), now_us)
            consumer.send(entries, sum([len(entry.body) for entry in entries]))
