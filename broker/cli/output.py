"""Options and answers that all commands of a running broker share.

Data goes to standard output, everything else to standard error. Tables are plain text: no command
prints an escape code. Knows no command and no path of the broker's API.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from braidlog.broker.cli.client import AdminClient, Json
from braidlog.broker.cli.contexts import resolve

Output = Literal["table", "json", "ndjson"]
OutputOption = Annotated[Output, Parameter(help="For people, or for programs.")]
Table = tuple[str, Sequence[str], list[list[str]]]  # Title, columns, rows.


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Where:
    """Options of every command that asks a broker."""

    url: Annotated[
        str | None,
        Parameter(help="The broker's HTTP listener, else BRAIDLOG_URL, else the context's."),
    ] = None
    context: Annotated[
        str | None, Parameter(help="Broker and login by a name in the user's contexts file.")
    ] = None
    token_file: Annotated[Path | None, Parameter(help="File with an access token.")] = None
    output: OutputOption = "table"


HERE = Where()


def client_of(where: Where) -> AdminClient:
    """Return a client of the broker that the options name. Raises AdminError."""
    return AdminClient(*resolve(where.url, where.context, where.token_file))


def print_answer(where: Where, answer: object, tables: Callable[[], Iterable[Table]]) -> None:
    """Print an answer as the user wants: `ndjson` has an object of a list in each line."""
    if where.output == "table":
        print("\n\n".join(table_text(*table) for table in tables()))
    elif where.output == "json":
        print(json.dumps(answer, indent=2))
    else:
        for element in answer if isinstance(answer, list) else [answer]:
            print(json.dumps(element))


def print_rows(
    where: Where,
    answer: Json | Sequence[Json],
    columns: Sequence[str],
    rows: Iterable[Json] | None = None,
) -> None:
    """Print an answer, an object or a list of objects; as a table of `rows`, else of the answer."""
    listed = [answer] if isinstance(answer, dict) else answer
    table_rows = listed if rows is None else rows
    print_answer(where, answer, lambda: [("", columns, cells(table_rows, columns))])


def table_text(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table as aligned text: numbers to the right, control characters escaped."""
    shown = [[plain(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *shown, strict=True)]
    is_number = [
        bool(rows) and all(cell == "-" or cell.isdecimal() for cell in column)
        for column in (zip(*shown, strict=True) if rows else [()] * len(columns))
    ]
    lines = [title] if title else []
    for row in [columns, *shown]:
        pairs = zip(row, widths, is_number, strict=True)
        texts = [cell.rjust(width) if right else cell.ljust(width) for cell, width, right in pairs]
        lines.append("  ".join(texts).rstrip())
    return "\n".join(lines)


def plain(text: str) -> str:
    """Return text without characters that a terminal would obey."""
    return text if text.isprintable() else text.encode("unicode_escape").decode()


def cells(rows: Iterable[Json], columns: Sequence[str]) -> list[list[str]]:
    """Return the cells of a table; `-` for null."""
    return [["-" if row[key] is None else str(row[key]) for key in columns] for row in rows]


def time_text(time_us: int) -> str:
    """Return a time in UTC, to the second."""
    return datetime.fromtimestamp(time_us / 1_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
