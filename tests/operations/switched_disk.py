"""`braidlog` on a disk with a fault switch: `python -m tests.operations.switched_disk CONTROL
ARGUMENT...`.

CONTROL is a file that a test writes and removes while the broker runs. It holds the name of a
fault:

* `full`: files cannot grow, and none can be created; half of a write still succeeds;
* `read-only`: nothing can be changed, and no file can be opened for writing;
* `no-sync`: every sync fails with EIO;
* `no-write`: every write fails with EIO.
"""

import errno
import os
import sys

from braidlog.storage.log import local_files
from tests.storage.files_twins import InlineQueue

FAULTS = ("full", "read-only", "no-sync", "no-write")


class SwitchedDisk(local_files.Disk):
    """The real disk, with the fault that the control file names."""

    control = ""

    def _fault(self):
        try:
            with open(self.control) as file:
                return file.read().strip()
        except FileNotFoundError:
            return ""

    def _fail_if(self, number, *faults):
        if self._fault() in faults:
            raise OSError(number, os.strerror(number))

    def open(self, path, flags):
        if flags & os.O_CREAT:
            self._fail_if(errno.ENOSPC, "full")
        if flags & (os.O_CREAT | os.O_RDWR | os.O_WRONLY):
            self._fail_if(errno.EROFS, "read-only")
        return super().open(path, flags)

    def write(self, path, fd, parts, pos):
        fault = self._fault()
        data = b"".join(parts)
        if fault == "full":
            room = os.fstat(fd).st_size - pos or len(data) // 2
            if pos % 2 and room < len(data):  # In about half of the cases, a part is still written.
                room = 0
            if room <= 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            data = data[:room]
        self._fail_if(errno.EROFS, "read-only")
        self._fail_if(errno.EIO, "no-write")
        return super().write(path, fd, [data], pos)

    def truncate(self, path, fd, size):
        self._fail_if(errno.EROFS, "read-only")
        super().truncate(path, fd, size)

    def allocate(self, path, fd, size, pos):
        self._fail_if(errno.ENOSPC, "full")
        self._fail_if(errno.EROFS, "read-only")
        super().allocate(path, fd, size, pos)

    def sync_data(self, path, fd):
        self._fail_if(errno.EIO, "no-sync")
        super().sync_data(path, fd)

    def sync_queue(self, eventfd):
        return InlineQueue(self, eventfd)

    def sync_folder(self, path):
        self._fail_if(errno.EIO, "no-sync")
        super().sync_folder(path)

    def sync_file_system(self, file_system):
        self._fail_if(errno.EIO, "no-sync")
        super().sync_file_system(file_system)

    def rename(self, path, new_path):
        self._fail_if(errno.EROFS, "read-only")
        super().rename(path, new_path)

    def unlink(self, path):
        self._fail_if(errno.EROFS, "read-only")
        super().unlink(path)

    def make_folder(self, path):
        self._fail_if(errno.ENOSPC, "full")
        self._fail_if(errno.EROFS, "read-only")
        super().make_folder(path)

    def remove_folder(self, path):
        self._fail_if(errno.EROFS, "read-only")
        super().remove_folder(path)


if __name__ == "__main__":
    SwitchedDisk.control = sys.argv[1]
    local_files.Disk = SwitchedDisk
    from braidlog.broker.cli.main import run

    sys.exit(run(sys.argv[2:]))
