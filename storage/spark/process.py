"""What a Spark Python worker is set to before its first task. Knows no log and no table."""

import gc
from functools import cache

import pyarrow as pa


@cache
def settle() -> None:
    """Once in a process: what it has imported stays, and Arrow takes one core.

    Spark's daemon searches for garbage after each task. Over all that was imported that took 40 ms,
    as long as decoding 20 MB of log.
    """
    pa.set_cpu_count(1)  # One task a core is all the parallelism there should be.
    gc.freeze()
