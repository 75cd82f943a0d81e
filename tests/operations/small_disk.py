"""A small separate file system that can be really full or read-only under a broker.

The file system is mounted in a namespace that a process holds open; brokers start inside, one after
another. No rights are needed if users may have namespaces.
"""

import contextlib
import os
import subprocess

from braidlog.storage.tools.verify import Verifier
from conformance.server import RunningBroker


def can_mount():
    """Return True if this machine allows a separate mount."""
    probe = ["unshare", "--mount", "--map-root-user", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    try:
        return subprocess.run(probe, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


class SmallDisk:
    """A tmpfs of `size_bytes` on `folder`, for processes inside; a context manager."""

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
        """Return the prefix of a command that runs inside."""
        target = str(self._holder.pid)
        return ["nsenter", "--target", target, "--mount", "--user", "--preserve-credentials"]

    @property
    def path(self):
        """Return the path for processes outside."""
        return f"/proc/{self._holder.pid}/root{self.folder}"

    @property
    def _ballast(self):
        return os.path.join(self.path, "ballast")

    def fill(self):
        """Fill the disk with a file."""
        with open(self._ballast, "ab", buffering=0) as file:
            for size in (1 << 20, 4096):
                with contextlib.suppress(OSError):
                    while file.write(bytes(size)) == size:
                        pass

    def empty(self):
        """Free that file's room."""
        os.truncate(self._ballast, 0)

    def remount(self, option):
        """Remount as `ro` or `rw`; the kernel refuses `ro` while a file is open for writing."""
        # Without a source, mount(8) would add the options that it finds, with an owner number that
        # the kernel refuses in this namespace.
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
        """Return the present size of the reserve."""
        return os.path.getsize(f"{self.disk.path}/data/reserve")

    def verify(self):
        """Verify the log, at the directory's path for processes outside."""
        findings = []
        path = f"{self.disk.path}/data"
        report = Verifier(path, findings.append, lambda done, total: None).run()
        assert report.faults == 0, findings
