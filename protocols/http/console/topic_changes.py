"""Changes of topics: create, grow, settings, purge and delete."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from braidlog.broker.topics.settings_table import TOPIC_SETTINGS
from braidlog.protocols.http.console.topic_pages import shown_settings
from braidlog.protocols.http.console.visits import (
    API,
    ROOT,
    Page,
    PageRefused,
    Redirect,
    Visit,
    topic_path,
)
from braidlog.protocols.http.management.messages import TopicDetail


async def create(visit: Visit) -> Redirect:
    """Create the topic of the form."""
    name = visit.field("name")
    if not name:
        raise PageRefused(400, "a topic needs a name")
    if name.count("/") == 0:
        name = f"public/default/{name}"
    if name.count("/") != 2:
        raise PageRefused(400, "a topic is NAME or TENANT/NAMESPACE/NAME")
    body: dict[str, Any] = {}
    if visit.field("partitions"):
        body["partitions"] = visit.number("partitions", 1)
    await visit.api.call("PUT", f"{API}/topics/{quote(name, safe='/')}", body)
    return Redirect(topic_path(name), done="created")


async def show(visit: Visit) -> Page:
    """The forms that change a topic."""
    topic = await visit.api.get(f"{API}/topics/{visit.topic}", TopicDetail)
    values = {
        "topic": topic.name,
        "partition_count": len(topic.partitions),
        "settings": shown_settings(topic),
        "chosen": visit.query("setting"),
        "choices": {name: row.choices for name, row in TOPIC_SETTINGS.items() if row.choices},
    }
    return Page("change.html", values)


async def alter(visit: Visit) -> Redirect:
    """Change a setting, restore its default, or add partitions."""
    body: dict[str, Any] = {}
    if visit.field("partitions"):
        body["partitions"] = visit.number("partitions", 1)
    if visit.field("setting"):
        is_reset = bool(visit.field("reset"))
        body["settings"] = {visit.field("setting"): None if is_reset else visit.field("value")}
    await visit.api.call("PATCH", f"{API}/topics/{visit.topic}", body)
    return Redirect(f"{visit.topic_page}/change", done="changed")


async def purge(visit: Visit) -> Redirect:
    """Delete all messages of a topic; groups continue at the end."""
    _check_name(visit)
    await visit.api.call("DELETE", f"/admin/v2/persistent/{visit.topic}/truncate")
    return Redirect(visit.topic_page, done="purged")


async def delete(visit: Visit) -> Redirect:
    """Delete a topic with its messages and groups."""
    _check_name(visit)
    await visit.api.call("DELETE", f"{API}/topics/{visit.topic}")
    return Redirect(f"{ROOT}/topics", done="deleted")


def _check_name(visit: Visit) -> None:
    """Check that the user has typed the topic's name. Raises PageRefused."""
    if visit.field("confirmed_name") not in (visit.topic_name, visit.topic_name.split("/")[-1]):
        raise PageRefused(400, "type the topic's name to confirm: this cannot be undone")
