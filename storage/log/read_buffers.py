"""Memory for large reads, used again as soon as nobody looks at it any more.

Fresh memory for each read costs more than the read: the kernel has to clear and map every page of
it. Knows no file.
"""

import sys
import threading

# What a fetch, a poll or a dispatcher reads at once, with what is read beyond it.
BUFFER_BYTES = 1088 * 1024
# Smaller reads get memory that the allocator has at hand.
POOLED_BYTES_MIN = 64 * 1024
# Buffers kept: those whose readers are slow are replaced, and given up with their readers.
BUFFERS_MAX = 8

# References to a buffer that nobody uses: the list's, the loop's, and the question's own.
UNUSED_REFERENCES = 3


class ReadBuffers:
    """Lends memory without being given it back: a view keeps a reference to what it shows."""

    def __init__(self) -> None:
        self._kept: list[bytearray] = []
        self._lock = threading.Lock()

    def take(self, size: int) -> memoryview:
        """Writable memory of that size; its content is arbitrary. Safe in several threads."""
        if not POOLED_BYTES_MIN <= size <= BUFFER_BYTES:
            return memoryview(bytearray(size))
        with self._lock:
            for buffer in self._kept:
                if sys.getrefcount(buffer) == UNUSED_REFERENCES:
                    return memoryview(buffer)[:size]
            buffer = bytearray(BUFFER_BYTES)
            self._kept.append(buffer)
            if len(self._kept) > BUFFERS_MAX:
                del self._kept[0]
            return memoryview(buffer)[:size]
