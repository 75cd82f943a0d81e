"""Keeps modules out of a broker's memory that a library imports if it can, and we never use."""

import importlib
import sys


def import_structlog() -> None:
    """Import structlog without rich. If rich is installed, structlog imports it for tracebacks with
    values in boxes, which we do not write (`logging.py`): 3 MB and a twentieth of a second. Call
    this before anything else imports structlog.
    """
    if "rich" in sys.modules or "structlog" in sys.modules:
        return
    sys.modules["rich"] = None  # type: ignore[assignment]  # What says that there is none.
    try:
        importlib.import_module("structlog")
    finally:
        del sys.modules["rich"]
