"""`braidlog topics` and `braidlog groups`: administer topics and groups of a running broker.

Data goes to standard output, everything else to standard error. Knows no broker but its JSON API.
"""

from __future__ import annotations

import base64
import json
import os
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter

from braidlog.broker.cli.client import API, AdminClient, Json, path_part, topic_path
from braidlog.broker.cli.confirming import Yes, confirm
from braidlog.broker.cli.failures import EXIT_NOT_FOUND, EXIT_USAGE, AdminError
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
from braidlog.broker.cli.places import bounds_of, check_place, offset_of

NUMBER = re.compile("-?(0|[1-9][0-9]*)", re.ASCII)  # The broker reads text with units.

topics = App(name="topics", help="List, show, create, alter and delete topics.")
groups = App(
    name="groups",
    help="List, show, move and delete groups: Kafka groups, Pulsar subscriptions and Iggy consumers"
    " are one.",
)


@topics.command(name="list")
def list_topics(
    *,
    namespace: Annotated[str | None, Parameter(help="TENANT/NAMESPACE, else all.")] = None,
    where: Where = HERE,
) -> None:
    """List all topics with their records and sizes.

    Example: braidlog topics list --output json
    """
    topics_shown = list(client_of(where).pages(f"{API}/topics", "topics", namespace=namespace))
    print_rows(where, topics_shown, ("name", "partitions", "records", "size_bytes", "durability"))


@topics.command(name="show")
def show_topic(topic: str, *, where: Where = HERE) -> None:
    """Show a topic: settings, each partition's offsets and files, and its groups.

    Example: braidlog topics show public/default/orders
    """
    details = client_of(where).topic(topic)
    print_answer(where, details, lambda: _topic_tables(details))


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
) -> None:
    """Create a topic; fails if the topic already exists.

    Example: braidlog topics create orders --partitions 3
    """
    client = client_of(where)
    body: Json = {"settings": dict(_setting(text) for text in setting or ())}
    if partitions is not None:
        body["partitions"] = partitions
    created = client.ask("PUT", f"{API}/topics/{topic_path(topic)}", body)
    print_answer(where, created, lambda: _topic_tables(created))


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
) -> None:
    """Change settings of a topic, or add partitions; in force at once.

    Example: braidlog topics alter orders --set retention_bytes=10GiB --set durability=written
    """
    client = client_of(where)
    changes = dict.fromkeys(unset or ()) | dict(_setting(text) for text in setting or ())
    body: Json = {"settings": changes}
    if partitions is not None:
        body["partitions"] = partitions
    elif not changes:
        raise AdminError("nothing to change: --set, --unset or --partitions", EXIT_USAGE)
    altered = client.ask("PATCH", f"{API}/topics/{topic_path(topic)}", body)
    print_answer(where, altered, lambda: _topic_tables(altered))


@topics.command(name="delete")
def delete_topic(
    topic: str,
    *,
    yes: Yes = False,
    where: Where = HERE,
) -> None:
    """Delete a topic with all its records and groups. This cannot be undone.

    Example: braidlog topics delete orders --yes
    """
    client = client_of(where)
    confirm(f"Delete {topic} with all its records and groups?", yes=yes)
    client.ask("DELETE", f"{API}/topics/{topic_path(topic)}")
    print(f"deleted {topic}", file=sys.stderr)


@groups.command(name="list")
def list_groups(
    *,
    topic: Annotated[str | None, Parameter(help="Only this topic's.")] = None,
    where: Where = HERE,
) -> None:
    """List all groups on all topics, with the number of records not yet read, and the members.

    A group whose members have not committed yet has no backlog.

    Example: braidlog groups list --topic orders
    """
    answer = _group_rows(client_of(where), topic=topic)
    columns = ("topic", "group", "type", "state", "members", "partitions", "backlog")
    print_rows(where, answer, columns, _named(answer))


@groups.command(name="show")
def show_group(
    group: str,
    *,
    topic: Annotated[str | None, Parameter(help="Only on this topic.")] = None,
    encoding: Annotated[
        Literal["utf8", "base64"], Parameter(help="How the group's name is written here.")
    ] = "utf8",
    where: Where = HERE,
) -> None:
    """Show a group, partition by partition, on every topic that the group reads.

    Example: braidlog groups show billing --topic orders
    """
    client = client_of(where)
    matches = [
        row if path is None else client.ask("GET", path)
        for row, path in _matches(client, group, topic, encoding)
    ]
    print_answer(where, matches, lambda: _group_tables(matches))


