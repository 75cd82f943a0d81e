"""fdatasync(2) without a thread: Linux AIO with IOCB_CMD_FDSYNC, which answers into an eventfd.

A thread that syncs and a loop that runs Python pass the interpreter's lock back and forth. Here a
single system call begins the syncs of a round, and the kernel's own workers run them side by side.
Layouts and numbers: linux/aio_abi.h, io_submit(2). If the kernel or the machine does not offer AIO,
there is no queue, and a thread syncs.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Sequence
from typing import Protocol

# Syncs under way at the same time: the syncs of a round. More files are cheaper by syncfs.
SYNCS_MAX = 8

FDSYNC, RESFD = 3, 1  # IOCB_CMD_FDSYNC, IOCB_FLAG_RESFD
# data; key and flags, unused; opcode, priority, descriptor, buffer, bytes, position; reserved;
# flags, eventfd
IOCB = struct.Struct("<QQHhIQQqQII")
EVENT = struct.Struct("<QQqq")  # data, iocb, result, second result
TIMESPEC = struct.Struct("<qq")  # seconds, nanoseconds

# io_setup, io_getevents, io_submit: by machine, of little-endian 64-bit Linux.
CALLS = {"x86_64": (206, 208, 209), "aarch64": (0, 4, 2)}

# Kernel contexts of closed queues, for the next queue: to end a context takes 20 ms.
_spare: list[ctypes.c_ulong] = []


class SyncQueue(Protocol):
    """Syncs that block nobody. The eventfd counts each finished sync."""

    def submit(self, files: Sequence[tuple[str, int]]) -> int:
        """Begin to sync each (path, descriptor), at most SYNCS_MAX; returns how many were begun,
        from the first on: the others are refused.
        """

    def results(self) -> list[tuple[str, int]]:
        """Path and errno (0: synced) of those that were done since the last call."""

    def close(self, seconds: float) -> bool:
        """Close once the running syncs are done; return False if that takes longer than `seconds`.
        `results` has the outcomes.
        """


class AioQueue:
    """A SyncQueue on Linux AIO."""

    def __init__(self, eventfd: int, syncs_max: int = SYNCS_MAX) -> None:
        """Take up to `syncs_max` files at a time. Raises OSError if there is no AIO here."""
        if platform.machine() not in CALLS or ctypes.sizeof(ctypes.c_void_p) != 8:
            raise OSError(errno.ENOSYS, "no AIO known on this machine")
        setup, self._getevents, self._submit = CALLS[platform.machine()]
        # None of these waits for a disk: they keep the interpreter's lock.
        self._call = ctypes.PyDLL(None, use_errno=True).syscall
        self._call.restype = ctypes.c_long
        self._eventfd = eventfd
        self._syncs_max = syncs_max
        has_spare = _spare and syncs_max == SYNCS_MAX
        self._context = _spare.pop() if has_spare else ctypes.c_ulong(0)
        if not self._context.value:
            self._check(self._call(setup, self._syncs_max, ctypes.byref(self._context)))
        self._blocks = ctypes.create_string_buffer(self._syncs_max * IOCB.size)
        at = ctypes.addressof(self._blocks)
        self._pointers = (ctypes.c_void_p * self._syncs_max)(
            *range(at, at + self._syncs_max * IOCB.size, IOCB.size)
        )
        self._events = ctypes.create_string_buffer(self._syncs_max * EVENT.size)
        self._paths: list[str] = []
        self._under_way = 0
        self._at_close: list[tuple[str, int]] | None = None  # Results, once it is closed.

    def submit(self, files: Sequence[tuple[str, int]]) -> int:
        """See SyncQueue."""
        assert len(files) <= self._syncs_max
        for number, (_, fd) in enumerate(files):
            fields = (number, 0, FDSYNC, 0, fd, 0, 0, 0, 0, RESFD, self._eventfd)
            IOCB.pack_into(self._blocks, number * IOCB.size, *fields)
        self._paths = [path for path, _ in files]
        begun: int = self._call(self._submit, self._context, len(files), self._pointers)
        self._under_way = max(begun, 0)
        return self._under_way

    def results(self) -> list[tuple[str, int]]:
        """See SyncQueue."""
        if self._at_close is not None:
            results, self._at_close = self._at_close, []
            return results
        most, events = self._syncs_max, self._events
        count: int = self._call(self._getevents, self._context, 0, most, events, None)
        self._check(count)
        self._under_way -= count
        return self._read(count)

    def _read(self, count: int) -> list[tuple[str, int]]:
        events = EVENT.iter_unpack(self._events.raw[: count * EVENT.size])
        return [(self._paths[number], -result) for number, _, result, _ in events]

    def close(self, seconds: float) -> bool:
        """See SyncQueue."""
        self._at_close = []
        if self._under_way:
            wait = TIMESPEC.pack(int(seconds), int(seconds % 1 * 1e9))
            left, wanted = self._under_way, self._syncs_max
            count = self._call(self._getevents, self._context, left, wanted, self._events, wait)
            self._at_close = self._read(max(count, 0))
            if count < left:
                return False
        if self._syncs_max == SYNCS_MAX:
            _spare.append(self._context)
        return True

    def _check(self, result: int) -> None:
        if result < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
