"""Files in objects that stand over files of a local folder: calls go to the local files, except for
those that a subclass answers from objects.
"""

from collections.abc import Sequence

from braidlog.storage.log.disk import Buffer
from braidlog.storage.log.files import File
from braidlog.storage.log.local_files import LocalFile, LocalFiles


class FileOverLocal:
    """A `File` over a local file."""

    __slots__ = ("_local",)

    def __init__(self, local: LocalFile) -> None:
        self._local = local

    @property
    def path(self) -> str:
        return self._local.path

    @property
    def fd(self) -> int:
        """Descriptor of the local file."""
        return self._local.fd

    @property
    def gone(self) -> bool:
        return self._local.gone

    def hold(self) -> int:
        return self._local.hold()

    def hold_to_read(self) -> int:
        return self._local.hold_to_read()

    def release(self) -> None:
        self._local.release()

    def write_at(self, parts: Sequence[Buffer], pos: int) -> None:
        self._local.write_at(parts, pos)

    def write_held(self, parts: Sequence[Buffer], pos: int, size: int) -> None:
        self._local.write_held(parts, pos, size)

    def overwrite_at(self, data: Buffer, pos: int) -> None:
        self._local.overwrite_at(data, pos)

    def truncate(self, size: int) -> None:
        self._local.truncate(size)

    def allocate(self, size: int, pos: int) -> None:
        self._local.allocate(size, pos)

    def datasync(self) -> None:
        self._local.datasync()

    def size(self) -> int:
        return self._local.size()

    def move_to(self, path: str) -> None:
        self._local.move_to(path)

    def close(self) -> None:
        self._local.close()


class FilesOverLocal:
    """A `Files` over the files of a local folder."""

    def __init__(self, local: LocalFiles) -> None:
        self.local = local
        self.leases = local.leases
        self.name_directory, self.create = local.name_directory, local.create
        self.read_head, self.look_into = local.read_head, local.look_into
        self.rename, self.set_time, self.discard = local.rename, local.set_time, local.discard
        self.make_folder, self.remove_folder = local.make_folder, local.remove_folder
        self.names, self.sync_folder, self.adopt = local.names, local.sync_folder, local.adopt
        self.sync_queue, self.sync_all = local.sync_queue, local.sync_all
        self.close_idle, self.close_oldest_idle = local.close_idle, local.close_oldest_idle

    @property
    def directory_id(self) -> int:
        return self.local.directory_id

    @property
    def writes_plainly(self) -> bool:
        return self.local.writes_plainly

    @property
    def syncs_all_at_once(self) -> bool:
        return self.local.syncs_all_at_once

    def open(self, path: str) -> File:
        return self.local.open(path)

    def read_whole(self, path: str) -> bytes:
        return self.local.read_whole(path)

    def unlink(self, path: str) -> None:
        self.local.unlink(path)

    def close(self) -> None:
        self.local.close()
