"""The routes of the HTTP listener. `docs/api.md` describes each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from protocols.rest.bodies import BodyReader
from protocols.rest.groups import GroupsApi
from protocols.rest.health import HealthApi
from protocols.rest.requests import ERROR_HANDLERS, Handler, Requests
from protocols.rest.topics import TopicsApi

if TYPE_CHECKING:
    from broker.broker import Broker
    from protocols.rest.adapter import RestOptions

API = "/api/v1"
TOPIC = "{tenant}/{namespace}/{topic}"


def make_app(broker: Broker, options: RestOptions, stopping: trio.Event) -> ASGIApp:
    """The ASGI application of one broker's HTTP listener."""
    bodies = BodyReader(options.request_bytes_max, options.request_timeout_s, stopping)
    topics = TopicsApi(broker, bodies)
    groups = GroupsApi(broker)
    health = HealthApi(broker, disk_free_bytes_min=options.disk_free_bytes_min)
    routes = [
        _route("/healthz", GET=health.healthz),
        _route("/readyz", GET=health.readyz),
        _route("/metrics", GET=health.metrics),
        _route(f"{API}/topics", GET=topics.list_topics),
        _route(
            f"{API}/topics/{TOPIC}",
            GET=topics.show,
            PUT=topics.create,
            PATCH=topics.alter,
            DELETE=topics.delete,
        ),
        _route(f"{API}/groups", GET=groups.list_groups),
        _route(f"{API}/groups/{TOPIC}/{{group}}", GET=groups.show),
    ]
    app = Starlette(routes=routes, exception_handlers=ERROR_HANDLERS)
    app.router.redirect_slashes = False  # A redirect could not say which error it stands for.
    return Requests(app, broker)


def _route(path: str, **handlers: Handler) -> Route:
    """One path with all its methods, so that a wrong one is told which there are."""

    async def serve(request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        return await handlers[method](request)

    return Route(path, serve, methods=list(handlers))
