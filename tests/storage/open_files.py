"""Closing of files like the end of a process, for tests with lives that end in many ways.

Not for tests of libraries whose objects close their files when collected.
"""

import os
import tempfile
from contextlib import suppress

import pytest


def open_files():
    """Return descriptor -> path of all open files of this process."""
    names = {}
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # The listing's own descriptor.
            names[int(name)] = os.readlink(f"/proc/self/fd/{name}")
    return names


@pytest.fixture(autouse=True)
def closed_files(tmp_path_factory):
    """Close the files that a test leaves open, like the end of its process.

    An abandoned log holds its unsynced files, and the process here does not end: after about a
    hundred tests there would be no descriptor left.
    """
    scratch = (str(tmp_path_factory.getbasetemp()), "/dev/shm/", tempfile.gettempdir())
    before = open_files()
    yield
    for fd, path in open_files().items():
        if fd not in before and path.startswith(scratch):
            os.close(fd)
