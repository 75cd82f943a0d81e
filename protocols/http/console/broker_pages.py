"""Pages of the broker: totals by protocol, open connections, consumers over HTTP, export jobs,
settings, users, tokens and permissions.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

import msgspec

from braidlog.broker.access.rules import ACTION_WORDS
from braidlog.broker.server.tls import CERTIFICATE_WARNING_DAYS
from braidlog.protocols.http.console.inside import ApiError
from braidlog.protocols.http.console.visits import (
    API,
    ROOT,
    Page,
    PageRefused,
    Redirect,
    Visit,
    group_path,
    topic_path,
)
from braidlog.protocols.http.management.configuration import SettingList
from braidlog.protocols.http.management.exports import ExportList
from braidlog.protocols.http.management.http_consumers import HttpConsumerPage
from braidlog.protocols.http.management.overview import BrokerList, ConnectionPage, Stats
from braidlog.protocols.http.management.users import NewToken, PermissionList, UserList

CONNECTIONS_SHOWN, CONSUMERS_SHOWN = 100, 100
RANGES_SHOWN = 5  # Of a run of an export job.
CONSUMERS_PATH = f"{ROOT}/consumers"
ACCESS_PATH = f"{ROOT}/access"


async def show_broker(visit: Visit) -> Page:
    """The broker's totals and a page of its connections."""
    stats = await visit.api.get(f"{API}/stats", Stats)
    after = visit.query("after")
    page = await visit.api.get(
        f"{API}/connections", ConnectionPage, limit=CONNECTIONS_SHOWN, after=after or None
    )
    brokers = await visit.api.get(f"{API}/brokers", BrokerList)
    values = {
        "stats": stats,
        "warning_days": CERTIFICATE_WARNING_DAYS,
        "brokers": brokers,
        "ranges": [_ranges(broker.shards) for broker in brokers.brokers],
        "free_shards": _ranges(brokers.shards_without_owner),
        "connections": page.connections,
        "next": page.next,
        "after": after,
    }
    return Page("broker.html", values)


def _ranges(shards: Sequence[int]) -> str:
    """Return numbers in order as text, with ranges as `3-7`."""
    begins = [number for number in shards if number - 1 not in shards]
    ends = [number for number in shards if number + 1 not in shards]
    pairs = zip(begins, ends, strict=True)
    return ", ".join(f"{begin}" if begin == end else f"{begin}-{end}" for begin, end in pairs)


async def show_consumers(visit: Visit) -> Page:
    """A page of the consumers over HTTP."""
    after = visit.query("after")
    page = await visit.api.get(
        f"{API}/http-consumers", HttpConsumerPage, limit=CONSUMERS_SHOWN, after=after or None
    )
    places = [
        (
            topic_path(consumer.topic),
            group_path(consumer.topic, consumer.group, "utf8"),
            _consumer_path(consumer.topic, consumer.group, consumer.id),
        )
        for consumer in page.consumers
    ]
    values = {"consumers": page.consumers, "places": places, "next": page.next}
    return Page("consumers.html", values)


async def end_consumer(visit: Visit) -> Redirect:
    """End a consumer over HTTP."""
    path = _consumer_path(*(visit.field(name) for name in ("topic", "group", "id")))
    await visit.api.call("DELETE", path)
    return Redirect(CONSUMERS_PATH, done="deleted")


def _consumer_path(topic: str, group: str, identity: str) -> str:
    """Return the path of a consumer over HTTP in the API."""
    path = f"/topics/{quote(topic, safe='/')}/subscription/{quote(group, safe='')}"
    return f"{path}/consumer/{quote(identity, safe='')}"


async def show_exports(visit: Visit) -> Page:
    """The last runs of export jobs."""
    listed = await visit.api.get(f"{API}/exports", ExportList)
    return Page("exports.html", {"runs": listed.runs, "shown": RANGES_SHOWN})


async def show_about(visit: Visit) -> Page:
    """The version, and the settings in force for a user who may see them."""
    try:
        settings = (await visit.api.get(f"{API}/config", SettingList)).settings
    except ApiError as error:
        if error.status != 403:
            raise
        return Page("about.html", {"settings": None})
    rows = [
        {"name": row.setting, "value": _setting_text(row.value), "source": row.source}
        for row in settings
    ]
    return Page("about.html", {"settings": rows})


def _setting_text(value: object) -> str:
    """Return a value as a settings file has it; empty for a setting that is not set."""
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


async def show_access(visit: Visit) -> Page:
    """Users with their tokens, and permissions."""
    return await _access(visit, None)


async def _access(visit: Visit, token: NewToken | None) -> Page:
    users = await visit.api.get(f"{API}/users", UserList)
    subject = visit.query("subject")
    permissions = await visit.api.get(f"{API}/permissions", PermissionList, subject=subject or None)
    values = {
        "users": users.users,
        "permissions": permissions.permissions,
        "subject": subject,
        "actions": ACTION_WORDS[1:],
        "token": token,
    }
    return Page("access.html", values)


async def change_user(visit: Visit) -> Redirect:
    """Create a user, set a password, or activate, deactivate or remove a user."""
    name, action = visit.field("user"), visit.field("action")
    if not name:
        raise PageRefused(400, "a user needs a name")
    path = f"{API}/users/{quote(name, safe='')}"
    password = visit.text("password") or None
    if action == "create":
        await visit.api.call("PUT", path, {"password": password, "roles": _roles(visit)})
    elif action == "password":
        await visit.api.call("PATCH", path, {"password": password})
    elif action in ("activate", "deactivate"):
        await visit.api.call("PATCH", path, {"active": action == "activate"})
    elif action == "remove":
        await visit.api.call("DELETE", path)
    else:
        raise PageRefused(400, "the form names no action")
    return Redirect(ACCESS_PATH, done="changed")


async def change_token(visit: Visit) -> Page | Redirect:
    """Create a token, which only the answer shows, or revoke a token."""
    user, name = quote(visit.field("user"), safe=""), quote(visit.field("token"), safe="")
    if not user or not name:
        raise PageRefused(400, "a token needs a user and a name")
    path = f"{API}/users/{user}/tokens/{name}"
    if visit.field("action") == "revoke":
        await visit.api.call("DELETE", path)
        return Redirect(ACCESS_PATH, done="changed")
    created = await visit.api.call("PUT", path, {})
    return await _access(visit, msgspec.json.decode(created, type=NewToken))


async def change_permission(visit: Visit) -> Redirect:
    """Grant or revoke a permission."""
    fields = {name: visit.field(name) for name in ("subject", "action", "resource")}
    if visit.field("change") == "revoke":
        await visit.api.call("DELETE", f"{API}/permissions", query=fields)
    else:
        await visit.api.call("POST", f"{API}/permissions", fields)
    return Redirect(ACCESS_PATH, done="changed")


def _roles(visit: Visit) -> list[str]:
    return [role for role in visit.field("roles").replace(",", " ").split() if role]
