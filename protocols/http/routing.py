"""Finds the route of a path, and the answer to an error. Knows no path and no error by name.

Starlette's application tries one regular expression after another, and turns errors into answers in
two layers and once more around each route: as much work as a small request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

ErrorHandlers = Mapping[type[Exception], Callable[[Request, Exception], Awaitable[Response]]]
# The first word of a path, and how many slashes it has; None for a route that takes any number.
Shape = tuple[str, int | None]
REST = ":path}"  # A parameter of a route that takes slashes too.


class Answering:
    """An application of Starlette's routes; `handlers` turn their errors into answers. An error
    that only the handler for `Exception` matches is a bug: it is raised, too.
    """

    def __init__(self, routes: Sequence[Route], handlers: ErrorHandlers) -> None:
        self._handlers = handlers
        # Without redirects for slashes: such an answer has no error code.
        self._nothing = Router(redirect_slashes=False)
        self._routers = {
            shape: Router(some, redirect_slashes=False) for shape, some in _by_shape(routes).items()
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request of the `exchange` in its scope."""
        if scope["type"] != "http":
            await self._nothing(scope, receive, send)
            return
        scope["app"] = self  # Without one Starlette answers errors by itself.
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
            error.__traceback__ = None  # Breaks a reference cycle: its frames hold it.

    def _router(self, path: str) -> Router:
        """The routes that may match a path, in their order."""
        word = path[1:].partition("/")[0]
        found = self._routers.get((word, path.count("/")))
        return found or self._routers.get((word, None), self._nothing)

    def _handler(self, error: Exception) -> Callable[[Request, Exception], Awaitable[Response]]:
        return next(self._handlers[kind] for kind in type(error).__mro__ if kind in self._handlers)


def _by_shape(routes: Sequence[Route]) -> dict[Shape, list[Route]]:
    """Which routes may match the paths of a shape, in their order."""
    shapes = {_shape(route) for route in routes}
    return {
        shape: [route for route in routes if _shape(route) in (shape, (shape[0], None))]
        for shape in shapes
    }


def _shape(route: Route) -> Shape:
    word = route.path[1:].partition("/")[0]
    if "{" in word:
        raise ValueError(f"{route.path} begins with no word of its own")
    return word, None if REST in route.path else route.path.count("/")
