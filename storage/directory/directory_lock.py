"""The lock of a data directory: a process holds the lock as long as it uses the directory."""

import errno
import fcntl
import os

from braidlog.storage.errors import DirectoryLocked
from braidlog.storage.log.layout import LOCK_NAME


def take_lock(path: str) -> int:
    """Lock a data directory for this process; returns the descriptor that holds the lock.

    Raises: DirectoryLocked, OSError.
    """
    lock_path = os.path.join(path, LOCK_NAME)
    is_writable = True
    try:
        fd = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        if error.errno != errno.EROFS:
            raise
        is_writable = False
        fd = os.open(lock_path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(fd, 32).decode("ascii", "replace").strip()
        os.close(fd)
        raise DirectoryLocked(f"{path} is in use by process {holder or 'unknown'}") from None
    if is_writable:
        os.ftruncate(fd, 0)
        os.write(fd, b"%d\n" % os.getpid())
    return fd