@groups.command(name="reset")
def reset_group(
    group: str,
    *,
    topic: Annotated[str, Parameter(help="The topic on which the group is moved.")],
    to: Annotated[
        str,
        Parameter(
            allow_leading_hyphen=True,
            help="earliest, latest, an offset, -N, a time, or 2h (ago).",
        ),
    ],
    partition: Annotated[
        int | None, Parameter(name=["--partition", "-p"], help="Only this partition.")
    ] = None,
    dry_run: Annotated[bool, Parameter(negative="", help="Show the move, change nothing.")] = False,
    yes: Yes = False,
    where: Where = HERE,
) -> None:
    """Move a group to another place in a topic, in all protocols; creates a missing group.

    Stop members of Kafka and Iggy first: their next commit would move the group again.

    Example: braidlog groups reset billing --topic orders --to 2h --dry-run
    """
    client = client_of(where)
    check_place(to, "--to")
    moves = _moves(client, group, topic, partition, to)
    print_rows(where, moves, ("partition", "position", "new_position", "records"))
    if dry_run:
        return
    confirm(f"Move {group} on {topic} to {to}?", yes=yes)
    positions = {str(move["partition"]): move["new_position"] for move in moves}
    path = f"{_group_path(topic, os.fsencode(group))}/positions"
    client.ask("PUT", path, {"positions": positions})


def _moves(
    client: AdminClient, group: str, topic: str, partition: int | None, to: str
) -> list[Json]:
    """Return the present and the new position of a group in each partition. Raises AdminError."""
    bounds = bounds_of(client, topic, partition)
    try:
        path = f"{_group_path(topic, os.fsencode(group))}?encoding=utf8"
        shown = client.ask("GET", path)
    except AdminError as error:
        if error.exit_code != EXIT_NOT_FOUND:
            raise
        shown = {"partitions": [], "members": []}
    if shown["members"]:
        names = ", ".join(
            f"{member['protocol']} {member['name']}" for member in shown["members"][:3]
        )
        warning = f"{len(shown['members'])} members are reading, as {names}"
        print(f"braidlog: {warning}: they may move the group again", file=sys.stderr)
    before = {part["partition"]: part["position"] for part in shown["partitions"]}
    moves: list[Json] = []
    for bound in bounds:
        wanted = offset_of(client, topic, bound, to, "--to")
        present = before.get(bound.partition)
        moves.append(
            {
                "partition": bound.partition,
                "position": present,
                "new_position": wanted,
                "records": bound.end - wanted,
            }
        )
    return moves


@groups.command(name="delete")
def delete_group(
    group: str,
    *,
    topic: Annotated[str | None, Parameter(help="Only on this topic, else on all.")] = None,
    encoding: Annotated[
        Literal["utf8", "base64"], Parameter(help="How the group's name is written here.")
    ] = "utf8",
    force: Annotated[bool, Parameter(negative="", help="Delete a group with members too.")] = False,
    yes: Yes = False,
    where: Where = HERE,
) -> None:
    """Delete a group with its positions, on a topic or on all topics. This cannot be undone.

    Example: braidlog groups delete billing --topic orders --yes
    """
    client = client_of(where)
    matches = [
        (row["topic"], path) for row, path in _matches(client, group, topic, encoding) if path
    ]
    if not matches:
        text = f"group {group!r} has members but no topic: there is no position to delete"
        raise AdminError(text, EXIT_NOT_FOUND)
    names = ", ".join(name for name, _ in matches)
    confirm(f"Delete {group} on {names}?", yes=yes)
    for name, path in matches:
        client.ask("DELETE", f"{path}&force={str(force).lower()}")
        print(f"deleted {group} on {name}", file=sys.stderr)


