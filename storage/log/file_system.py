"""Syncs a whole file system at once with syncfs(2), where syncfs is reliable. Knows no files of the
log.

A single call for many dirty files costs a fraction of an fdatasync each (16 files 0.3 ms against
0.9). syncfs is used where the call waits for the data and reports write-back errors: ext4, xfs and
btrfs, Linux 5.8 or newer (syncfs(2), section "Errors").
"""

import ctypes
import os
import re

# From linux/magic.h.
TRUSTED = {0xEF53: "ext4", 0x58465342: "xfs", 0x9123683E: "btrfs"}

LINUX_MIN = (5, 8)

# Room for a struct statfs of any Linux architecture; its first member, a long, is the type.
STATFS_BYTES = 256


class FileSystem:
    """The file system that holds a folder, through a descriptor held open from the start.

    Held open, because syncfs reports to each descriptor the errors since it was opened.
    """

    def __init__(self, folder: str) -> None:
        self._fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._device = os.fstat(self._fd).st_dev
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.can_sync = (
            hasattr(self._libc, "syncfs")
            and linux_version(os.uname()) >= LINUX_MIN
            and self._type() in TRUSTED
        )

    def sync(self) -> None:
        """Wait until everything written to the file system is on the disk. Raises OSError."""
        if self._libc.syncfs(self._fd) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    def adopt(self, folder: str) -> None:
        """Note another folder that `sync` must cover; a folder on another device ends
        `can_sync`.
        """
        self.note_device(os.stat(folder).st_dev)

    def note_device(self, device: int) -> None:
        """As `adopt`, of something on that device."""
        if device != self._device:
            self.can_sync = False

    def close(self) -> None:
        """Close the descriptor; `sync` cannot be used any more."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self.can_sync = False

    def _type(self) -> int:
        buffer = ctypes.create_string_buffer(STATFS_BYTES)
        if self._libc.fstatfs(self._fd, buffer) != 0:
            return 0
        return int(ctypes.c_long.from_buffer(buffer).value)


def linux_version(uname: os.uname_result) -> tuple[int, int]:
    """(major, minor) of a Linux kernel, (0, 0) for anything else."""
    version = re.match(r"(\d+)\.(\d+)", uname.release)
    if uname.sysname != "Linux" or not version:
        return 0, 0
    return int(version[1]), int(version[2])
