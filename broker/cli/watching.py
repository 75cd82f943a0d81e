"""`braidlog connections`, `stats` and `health`: the state of a running broker.

Knows no broker but its JSON API.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Annotated

from cyclopts import Parameter

from braidlog.broker.cli.client import API, AdminClient, Json, topic_path
from braidlog.broker.cli.failures import EXIT_FAILED, EXIT_USAGE, AdminError
from braidlog.broker.cli.output import (
    HERE,
    Table,
    Where,
    cells,
    client_of,
    print_answer,
    print_rows,
    time_text,
)

Watch = Annotated[float | None, Parameter(help="Again and again, after so many seconds.")]
TOTALS = (
    "version",
    "uptime_s",
    "topics",
    "partitions",
    "disk_free_bytes",
    "disk_bytes",
    "durability",
)
COUNTS = ("records_in", "bytes_in", "records_out", "bytes_out")


WritesTo = Annotated[str | None, Parameter(help="Connections that have written to that topic.")]


def connections(*, writes_to: WritesTo = None, watch: Watch = None, where: Where = HERE) -> int:
    """List the open connections of clients of all protocols.

    Example: braidlog connections --writes-to orders
    """
    path = f"{API}/connections"
    if writes_to is not None:
        path = f"{API}/topics/{topic_path(writes_to)}/writers"

    def look(client: AdminClient) -> int:
        connections = list(client.pages(path, "connections"))
        columns = (
            tuple(connections[0]) if connections else ("id", "protocol", "listener", "address")
        )
        print_rows(where, connections, columns)
        return 0

    return _watched(where, watch, look)


def stats(*, watch: Watch = None, where: Where = HERE) -> int:
    """Show totals of the broker, by protocol; with --watch also rates between two looks.

    Example: braidlog stats --watch 2
    """
    before: Json = {}

    def look(client: AdminClient) -> int:
        answer = client.ask("GET", f"{API}/stats")
        seconds = answer["uptime_s"] - before.get("uptime_s", 0.0)
        rows = []
        for name, totals in answer["protocols"].items():
            earlier = before.get("protocols", {}).get(name, {})
            if earlier and seconds > 0:
                for count in COUNTS:
                    change = max(totals[count] - earlier.get(count, 0), 0)
                    totals[f"{count}_per_s"] = round(change / seconds)
            rows.append({"protocol": name, **totals})
        columns = tuple({name: None for row in rows for name in row}) or ("protocol",)
        shown = [{**dict.fromkeys(columns), **row} for row in rows]
        print_answer(
            where,
            answer,
            lambda: [
                ("", TOTALS, cells([answer], TOTALS)),
                ("", columns, cells(shown, columns)),
                *_further_tables(answer),
            ],
        )
        before.clear()
        before.update(answer)
        return 0

    return _watched(where, watch, look)


def _further_tables(stats: Json) -> Iterator[Table]:
    """Yield a table of refused requests and a table of certificates, if there are any."""
    refused = ("protocol", "error", "requests")
    if stats["refused"]:
        yield "refused since the start", refused, cells(stats["refused"], refused)
    ends = ("listener", "ends", "days_left")
    rows = [
        {**row, "ends": "unknown" if row["expires_us"] is None else time_text(row["expires_us"])}
        for row in stats["certificates"]
    ]
    if rows:
        yield "certificates", ends, cells(rows, ends)


def health(*, watch: Watch = None, where: Where = HERE) -> int:
    """Show if the broker accepts work; exits with 1 if not, with 3 if no broker answers.

    Example: braidlog health
    """

    def look(client: AdminClient) -> int:
        answer = client.ask("GET", "/readyz", accepted=503)
        rows = [{"check": name, "good": good} for name, good in answer["checks"].items()]
        print_rows(where, answer, ("check", "good"), rows)
        return 0 if answer["ready"] else EXIT_FAILED

    return _watched(where, watch, look)


def _watched(where: Where, watch: float | None, look: Callable[[AdminClient], int]) -> int:
    """Run a look once, or repeatedly until interrupted; returns the exit code of the last look."""

    client = client_of(where)
    if watch is not None and not watch > 0:
        raise AdminError(f"--watch {watch:g}: expected more than 0 seconds", EXIT_USAGE)
    code = look(client)
    while watch is not None:
        time.sleep(watch)
        print(flush=True)
        code = look(client)
    return code
