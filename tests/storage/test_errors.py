"""Clients' view of storage errors: the reason, without a path of this machine."""

import errno

import pytest

from braidlog.storage.errors import (
    DamagedLog,
    LogClosed,
    StorageError,
    StorageFailed,
    StorageFull,
    reason_of,
)
from braidlog.storage.log.files import storage_error

PATH = "/srv/braidlog/partitions/1/00000000000000000000.log"


def refused(number):
    return storage_error(OSError(number, "reason"), "write to", PATH)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (refused(errno.ENOSPC), "No space left on device"),
        (refused(errno.EDQUOT), "Disk quota exceeded"),
        (refused(errno.EROFS), "Read-only file system"),
        (refused(errno.EMFILE), "Too many open files"),
        (refused(errno.EFBIG), "File too large"),
        (refused(errno.EIO), "storage failed, the broker is stopping"),
        (StorageFull(PATH), "No space left on device"),
        (DamagedLog(PATH, 64, 7, "bad checksum"), "offset 7 is damaged: bad checksum"),
        (LogClosed(PATH), "the topic was deleted"),
    ],
)
def test_only_the_operator_sees_the_path(error, text):
    assert isinstance(error, StorageError)
    assert PATH in str(error)
    assert error.client_text == text


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_only_a_lack_of_room_can_end_with_room(number):
    assert refused(number).is_out_of_space
    assert not refused(errno.EROFS).is_out_of_space
    assert not refused(errno.EMFILE).is_out_of_space
    assert not refused(errno.EFBIG).is_out_of_space
    assert isinstance(refused(errno.EIO), StorageFailed)


def test_the_reason_of_a_system_call_has_no_number_and_no_file(tmp_path):
    with pytest.raises(FileNotFoundError) as missing:
        (tmp_path / "none").read_bytes()
    assert "[Errno 2]" in str(missing.value)
    assert reason_of(missing.value) == "No such file or directory"
    assert reason_of(ValueError("bad magic")) == "bad magic"
    assert reason_of(TimeoutError()) == "TimeoutError"
