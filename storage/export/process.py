"""Set-up of a Spark Python worker before its first task. Knows no log and no table."""

import gc
from functools import cache

import pyarrow as pa


@cache
def tune_process() -> None:
    """Exclude imports from garbage collection and limit Arrow to one core; call once per process.

    Spark's daemon collects garbage after each task. With all imported objects a collection took 40
    ms, as long as decoding 20 MB of log.
    """
    pa.set_cpu_count(1)  # One task per core is enough parallelism.
    gc.freeze()
