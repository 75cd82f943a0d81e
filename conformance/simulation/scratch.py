"""Folders for the simulation, and a time limit against hangs."""

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

# Every state takes milliseconds only.
HANG_S = 60


class Hung(Exception):
    """A state did not finish in time."""


def scratch_folder() -> str:
    """Return a new folder, in memory if the machine has such a place."""
    memory = "/dev/shm"
    has_place = os.access(memory, os.W_OK | os.X_OK)
    return tempfile.mkdtemp(prefix="simulation-", dir=memory if has_place else None)


@contextmanager
def scratch() -> Iterator[str]:
    """Yield a new folder; remove the folder afterwards."""
    folder = scratch_folder()
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def empty(path: str) -> str:
    """Empty the folder and return its path."""
    shutil.rmtree(path, ignore_errors=True)
    os.mkdir(path)
    return path


@contextmanager
def limited() -> Iterator[None]:
    """Raise Hung if the block takes far too long. Main thread only."""

    def hung(*_: object) -> None:
        raise Hung(f"not over after {HANG_S} s")

    before = signal.signal(signal.SIGALRM, hung)
    signal.alarm(HANG_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