def _topic_tables(topic: Json) -> Iterable[Table]:
    partitioned = "yes" if topic["partitioned"] else "no"
    row = [topic["durability"], partitioned, time_text(topic["created_us"])]
    yield topic["name"], ("durability", "partitioned", "created"), [row]
    own = topic["settings"]
    own_settings = [
        [name, _setting_text(name, value), _set_by(topic, name)]
        for name, value in sorted({**own, **topic["in_force"]}.items())
    ]
    yield "settings", ("name", "in force", "set by"), own_settings
    columns = (
        "partition",
        "log_start_offset",
        "high_watermark",
        "log_end_offset",
        "size_bytes",
        "compacted_offset",
        "segments",
    )
    rows = [{**part, "segments": len(part["segments"])} for part in topic["partitions"]]
    yield "partitions", columns, cells(rows, columns)
    if topic["groups"]:
        few = ("group", "backlog")
        yield "groups", few, cells(_named(topic["groups"]), few)


def _set_by(topic: Json, name: str) -> str:
    """Return the level that sets a setting of a topic."""
    if name in topic["settings"]:
        return "topic"
    return "namespace" if name in topic.get("inherited", ()) else "broker"


def _group_tables(group_list: Sequence[Json]) -> Iterable[Table]:
    columns = ("partition", "position", "acknowledged", "backlog", "high_watermark")
    for group in group_list:
        (named,) = _named([group])
        kind = " ".join(filter(None, (group["type"], group["state"])))
        if group["topic"] is None:
            title = f"{named['group']} on no topic ({kind})"
            yield title, ("name", "address"), cells(group.get("clients", ()), ("name", "address"))
            continue
        rows = [{**part, "acknowledged": _ranges(part)} for part in group["partitions"]]
        yield f"{named['group']} on {group['topic']} ({kind})", columns, cells(rows, columns)
        if group["members"]:
            members = [
                {**member, "partitions": ", ".join(map(str, member["partitions"]))}
                for member in group["members"]
            ]
            few = ("protocol", "name", "address", "partitions")
            yield "members", few, cells(members, few)


def _group_rows(client: AdminClient, **query: str | None) -> list[Json]:
    """Return the list of groups, with a warning for brokers that did not answer. Raises
    AdminError.
    """
    rows, silent = list[Json](), set[int]()
    for page in client.whole_pages(f"{API}/groups", **query):
        rows += page["groups"]
        silent.update(page["silent_brokers"])
    for node in sorted(silent):
        text = f"broker {node} does not answer: members that it coordinates are missing"
        print(f"braidlog: {text}", file=sys.stderr)
    return rows


def _matches(
    client: AdminClient, group: str, topic: str | None, encoding: str
) -> list[tuple[Json, str | None]]:
    """Return the rows of a group in the list, each with the path of the group on the topic; None
    for a group without a topic. Raises AdminError if there are none.
    """
    rows = _group_rows(client, topic=topic, **_group_query(group, encoding))
    if not rows:
        place = "" if topic is None else f" on {topic}"
        raise AdminError(f"no group {group!r} has a position or members{place}", EXIT_NOT_FOUND)
    return [
        (
            row,
            None
            if row["topic"] is None
            else f"{_group_path(row['topic'], row['group'])}?encoding={row['encoding']}",
        )
        for row in rows
    ]


def _group_path(topic: str, group: str | bytes) -> str:
    return f"{API}/groups/{topic_path(topic)}/{path_part(group)}"


def _group_query(group: str, encoding: str) -> dict[str, str]:
    """Return a group's name for a query: base64 if the argument is not UTF-8."""
    try:
        group.encode()
    except UnicodeEncodeError:
        return {"group": base64.b64encode(os.fsencode(group)).decode(), "encoding": "base64"}
    return {"group": group, "encoding": encoding}


def _named(group_list: Iterable[Json]) -> list[Json]:
    """Return groups with distinct printable names, even if a name is no text."""
    marks = {"utf8": "", "base64": " (base64)"}
    return [{**group, "group": group["group"] + marks[group["encoding"]]} for group in group_list]


def _ranges(position: Json) -> str:
    ranges = [f"{first}-{last}" for first, last in position["acknowledged"]]
    more = position["acknowledged_ranges"] - len(ranges)
    return ", ".join([*ranges, *([f"and {more} more"] if more else [])]) or "-"


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
