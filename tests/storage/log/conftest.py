"""Lives that fail, lose power or are killed must leave no file open in the test process."""

from tests.storage.open_files import closed_files

__all__ = ["closed_files"]
