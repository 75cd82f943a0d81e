"""Work on large bodies: callers learn the size first, and make room before the work begins.

A body of LARGE_BYTES_MIN or more, read or unpacked, is large. Knows no body and no file.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

LARGE_BYTES_MIN: Final = 8 << 20


class LargeBody(Exception):
    """Work in `refusing_large` would take `size` bytes of memory; nothing was taken."""

    def __init__(self, size: int) -> None:
        super().__init__(f"{size} bytes")
        self.size = size


class _OfThread(threading.local):
    """The present thread's context."""

    refuses_large = False


_of_thread = _OfThread()


@contextmanager
def refusing_large() -> Iterator[None]:
    """Return a context manager: work of this thread that would read or unpack
    LARGE_BYTES_MIN or more raises LargeBody before it takes the memory.

    So callers find out which bodies are large, and make room for these first.
    """
    before = _of_thread.refuses_large
    _of_thread.refuses_large = True
    try:
        yield
    finally:
        _of_thread.refuses_large = before


def check_large(size: int) -> None:
    """Check that this thread may take `size` bytes now. Raises LargeBody."""
    if size >= LARGE_BYTES_MIN and _of_thread.refuses_large:
        raise LargeBody(size)
