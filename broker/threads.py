"""Work in a thread, of which an error leaves no circle behind.

An error that comes out of `trio.to_thread.run_sync` holds its own outcome (trio 0.35,
`trio/_threads.py`: the frames in its traceback do), so that all that the waiting frames hold stays
until a search for garbage finds it. What had been left out of the searches before
(`broker/server/garbage.py`) would stay for ever: a connection with its memory, for each message set
that cannot be unpacked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

import trio

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


async def run_in_thread(
    work: Callable[[*Ts], T],
    *arguments: *Ts,
    limiter: trio.CapacityLimiter | None = None,
    abandon_on_cancel: bool = False,
) -> T:
    """What the work returns; as `trio.to_thread.run_sync`. Raises what it raises."""
    done: list[T] = []
    failed: list[Exception] = []

    def attempt() -> None:
        try:
            done.append(work(*arguments))
        except Exception as error:  # Raised again below. Returned, frames below would hold it.
            failed.append(error)

    await trio.to_thread.run_sync(attempt, limiter=limiter, abandon_on_cancel=abandon_on_cancel)
    if done:
        return done[0]
    error = failed.pop()
    try:
        raise error
    finally:
        del error  # Its traceback holds this frame.
