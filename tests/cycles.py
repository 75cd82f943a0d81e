"""Reference cycles that code under test leaves."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def watched_cycles() -> Iterator[Callable[[], list[object]]]:
    """Yield a function that returns the objects of cycles left since the block began.

    Objects from before the block are not visited: the modules of all tests make a visit long.
    """
    gc.freeze()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)

    def left() -> list[object]:
        gc.collect()
        return list(gc.garbage)

    try:
        yield left
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
        gc.unfreeze()
