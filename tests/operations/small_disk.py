"""A file system of our own, small, that can be made really full or read-only under a broker.

It is mounted in a namespace that a process holds open; brokers are started inside, one after
another. No rights are needed where users may have namespaces.
"""

import contextlib
import os
import subprocess

from braidlog.storage.tools.verify import Verifier
from conformance.server import RunningBroker


def can_mount():
    """Whether a file system of our own can be had here."""
    probe = ["unshare", "--mount", "--map-root-user", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    try:
        return subprocess.run(probe, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


class SmallDisk:
    """A tmpfs of so many bytes on `folder`, for those inside; a context manager."""

    def __init__(self, folder, size_bytes):
        self.folder = folder
        mount = f"mount -t tmpfs -o size={size_bytes} tmpfs {folder} && echo && exec cat"
        self._holder = subprocess.Popen(
            ["unshare", "--mount", "--map-root-user", "sh", "-c", mount],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._holder.stdout.readline() == b"\n"

    @property
    def inside(self):
        """The command line before one that is to run inside."""
        target = str(self._holder.pid)
        return ["nsenter", "--target", target, "--mount", "--user", "--preserve-credentials"]

    @property
    def path(self):
        """Where others reach it."""
        return f"/proc/{self._holder.pid}/root{self.folder}"

    @property
    def _ballast(self):
        return os.path.join(self.path, "ballast")

    def fill(self):
        """Let a file take all the room there is."""
        with open(self._ballast, "ab", buffering=0) as file:
            for size in (1 << 20, 4096):
                with contextlib.suppress(OSError):
                    while file.write(bytes(size)) == size:
                        pass

    def empty(self):
        """Give that room back."""
        os.truncate(self._ballast, 0)

    def remount(self, option):
        """`ro` or `rw`; the kernel refuses `ro` while a file is open for writing."""
        # Without a source mount(8) would add the options that it finds, and an owner that has
        # another number in here is none that the kernel takes.
        mount = ["mount", "-o", f"remount,{option}", "tmpfs", str(self.folder)]
        return subprocess.run([*self.inside, *mount], capture_output=True).returncode == 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with self._holder:
            self._holder.stdin.close()


class InsideBroker(RunningBroker):
    """A broker whose data directory is on a `SmallDisk`."""

    def __init__(self, folder, disk, **options):
        super().__init__(folder, **options)
        self.disk = disk
        self.data_dir = disk.folder / "data"

    @property
    def command(self):
        return [*self.disk.inside, *super().command]

    @property
    def reserve_bytes(self):
        """How large the reserve is now."""
        return os.path.getsize(f"{self.disk.path}/data/reserve")

    def verify(self):
        """As for every broker, where the directory is reached from here."""
        found = []
        path = f"{self.disk.path}/data"
        report = Verifier(path, found.append, lambda done, total: None).run()
        assert report.faults == 0, found
