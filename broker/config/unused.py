"""Keeps optional, unused modules of a library out of the broker's memory."""

import importlib
import sys


def import_structlog() -> None:
    """Import structlog without rich.

    If rich is installed, structlog imports rich for tracebacks with values in boxes, which we do
    not write (`logging.py`): 3 MB and a twentieth of a second. Call this function before any other
    import of structlog.
    """
    if "rich" in sys.modules or "structlog" in sys.modules:
        return
    sys.modules["rich"] = None  # type: ignore[assignment]  # Marks the module as not installed.
    try:
        importlib.import_module("structlog")
    finally:
        del sys.modules["rich"]
