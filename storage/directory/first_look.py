"""The look at a folder before a first start makes a data directory of it.

Knows names only: opening, locking and recovery are the business of `data_dir.py`.
"""

import os
from collections.abc import Collection
from typing import Final

from braidlog.storage.errors import NotADataDirectory
from braidlog.storage.log.files import storage_error
from braidlog.storage.log.layout import JOURNAL_KINDS, LOCK_NAME, PARTITIONS_NAME, SET_ASIDE_NAME
from braidlog.storage.log.reserve import RESERVE_NAME

# Any of these makes a folder a data directory, even a damaged directory.
OWN_FOLDERS: Final = (PARTITIONS_NAME, *JOURNAL_KINDS)
# Left by a first start that was interrupted; or by a file system and operators.
BESIDE: Final = frozenset((LOCK_NAME, RESERVE_NAME, SET_ASIDE_NAME, "lost+found", "braidlog.toml"))
NAMES_SHOWN: Final = 3


def check_folder(path: str, beside: Collection[str] = ()) -> None:
    """Check that a folder is a data directory, empty, or not there: a start must not fill a folder
    that holds something else. Hidden files, and those named in `beside`, do not count.

    Raises NotADataDirectory, StorageFull, StorageFailed.
    """
    try:
        names = os.listdir(path)
    except (FileNotFoundError, NotADirectoryError):
        return  # It is made, or refused with the reason.
    except OSError as error:
        raise storage_error(error, "use the data directory", path) from error
    if any(os.path.isdir(os.path.join(path, name)) for name in OWN_FOLDERS):
        return
    foreign = sorted(
        name
        for name in names
        if name not in BESIDE and name not in beside and not name.startswith(".")
    )
    if foreign:
        shown = ", ".join(foreign[:NAMES_SHOWN]) + (", ..." if len(foreign) > NAMES_SHOWN else "")
        raise NotADataDirectory(
            f"{path} is no data directory and is not empty ({shown}): name an empty or a new folder"
        )
