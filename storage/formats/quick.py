"""The C extension (`speedups.c`), or None if it was not built: the Python code then does it all.

Code that has a loop in both languages calls `SPEEDUPS` first, and its own loop if that returns
None. BRAIDLOG_PURE in the environment turns the extension off, for tests and comparisons.
"""

from __future__ import annotations

import importlib
import os
from types import ModuleType


def _load() -> ModuleType | None:
    if os.environ.get("BRAIDLOG_PURE"):
        return None
    try:
        return importlib.import_module("braidlog.storage.formats._speedups")
    except ImportError:
        return None


SPEEDUPS = _load()
LANGUAGE = "Python" if SPEEDUPS is None else "C"  # of the hot loops, to show to people
