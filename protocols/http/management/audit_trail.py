"""`/api/v1/audit`: the lines of the audit log, the newest first.

Reads the file from its end, in a worker thread, then the file before. Knows files, no rule.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from braidlog.broker.access.audit import OLDER
from braidlog.broker.runtime.threads import run_in_thread
from braidlog.protocols.http import query
from braidlog.protocols.http.errors import BAD_QUERY, RequestRefused
from braidlog.protocols.http.requests import json_response
from braidlog.protocols.http.routes import Query

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker

BLOCK_BYTES: Final = 64 * 1024
# Bytes that a request looks at: 10,000 lines, some 20 ms of a worker thread. `next` goes on there.
SEARCHED_BYTES_MAX: Final = 2 * 1024 * 1024
LINES_DEFAULT, LINES_MAX = 100, 1000
EVENTS: Final = ("all", "login", "access", "change", "left_out")
PLACE: Final = re.compile(r"([0-9]{1,19})-([0-9]{1,19})")
TEXT = {"type": "string"}
AUDIT_QUERY: Final = (
    Query("limit", "Lines at most.", {"type": "integer", "minimum": 1, "maximum": LINES_MAX}),
    Query("before", "The `next` of the page before: older lines.", TEXT),
    Query("contains", "Lines with this text alone, in any case.", TEXT),
    Query("event", "Lines of this kind alone.", {"enum": list(EVENTS)}),
    Query("refused", "Refused logins and actions alone.", {"type": "boolean"}),
)

Line = dict[str, Any]


class AuditPage(msgspec.Struct):
    """Lines of the audit log, the newest first; `next` is the `before` of older lines, or null.
    `on` is false for a broker without an audit log.
    """

    on: bool
    lines: list[Line]
    next: str | None


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The condition of a request for lines."""

    contains: bytes
    event: str
    only_refused: bool

    def __call__(self, text: bytes) -> Line | None:
        """Return the fields of a wanted line; None for another line."""
        if self.contains not in text.lower():
            return None
        try:
            line: Line = msgspec.json.decode(text, type=dict[str, Any])
        except msgspec.DecodeError:  # A crash has cut the line.
            return None
        if self.event != EVENTS[0] and line.get("event") != self.event:
            return None
        return None if self.only_refused and line.get("allowed") is not False else line


class AuditTrail:
    """Answers requests for lines of the audit log."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def show(self, request: Request) -> Response:
        """Lines of the audit log, the newest first: `?limit=`, `?before=`, `?contains=`, `?event=`,
        `?refused=true`. A line is in the file a fraction of a second after the event.
        """
        limit = query.number(request, ("limit",), LINES_DEFAULT, least=1, most=LINES_MAX)
        assert limit is not None
        wanted = _Wanted(
            request.query_params.get("contains", "").lower().encode(),
            query.choice(request, "event", EVENTS),
            query.truth(request, ("refused",)),
        )
        before = _place(request.query_params.get("before"))
        path = self._broker.audit.path
        if path is None:
            return json_response(AuditPage(on=False, lines=[], next=None))
        return json_response(await run_in_thread(_page, path, before, limit, wanted))


def _place(text: str | None) -> tuple[int, int] | None:
    """Return the file's number and the position of a place. Raises RequestRefused."""
    if text is None:
        return None
    match = PLACE.fullmatch(text)
    if match is None:
        raise RequestRefused(BAD_QUERY, f"before is the next of a page, not {text[:40]!r}")
    return int(match[1]), int(match[2])


def _page(
    path: Path,
    before: tuple[int, int] | None,
    limit: int,
    wanted: Callable[[bytes], Line | None],
) -> AuditPage:
    """Return the lines before a place; the end of the newest file without a place. A place in a
    file that is gone has no older lines.
    """
    lines: list[Line] = []
    left = SEARCHED_BYTES_MAX
    is_reached = before is None
    for name in (path, path.with_name(path.name + OLDER)):
        # The broker may not have written a line, or not have begun a second file.
        with suppress(FileNotFoundError), open(name, "rb") as file:
            number = os.fstat(file.fileno()).st_ino
            end = os.fstat(file.fileno()).st_size
            if not is_reached and before is not None:
                if before[0] != number:
                    continue
                is_reached, end = True, min(before[1], end)
            for begin, text in _backwards(file.fileno(), end):
                if len(lines) == limit or left <= 0:
                    return AuditPage(on=True, lines=lines, next=f"{number}-{begin + len(text)}")
                left -= len(text)
                line = wanted(text)
                if line is not None:
                    lines.append(line)
    return AuditPage(on=True, lines=lines, next=None)


def _backwards(descriptor: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Yield the lines before a position with their begins, the last first. A line without its end
    is still being written, and is left out.
    """
    pending = b""  # From `end` to the begin of the line that came last.
    while end > 0 and len(pending) < SEARCHED_BYTES_MAX:
        begin = max(end - BLOCK_BYTES, 0)
        pending = os.pread(descriptor, end - begin, begin) + pending
        first = 0 if begin == 0 else pending.find(b"\n") + 1
        place = begin + len(pending)
        *lines, unfinished = pending[first:].split(b"\n")
        place -= len(unfinished)
        for line in reversed(lines):
            place -= len(line) + 1
            yield place, line + b"\n"
        pending, end = pending[:first] if first else pending, begin
