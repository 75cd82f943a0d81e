"""Fixtures: a directory after a kill of its broker; left-open files are closed."""

import pytest

from tests.storage.log.directories import LogDirectory
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
    directory = LogDirectory(tmp_path / "data", partitions=2, **SMALL)
    directory.fill(BATCHES)
    directory.fill(1, 2)
    directory.move_cursor(5)
    directory.crash()
    return directory
