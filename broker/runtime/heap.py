"""Keeps small the memory that the C library holds although it is free. Does nothing where that
library is not glibc.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Final

import trio

from braidlog.broker.limits import KIB, MIB
from braidlog.broker.runtime.threads import run_in_thread

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # Their numbers in glibc's malloc.h.
# glibc begins with 128 KiB for both. Reads of the log and answers are pieces of some 100 to
# 500 KiB, and the kernel would clear each new piece: that took a seventh of the processor time
# when Kafka clients read Pulsar's batches.
MMAP_THRESHOLD_BYTES, TRIM_THRESHOLD_BYTES = 512 * KIB, 1024 * KIB

# A burst of large requests leaves a heap full of holes. A page needed again costs a page fault.
TRIM_S: Final = 15.0
# A broker that has grown by less has nothing to give back.
GROWN_BYTES: Final = 24 * MIB

STATM = Path("/proc/self/statm")


def bound_heap() -> None:
    """Have large pieces of memory go back to the kernel as soon as they are free.

    glibc raises its own bound with each large piece that is freed, up to 32 MiB: then a burst of
    answers leaves a heap full of holes, which stays (mallopt(3), M_MMAP_THRESHOLD).
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES)
        libc.mallopt(M_TRIM_THRESHOLD, TRIM_THRESHOLD_BYTES)


async def trim_heap() -> None:
    """Give the pages of all holes back every TRIM_S, in a thread, while the process is GROWN_BYTES
    larger than at first (malloc_trim(3)). Until cancelled.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    begun_with = resident_bytes()
    while trim is not None:
        await trio.sleep(TRIM_S)
        if resident_bytes() - begun_with >= GROWN_BYTES:
            await run_in_thread(trim, 0)


def resident_bytes() -> int:
    """Memory of this process that is in RAM; 0 if the system does not tell."""
    try:
        return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
