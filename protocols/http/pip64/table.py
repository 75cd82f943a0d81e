"""The paths of PIP-64, under every spelling, with their bodies and answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from braidlog.broker.access.rights import Action
from braidlog.protocols.http.bodies import Bodies
from braidlog.protocols.http.pip64 import messages, streams
from braidlog.protocols.http.pip64.api import MessagesApi
from braidlog.protocols.http.pip64.consumers import Consumers, ConsumersApi
from braidlog.protocols.http.pip64.cursor import CursorApi
from braidlog.protocols.http.routes import Endpoint, Query, Routes
from braidlog.protocols.http.routing import PathRoute
from braidlog.protocols.http.values.resolving import SchemaRegistry
from braidlog.protocols.http.waiting import Waiting

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.protocols.http.options import RestOptions

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
TOPIC = "{tenant}/{namespace}/{topic}"
BASE, DOMAIN_BASE = f"/topics/{TOPIC}", f"/topics/persistent/{TOPIC}"
# PIP-64 specifies the singular, but its own texts and scripts use the plural as often. PIP-64 also
# has `consumer` for a fetch and `consumers` for a deletion.
SUBSCRIPTIONS = ("subscription", "subscriptions")
CONSUMERS = ("consumer", "consumers")
NUMBER, TEXT = {"type": "integer", "minimum": 0}, {"type": "string"}
TRUTH = {"type": "boolean"}

SHOW = (
    Query("timeout", "Milliseconds to wait for a first message, up to 60000.", NUMBER),
    Query("max_messages", "Messages at most, up to 10000.", {"type": "integer", "minimum": 1}),
    Query("max_bytes", "Bytes of keys and values at most.", {"type": "integer", "minimum": 1}),
    Query("include_schema", "Add the schemas that the messages use.", TRUTH),
    Query("include_format", "Name the stored format of each message.", TRUTH),
    Query("schema_type", "Read bytes as this primitive type.", TEXT),
    Query("encoding", "Of values without schema.", {"enum": ["auto", "utf8", "base64"]}),
    Query("exact", "All stored fields, as an import takes them; no schema.", TRUTH),
    Query("int64", "64-bit numbers as numbers or text.", {"enum": ["number", "string"]}),
)
START = (
    Query("position", "earliest, latest or an offset.", TEXT),
    Query("message_id", "Start after this message.", TEXT),
    Query("timestamp", "Start with the first message published then or later.", NUMBER),
)


FORMATS = (streams.LINES, streams.EVENTS)


@dataclass(slots=True, frozen=True)
class Pip64Handlers:
    """The objects whose methods serve the endpoints."""

    api: MessagesApi
    consumers: ConsumersApi
    cursors: CursorApi


def pip64_routes(
    broker: Broker,
    options: RestOptions,
    bodies: Bodies,
    waiting: Waiting,
    consumers: Consumers,
    registry: SchemaRegistry,
    routes: Routes,
) -> list[PathRoute]:
    """Return the routes of PIP-64."""
    small, auto_create = bodies.of_others, options.auto_create_topics
    api = MessagesApi(broker, bodies.of_messages, registry, waiting, auto_create=auto_create)
    handlers = Pip64Handlers(
        api,
        ConsumersApi(broker, small, registry, waiting, options, consumers),
        CursorApi(broker, small),
    )
    body, right = messages.ProduceRequest, Action.PRODUCE
    produce = Endpoint(api.produce, right, body=body, answer=messages.ProduceAnswer, frequent=True)
    shipped = Endpoint(
        api.produce_shipped, right, body=body, answer=messages.ShippedAnswer, frequent=True
    )
    other = dict.fromkeys(METHODS, Endpoint(api.other_domain, Action.DESCRIBE))
    return [
        # Paths with a domain first: no tenant may have a domain's name.
        *_under(DOMAIN_BASE, routes, handlers, shipped),
        routes.route("/topics/non-persistent/{rest:path}", **other),
        *_under(BASE, routes, handlers, produce),
    ]


def _under(
    base: str, routes: Routes, handlers: Pip64Handlers, produce: Endpoint
) -> list[PathRoute]:
    """Return the routes under a spelling of a topic's path."""
    partition = f"{base}/partitions/{{partition}}"
    read = Endpoint(
        handlers.api.read,
        Action.CONSUME,
        answer=messages.ReadAnswer,
        query=(*START, *SHOW),
        other_formats=FORMATS,
    )
    routes_here = [
        routes.route(base, POST=produce),
        routes.route(partition, POST=produce),
        routes.route(f"{partition}/messages", GET=read),
    ]
    for word in SUBSCRIPTIONS:
        routes_here += _subscription(f"{base}/{word}/{{subscription}}", routes, handlers)
    return routes_here


def _subscription(base: str, routes: Routes, handlers: Pip64Handlers) -> list[PathRoute]:
    """Return the routes of a subscription under a spelling of its path."""
    route = routes.route
    paths = [f"{base}/{word}/{{consumer}}" for word in CONSUMERS]
    create = Endpoint(
        handlers.consumers.create,
        Action.CONSUME,
        body=messages.CreateConsumer,
        answer=messages.ConsumerAnswer,
        statuses=(200, 201),
    )
    fetch = Endpoint(
        handlers.consumers.fetch,
        Action.CONSUME,
        answer=messages.FetchAnswer,
        query=SHOW,
        other_formats=FORMATS,
    )
    delete = Endpoint(handlers.consumers.delete, Action.CONSUME, statuses=(204,))
    show = Endpoint(handlers.cursors.show, Action.DESCRIBE, answer=messages.CursorAnswer)
    update = Endpoint(
        handlers.cursors.update,
        Action.CONSUME,
        body=messages.UpdateCursor,
        answer=messages.CursorAnswer,
        frequent=True,
    )
    return [
        route(base, POST=create),
        route(f"{base}/consumers", POST=create),
        *(route(f"{path}/messages", GET=fetch) for path in paths),
        *(route(path, DELETE=delete) for path in paths),
        route(f"{base}/cursor", GET=show, POST=update),
    ]
