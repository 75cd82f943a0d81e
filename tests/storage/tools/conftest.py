"""Fixtures: a directory after a kill of its broker; left-open files are closed."""

import pytest

from tests.storage.log.directories import Directory
from tests.storage.open_files import closed_files

__all__ = ["closed_files"]

SMALL = {"segment_bytes": 1600, "index_interval_bytes": 300}
BATCHES = 12
END = BATCHES * 3


@pytest.fixture
def crashed(tmp_path):
    """Return a directory: partition 1 has 12 batches of 3 records in several segments, partition 2
    has one segment.
    """
    one = Directory(tmp_path / "data", partitions=2, **SMALL)
    one.fill(BATCHES)
    one.fill(1, 2)
    one.move_cursor(5)
    one.crash()
    return one
