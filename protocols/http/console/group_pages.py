"""Pages of groups: the list with lag, a group's positions and members, reset and deletion."""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any
from urllib.parse import quote, unquote_to_bytes

import msgspec

from braidlog.protocols.http.console.growth import Growth
from braidlog.protocols.http.console.inside import ApiError
from braidlog.protocols.http.console.places import find_place
from braidlog.protocols.http.console.visits import (
    API,
    ROOT,
    Page,
    PageRefused,
    Redirect,
    Visit,
    group_name,
    group_path,
)
from braidlog.protocols.http.errors import INVALID_NAME
from braidlog.protocols.http.management.messages import (
    GroupDetail,
    GroupPage,
    GroupPosition,
    GroupSummary,
    TopicDetail,
)
from braidlog.protocols.http.path_names import group_text
from braidlog.protocols.http.pip64.messages import Cursor, CursorAnswer

GROUPS_SHOWN = 100
POSITIONS_SHOWN = 100  # Partitions on a group's page, from `from` on.
RESET_PARTITIONS_MAX = 1000  # Of a reset: a place by time costs a read for each partition.
POSITIONS = re.compile(r"(?:[0-9]{1,5}:[0-9]{1,19})(?:,[0-9]{1,5}:[0-9]{1,19})*")


class ShownGroup(msgspec.Struct):
    """A group in a list. `growth` is the change of the lag per second, if known; `path` is None for
    a group that reads no topic.
    """

    summary: GroupSummary
    group: str
    path: str | None
    oldest_s: float | None
    growth: float | None


class ShownPosition(msgspec.Struct):
    """A group's position in a partition, in the terms of every protocol."""

    position: GroupPosition
    message_id: str | None
    iggy_offset: int | None
    oldest_s: float | None
    growth: float | None


class PositionChange(msgspec.Struct):
    """The change of a position by a reset; `records` are to be read afterwards."""

    partition: int
    position: int | None
    new_position: int
    records: int


class GroupPages:
    """The pages of groups, which remember lags to tell if they grow."""

    def __init__(self, growth: Growth) -> None:
        self._growth = growth

    async def show_groups(self, visit: Visit) -> Page:
        """The groups that the user may see, with their lags."""
        query = {name: visit.query(name) or None for name in ("topic", "group", "contains", "sort")}
        page = await visit.api.get(
            f"{API}/groups",
            GroupPage,
            limit=GROUPS_SHOWN,
            after=visit.query("after") or None,
            ages="true",
            **query,
        )
        values = {
            "groups": [self._shown(group) for group in page.groups],
            "next": page.next,
            "after": visit.query("after"),
            "searched": {name: text or "" for name, text in query.items()},
            "silent_brokers": page.silent_brokers,
        }
        return Page("groups.html", values)

    async def show_group(self, visit: Visit) -> Page:
        """A group on a topic: positions in records, seconds and ids, and members."""
        group = await visit.api.get(_api_path(visit), GroupDetail, ages="true")
        cursor = await _cursor(visit)
        places = [] if cursor is None else cursor.partitions
        ids = {place.partition: place.read_position for place in places}
        first = visit.number("from", 0)
        shown = [
            ShownPosition(
                place,
                ids.get(place.partition),
                place.position - 1 if place.position else None,
                _age(place.oldest_s),
                self._growth_of((group.topic, group.group, place.partition), place.backlog),
            )
            for place in group.partitions[first : first + POSITIONS_SHOWN]
        ]
        more = first + len(shown) < len(group.partitions)
        values = {
            "group": group,
            "name": _name(visit),
            "growth": self._growth_of((group.topic, group.group), group.backlog),
            "oldest_s": max((_age(place.oldest_s) or 0 for place in group.partitions), default=0),
            "kind": None if cursor is None else cursor.type,
            "positions": shown,
            "first": first,
            "next": first + POSITIONS_SHOWN if more else None,
            "path": _page_path(visit),
        }
        return Page("group.html", values)

    def _shown(self, group: GroupSummary) -> ShownGroup:
        topic, name, encoding = group.topic, group.group, group.encoding
        return ShownGroup(
            group,
            group_name(name, encoding),
            None if topic is None else group_path(topic, name, encoding),
            _age(group.oldest_s),
            self._growth_of((topic, name), group.backlog),
        )

    def _growth_of(self, key: Hashable, backlog: int | None) -> float | None:
        return None if backlog is None else self._growth.per_s(key, backlog)


