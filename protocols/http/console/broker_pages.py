"""Pages of the broker: totals by protocol, open connections, users, tokens and permissions."""

from __future__ import annotations

from urllib.parse import quote

import msgspec

from braidlog.broker.access.rules import ACTION_WORDS
from braidlog.protocols.http.console.visits import API, ROOT, Page, PageRefused, Redirect, Visit
from braidlog.protocols.http.management.overview import ConnectionPage, Stats
from braidlog.protocols.http.management.users import NewToken, PermissionList, UserList

CONNECTIONS_SHOWN = 100
ACCESS_PATH = f"{ROOT}/access"


async def show_broker(visit: Visit) -> Page:
    """The broker's totals and a page of its connections."""
    stats = await visit.api.get(f"{API}/stats", Stats)
    after = visit.query("after")
    page = await visit.api.get(
        f"{API}/connections", ConnectionPage, limit=CONNECTIONS_SHOWN, after=after or None
    )
    values = {
        "stats": stats,
        "connections": page.connections,
        "next": page.next,
        "after": after,
    }
    return Page("broker.html", values)


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
