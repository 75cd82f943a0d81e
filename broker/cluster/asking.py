"""Has the owner of the catalogue make changes for a client of this broker.

Knows no topic and no socket: callers say when a change is in the catalogue, and `Ask` carries it to
the owner (`broker/cluster/calls.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from braidlog.broker.errors import Conflict, NotOwner, Unanswered

# For a change that lost to another one: each time this broker has followed the other change first.
TRIES: Final = 4


class Ask(Protocol):
    """Has the owner of the catalogue make a change, and returns once it is published and followed
    here. Raises the broker error that it raised; NotOwner where nobody owns it now; Unanswered.
    """

    async def __call__(self, change: str, *arguments: object) -> None:
        """`change` is a name that `carry_out` knows; arguments are what msgpack carries, the first
        is the place in the catalogue that the change is based on.
        """


def _nothing() -> None:
    pass


class Asking:
    """Asks for changes: at most one of the requests for a change is carried out."""

    def __init__(
        self, ask: Ask, follow: Callable[[], Awaitable[None]], place: Callable[[], int]
    ) -> None:
        """`follow` follows the catalogue as far as it has come, and raises NotOwner if the owner
        does not answer; `place` is how far it was followed.
        """
        self._ask = ask
        self._follow = follow
        self._place = place

    async def __call__(
        self,
        change: str,
        *arguments: object,
        is_made: Callable[[], bool],
        check: Callable[[], None] = _nothing,
    ) -> None:
        """Have a change made, which is followed on return.

        The owner refuses what is based on an older place than the last change of the same topic or
        namespace: this broker has followed that change when it asks again. `check` is called before
        each request and may raise. If an answer is lost, `is_made` says whether the catalogue has
        the change. Raises what `Ask` and `check` raise; Unanswered if the change may still be made.
        """
        for tries_left in reversed(range(TRIES)):
            check()
            try:
                await self._ask(change, self._place(), *arguments)
                return
            except Conflict:
                if not tries_left:
                    raise
            except Unanswered:
                if await self._is_in_the_catalogue(is_made):
                    return
                raise

    async def _is_in_the_catalogue(self, is_made: Callable[[], bool]) -> bool:
        try:
            await self._follow()
        except NotOwner:
            return False  # Nobody knows.
        return is_made()
