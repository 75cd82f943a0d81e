"""The database of the shared store, for commands of a cluster."""

from tests.storage.shared.conftest import postgres

__all__ = ["postgres"]
