"""Lives that fail, lose power or are killed leave no file open here either."""

from tests.storage.open_files import closed_files

__all__ = ["closed_files"]
