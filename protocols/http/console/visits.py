"""A browser's visit of a page: request, API, and the answers that a page may give."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlencode

from starlette.responses import Response

from braidlog.protocols.http.console.inside import InnerApi

if TYPE_CHECKING:
    from starlette.requests import Request

ROOT = "/ui"
API = "/api/v1"


class PageRefused(Exception):
    """Refusal of a request by the console itself."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


@dataclass(slots=True)
class Page:
    """An answer: a template and its values, which are also the page's JSON."""

    template: str
    values: dict[str, Any]
    status: int = 200


class Redirect(Response):
    """An answer that sends the browser to another page of the console, with GET."""

    def __init__(self, path: str, **query: str) -> None:
        location = f"{path}?{urlencode(query)}" if query else path
        super().__init__(status_code=303, headers={"location": location})


@dataclass(slots=True)
class Visit:
    """A request for a page.

    `path_params` are the variable parts of the path, still percent-encoded. `form` is empty for a
    GET.
    """

    request: Request
    api: InnerApi
    path_params: Mapping[str, str]
    is_read_only: bool
    cookie: str
    is_current: Callable[[], bool]  # False once the user has signed out.
    form: Mapping[str, list[str]] = field(default_factory=dict)

    def query(self, name: str, default: str = "") -> str:
        """Return a parameter of the address."""
        text: str = self.request.query_params.get(name, default)
        return text.strip()

    def number(self, name: str, default: int, most: int = 2**63 - 1) -> int:
        """Return a number in the address or form, at most `most`. Raises PageRefused."""
        text = self.field(name) if name in self.form else self.query(name)
        if not text:
            return default
        if not (text.isascii() and text.isdecimal()) or len(text) > 19:
            raise PageRefused(400, f"{name} is {text[:40]!r}, expected a number")
        return min(int(text), most)

    def field(self, name: str, default: str = "") -> str:
        """Return a field of the form."""
        values = self.form.get(name)
        return values[0].strip() if values else default

    def text(self, name: str) -> str:
        """Return a field of the form unchanged, but for the line ends, which HTML makes CR LF."""
        values = self.form.get(name)
        return values[0].replace("\r\n", "\n") if values else ""

    @property
    def topic(self) -> str:
        """The topic of the path, percent-encoded, as paths of the API want it."""
        return "/".join(self.path_params[part] for part in ("tenant", "namespace", "topic"))

    @property
    def topic_name(self) -> str:
        """The full name of the path's topic."""
        return unquote(self.topic)

    @property
    def topic_page(self) -> str:
        """The path of the page of the path's topic."""
        return f"{ROOT}/topics/{self.topic}"


def topic_path(name: str) -> str:
    """Return the path of a topic's page."""
    return f"{ROOT}/topics/{quote(name, safe='/')}"


def group_path(topic: str, group: str, encoding: str) -> str:
    """Return the path of a group's page; the API may have encoded the name as base64."""
    name = base64.b64decode(group) if encoding == "base64" else group.encode()
    return f"{ROOT}/groups/{quote(topic, safe='/')}/{quote(name, safe='')}"


def group_name(group: str, encoding: str) -> str:
    """Return a group's name as text; the API may have encoded the name as base64."""
    if encoding == "base64":
        return base64.b64decode(group).decode("utf-8", "backslashreplace")
    return group
