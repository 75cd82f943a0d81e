"""Prints lines of messages in the output that the user wants, and counts them.

Knows standard output and the texts of messages, no broker.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from typing import Self

from braidlog.broker.cli.client import Json
from braidlog.broker.cli.message_text import (
    COLUMNS,
    Template,
    head,
    key_of,
    published_us,
    table_line,
    value_of,
)

UNLIMITED = sys.maxsize


class MessagePrinter:
    """Prints messages; as a context manager completes the output."""

    def __init__(
        self,
        output: str,
        template: Template | None,
        wanted: re.Pattern[bytes] | None,
        count: int | None,
        *,
        headers_only: bool = False,
    ) -> None:
        self.printed = 0
        self.seen = 0  # Messages with those that `wanted` left out.
        self._output = output
        self._template = template
        self._wanted = wanted
        self._count = UNLIMITED if count is None else count
        self._headers_only = headers_only
        self._topic = ""

    @property
    def left(self) -> int:
        """The number of messages that may still be printed."""
        return self._count - self.printed

    @property
    def wants(self) -> bool:
        """True if more messages may be printed."""
        return self.left > 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Complete a JSON array."""
        if kind is None and self._output == "json" and self._template is None:
            print("\n]" if self.printed else "[]")

    def print_lines(
        self, topic: str, lines: Sequence[bytes], *, want_ids: bool = False
    ) -> list[str]:
        """Print lines of messages; return the ids of all lines if these are wanted."""
        self.seen += len(lines)
        must_parse = want_ids or self._template or self._wanted or self._output == "table"
        if not must_parse:
            self._write_json(topic, lines)
            return []
        ids: list[str] = []
        for line in lines:
            if not self.wants:
                break
            message = json.loads(line)
            ids.append(message["messageId"])
            if self._wanted is None or self._matches(message):
                self._write(topic, line, message)
        sys.stdout.flush()
        return ids

    def print_last(self, topic: str, lines: Sequence[bytes], count: int) -> None:
        """Print the latest `count` of messages of several partitions, by publish time."""
        timed_lines = [(published_us(json.loads(line)), line) for line in lines]
        timed_lines.sort(key=lambda pair: pair[0])
        self.print_lines(
            topic, [line for _, line in timed_lines[len(timed_lines) - count :]] if count else []
        )

    def _matches(self, message: Json) -> bool:
        assert self._wanted is not None
        parts = key_of(message), value_of(message)
        return any(part is not None and self._wanted.search(part) for part in parts)

    def _write(self, topic: str, line: bytes, message: Json) -> None:
        if self._template is None and self._output != "table":
            self._write_json(topic, [line])
            return
        self.printed += 1  # First: an interrupt may come as soon as the message is out.
        if self._template is not None:
            sys.stdout.buffer.write(self._template.bytes_of(topic, message))
        else:
            if topic != self._topic:
                print(f"{topic}\n{head(COLUMNS)}")
                self._topic = topic
            print(table_line(message, headers_only=self._headers_only))

    def _write_json(self, topic: str, lines: Sequence[bytes]) -> None:
        lines = lines[: self.left]
        if not lines:
            return
        start = b'{"topic":%b,' % json.dumps(topic).encode()
        whole = [start + line[1:] for line in lines]
        sys.stdout.flush()
        file = sys.stdout.buffer
        is_first = not self.printed
        self.printed += len(lines)
        if self._output == "json":
            file.write(b"[\n" if is_first else b",\n")
            file.write(b",\n".join(whole))
        else:
            file.write(b"\n".join([*whole, b""]))
        file.flush()
