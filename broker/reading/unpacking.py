"""Runs the reading, unpacking and packing of bodies in threads, for any caller.

A small body may unpack to 64 MiB, a stored body have 100 MiB. Large bodies and records share a
single thread, in order of arrival; a few threads unpack small bodies. This bounds the memory that
all clients together can make the broker take, and no small body waits for a large body. Knows no
format and no partition.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple, TypeVar

import trio

from braidlog.broker.limits import LARGE_THREADS_MAX, UNPACKING_THREADS_MAX
from braidlog.broker.runtime.heap import return_free_memory
from braidlog.broker.runtime.threads import run_in_thread
from braidlog.storage.large import LARGE_BYTES_MIN, LargeBody, refusing_large

T = TypeVar("T")


class _Limiters(NamedTuple):
    """Limits of the threads that work at the same time."""

    small: trio.CapacityLimiter
    large: trio.CapacityLimiter


_limiters: trio.lowlevel.RunVar[_Limiters] = trio.lowlevel.RunVar("unpacking")


async def run_unpacking(
    work: Callable[[], T], *, before_large: Callable[[int], Awaitable[None]] | None = None
) -> T:
    """Run `work` in a thread as soon as a thread is free, in order of arrival.

    Work that would unpack or read LARGE_BYTES_MIN or more ends before taking that memory, and
    begins again in the thread for large bodies, after `before_large` with the number of bytes.

    Raises the errors of `work`.
    """
    return await _run_sized(work, unpacking_limiter(), before_large)


async def run_reading(
    work: Callable[[], T], *, before_large: Callable[[int], Awaitable[None]] | None = None
) -> T:
    """Run a read of the disk in a thread as `run_unpacking` does, beside any number of other reads
    that are not large.
    """
    return await _run_sized(work, None, before_large)


async def _run_sized(
    work: Callable[[], T],
    limiter: trio.CapacityLimiter | None,
    before_large: Callable[[int], Awaitable[None]] | None,
) -> T:

    def unless_large() -> T:
        with refusing_large():
            return work()

    try:
        return await run_in_thread(unless_large, limiter=limiter)
    except LargeBody as refused:
        size = refused.size
    if before_large is not None:
        await before_large(size)
    return await _run_large(work)


async def run_packing(work: Callable[[], T], size: int) -> T:
    """Run `work` on records of `size` bytes in a thread; large records use the large-body thread.

    Raises the errors of `work`.
    """
    if size >= LARGE_BYTES_MIN:
        return await _run_large(work)
    return await run_in_thread(work, limiter=unpacking_limiter())


async def _run_large(work: Callable[[], T]) -> T:
    return await run_in_thread(partial(_with_free_memory, work), limiter=large_limiter())


def _with_free_memory(work: Callable[[], T]) -> T:
    """Run work that takes the most memory of all; free memory is returned before."""
    return_free_memory()
    return work()


def unpacking_limiter() -> trio.CapacityLimiter:
    """Return the limiter of threads that unpack small bodies; each run of the loop has its own."""
    return _both().small


def large_limiter() -> trio.CapacityLimiter:
    """Return the limiter of threads for large bodies and records; each run of the loop
    has its own.
    """
    return _both().large


def _both() -> _Limiters:
    try:
        return _limiters.get()
    except LookupError:
        limiters = _Limiters(
            trio.CapacityLimiter(UNPACKING_THREADS_MAX), trio.CapacityLimiter(LARGE_THREADS_MAX)
        )
        _limiters.set(limiters)
        return limiters
