"""The number of log files that this process keeps open while nobody uses them, and
calls that find no descriptor left. Knows no file.
"""

import errno
import resource
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")

# Idle descriptors kept open, and the share of the descriptors of this process that they may take:
# connections need most of the others. A round that reaches more files opens and closes some for
# each record; a thousand written partitions have two thousand files.
HANDLES_MAX, HANDLES_SHARE = 4096, 8
FEW_HANDLES, FEW_HANDLES_SHARE = 512, 4  # Where a process may open few files.

# Errors of a call that found no descriptor left in this process, or in the whole system.
NO_DESCRIPTOR = frozenset((errno.EMFILE, errno.ENFILE))


def idle_handles_max() -> int:
    """HANDLES_MAX, or fewer if this process may not open so many files."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return HANDLES_MAX if files == resource.RLIM_INFINITY else idle_handles_of(files)


def idle_handles_of(files: int) -> int:
    """Return the idle descriptors of a process that may open so many files."""
    few = min(FEW_HANDLES, files // FEW_HANDLES_SHARE)
    return min(HANDLES_MAX, max(few, files // HANDLES_SHARE))


def with_descriptor(call: Callable[[], Result], close_idle: Callable[[], bool]) -> Result:
    """Make a call that needs a descriptor. While the process has no free descriptor, `close_idle`
    closes an idle descriptor, or returns False if there is none. Raises OSError.
    """
    while True:
        try:
            return call()
        except OSError as error:
            if error.errno not in NO_DESCRIPTOR or not close_idle():
                raise
