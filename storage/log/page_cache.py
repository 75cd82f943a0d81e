"""Which bytes of a file are in memory: cachestat(2), Linux 6.5. Knows no file of the log."""

import ctypes
import errno
import mmap
import os
import platform
import struct
import threading

CACHESTAT = 451  # The same number on every machine of `MACHINES`.
MACHINES = ("x86_64", "aarch64")
RANGE = struct.Struct("=QQ")  # offset, length
FOUND = struct.Struct("=QQQQQ")  # pages: in memory, dirty, in write-back, evicted, evicted lately


class PageCache:
    """Asks the kernel. Safe in several threads; waits for nothing."""

    def __init__(self) -> None:
        """Asks nothing yet."""
        self._call = ctypes.PyDLL(None, use_errno=True).syscall
        self._call.restype = ctypes.c_long
        self._range = ctypes.create_string_buffer(RANGE.size)
        self._result = ctypes.create_string_buffer(FOUND.size)
        self._is_known = platform.machine() in MACHINES
        self._lock = threading.Lock()

    def holds(self, fd: int, pos: int, size: int) -> bool:
        """Return True if all pages of these bytes are in memory now. Raises OSError if that is
        unknown.
        """
        if not self._is_known:
            raise OSError(errno.ENOSYS, "no cachestat known on this machine")
        pages = (pos + size - 1) // mmap.PAGESIZE - pos // mmap.PAGESIZE + 1
        with self._lock:
            RANGE.pack_into(self._range, 0, pos, size)
            if self._call(CACHESTAT, fd, self._range, self._result, 0) < 0:
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number))
            in_memory: int = FOUND.unpack_from(self._result)[0]
        return in_memory >= pages
