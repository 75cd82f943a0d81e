"""The routes of the HTTP listener. `docs/api.md` describes each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import ASGIApp

from broker.access.rights import Action
from protocols.rest.bodies import BodyReader
from protocols.rest.groups import GroupsApi
from protocols.rest.health import HealthApi
from protocols.rest.pip64.api import MessagesApi
from protocols.rest.pip64.cursor import CursorApi
from protocols.rest.raw_log import RawLogApi
from protocols.rest.requests import ERROR_HANDLERS, Handler, Requests
from protocols.rest.routes import Routes, Served
from protocols.rest.schemas.resolving import SchemaRegistry
from protocols.rest.topics import TopicsApi
from protocols.rest.waiting import Waiting

if TYPE_CHECKING:
    from broker.broker import Broker
    from protocols.rest.options import RestOptions

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
API = "/api/v1"
TOPIC = "{tenant}/{namespace}/{topic}"
# PIP-64 writes the singular; the plural is what its own texts and scripts say as often.
SUBSCRIPTION = ("subscription", "subscriptions")
PIP64 = f"/topics/{TOPIC}"
PIP64_DOMAIN = f"/topics/persistent/{TOPIC}"


def make_app(broker: Broker, options: RestOptions, stopping: trio.Event) -> ASGIApp:
    """The ASGI application of one broker's HTTP listener."""
    routes = make_routes(broker, options, stopping)
    app = Starlette(routes=routes, exception_handlers=ERROR_HANDLERS)
    app.router.redirect_slashes = False  # A redirect could not say which error it stands for.
    return Requests(app, broker)


def make_routes(broker: Broker, options: RestOptions, stopping: trio.Event) -> list[Route]:
    """Every path that is served."""
    bodies = BodyReader(options.request_bytes_max, options.request_timeout_s, stopping)
    route = Routes(broker).route
    topics = TopicsApi(broker, bodies)
    groups = GroupsApi(broker)
    health = HealthApi(broker, disk_free_bytes_min=options.disk_free_bytes_min)
    return [
        *pip64_routes(broker, options, stopping),
        route("/healthz", GET=Served(health.healthz, None)),
        route("/readyz", GET=Served(health.readyz, None)),
        route("/metrics", GET=Served(health.metrics, Action.DESCRIBE)),
        route(f"{API}/topics", GET=Served(topics.list_topics, Action.DESCRIBE)),
        route(
            f"{API}/topics/{TOPIC}",
            GET=Served(topics.show, Action.DESCRIBE),
            PUT=Served(topics.create, Action.CREATE),
            PATCH=Served(topics.alter, Action.ALTER),
            DELETE=Served(topics.delete, Action.DELETE),
        ),
        route(f"{API}/groups", GET=Served(groups.list_groups, Action.DESCRIBE)),
        route(f"{API}/groups/{TOPIC}/{{group}}", GET=Served(groups.show, Action.DESCRIBE)),
        *raw_log_routes(broker, bodies),
    ]


def raw_log_routes(broker: Broker, bodies: BodyReader) -> list[Route]:
    """Stored batches for readers that decode by themselves."""
    route = Routes(broker).route
    raw_log = RawLogApi(broker, bodies)
    partition = f"{API}/log/{TOPIC}/{{partition}}"
    return [
        route(f"{API}/log", GET=Served(raw_log.list_partitions, Action.DESCRIBE)),
        route(partition, GET=Served(raw_log.state, Action.CONSUME)),
        route(f"{partition}/batches", GET=Served(raw_log.batches, Action.CONSUME)),
        route(
            f"{API}/groups/{TOPIC}/{{group}}/positions",
            PUT=Served(raw_log.set_positions, Action.CONSUME),
        ),
    ]


def pip64_routes(broker: Broker, options: RestOptions, stopping: trio.Event) -> list[Route]:
    """The endpoints of PIP-64, under both spellings of a topic's path."""
    bodies = BodyReader(options.produce_bytes_max, options.request_timeout_s, stopping)
    registry = SchemaRegistry(broker)
    waiting = Waiting(stopping)
    route = Routes(broker).route
    api = MessagesApi(broker, bodies, registry, waiting, auto_create=options.auto_create_topics)

    cursors = CursorApi(broker, bodies)

    def under(base: str, produce: Handler) -> list[Route]:
        partition = f"{base}/partitions/{{partition}}"
        cursor = {
            "GET": Served(cursors.show, Action.DESCRIBE),
            "POST": Served(cursors.update, Action.CONSUME),
        }
        return [
            *(route(f"{base}/{one}/{{subscription}}/cursor", **cursor) for one in SUBSCRIPTION),
            route(base, POST=Served(produce, Action.PRODUCE)),
            route(partition, POST=Served(produce, Action.PRODUCE)),
            route(f"{partition}/messages", GET=Served(api.read, Action.CONSUME)),
        ]

    other = dict.fromkeys(METHODS, Served(api.other_domain, Action.DESCRIBE))
    return [
        # With a domain first: none of these is a path of a tenant, since a tenant is not called so.
        *under(PIP64_DOMAIN, api.produce_shipped),
        route("/topics/non-persistent/{rest:path}", **other),
        *under(PIP64, api.produce),
    ]
