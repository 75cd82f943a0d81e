"""Remembers unreadable places of a log per format, so that a repeated read costs no work.

A polling client asks for the same place forever. A request costs the client a microsecond, but
would cost the broker the opening of a whole body. Records below an offset never change.
"""

from __future__ import annotations

from braidlog.broker.limits import UNREADABLE_PLACES_MAX


class UnreadablePlaces:
    """The latest unreadable places of a partition, each with the error text for its readers."""

    def __init__(self) -> None:
        """Begin with no places."""
        self._texts: dict[tuple[int, int], str] = {}

    def add(self, offset: int, reader_format: int, text: str) -> None:
        """Remember that a read from `offset` in that format failed with that text."""
        if len(self._texts) >= UNREADABLE_PLACES_MAX:
            del self._texts[next(iter(self._texts))]
        self._texts[offset, reader_format] = text

    def error_text(self, offset: int, reader_format: int) -> str | None:
        """Return the error text of a read from this offset, None if unknown."""
        return self._texts.get((offset, reader_format)) if self._texts else None
