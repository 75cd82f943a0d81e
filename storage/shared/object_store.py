"""The object store's interface to the shared store: whole objects, created once, never changed.

`obstore.py` implements S3. Names are relative to the store's prefix.
"""

from collections.abc import Iterator
from typing import Protocol

from braidlog.storage.errors import StorageError
from braidlog.storage.shared.layout import Buffer


class ObjectExists(StorageError):
    """An object of that name already exists: nothing was written."""


class ObjectMissing(StorageError):
    """There is no object of that name."""


class ObjectStore(Protocol):
    """Safe in several threads. Every call may raise StoreUnanswered."""

    def put(self, name: str, data: Buffer) -> None:
        """Make an object, whole or not at all. Raises ObjectExists."""

    def get(self, name: str, pos: int, size: int) -> bytes:
        """`size` bytes from `pos`. Raises ObjectMissing, BadObject where it is shorter."""

    def size(self, name: str) -> int:
        """Bytes of an object. Raises ObjectMissing."""

    def delete(self, name: str) -> None:
        """Remove an object if it exists."""

    def names(self, prefix: str) -> Iterator[str]:
        """Names that begin with `prefix`, which ends with a slash."""
