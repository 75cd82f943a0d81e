"""Renames the topic in the folder of a partition, atomically (FORMAT.md section 5).

The new name is on disk beside the old one before the catalogue has it, and replaces the old name
once the catalogue has the new name on disk; a start completes work that a crash interrupted. Knows
no catalogue.
"""

import os
from collections.abc import Sequence
from contextlib import closing

from braidlog.storage.errors import StorageFull
from braidlog.storage.log.files import FileGone, Files
from braidlog.storage.log.removed_folder import may_be_gone
from braidlog.storage.log.topic_file import (
    TOPIC_BYTES_MAX,
    TOPIC_NAME,
    BadTopicFile,
    TopicFile,
    pack_topic_file,
    unpack_topic_file,
)

NEW_TOPIC_NAME = "topic.new"


def write_new_name(files: Files, folder: str, content: TopicFile) -> None:
    """Write the file that is to replace the topic file; not synced.

    Raises FileGone where the topic was deleted meanwhile, StorageFull, StorageFailed.
    """
    path = os.path.join(folder, NEW_TOPIC_NAME)
    with may_be_gone(folder):
        files.unlink(path)  # A change that did not happen may have left a prepared file.
        with closing(files.create(path)) as file:
            file.write_at([pack_topic_file(content)], 0)


def sync_names(files: Files, folders: Sequence[str]) -> None:
    """Make the files of `write_new_name` durable. Raises as `write_new_name`."""
    if files.syncs_all_at_once:
        files.sync_all()
        return
    for folder in folders:
        with may_be_gone(folder):
            with closing(files.open(os.path.join(folder, NEW_TOPIC_NAME))) as file:
                file.datasync()
            files.sync_folder(folder)


def read_new_name(files: Files, folder: str) -> TopicFile | None:
    """Return the file that is to replace the topic file; None if there is no good file."""
    try:
        return unpack_topic_file(
            files.read_head(os.path.join(folder, NEW_TOPIC_NAME), TOPIC_BYTES_MAX)
        )
    except (OSError, BadTopicFile):
        return None


def take_name(files: Files, folder: str, wanted: TopicFile) -> bool:
    """Replace the topic file by the prepared file, if that has the wanted name; return False if not
    done.

    Not synced: a start repeats the replacement. Raises StorageFailed.
    """
    if read_new_name(files, folder) != wanted:
        return False
    new_path, path = os.path.join(folder, NEW_TOPIC_NAME), os.path.join(folder, TOPIC_NAME)
    try:
        with may_be_gone(folder):
            files.rename(new_path, path)
    except (StorageFull, FileGone):  # The next start tries again, if the topic is there then.
        return False
    return True