async def show_reset(visit: Visit) -> Page:
    """A preview of a reset: each partition's present and new position."""
    place = visit.query("to")
    topic = await visit.api.get(f"{API}/topics/{visit.topic}", TopicDetail)
    group = await visit.api.find(_api_path(visit), GroupDetail)
    partition = visit.query("partition")
    wanted = visit.number("partition", 0) if partition else None
    chosen = [bounds for bounds in topic.partitions if wanted in (None, bounds.partition)]
    if not chosen:
        raise PageRefused(404, f"the topic has no partition {partition}")
    if len(chosen) > RESET_PARTITIONS_MAX:
        raise PageRefused(400, f"choose a partition: at most {RESET_PARTITIONS_MAX} at once")
    present = {} if group is None else {each.partition: each.position for each in group.partitions}
    moves = []
    for bounds in chosen if place else []:
        offset = await find_place(visit, bounds, place)
        records = bounds.high_watermark - offset
        moves.append(
            PositionChange(bounds.partition, present.get(bounds.partition), offset, records)
        )
    values = {
        "name": _name(visit),
        "topic": visit.topic_name,
        "path": _page_path(visit),
        "to": place,
        "partition": partition,
        "moves": moves,
        "positions": ",".join(f"{move.partition}:{move.new_position}" for move in moves),
        "members": [] if group is None else group.members,
    }
    return Page("reset.html", values)


async def reset(visit: Visit) -> Redirect:
    """PositionChange a group to the positions of the preview."""
    text = visit.field("positions")
    if not POSITIONS.fullmatch(text):
        raise PageRefused(400, "positions are not those of a preview")
    positions = dict(place.split(":") for place in text.split(","))
    body = {"positions": {number: int(offset) for number, offset in positions.items()}}
    await visit.api.call("PUT", f"{_api_path(visit)}/positions", body)
    return Redirect(_page_path(visit), done="moved")


async def delete(visit: Visit) -> Redirect:
    """Delete a group on a topic, or on each topic."""
    query = {"force": "true"} if visit.field("force") else {}
    if not visit.field("sure"):
        raise PageRefused(400, "confirm the deletion first: it cannot be undone")
    if not visit.field("everywhere"):
        await visit.api.call("DELETE", _api_path(visit), query=query)
        return Redirect(f"{ROOT}/groups", done="deleted")
    group, encoding = group_text(unquote_to_bytes(visit.path_params["group"]))
    names: dict[str, Any] = {"group": group, "encoding": encoding}
    page = await visit.api.get(f"{API}/groups", GroupPage, **names)
    for summary in page.groups:
        if summary.topic is None:
            continue  # There is no position to delete.
        path = f"{API}/groups/{quote(summary.topic, safe='/')}/{visit.path_params['group']}"
        await visit.api.call("DELETE", path, query=query)
    return Redirect(f"{ROOT}/groups", done="deleted")


async def _cursor(visit: Visit) -> Cursor | None:
    """Return the group's cursor in Pulsar's terms; None for a group without a position, and for a
    name that no Pulsar client can use.
    """
    path = f"/topics/{visit.topic}/subscription/{visit.path_params['group']}/cursor"
    try:
        answer = await visit.api.find(path, CursorAnswer)
        return None if answer is None else answer.cursor
    except ApiError as error:
        if error.code == INVALID_NAME.code:
            return None
        raise


def _api_path(visit: Visit) -> str:
    return f"{API}/groups/{visit.topic}/{visit.path_params['group']}"


def _page_path(visit: Visit) -> str:
    return f"{ROOT}/groups/{visit.topic}/{visit.path_params['group']}"


def _name(visit: Visit) -> str:
    """Return the name of the path's group as text."""
    return unquote_to_bytes(visit.path_params["group"]).decode("utf-8", "backslashreplace")


def _age(seconds: float | msgspec.UnsetType | None) -> float | None:
    return None if seconds is msgspec.UNSET else seconds
