"""Memory for large reads, used again as soon as no view of it is left.

Fresh memory for each read costs more than the read: the kernel has to clear and map every page of
it. Knows no file.
"""

import threading

# What a fetch, a poll or a dispatcher reads at once, plus what is read beyond it: a fetch of a
# megabyte ends inside a Kafka client's set of 128 KiB.
BUFFER_BYTES = 1280 * 1024
# Smaller reads get memory that the allocator has at hand.
POOLED_BYTES_MIN = 64 * 1024
# Buffers kept: those whose readers are slow are replaced, and freed with their readers.
BUFFERS_MAX = 8


class ReadBuffers:
    """Lends memory. The view is the lease: it ends with the last view, slice or other export of it.

    Guarantees that no memory is lent while anybody can still see it, in any thread and under any
    Python: the interpreter itself counts who has a buffer exported (see `is_lent`).
    """

    def __init__(self) -> None:
        self._kept: list[bytearray] = []
        self._lock = threading.Lock()

    def take(self, size: int) -> memoryview:
        """Writable memory of that size; its content is arbitrary. Safe in several threads."""
        if not POOLED_BYTES_MIN <= size <= BUFFER_BYTES:
            return memoryview(bytearray(size))
        with self._lock:
            for buffer in self._kept:
                if not is_lent(buffer):
                    return memoryview(buffer)[:size]
            buffer = bytearray(BUFFER_BYTES)
            self._kept.append(buffer)
            if len(self._kept) > BUFFERS_MAX:
                del self._kept[0]
            return memoryview(buffer)[:size]


def is_lent(buffer: bytearray) -> bool:
    """Whether a view of the buffer is left.

    A bytearray must not move while it is exported, so it refuses to change its size then (the
    buffer protocol, "Py_buffer"; BufferError in the documentation of bytearray). References are no
    measure: Python 3.14 borrows some of them. Taking one byte off and putting it back copies
    nothing.
    """
    try:
        buffer.append(buffer.pop())
    except BufferError:
        return True
    return False
