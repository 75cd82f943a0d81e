"""Settings of a Spark Python worker, made before its first task. Knows no log and no table."""

import gc
from functools import cache

import pyarrow as pa


@cache
def settle() -> None:
    """Once per process: keep its imports out of garbage collection, and Arrow to one core.

    Spark's daemon searches for garbage after each task. Over all that was imported that took 40 ms,
    as long as decoding 20 MB of log.
    """
    pa.set_cpu_count(1)  # One task per core is all the parallelism there should be.
    gc.freeze()
