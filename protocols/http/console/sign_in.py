"""The sign-in: a password or a token, as the Authorization header of the API's calls."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.responses import Response

from braidlog.protocols.http.console.visits import ROOT, Page, PageRefused, Redirect, Visit


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user's Authorization header, and the name to show."""

    authorization: str
    name: str


async def show(visit: Visit) -> Page:
    """The form for a sign-in."""
    return Page("sign_in.html", {"next": _next(visit.query("next")), "message": ""})


def failed(visit: Visit, message: str) -> Page:
    """Return the form again, with the reason."""
    values = {"next": _next(visit.field("next")), "message": message}
    return Page("sign_in.html", values, status=401)


async def sign_in(visit: Visit) -> Response:
    """Go to the page that needed the sign-in; the site has checked the credentials."""
    return Redirect(_next(visit.field("next")))


async def sign_out(visit: Visit) -> Response:
    """Go to the sign-in; the site has forgotten the session."""
    return Redirect(f"{ROOT}/sign-in")


def credentials_of(visit: Visit) -> Credentials:
    """Return the credentials of the form. Raises PageRefused."""
    token, name, password = visit.field("token"), visit.field("name"), visit.text("password")
    if token:
        if not token.isascii() or not token.isprintable():
            raise PageRefused(400, "a token consists of ASCII characters")
        return Credentials(f"Bearer {token}", "a token")
    if not name:
        raise PageRefused(400, "a sign-in needs a user name and password, or a token")
    encoded = base64.b64encode(f"{name}:{password}".encode()).decode()
    return Credentials(f"Basic {encoded}", name)


def _next(path: str) -> str:
    """Return a path of the console; another site's address becomes the first page."""
    try:
        parts = urlsplit(path)
    except ValueError:
        return ROOT
    is_own = not parts.scheme and not parts.netloc and "\\" not in path
    return path if is_own and f"{path}/".startswith((f"{ROOT}/", f"{ROOT}?")) else ROOT
