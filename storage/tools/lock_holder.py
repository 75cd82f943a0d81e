"""Finds the process that has a data directory open, without taking its lock even for a moment.
Linux only.

A tool that tried the lock could make a broker's start fail. Knows /proc and the lock file.
"""

import os

from braidlog.storage.log.layout import LOCK_NAME

LOCKS_PATH = "/proc/locks"


def lock_holder(data_dir: str) -> int:
    """Return the process id in the lock file if that lock is held now, else 0.

    Also 0 for a broker in another container, whose locks the kernel does not show here.
    """
    try:
        with open(os.path.join(data_dir, LOCK_NAME), "rb") as file:
            inode = os.fstat(file.fileno()).st_ino
            text = file.read(32).strip()
        with open(LOCKS_PATH, encoding="ascii") as locks:
            lines = locks.read().splitlines()
    except OSError:
        return 0
    pid = int(text) if text.isdigit() else 0
    return pid if any(is_held(line, inode, pid) for line in lines) else 0


def is_held(line: str, inode: int, pid: int) -> bool:
    """Return True if a line of /proc/locks, `N: FLOCK ADVISORY WRITE PID MAJOR:MINOR:INODE START
    END`, is about that file (proc(5)).

    On some file systems that device differs from the device of stat, so only inode and process are
    compared.
    """
    fields = line.split()
    if len(fields) < 6 or fields[1:2] != ["FLOCK"]:
        return False
    return fields[5].rpartition(":")[2] == str(inode) and fields[4] in (str(pid), "0")
