import os

import pytest

from braidlog.storage.directory.data_dir import DataDir
from braidlog.storage.tools.lock_holder import is_held, lock_holder


def test_the_holder_of_a_lock_is_known_without_taking_it(tmp_path):
    assert lock_holder(str(tmp_path)) == 0
    data_dir = DataDir.open(tmp_path)
    assert lock_holder(str(tmp_path)) == os.getpid()
    data_dir.abandon()
    assert lock_holder(str(tmp_path)) == 0
    DataDir.open(tmp_path).abandon()


@pytest.mark.parametrize(
    ("line", "held"),
    [
        ("1: FLOCK  ADVISORY  WRITE 77 fd:01:1234 0 EOF", True),
        ("1: FLOCK  ADVISORY  WRITE 0 00:1f:1234 0 EOF", True),
        ("1: FLOCK  ADVISORY  WRITE 78 fd:01:1234 0 EOF", False),
        ("1: FLOCK  ADVISORY  WRITE 77 fd:01:1235 0 EOF", False),
        ("1: POSIX  ADVISORY  WRITE 77 fd:01:1234 0 EOF", False),
        ("1: -> FLOCK  ADVISORY  WRITE 77 fd:01:1234 0 EOF", False),
        ("", False),
    ],
)
def test_lines_of_the_kernel_are_parsed(line, held):
    assert is_held(line, inode=1234, pid=77) == held
