"""Faults below the protocols: a clock that can move, a disk that can be full, and refusals at the
broker's interfaces.

The product knows nothing of this module: the broker gets the clock, the disk and the wrapped
interfaces as its own parts.
"""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from braidlog.broker import errors
from braidlog.storage.log.disk import Disk

Buffer = bytes | bytearray | memoryview

# Operations that can be refused: methods of an interface, by the interface's own name.
OPERATIONS: Mapping[str, Mapping[str, str]] = {
    "log": {"append": "append", "append_all": "append", "read": "read"},
    "positions": {"move": "commit", "move_all": "commit"},
    "topics": {
        "create": "create_topic",
        "auto_create": "create_topic",
        "delete": "delete_topic",
        "alter_settings": "alter_topic",
        "add_partitions": "alter_topic",
        "keep_partitions": "alter_topic",
    },
}
MICROSECOND = 1_000_000


class UnknownFault(ValueError):
    """No fault, operation or error has this name; the text lists the names that exist."""


def _error_name(kind: type[errors.BrokerError]) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()


ERRORS: Mapping[str, type[errors.BrokerError]] = {
    _error_name(kind): kind for kind in errors.BrokerError.__subclasses__()
}


class MovableClock:
    """The wall clock and the monotonic clock of a broker, moved ahead or back on demand.

    Both move together when time goes ahead, as if the time had passed. When the wall clock goes
    back, the monotonic clock stays.
    """

    def __init__(self) -> None:
        self._wall_us = 0
        self._steady_us = 0

    def move(self, seconds: float) -> None:
        """Move the clock by seconds; negative seconds move the wall clock back."""
        self._wall_us += round(seconds * MICROSECOND)
        self._steady_us += max(0, round(seconds * MICROSECOND))

    def now_us(self) -> int:
        """Wall-clock time in microseconds since 1970."""
        return time.time_ns() // 1000 + self._wall_us

    def steady_us(self) -> int:
        """Microseconds of a monotonic clock."""
        return time.monotonic_ns() // 1000 + self._steady_us


class FillableDisk(Disk):
    """The real disk, until it is full: then writes and new files fail with ENOSPC."""

    def __init__(self) -> None:
        self.is_full = False

    def open(self, path: str, flags: int) -> int:
        if flags & os.O_CREAT:
            self._check(path)
        return super().open(path, flags)

    def write(self, path: str, fd: int, parts: Sequence[Buffer], pos: int) -> int:
        self._check(path)
        return super().write(path, fd, parts, pos)

    def allocate(self, path: str, fd: int, size: int, pos: int) -> None:
        self._check(path)
        super().allocate(path, fd, size, pos)

    def _check(self, path: str) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)


@dataclass(slots=True)
class _Refusal:
    """Refusals of an operation that are still to come."""

    kind: type[errors.BrokerError]
    count: int


class Refusals:
    """Refuses the next calls of named operations."""

    def __init__(self) -> None:
        self._pending: dict[str, _Refusal] = {}

    def refuse(self, operation: str, error: str, count: int) -> None:
        """Let the next `count` calls of an operation raise the named error of the broker. Raises
        UnknownFault.
        """
        known = sorted({name for names in OPERATIONS.values() for name in names.values()})
        if operation not in known:
            raise UnknownFault(f"operation {operation!r} is unknown, expected one of {known}")
        if error not in ERRORS:
            raise UnknownFault(f"error {error!r} is unknown, expected one of {sorted(ERRORS)}")
        self._pending[operation] = _Refusal(ERRORS[error], count)

    def check(self, operation: str) -> None:
        """Raise the error that is due for a call of the operation, if any."""
        refusal = self._pending.get(operation)
        if refusal is None:
            return
        refusal.count -= 1
        if refusal.count <= 0:
            del self._pending[operation]
        raise refusal.kind("refused by a fault of braidlog.testing")

    def heal(self) -> None:
        """Refuse nothing any more."""
        self._pending.clear()


class Refusing:
    """An object of the broker whose named methods ask `Refusals` first; the rest is the object's
    own.
    """

    def __init__(self, target: object, operations: Mapping[str, str], refusals: Refusals) -> None:
        self._target = target
        for method, operation in operations.items():
            setattr(self, method, _checked(getattr(target, method), operation, refusals))

    def __getattr__(self, name: str) -> object:
        return getattr(self._target, name)


def _checked(
    method: Callable[..., object], operation: str, refusals: Refusals
) -> Callable[..., object]:
    def call(*arguments: object, **named: object) -> object:
        refusals.check(operation)
        return method(*arguments, **named)

    return call
