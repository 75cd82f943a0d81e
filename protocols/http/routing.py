"""Finds the route of a path and the answer to an error. Knows no path and no error by name.

Starlette's application tries each regular expression in turn. It converts errors to answers in two
layers, and in another layer around each route. All of that costs as much as a small request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route, Router

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

ErrorHandlers = Mapping[type[Exception], Callable[[Request, Exception], Awaitable[Response]]]
# The first word of a path and its number of slashes; None for a route that accepts any number.
Shape = tuple[str, int | None]
REST = ":path}"  # A route parameter that may contain slashes.


class PathRoute(BaseRoute):
    """A route that compiles its path at the first request that may match. Compiling the paths of a
    listener takes 30 ms, in which a starting broker would serve nobody.
    """

    def __init__(self, path: str, app: ASGIApp, methods: Sequence[str]) -> None:
        """Serve requests of `path` by `app`; HEAD is a GET."""
        self.path = path
        self.methods = {*methods, "HEAD"} if "GET" in methods else set(methods)
        self._app = app

    @cached_property
    def _compiled(self) -> Route:
        return Route(self.path, self._app, methods=self.methods)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """See starlette.routing.BaseRoute."""
        return self._compiled.matches(scope)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See starlette.routing.BaseRoute."""
        await self._compiled.handle(scope, receive, send)


class Answering:
    """An application of Starlette's routes; `handlers` convert errors of routes to answers.

    An error that only the handler for `Exception` matches is a bug, so the error is raised again
    after the answer.
    """

    def __init__(self, routes: Sequence[PathRoute], handlers: ErrorHandlers) -> None:
        self._handlers = handlers
        # No redirects for slashes: such an answer has no error code.
        self._nothing = Router(redirect_slashes=False)
        self._routers = {
            shape: Router(same_shape, redirect_slashes=False)
            for shape, same_shape in _by_shape(routes).items()
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the request of the `exchange` in the scope."""
        if scope["type"] != "http":
            await self._nothing(scope, receive, send)
            return
        scope["app"] = self  # Without this entry Starlette answers errors itself.
        try:
            await self._router(scope["path"]).app(scope, receive, send)
        except Exception as error:
            handler = self._handler(error)
            if scope["exchange"].status:
                raise RuntimeError("it failed when its answer had begun") from error
            response = await handler(Request(scope, receive, send), error)
            await response(scope, receive, send)
            if handler is self._handlers[Exception]:
                raise
            error.__traceback__ = None  # Breaks a reference cycle: the frames hold the error.

    def _router(self, path: str) -> Router:
        """Return the router of the routes that may match a path, in the order of the table."""
        word = path[1:].partition("/")[0]
        router = self._routers.get((word, path.count("/")))
        return router or self._routers.get((word, None), self._nothing)

    def _handler(self, error: Exception) -> Callable[[Request, Exception], Awaitable[Response]]:
        return next(self._handlers[kind] for kind in type(error).__mro__ if kind in self._handlers)


def _by_shape(routes: Sequence[PathRoute]) -> dict[Shape, list[PathRoute]]:
    """Return for each shape the routes that may match paths of the shape, in the order of the
    table.
    """
    shaped = [(_shape(route), route) for route in routes]
    shapes = {shape for shape, _ in shaped}
    return {
        shape: [route for other, route in shaped if other in (shape, (shape[0], None))]
        for shape in shapes
    }


def _shape(route: PathRoute) -> Shape:
    word = route.path[1:].partition("/")[0]
    if "{" in word:
        raise ValueError(f"{route.path} begins with no word of its own")
    return word, None if REST in route.path else route.path.count("/")
