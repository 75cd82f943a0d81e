"""The extension in C (`speedups.c`), where it was built. None: the Python code does it all.

Code with a loop in both asks `SPEEDUPS` first, and goes on in Python where that gives None. With
BRAIDLOG_PURE set in the environment it is left out, for tests and comparisons.
"""

from __future__ import annotations

import importlib
import os
from types import ModuleType


def _load() -> ModuleType | None:
    if os.environ.get("BRAIDLOG_PURE"):
        return None
    try:
        return importlib.import_module("storage.codecs._speedups")
    except ImportError:
        return None


SPEEDUPS = _load()
LANGUAGE = "Python" if SPEEDUPS is None else "C"  # in which the hot loops run, for people
