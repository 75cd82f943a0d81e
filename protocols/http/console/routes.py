"""The route of the console. Imports nothing of the console until a browser asks for a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio
from starlette.requests import Request

from braidlog.broker.runtime.threads import run_in_thread
from braidlog.protocols.http.routing import PathRoute

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from braidlog.broker.broker import Broker
    from braidlog.protocols.http.bodies import BodyReader
    from braidlog.protocols.http.console.site import Site
    from braidlog.protocols.http.options import RestOptions

METHODS = ("GET", "POST")


def console_routes(
    broker: Broker, options: RestOptions, app: ASGIApp, bodies: BodyReader
) -> list[PathRoute]:
    """Return the routes of the console; none if the settings turn the console off.

    `app` is the listener's whole application, which serves the console's calls of the API.
    """
    if options.console == "off":
        return []
    console = Console(broker, options, app, bodies)
    return [PathRoute(path, console, METHODS) for path in ("/ui", "/ui/{path:path}")]


class Console:
    """The console, loaded in a worker thread at the first request: an idle broker does without the
    memory, and a start without the time.
    """

    def __init__(
        self, broker: Broker, options: RestOptions, app: ASGIApp, bodies: BodyReader
    ) -> None:
        self._version = broker.version
        self._now_us = broker.now_us
        self._is_read_only = options.console == "read_only"
        self._app = app
        self._bodies = bodies
        self._site: Site | None = None
        self._loading = trio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request (ASGI)."""
        site = self._site or await self._loaded()
        response = await site.serve(Request(scope, receive, send))
        await response(scope, receive, send)

    async def _loaded(self) -> Site:
        """Return the console; of several first requests, one loads the console for all."""
        async with self._loading:
            if self._site is None:
                self._site = await run_in_thread(self._load)
            return self._site

    def _load(self) -> Site:
        from braidlog.protocols.http.console.site import Site

        return Site(
            self._app,
            self._bodies,
            self._version,
            is_read_only=self._is_read_only,
            now_us=self._now_us,
        )
