"""The place of a log on the disk, and the rounds that the log joins."""

from collections.abc import Callable
from dataclasses import dataclass

from braidlog.storage.log.committer import Committer
from braidlog.storage.log.files import Files
from braidlog.storage.log.recovery import LogIdentity


@dataclass(slots=True, frozen=True)
class LogPlace:
    """The place of a log, and the committer whose rounds the log joins."""

    files: Files
    identity: LogIdentity
    committer: Committer
    # Called with partition id and durable offset once a full segment is durable.
    on_rolled: Callable[[int, int], None] | None = None
    owner_epoch: int = 0
