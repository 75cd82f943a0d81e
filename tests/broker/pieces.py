"""A counter of the work in each turn of the loop, instead of a timer."""

from contextlib import contextmanager

import trio


class LargestTurn(trio.abc.Instrument):
    """The most that a turn of any task added to `count()`."""

    def __init__(self, count):
        self.count = count
        self.before = count()
        self.largest = 0

    def after_task_step(self, task):
        now = self.count()
        self.largest = max(self.largest, now - self.before)
        self.before = now


@contextmanager
def counting(count):
    pieces = LargestTurn(count)
    trio.lowlevel.add_instrument(pieces)
    try:
        yield pieces
    finally:
        trio.lowlevel.remove_instrument(pieces)
