"""The console: finds the page of a path, checks sign-in and form tokens, and renders.

Loaded with the first request for the console. Pages call the HTTP API (`inside.py`); the console
has no rights and no functions of its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import trio
from starlette.requests import Request
from starlette.responses import Response

from braidlog.protocols.http.console import sign_in
from braidlog.protocols.http.console.inside import ApiError, InnerApi
from braidlog.protocols.http.console.rendering import Templates
from braidlog.protocols.http.console.sessions import (
    COOKIE,
    SESSION_IDLE_S,
    Sessions,
    SignedIn,
    new_cookie,
    read_cookie,
)
from braidlog.protocols.http.console.views import NAVIGATION, View, make_views
from braidlog.protocols.http.console.visits import ROOT, Page, PageRefused, Redirect, Visit
from braidlog.protocols.http.errors import RequestRefused
from braidlog.protocols.transport.origins import host_of

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from braidlog.protocols.http.bodies import BodyReader

STATIC = Path(__file__).parent / "static"
MEDIA_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
# Scripts, styles and connections of this listener only; no script or style inside a page.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cache-control": "no-store",
}
# The static files' addresses contain their digest, so a browser may keep them for a year.
STATIC_HEADERS = {**HEADERS, "cache-control": "public, max-age=31536000, immutable"}
NOTICES = {
    "created": "The topic was created.",
    "deleted": "Deleted.",
    "changed": "The change is on disk.",
    "purged": "All messages were deleted.",
    "stored": "The message is stored.",
    "moved": "The group was moved.",
}


class Site:
    """The console of a listener."""

    def __init__(
        self,
        app: ASGIApp,
        bodies: BodyReader,
        version: str,
        *,
        is_read_only: bool,
        now_us: Callable[[], int],
    ) -> None:
        self._app = app
        self._bodies = bodies
        self._version = version
        self._is_read_only = is_read_only
        self._sessions = Sessions(trio.current_time)
        self._templates = Templates()
        views = make_views(trio.current_time, bodies.stopping, now_us)
        self._views = [(pattern.split("/"), view) for pattern, view in views.items()]
        self._files = {path.name: path.read_bytes() for path in sorted(STATIC.iterdir())}
        self._digest = hashlib.sha256(b"".join(self._files.values())).hexdigest()[:12]

    async def serve(self, request: Request) -> Response:
        """Answer a request for a path of the console."""
        path = request.scope["path"].removeprefix(ROOT).strip("/")
        if path.startswith("static/"):
            return self._static(path.rpartition("/")[2])
        sent_cookie = read_cookie(request.cookies.get(COOKIE))
        cookie = sent_cookie or new_cookie()
        session = self._sessions.find(cookie)
        api = InnerApi(self._app, request, session.authorization if session is not None else None)

        def is_current() -> bool:
            return self._sessions.find(cookie) is session

        visit = Visit(request, api, {}, self._is_read_only, cookie, is_current)
        try:
            answer = await self._answer(visit, path)
        except ApiError as error:
            answer = self._failed(visit, error, session)
        except RequestRefused as error:
            answer = _error_page(error.wire.status, error.message)
        except PageRefused as error:
            answer = _error_page(error.status, error.message)
        response = await self._response(visit, answer, session)
        if sent_cookie is None and visit.cookie == cookie:
            _set_cookie(response, request, cookie)
        return response

    async def _answer(self, visit: Visit, path: str) -> Page | Response:
        """Return the answer of the path's page. Raises ApiError, RequestRefused, PageRefused."""
        request = visit.request
        view, visit.path_params = self._view(path)
        if request.method in ("GET", "HEAD"):
            if view.get is None:
                raise PageRefused(405, "this address takes only forms")
            return await view.get(visit)
        if request.method != "POST" or view.post is None:
            raise PageRefused(405, f"{request.method} is not possible here")
        visit.form = await self._form(visit)
        if self._is_read_only and not view.is_harmless:
            raise PageRefused(403, "the console is in read-only mode")
        if view.post is sign_in.sign_in:
            return await self._sign_in(visit)
        if view.post is sign_in.sign_out:
            self._sessions.sign_out(visit.cookie)
        return await view.post(visit)

    async def _sign_in(self, visit: Visit) -> Page | Response:
        credentials = sign_in.credentials_of(visit)
        checked = InnerApi(self._app, visit.request, credentials.authorization)
        try:
            await checked.call("GET", "/api/v1/topics", query={"limit": 1})
        except ApiError as error:
            if error.status not in (401, 429):
                raise
            return sign_in.failed(visit, error.message)
        cookie = self._sessions.sign_in(credentials.authorization, credentials.name)
        visit.cookie = cookie
        response = await sign_in.sign_in(visit)
        _set_cookie(response, visit.request, cookie)
        return response

    async def _form(self, visit: Visit) -> Mapping[str, list[str]]:
        """Return the fields of a form of this console. Raises PageRefused, RequestRefused."""
        request = visit.request
        origin = request.headers.get("origin")
        if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            raise PageRefused(403, "the form came from another site")
        if origin is not None and host_of(origin) != request.headers.get("host"):
            raise PageRefused(403, "the form came from another site")
        form = await self._bodies.read_form(request)
        token = form.get("form_token", [""])[0]
        if not self._sessions.is_form_token(visit.cookie, token):
            raise PageRefused(403, "the form is out of date: load its page again and send it again")
        return form

    def _view(self, path: str) -> tuple[View, Mapping[str, str]]:
        """Return the view of a path and the variable parts of the path. Raises PageRefused."""
        parts = path.split("/")
        for pattern, view in self._views:
            if len(pattern) == len(parts) and all(
                want == part or (want.startswith("{") and part)
                for want, part in zip(pattern, parts, strict=True)
            ):
                places = zip(pattern, parts, strict=True)
                return view, {want[1:-1]: part for want, part in places if want.startswith("{")}
        raise PageRefused(404, "the console has no such page")

    def _failed(self, visit: Visit, error: ApiError, session: SignedIn | None) -> Page | Response:
        """Return the answer after an error of the API: without a valid sign-in, the form for it."""
        if error.status != 401:
            return _error_page(error.status, error.message)
        if session is not None:
            self._sessions.sign_out(visit.cookie)
        request = visit.request
        if request.method == "POST":
            return _error_page(401, "sign in first")
        query = request.scope["query_string"].decode("latin-1")
        wanted = request.scope["path"] + (f"?{query}" if query else "")
        return Redirect(f"{ROOT}/sign-in", next=wanted)

    async def _response(
        self, visit: Visit, answer: Page | Response, session: SignedIn | None
    ) -> Response:
        if isinstance(answer, Response):
            answer.headers.update(HEADERS)
            return answer
        accepts = visit.request.headers.get("accept", "")
        if accepts.startswith("application/json"):
            body = msgspec.json.encode(answer.values)
            return Response(body, answer.status, HEADERS, "application/json")
        common = self._common(visit, session)
        text = await self._templates.render(answer.template, common | answer.values)
        return Response(text, answer.status, HEADERS, "text/html")

    def _common(self, visit: Visit, session: SignedIn | None) -> dict[str, Any]:
        """Return the values that the frame of each page needs."""
        request = visit.request
        return {
            "address": request.scope["path"],
            "digest": self._digest,
            "form_token": self._sessions.form_token(visit.cookie),
            "is_read_only": self._is_read_only,
            "navigation": NAVIGATION,
            "notice": NOTICES.get(visit.query("done")),
            "root": ROOT,
            "user": session.name if session is not None else None,
            "version": self._version,
        }

    def _static(self, name: str) -> Response:
        body = self._files.get(name)
        if body is None:
            return Response("no such file", 404, HEADERS, "text/plain")
        media_type = MEDIA_TYPES.get(name.rpartition(".")[2], "text/plain")
        return Response(body, 200, STATIC_HEADERS, media_type)


def _error_page(status: int, message: str) -> Page:
    return Page("error.html", {"status": status, "message": message}, status)


def _set_cookie(response: Response, request: Request, cookie: str) -> None:
    response.set_cookie(
        COOKIE,
        cookie,
        max_age=int(SESSION_IDLE_S),
        path=ROOT,
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="lax",
    )
