"""Memory for large reads, reused as soon as no view of it is left.

Fresh memory costs more than the read, because the kernel must clear and map every page. Knows no
file.
"""

import threading
import weakref
from typing import Final

# Size of a fetch, poll or dispatcher read plus the bytes read beyond: a fetch of a megabyte ends
# inside a Kafka client's set of 128 KiB.
BUFFER_BYTES = 1280 * 1024
# Smaller reads use memory that the allocator has at hand.
POOLED_BYTES_MIN = 64 * 1024
# Buffers kept. The buffers of slow readers are replaced and freed with their readers.
BUFFERS_MAX = 8
# The same for larger reads: a poll of a thousand messages of 4 KB. Few, because each may hold as
# much memory as the largest of its reads.
LARGE_BYTES = 4096 * 1024
LARGE_BUFFERS_MAX = 2


class ReadBuffers:
    """Lends memory. The view is the lease, which ends with the last view, slice or other export.

    Guarantees that no memory is lent while any thread can still see it, in every Python version:
    the interpreter itself counts the exports of a buffer (see `is_lent`).
    """

    def __init__(self) -> None:
        self._buffers: list[bytearray] = []
        self._large_buffers: list[bytearray] = []
        self._lock = threading.Lock()
        _ALL.add(self)

    def drop_free(self) -> None:
        """Free the buffers that nobody sees: the next reads map fresh memory. Safe in several
        threads.
        """
        with self._lock:
            for buffers in (self._buffers, self._large_buffers):
                buffers[:] = filter(is_lent, buffers)

    def take(self, size: int) -> memoryview:
        """Return writable memory of that size with arbitrary content. Safe in several threads."""
        if not POOLED_BYTES_MIN <= size <= LARGE_BYTES:
            return memoryview(bytearray(size))
        buffers, buffer_bytes, buffers_max = self._buffers, BUFFER_BYTES, BUFFERS_MAX
        if size > BUFFER_BYTES:
            buffers, buffer_bytes, buffers_max = self._large_buffers, LARGE_BYTES, LARGE_BUFFERS_MAX
        with self._lock:
            for buffer in buffers:
                if not is_lent(buffer):
                    return memoryview(buffer)[:size]
            buffer = bytearray(buffer_bytes)
            buffers.append(buffer)
            if len(buffers) > buffers_max:
                del buffers[0]
            return memoryview(buffer)[:size]


_ALL: Final[weakref.WeakSet[ReadBuffers]] = weakref.WeakSet()


def drop_free_buffers() -> None:
    """Free the unused buffers of the whole process, up to 18 MiB of each `ReadBuffers`. Safe in
    several threads.
    """
    for buffers in tuple(_ALL):
        buffers.drop_free()


def is_lent(buffer: bytearray) -> bool:
    """Return True while a view of the buffer is left.

    A bytearray must not move while it is exported, so a bytearray with exports refuses to change
    size (the buffer protocol, "Py_buffer"; BufferError in the documentation of bytearray).
    Reference counts are no measure: Python 3.14 borrows some references. Removing a byte and
    putting it back copies nothing.
    """
    try:
        buffer.append(buffer.pop())
    except BufferError:
        return True
    return False
