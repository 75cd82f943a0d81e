"""A module that is slow to import and only makes things faster. Knows no format."""

import importlib
import threading
from types import ModuleType


class LazyModule:
    """Imported in a thread at the first `get`: callers do without it until that is done."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._module: ModuleType | None = None
        self._importing: threading.Thread | None = None

    def get(self) -> ModuleType | None:
        """The module; None while it is being imported, and always where it cannot be imported."""
        if self._importing is None:
            self._importing = threading.Thread(target=self._import, daemon=True)
            self._importing.start()
        return self._module

    def wait(self) -> ModuleType | None:
        """The same once the import is over."""
        self.get()
        assert self._importing is not None
        self._importing.join()
        return self._module

    def _import(self) -> None:
        try:
            self._module = importlib.import_module(self._name)
        except ImportError:
            pass  # What it needs is an extra.
