"""The polls that wait for messages (W): counted by connection and in all, and cancelled by their
numbers. Knows no command.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import trio

from braidlog.protocols.iggy.errors import ErrorCode, Refusal

POLLS_MAX: Final = 256  # Of a connection; a client has one for each partition.
# Of all connections: a waiting poll takes 8 KB. Beyond, a connection may have only a few.
ALL_POLLS_MAX: Final = 2_048
POLLS_MIN: Final = 8


class PollCount:
    """The number of waiting polls of all connections."""

    def __init__(self, polls_max: int = ALL_POLLS_MAX) -> None:
        self.polls_max = polls_max
        self.count = 0

    def add(self, change: int) -> None:
        """Count more polls, or fewer."""
        self.count += change

    @property
    def own_max(self) -> int:
        """The largest number of polls that a connection may have now."""
        return POLLS_MAX if self.count < self.polls_max else POLLS_MIN


class DeferredPolls:
    """The waiting polls of a connection, by their request numbers."""

    def __init__(self, in_all: PollCount) -> None:
        self._in_all = in_all
        self._scopes: dict[int, trio.CancelScope] = {}

    def add(self, number: int) -> None:
        """Add a poll, which can be cancelled from now on. Raises Refusal."""
        if len(self._scopes) >= self._in_all.own_max or number in self._scopes:
            raise Refusal(
                ErrorCode.DEFERRED_POLLS_LIMIT_REACHED, f"{len(self._scopes)} polls wait already"
            )
        self._scopes[number] = trio.CancelScope()
        self._in_all.add(1)

    @contextmanager
    def waiting(self, number: int) -> Iterator[None]:
        """Let the poll of that number, added before, be cancelled within the block."""
        try:
            with self._scopes[number]:
                yield
        finally:
            del self._scopes[number]
            self._in_all.add(-1)

    def cancel(self, number: int) -> None:
        """Cancel a poll, which then has no answer; no effect if the poll is answered already."""
        scope = self._scopes.get(number)
        if scope is not None:
            scope.cancel()
