"""Remembers places of a log that could not be read in some format: asking again costs no work.

A client that polls asks for the same place forever. That costs it a microsecond, and would cost the
broker the work of opening a whole body. What is stored below an offset never changes.
"""

from __future__ import annotations

from braidlog.broker.limits import UNREADABLE_PLACES_MAX


class UnreadablePlaces:
    """The last few such places of one partition, each with the error text for its readers."""

    def __init__(self) -> None:
        """None yet."""
        self._texts: dict[tuple[int, int], str] = {}

    def add(self, offset: int, reader_format: int, text: str) -> None:
        """A read from `offset` on in that format failed with that text."""
        if len(self._texts) >= UNREADABLE_PLACES_MAX:
            del self._texts[next(iter(self._texts))]
        self._texts[offset, reader_format] = text

    def error_text(self, offset: int, reader_format: int) -> str | None:
        """The text with which a read from there would fail, None if that is not known."""
        return self._texts.get((offset, reader_format)) if self._texts else None
