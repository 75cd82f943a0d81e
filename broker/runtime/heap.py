"""Limits the free memory that the C library keeps. Does nothing if that library is not glibc."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import trio

from braidlog.broker.limits import KIB, MIB
from braidlog.broker.runtime.threads import run_in_thread
from braidlog.storage.log.read_buffers import drop_free_buffers

# The numbers in glibc's malloc.h, the last as M_ARENA_MAX.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENAS = -1, -3, -8
# glibc gives each new thread a heap of its own, an arena with 64 MiB of address space, up to eight
# for each core: worker threads that run together would fill a limited address space, and their free
# memory stays apart. Python's lock lets few threads allocate at the same time.
ARENAS_MAX: Final = 2
# glibc's default is 128 KiB for both. Reads of the log and answers are pieces of some 100 to 500
# KiB, and the kernel would clear each new piece: that took a seventh of the processor time when
# Kafka clients read Pulsar's batches.
MMAP_THRESHOLD_BYTES, TRIM_THRESHOLD_BYTES = 512 * KIB, 1024 * KIB

# A burst of large requests leaves a heap full of holes. A returned page that is needed again costs
# a page fault.
TRIM_S: Final = 15.0
# A broker that has grown by less has nothing to return.
GROWN_BYTES: Final = 24 * MIB

STATM = Path("/proc/self/statm")


def bound_heap() -> None:
    """Return large pieces of memory to the kernel as soon as they are free, and let threads share
    heaps. Call before the first thread starts.

    glibc raises its threshold with each freed large piece, up to 32 MiB: then a burst of answers
    leaves a lasting heap full of holes (mallopt(3), M_MMAP_THRESHOLD).
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES)
        libc.mallopt(M_TRIM_THRESHOLD, TRIM_THRESHOLD_BYTES)
        libc.mallopt(M_ARENAS, ARENAS_MAX)


async def trim_heap() -> None:
    """Return free memory every TRIM_S, in a thread, while the process is GROWN_BYTES larger than at
    the start. Runs until cancelled.
    """
    begun_with = resident_bytes()
    while _trim() is not None:
        await trio.sleep(TRIM_S)
        if resident_bytes() - begun_with >= GROWN_BYTES:
            await run_in_thread(return_free_memory)


def return_free_memory() -> None:
    """Free the buffers of past reads, and return the pages of all holes to the kernel
    (malloc_trim(3)). Takes 2 to 8 ms while the heap has 15 to 45 MB of holes: call it in a thread.
    """
    drop_free_buffers()
    trim = _trim()
    if trim is not None:
        trim(0)


def _trim() -> Callable[[int], int] | None:
    """Return the C library's function; None if the library is not glibc."""
    return getattr(ctypes.CDLL(None), "malloc_trim", None)


def resident_bytes(statm: Path = STATM) -> int:
    """Return the resident memory of this process in bytes; 0 if the system has no figure."""
    try:
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
