import os

import pytest

from braidlog.storage.log.file_system import FileSystem, linux_version


class Uname:
    def __init__(self, sysname, release):
        self.sysname = sysname
        self.release = release


@pytest.mark.parametrize(
    ("sysname", "release", "version"),
    [
        ("Linux", "5.8.0-rc1", (5, 8)),
        ("Linux", "6.18.44-fc", (6, 18)),
        ("Linux", "4.19", (4, 19)),
        ("Darwin", "23.1.0", (0, 0)),
        ("Linux", "odd", (0, 0)),
    ],
)
def test_kernel_version(sysname, release, version):
    assert linux_version(Uname(sysname, release)) == version


def test_a_file_system_without_a_disk_is_not_trusted():
    file_system = FileSystem("/proc")
    assert not file_system.can_sync
    file_system.close()


def test_sync_waits_for_written_data_without_an_error(tmp_path):
    file_system = FileSystem(str(tmp_path))
    (tmp_path / "a").write_bytes(b"x" * 10_000)
    file_system.sync()
    file_system.close()
    with pytest.raises(OSError, match=os.strerror(9)):
        file_system.sync()
