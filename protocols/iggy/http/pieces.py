"""Makes large answers in pieces, of which a turn of the event loop makes a single one.

Other clients wait for a piece, however many clients ask for large answers. Knows no route.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import trio

# JSON made in a turn, and sent at once: a fraction of a millisecond. A piece may be larger by a
# part: a record, or the part of a message.
PIECE_BYTES: Final = 64 * 1024


class AnswerTurns:
    """The turns of all answers of a listener, in the order of arrival."""

    def __init__(self, piece_bytes: int = PIECE_BYTES) -> None:
        self._piece_bytes = piece_bytes
        # An answer that makes a piece has the lock since the turn before. So a turn makes one
        # piece, beside the first pieces of answers.
        self._turn = trio.StrictFIFOLock()

    async def wait(self) -> None:
        """Wait for the turn of work that takes as long as a piece: the read of a poll."""
        async with self._turn:
            pass  # The lock is the turn itself; the work follows in the next.

    async def joined(self, parts: Iterable[bytes]) -> list[bytes]:
        """Return the parts of an answer, joined to pieces."""
        pieces = gathered(parts, self._piece_bytes)
        answer = [next(pieces, b"")]
        while True:
            async with self._turn:
                piece = next(pieces, None)
            if piece is None:
                return answer
            answer.append(piece)


def gathered(parts: Iterable[bytes], piece_bytes: int) -> Iterator[bytes]:
    """Yield pieces of at least that size, but for the last."""
    piece: list[bytes] = []
    size = 0
    for part in parts:
        piece.append(part)
        size += len(part)
        if size >= piece_bytes:
            yield b"".join(piece)
            piece, size = [], 0
    if piece:
        yield b"".join(piece)
