"""Free memory in the middle of the heap returns to the kernel."""

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

from braidlog.broker.runtime import heap
from braidlog.broker.runtime.heap import (
    ARENAS_MAX,
    GROWN_BYTES,
    TRIM_S,
    resident_bytes,
    trim_heap,
)
from braidlog.storage.log.read_buffers import BUFFER_BYTES, ReadBuffers
from tests.waiting import until


def test_the_process_knows_its_memory() -> None:
    assert resident_bytes() > 1 << 20


def test_unknown_memory_is_none(tmp_path: Path) -> None:
    assert resident_bytes(tmp_path / "gone") == 0


async def test_a_grown_broker_returns_free_memory(
    autojump_clock, nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only after growth: an idle broker has nothing to return."""
    sizes = [0, GROWN_BYTES - 1, GROWN_BYTES, 10 * GROWN_BYTES]
    buffers = ReadBuffers()
    buffers.take(BUFFER_BYTES)[:4] = b"read"
    trimmed = []

    class Library:
        def malloc_trim(self, pad: int) -> int:
            trimmed.append(pad)
            return 1

    monkeypatch.setattr(heap, "resident_bytes", lambda: sizes.pop(0) if sizes else 0)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Library())
    nursery.start_soon(trim_heap)
    await until(lambda: len(trimmed) == 2, step_s=TRIM_S)
    assert trimmed == [0, 0]
    assert bytes(buffers.take(BUFFER_BYTES)[:4]) == bytes(4)
    assert autojump_clock.current_time() >= 3 * TRIM_S


async def test_other_c_libraries_return_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    await trim_heap()


NO_GLIBC = 77
MANY_THREADS = """
import ctypes, sys, threading
from braidlog.broker.runtime.heap import bound_heap
libc = ctypes.CDLL(None)
if not hasattr(libc, "mallopt"):
    sys.exit(77)
libc.malloc.restype = ctypes.c_void_p
bound_heap()
ready = threading.Barrier(17)
def allocate():
    for size in range(16, 4096, 16):
        libc.malloc(size)
    ready.wait()
    ready.wait()
for _ in range(16):
    threading.Thread(target=allocate).start()
ready.wait()
libc.malloc_info.argtypes = [ctypes.c_int, ctypes.c_void_p]
libc.fdopen.restype = ctypes.c_void_p
stream = libc.fdopen(1, b"w")
libc.malloc_info(0, stream)
libc.fflush(ctypes.c_void_p(stream))
ready.wait()
"""


def test_threads_share_a_few_heaps() -> None:
    run = subprocess.run([sys.executable, "-c", MANY_THREADS], capture_output=True, text=True)
    if run.returncode == NO_GLIBC:
        pytest.skip("the C library is not glibc")
    assert run.returncode == 0, run.stderr
    assert 1 <= run.stdout.count("<heap nr=") <= ARENAS_MAX
