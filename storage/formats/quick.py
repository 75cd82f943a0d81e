"""The C extension (`speedups.c`), or None without a build: then the Python code does all the work.

Code with a loop in both languages calls `SPEEDUPS` first, and its own loop if the result is None.
BRAIDLOG_PURE in the environment turns the extension off, for tests and comparisons.
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
# The extension's CRC-32C takes one lane, the package crc32c three: longer bodies are for Python.
CRC32C_BYTES_MAX = 8 * 1024
LANGUAGE = "Python" if SPEEDUPS is None else "C"  # of the hot loops, to show to people
