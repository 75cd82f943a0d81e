"""Folders to simulate in, and a limit for what must not hang."""

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

# No state takes more than milliseconds.
HANG_S = 60


class Hung(Exception):
    """Something did not finish in time."""


def scratch_folder() -> str:
    """A new folder, in memory where the machine has such a place."""
    memory = "/dev/shm"
    has_place = os.access(memory, os.W_OK | os.X_OK)
    return tempfile.mkdtemp(prefix="simulation-", dir=memory if has_place else None)


@contextmanager
def scratch() -> Iterator[str]:
    """A new folder for as long as it is needed."""
    folder = scratch_folder()
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def empty(path: str) -> str:
    """The folder, empty."""
    shutil.rmtree(path, ignore_errors=True)
    os.mkdir(path)
    return path


@contextmanager
def limited() -> Iterator[None]:
    """Raise Hung in what takes far too long. Main thread only."""

    def hung(*_: object) -> None:
        raise Hung(f"not over after {HANG_S} s")

    before = signal.signal(signal.SIGALRM, hung)
    signal.alarm(HANG_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
