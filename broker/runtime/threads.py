"""Runs work in a thread so that errors leave no reference cycle behind.

An error raised by `trio.to_thread.run_sync` refers to itself through the frames of its traceback
(trio 0.35, `trio/_threads.py`), so all objects of the waiting frames stay until the next garbage
collection. Objects that were frozen out of collection (`broker/runtime/garbage.py`) would stay for
ever: a connection with its memory, for each message set that cannot be unpacked.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TypeVar, TypeVarTuple

import trio

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


# Modules that `import_in_thread` has imported. `sys.modules` holds a module as soon as its import
# begins: an import in the loop would then wait for the importing thread.
_imported: set[str] = set()


def is_imported(name: str) -> bool:
    """Return True if `import_in_thread` has imported the module to its end."""
    return name in _imported


async def import_in_thread(name: str) -> None:
    """Import a module without blocking the loop, once: for modules that few brokers need, and that
    take tens of milliseconds. Callers at the same time wait for the same import.
    """
    if name not in _imported:
        await run_in_thread(import_module, name)
        _imported.add(name)


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
