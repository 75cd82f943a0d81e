"""Routes by the shape of a path, and errors as answers."""

from __future__ import annotations

import pytest
from starlette.responses import PlainTextResponse
from starlette.routing import Match

from braidlog.protocols.http.app import make_app, make_routes
from braidlog.protocols.http.options import RestOptions
from braidlog.protocols.http.requests import ERROR_HANDLERS, Requests
from braidlog.protocols.http.routing import Answering, PathRoute
from tests.protocols.http.asgi import bare_broker, call, scope_of

MORE = ["/", "", "*", "/none", "/admin", "/topics", "/topics//b/c", "/topics/a/b/c/d/e/f/g/h/i"]


@pytest.fixture
def broker():
    return bare_broker()


def paths(route: PathRoute) -> list[str]:
    """Return paths of a route, and similar paths."""
    path = route.path.replace("{rest:path}", "a/b/c")
    return [path, f"{path}/", f"{path}/x", path.rpartition("/")[0], path.replace("{", "%2F")]


async def test_only_routes_of_the_same_shape_may_match(broker):
    routes = make_routes(broker, RestOptions(), broker.stopping)
    answering = Answering(routes, {})
    for path in [*MORE, *(path for route in routes for path in paths(route))]:
        scope = scope_of("POST", path)
        matching = [route for route in routes if route.matches(scope)[0] is not Match.NONE]
        candidates = answering._router(path).routes
        assert [
            route for route in candidates if route.matches(scope)[0] is not Match.NONE
        ] == matching


async def test_no_path_is_compiled_before_a_request(broker, monkeypatch):
    compiled = []
    monkeypatch.setattr("starlette.routing.compile_path", compiled.append)
    make_app(broker, RestOptions(), broker.stopping)
    assert compiled == []


def test_a_route_begins_with_its_own_word():
    with pytest.raises(ValueError, match="begins with no word"):
        Answering([PathRoute("/{any}", lambda _: None, ["GET"])], {})


class Begins:
    """An answer that fails after its head."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def __call__(self, scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise self._error


@pytest.mark.parametrize("error", [RuntimeError("a bug"), TimeoutError("nobody's")])
async def test_an_error_after_the_head_is_not_answered(broker, error):
    app = Requests(Answering([PathRoute("/", Begins(error), ["GET"])], ERROR_HANDLERS), broker)
    answer = await call(app, "GET", "/")
    assert (answer.status, answer.body) == (200, b"")


async def test_unknown_paths_get_starlettes_answer(broker):
    async def fine(_):
        return PlainTextResponse("fine")

    app = Requests(Answering([PathRoute("/fine", fine, ["GET"])], ERROR_HANDLERS), broker)
    assert (await call(app, "GET", "/fine")).body == b"fine"
    missing = await call(app, "GET", "/other")
    assert (missing.status, missing.json["code"]) == (404, "no_such_path")
    wrong = await call(app, "PUT", "/fine")
    assert wrong.status == 405
    assert set(wrong.headers["allow"].split(", ")) == {"GET", "HEAD"}
    allowed = await call(app, "OPTIONS", "/fine")
    assert allowed.status == 204
    assert set(allowed.headers["allow"].split(", ")) == {"GET", "HEAD", "OPTIONS"}
