"""Runs work in a thread so that errors leave no reference cycle behind.

An error raised by `trio.to_thread.run_sync` refers to itself through the frames of its traceback
(trio 0.35, `trio/_threads.py`), so all objects of the waiting frames stay until the next garbage
collection. Objects that were frozen out of collection (`broker/runtime/garbage.py`) would stay for
ever: a connection with its memory, for each message set that cannot be unpacked.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import TypeVar, TypeVarTuple

import trio

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


async def import_in_thread(name: str) -> None:
    """Import a module without blocking the loop, once: for modules that few brokers need, and that
    take tens of milliseconds.
    """
    if name not in sys.modules:
        await run_in_thread(import_module, name)


async def run_in_thread(
    work: Callable[[*Ts], T],
    *arguments: *Ts,
    limiter: trio.CapacityLimiter | None = None,
    abandon_on_cancel: bool = False,
) -> T:
    """Run `work` as `trio.to_thread.run_sync` does; return its result or raise its error."""
    done: list[T] = []
    failed: list[Exception] = []

    def attempt() -> None:
        try:
            done.append(work(*arguments))
        # Raised again below. A returned error would be held by frames there.
        except Exception as error:
            failed.append(error)

    await trio.to_thread.run_sync(attempt, limiter=limiter, abandon_on_cancel=abandon_on_cancel)
    if done:
        return done[0]
    error = failed.pop()
    try:
        raise error
    finally:
        del error  # The traceback holds this frame.
