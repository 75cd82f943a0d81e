"""Work by name in the folder of a partition, which a deletion may remove at any moment.

The owner's thread renames the folder of a deleted topic while other threads may still write in the
folder: open files stay good, paths no longer exist. Knows no topic.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from braidlog.storage.errors import StorageFailed
from braidlog.storage.log.files import FileGone


@contextmanager
def may_be_gone(folder: str) -> Iterator[None]:
    """Raise FileGone if the work fails because the folder was removed: the disk is not at fault."""
    try:
        yield
    except StorageFailed as error:
        if os.path.isdir(folder):
            raise
        raise FileGone(folder) from error
