"""The audit log: logins, access decisions and changes, each with principal, host and result.

The lines are JSON, in a separate file. An event costs a lookup in a table; a task writes in a
thread. Repeats are written once a minute with their count, so that neither a busy client nor
a hostile client can fill the disk. The module knows no protocol and no rule.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec
import trio

from braidlog.broker.access.rights import Action, Principal, Resource
from braidlog.broker.config.logging import ThrottledLog
from braidlog.broker.runtime.threads import run_in_thread

FILE: Final = "audit.jsonl"  # in the data directory, unless the settings name another file
# The time between two equal lines: a minute is enough to look into a case.
REPEAT_S: Final = 60.0
# Different lines remembered to find repeats, some 500 bytes each.
REMEMBERED_MAX: Final = 10_000
# Lines that wait for the disk, some 300 bytes each; further lines are counted and dropped.
WAITING_MAX: Final = 10_000
WRITE_INTERVAL_S: Final = 0.2
# Lines of an interval: five thousand a second. New names cannot fill the disk faster.
LINES_MAX: Final = 1000
# At this size the file becomes `audit.jsonl.1` and replaces the previous `audit.jsonl.1`.
OLDER: Final = ".1"
FILE_BYTES_MAX: Final = 64 * 1024 * 1024

FLAGS: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC

# The common fields of a kind of events; the first field is the kind's name.
Key = tuple[Any, ...]


class _Repeat:
    """A line that was written; repeats before `until` are only counted."""

    __slots__ = ("count", "until")

    def __init__(self, until: float) -> None:
        self.until = until
        self.count = 0


@dataclass(slots=True, frozen=True)
class AuditLimits:
    """Limits of an audit log: the size of a file, and the number of kinds of events in memory."""

    file_bytes: int = FILE_BYTES_MAX
    remembered: int = REMEMBERED_MAX


AUDIT_LIMITS = AuditLimits()


class AuditLog:
    """Gathers lines; `run` writes them `WRITE_INTERVAL_S` plus a write after the event at the
    latest.

    A crash may lose lines that are not on disk yet.
    """

    def __init__(
        self,
        path: Path | None,
        *,
        now_us: Callable[[], int],
        clock_s: Callable[[], float],
        seldom: ThrottledLog,
        limits: AuditLimits = AUDIT_LIMITS,
    ) -> None:
        """`path` is the file, None for no audit log. `now_us` is the time of day in microseconds,
        `clock_s` a steady clock in seconds; `seldom` logs a failing disk.
        """
        self.is_on = path is not None
        self.path = path
        self._now_us = now_us
        self._clock_s = clock_s
        self._seldom = seldom
        self._limits = limits
        self._repeats: dict[Key, _Repeat] = {}  # ordered by `until`
        self._lines: list[bytes] = []
        self._left = LINES_MAX
        self._dropped = 0
        self._reopen = False
        self._descriptor: int | None = None

    def decided(
        self, principal: Principal, at: str, action: Action, resource: Resource, *, allowed: bool
    ) -> None:
        """Note an allowed or refused action; `at` is the protocol and the client's host."""
        if not self.is_on:
            return
        if resource.is_long:
            resource = resource.shortened()
        self._count(("access", principal, at, action, resource, allowed))

    def login(self, name: str, at: str, method: str, *, allowed: bool) -> None:
        """Note a login that succeeded or failed. `name` is empty if the client gave no name."""
        if not self.is_on:
            return
        self._count(("login", name, at, method, allowed))

    def changed(self, principal: Principal, at: str, action: str, on: str) -> None:
        """Note a change of users, tokens or permissions. Each change is a line of its own."""
        if self.is_on:
            self._note("change", principal.name, at, what=action, on=on)

    def reopen(self) -> None:
        """Open the file again, after somebody has moved the file away."""
        self._reopen = True

    async def run(self) -> None:
        """Write the noted lines until cancelled, then the rest."""
        if not self.is_on:
            return
        try:
            while True:
                await trio.sleep(WRITE_INTERVAL_S)
                self._left = LINES_MAX
                self._note_counts(self._clock_s())
                if self._lines or self._dropped or self._reopen:
                    lines = self._take()
                    await run_in_thread(self._write, lines)
        finally:
            self._left = self._limits.remembered
            self._note_counts(math.inf)
            self._write(self._take())
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None

    def _count(self, key: Key) -> None:
        """Write a line for the first event of a kind; count those of the next REPEAT_S."""
        repeat = self._repeats.get(key)
        if repeat is not None:
            repeat.count += 1
            return
        if len(self._repeats) >= self._limits.remembered:
            self._note_counts(math.inf)
        self._repeats[key] = _Repeat(self._clock_s() + REPEAT_S)
        self._note_kind(key, 1)

    def _note_counts(self, now: float) -> None:
        """Write a line with the count of each kind whose time is up.

        A kind without events since the last line is forgotten.
        """
        repeats = self._repeats
        while repeats:
            key, repeat = next(iter(repeats.items()))
            if repeat.until > now:  # All entries behind this entry end later.
                return
            del repeats[key]
            if repeat.count:
                if now < math.inf:
                    repeats[key] = _Repeat(now + REPEAT_S)
                self._note_kind(key, repeat.count)

    def _note_kind(self, key: Key, count: int) -> None:
        """Note a line for this many events of a kind."""
        if key[0] == "access":
            _, principal, at, action, resource, allowed = key
            fields = {"action": action.value, "resource": str(resource), "allowed": allowed}
            self._note("access", principal.name, at, **fields, count=count)
        else:
            _, name, at, method, allowed = key
            self._note("login", name, at, method=method, allowed=allowed, count=count)

    def _note(self, event: str, name: str, at: str, **fields: object) -> None:
        if self._left <= 0 or len(self._lines) >= WAITING_MAX:
            self._dropped += 1
            return
        self._left -= 1
        protocol, _, host = at.partition(" ")
        line = {
            "time": _iso(self._now_us()),
            "event": event,
            "principal": name,
            "protocol": protocol,
            "host": host,
            **fields,
        }
        self._lines.append(msgspec.json.encode(line))

    def _take(self) -> bytes:
        if self._dropped:
            line = {"time": _iso(self._now_us()), "event": "left_out", "count": self._dropped}
            self._lines.append(msgspec.json.encode(line))
            self._dropped = 0
        lines, self._lines = self._lines, []
        return b"".join(line + b"\n" for line in lines)

    def _write(self, lines: bytes) -> None:
        """Write the lines, in a thread; at the end in the loop. A failing disk is only logged."""
        try:
            if self._reopen and self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None
            self._reopen = False
            if not lines:
                return
            descriptor = self._opened()
            while lines:
                lines = lines[os.write(descriptor, lines) :]
        except OSError as error:
            self._seldom.error("audit_not_written", cause="audit", reason=error.strerror)

    def _opened(self) -> int:
        """Return the open file; a new file if the old file was too large. Raises OSError."""
        assert self.path is not None
        if self._descriptor is None:
            self._descriptor = os.open(self.path, FLAGS, 0o600)
        if os.fstat(self._descriptor).st_size >= self._limits.file_bytes:
            os.close(self._descriptor)
            self._descriptor = None
            os.replace(self.path, self.path.with_name(self.path.name + OLDER))
            self._descriptor = os.open(self.path, FLAGS, 0o600)
        return self._descriptor


def _iso(us: int) -> str:
    """Return microseconds since 1970 as an RFC 3339 time."""
    return datetime.fromtimestamp(us / 1e6, UTC).isoformat(timespec="milliseconds")
