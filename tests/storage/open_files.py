"""The end of a process, as far as its files go, for tests in which lives end in many ways.

Not for tests of libraries whose objects close their files themselves when they are collected.
"""

import os
import tempfile
from contextlib import suppress

import pytest


def open_files():
    """Descriptor to path of everything that this process has open."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # The listing's own.
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
    return found


@pytest.fixture(autouse=True)
def closed_files(tmp_path_factory):
    """Closes the files that a test leaves open, as the end of its process would.

    A log that is abandoned holds on to what was not synced, and there is no process here that dies
    with it: after some hundred tests there would be no descriptor left.
    """
    scratch = (str(tmp_path_factory.getbasetemp()), "/dev/shm/", tempfile.gettempdir())
    before = open_files()
    yield
    for fd, path in open_files().items():
        if fd not in before and path.startswith(scratch):
            os.close(fd)
