"""The errors that storage raises. Knows no protocol.

The text of an error is for the operator and may name files; `client_text` is for clients.
"""

import errno
import os

OUT_OF_SPACE = frozenset((errno.ENOSPC, errno.EDQUOT))


def reason_of(error: BaseException) -> str:
    """Return the system's words of an OSError, without number and file; else the error's text."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


class StorageError(Exception):
    """Base of every error that storage raises on purpose."""

    @property
    def client_text(self) -> str:
        """The text that clients may see: no path of this machine."""
        return str(self)


class StorageFull(StorageError):
    """No space left, or a read-only file system: nothing was written, a later try may succeed."""

    def __init__(self, text: str = "", number: int = errno.ENOSPC) -> None:
        """`number` is the errno that the system call gave."""
        super().__init__(text)
        self.number = number

    @property
    def is_out_of_space(self) -> bool:
        """True if disk space is missing, rather than a descriptor or the permission to write."""
        return self.number in OUT_OF_SPACE

    @property
    def client_text(self) -> str:
        """The system's own words: "No space left on device"."""
        return os.strerror(self.number)


class StorageFailed(StorageError):
    """A write or sync failed in a way that must not be retried. The broker has to stop."""

    @property
    def client_text(self) -> str:
        """Does not name the file."""
        return "storage failed, the broker is stopping"


class OffsetOutOfRange(StorageError):
    """The offset asked for is below the log start or above the log end."""

    def __init__(self, offset: int, log_start_offset: int, log_end_offset: int) -> None:
        super().__init__(f"offset {offset} is outside [{log_start_offset}, {log_end_offset}]")
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset


class DamagedLog(StorageError):
    """Bytes that were acknowledged no longer read back as they were written."""

    def __init__(self, path: str, file_pos: int, offset: int, reason: str) -> None:
        super().__init__(f"{path} at byte {file_pos} (offset {offset}): {reason}")
        self.path = path
        self.file_pos = file_pos
        self.offset = offset
        self.reason = reason

    @property
    def client_text(self) -> str:
        """Names the offset, not the file."""
        return f"offset {self.offset} is damaged: {self.reason}"


class UnwritableChange(StorageError):
    """A change that could not be read back from a journal, or that this storage does not support.

    It is not written. What a client sent is invalid, such as text that is not valid Unicode.
    """


class LogClosed(StorageError):
    """The log is no longer open: its topic was deleted, or the broker is stopping."""

    @property
    def client_text(self) -> str:
        """Does not name the folder."""
        return "the topic was deleted"


class WouldBlock(StorageError):
    """A read with `wait=False` met pages that are not in memory: read again in a thread."""


class NotADataDirectory(StorageError):
    """The folder holds other files: a broker must not fill it."""


class DirectoryLocked(StorageError):
    """Another broker has this data directory open."""


class BodyError(StorageError):
    """A record body breaks the rules of its own format."""


class CorruptBody(BodyError):
    """The bytes are not a body of that format: bad checksum, size or structure."""


class TimeOutOfRange(BodyError):
    """The time of a record is no time that the log can hold."""


class RecordTooLarge(BodyError):
    """A record, or what it unpacks to, is above the limit that applies."""

    def __init__(self, size: int, size_max: int) -> None:
        super().__init__(f"record of {size} bytes, at most {size_max} are taken")
        self.size = size
        self.size_max = size_max


class TooManyRecords(BodyError):
    """A body has more parts than are taken at a time."""

    def __init__(self, parts: str, count_max: int) -> None:
        super().__init__(f"more than {count_max} {parts} at a time")


class UnreadableBody(BodyError):
    """The body cannot be opened here, but may be sound: it is encrypted, or does not unpack."""


class StoreUnanswered(StorageFull):
    """The shared store did not answer, or answered "try again": the request may or may not have
    been carried out.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text, errno.EAGAIN)


class NotOwned(StorageError):
    """Another broker of the cluster owns what the change is for."""
