"""`braidlog topics` and `braidlog groups`: administer topics and groups of a running broker.

Data goes to standard output, everything else to standard error. Knows no broker but its JSON API,
and imports the table library only to draw a table.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter

from braidlog.broker.cli.client import (
    EXIT_NOT_FOUND,
    EXIT_USAGE,
    AdminClient,
    AdminError,
    Json,
)
from braidlog.broker.cli.confirming import Yes, confirm

PIPE_WIDTH = 160  # Width of a table that is not on a terminal; longer cells are folded.

NUMBER = re.compile("-?(0|[1-9][0-9]*)", re.ASCII)  # The broker reads text with units.

topics = App(name="topics", help="List, show, create, alter and delete topics.")
groups = App(
    name="groups",
    help="List and show groups: Kafka groups, Pulsar subscriptions and Iggy consumers are one.",
)


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Where:
    """Options of every command."""

    url: Annotated[str, Parameter(env_var="BRAIDLOG_URL", help="The broker's HTTP listener.")] = (
        "http://127.0.0.1:8080"
    )
    output: Annotated[Literal["table", "json"], Parameter(help="For people or for programs.")] = (
        "table"
    )


HERE = Where()


@topics.command(name="list")
def list_topics(
    *,
    namespace: Annotated[str | None, Parameter(help="TENANT/NAMESPACE, else all.")] = None,
    where: Where = HERE,
) -> int:
    """List all topics with their records and sizes.

    Example: braidlog topics list --output json
    """

    def ask(client: AdminClient) -> None:
        found = list(client.topics(namespace))
        columns = ("name", "partitions", "records", "size_bytes", "durability")
        print_answer(where, found, lambda: [("", columns, cells(found, columns))])

    return run_command(where, ask)


@topics.command(name="show")
def show_topic(topic: str, *, where: Where = HERE) -> int:
    """Show a topic: settings, each partition's offsets and files, and its groups.

    Example: braidlog topics show public/default/orders
    """

    def ask(client: AdminClient) -> None:
        found = client.topic(topic)
        print_answer(where, found, lambda: _topic_tables(found))

    return run_command(where, ask)


@topics.command(name="create")
def create_topic(
    topic: str,
    *,
    partitions: Annotated[int | None, Parameter(help="Else as many as the broker says.")] = None,
    setting: Annotated[
        list[str] | None,
        Parameter(name="--set", negative="", help="KEY=VALUE, as durability=written. Repeatable."),
    ] = None,
    where: Where = HERE,
) -> int:
    """Create a topic; fails if the topic already exists.

    Example: braidlog topics create orders --partitions 3
    """

    def ask(client: AdminClient) -> None:
        body: Json = {"settings": dict(_setting(text) for text in setting or ())}
        if partitions is not None:
            body["partitions"] = partitions
        made = client.create_topic(topic, body)
        print_answer(where, made, lambda: _topic_tables(made))

    return run_command(where, ask)


@topics.command(name="alter")
def alter_topic(
    topic: str,
    *,
    partitions: Annotated[int | None, Parameter(help="How many it has from now on.")] = None,
    setting: Annotated[
        list[str] | None,
        Parameter(name="--set", negative="", help="KEY=VALUE, as retention_ms=7d. Repeatable."),
    ] = None,
    unset: Annotated[
        list[str] | None,
        Parameter(negative="", help="KEY: what the broker's configuration says. Repeatable."),
    ] = None,
    where: Where = HERE,
) -> int:
    """Change settings of a topic, or add partitions; in force at once.

    Example: braidlog topics alter orders --set retention_bytes=10GiB --set durability=written
    """

    def ask(client: AdminClient) -> None:
        changes = dict.fromkeys(unset or ()) | dict(_setting(text) for text in setting or ())
        body: Json = {"settings": changes}
        if partitions is not None:
            body["partitions"] = partitions
        elif not changes:
            raise AdminError("nothing to change: --set, --unset or --partitions", EXIT_USAGE)
        altered = client.alter_topic(topic, body)
        print_answer(where, altered, lambda: _topic_tables(altered))

    return run_command(where, ask)


@topics.command(name="delete")
def delete_topic(
    topic: str,
    *,
    yes: Yes = False,
    where: Where = HERE,
) -> int:
    """Delete a topic with all its records and groups. This cannot be undone.

    Example: braidlog topics delete orders --yes
    """

    def ask(client: AdminClient) -> None:
        confirm(f"Delete {topic} with all its records and groups?", yes=yes)
        client.delete_topic(topic)
        print(f"deleted {topic}", file=sys.stderr)

    return run_command(where, ask)


@groups.command(name="list")
def list_groups(
    *,
    topic: Annotated[str | None, Parameter(help="Only this topic's.")] = None,
    where: Where = HERE,
) -> int:
    """List all groups on all topics, with the number of records not yet read.

    Example: braidlog groups list --topic orders
    """

    def ask(client: AdminClient) -> None:
        found = list(client.groups(topic=topic))
        columns = ("topic", "group", "partitions", "backlog")
        print_answer(where, found, lambda: [("", columns, cells(_named(found), columns))])

    return run_command(where, ask)


@groups.command(name="show")
def show_group(
    group: str,
    *,
    topic: Annotated[str | None, Parameter(help="Only on this topic.")] = None,
    encoding: Annotated[
        Literal["utf8", "base64"], Parameter(help="How the group's name is written here.")
    ] = "utf8",
    where: Where = HERE,
) -> int:
    """Show a group, partition by partition, on every topic that the group reads.

    Example: braidlog groups show billing --topic orders
    """

    def ask(client: AdminClient) -> None:
        found = [
            client.group(one["topic"], one["group"], one["encoding"])
            for one in client.groups(topic=topic, group=group, encoding=encoding)
        ]
        if not found:
            place = "" if topic is None else f" on {topic}"
            raise AdminError(f"no group {group!r}{place}", EXIT_NOT_FOUND)
        print_answer(where, found, lambda: _group_tables(found))

    return run_command(where, ask)


Table = tuple[str, Sequence[str], list[list[str]]]  # Title, columns, rows.


def run_command(where: Where, ask: Callable[[AdminClient], None]) -> int:
    try:
        ask(AdminClient(where.url))
    except AdminError as error:
        print(f"braidlog: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def print_answer(where: Where, answer: object, tables: Callable[[], Iterable[Table]]) -> None:
    if where.output == "json":
        print(json.dumps(answer, indent=2))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table as Drawn
    from rich.text import Text

    console = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH)
    for title, columns, rows in tables():
        drawn = Drawn(title=Text(title) if title else None, box=box.SIMPLE, title_justify="left")
        for column in columns:
            drawn.add_column(column, overflow="fold")
        for row in rows:
            drawn.add_row(*(Text(cell) for cell in row))
        console.print(drawn)


def _topic_tables(topic: Json) -> Iterable[Table]:
    partitioned = "yes" if topic["partitioned"] else "no"
    row = [topic["durability"], partitioned, time_text(topic["created_us"])]
    yield topic["name"], ("durability", "partitioned", "created"), [row]
    own = topic["settings"]
    kept = [
        [name, _setting_text(name, value), "topic" if name in own else "broker"]
        for name, value in sorted({**own, **topic["in_force"]}.items())
    ]
    yield "settings", ("name", "in force", "set by"), kept
    columns = (
        "partition",
        "log_start_offset",
        "high_watermark",
        "log_end_offset",
        "size_bytes",
        "compacted_offset",
        "segments",
    )
    rows = [{**one, "segments": len(one["segments"])} for one in topic["partitions"]]
    yield "partitions", columns, cells(rows, columns)
    if topic["groups"]:
        few = ("group", "backlog")
        yield "groups", few, cells(_named(topic["groups"]), few)


def _group_tables(found: Sequence[Json]) -> Iterable[Table]:
    columns = ("partition", "position", "acknowledged", "backlog", "high_watermark")
    for group in found:
        rows = [{**one, "acknowledged": _ranges(one)} for one in group["partitions"]]
        (named,) = _named([group])
        yield f"{named['group']} on {group['topic']}", columns, cells(rows, columns)
        if group["members"]:
            members = [
                {**one, "partitions": ", ".join(map(str, one["partitions"]))}
                for one in group["members"]
            ]
            few = ("protocol", "name", "address", "partitions")
            yield "members", few, cells(members, few)


def cells(rows: Iterable[Json], columns: Sequence[str]) -> list[list[str]]:
    return [["-" if row[key] is None else str(row[key]) for key in columns] for row in rows]


def _named(found: Iterable[Json]) -> list[Json]:
    """Return groups with distinct printable names, even if a name is no text."""
    marks = {"utf8": "", "base64": " (base64)"}
    return [{**group, "group": group["group"] + marks[group["encoding"]]} for group in found]


def _ranges(position: Json) -> str:
    told = [f"{first}-{last}" for first, last in position["acknowledged"]]
    more = position["acknowledged_ranges"] - len(told)
    return ", ".join([*told, *([f"and {more} more"] if more else [])]) or "-"


def _setting(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise AdminError(f"--set {text}: expected KEY=VALUE", EXIT_USAGE)
    plain = NUMBER.fullmatch(value) or value in ("true", "false")
    return key, json.loads(value) if plain else value


def _setting_text(name: str, value: object) -> str:
    """Return a value as `--set` takes it; unlimited values have their own text."""
    if value is None:
        return "no limit" if name.endswith(("_bytes", "_ms", "_s")) else "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


def time_text(time_us: int) -> str:
    return datetime.fromtimestamp(time_us / 1_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
