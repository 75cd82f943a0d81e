"""The routes of the HTTP listener. `docs/api.md` describes each, `/openapi.json` lists them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from braidlog.broker.access.rights import Action
from braidlog.protocols.http.bodies import Bodies, BodyReader
from braidlog.protocols.http.console.routes import console_routes
from braidlog.protocols.http.documentation import Documentation
from braidlog.protocols.http.management import messages
from braidlog.protocols.http.management.audit_trail import (
    AUDIT_QUERY,
    AuditPage,
    AuditTrail,
)
from braidlog.protocols.http.management.configuration import ConfigurationApi, SettingList
from braidlog.protocols.http.management.exports import ExportList, ExportRun, ExportsApi
from braidlog.protocols.http.management.groups import GroupsApi
from braidlog.protocols.http.management.health import HealthApi
from braidlog.protocols.http.management.history import History, HistoryApi
from braidlog.protocols.http.management.http_consumers import (
    HttpConsumerPage,
    HttpConsumersApi,
)
from braidlog.protocols.http.management.importing import (
    ImportAnswer,
    ImportApi,
    ImportRequest,
)
from braidlog.protocols.http.management.overview import (
    BrokerList,
    ConnectionPage,
    ConnectionsApi,
    OverviewApi,
    Stats,
)
from braidlog.protocols.http.management.raw_log import RawLogApi
from braidlog.protocols.http.management.topics import SORTS as TOPIC_SORTS
from braidlog.protocols.http.management.topics import TopicsApi
from braidlog.protocols.http.management.users_table import user_routes
from braidlog.protocols.http.pip64.consumers import Consumers
from braidlog.protocols.http.pip64.table import pip64_routes
from braidlog.protocols.http.pulsar_admin.table import admin_routes
from braidlog.protocols.http.requests import ERROR_HANDLERS, Requests
from braidlog.protocols.http.routes import Endpoint, Query, Routes
from braidlog.protocols.http.routing import Answering, PathRoute
from braidlog.protocols.http.values.resolving import SchemaRegistry
from braidlog.protocols.http.waiting import Waiting
from braidlog.protocols.http.websocket.table import websocket_routes

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.protocols.http.options import RestOptions

API = "/api/v1"
TOPIC = "{tenant}/{namespace}/{topic}"
TEXT = {"type": "string"}
PAGE = (
    Query("limit", "Entries at most.", {"type": "integer", "minimum": 1, "maximum": 10_000}),
    Query("after", "The `next` of the previous page.", TEXT),
)
ENCODING = Query("encoding", "How a group's name is written.", {"enum": ["utf8", "base64"]})

AGES = Query("ages", "Add the ages of the oldest unread records.", {"type": "boolean"})
FORCE = Query("force", "Delete a group that has members too.", {"type": "boolean"})


class Application(Requests):
    """The ASGI application of one broker's HTTP listener, and its consumers."""

    def __init__(self, broker: Broker, options: RestOptions, stopping: trio.Event) -> None:
        self.consumers = Consumers(broker, options)
        self.history = HistoryApi(broker)
        routes = make_routes(broker, options, stopping, self.consumers, self.history)
        routes += console_routes(broker, options, self, Bodies.of(options, stopping).of_others)
        super().__init__(Answering(routes, ERROR_HANDLERS), broker)


def make_app(broker: Broker, options: RestOptions, stopping: trio.Event) -> Application:
    """Return the ASGI application of one broker's HTTP listener."""
    return Application(broker, options, stopping)


def make_routes(
    broker: Broker,
    options: RestOptions,
    stopping: trio.Event,
    consumers: Consumers | None = None,
    history: HistoryApi | None = None,
) -> list[PathRoute]:
    """Return the routes of every path of the listener."""
    routes = Routes(broker)
    registry = SchemaRegistry(broker)
    if consumers is None:
        consumers = Consumers(broker, options)
    bodies = Bodies.of(options, stopping)
    waiting = Waiting(stopping)
    api_routes = [
        *pip64_routes(broker, options, bodies, waiting, consumers, registry, routes),
        *websocket_routes(broker, options, stopping, registry, routes),
        *_monitoring_routes(broker, options, history or HistoryApi(broker), routes),
        *_job_routes(broker, bodies.of_others, consumers, routes),
        *admin_routes(broker, options, bodies.of_others, routes),
        *_admin_routes(broker, bodies, registry, routes),
        *_raw_log(broker, bodies.of_others, waiting, routes),
    ]
    documentation = Documentation(routes.described, broker.version)
    return [
        *api_routes,
        routes.route("/openapi.json", GET=Endpoint(documentation.openapi, None)),
        routes.route("/docs", GET=Endpoint(documentation.docs, None)),
    ]


def _monitoring_routes(
    broker: Broker, options: RestOptions, history: HistoryApi, routes: Routes
) -> list[PathRoute]:
    route = routes.route
    health = HealthApi(broker, options)
    plain = ("text/plain",)
    overview = OverviewApi(broker)
    readiness = Endpoint(health.readyz, None, answer=messages.Readiness, statuses=(200, 503))
    return [
        route("/healthz", GET=Endpoint(health.healthz, None, other_formats=plain)),
        route("/readyz", GET=readiness),
        route(
            f"{API}/connections",
            GET=Endpoint(
                ConnectionsApi(broker).connections,
                Action.DESCRIBE,
                answer=ConnectionPage,
                query=(*PAGE,),
            ),
        ),
        route(f"{API}/stats", GET=Endpoint(overview.stats, Action.DESCRIBE, answer=Stats)),
        route(f"{API}/history", GET=Endpoint(history.show, Action.DESCRIBE, answer=History)),
        route(f"{API}/brokers", GET=Endpoint(overview.brokers, Action.DESCRIBE, answer=BrokerList)),
        route(
            f"{API}/audit",
            GET=Endpoint(
                AuditTrail(broker).show, Action.ADMINISTER, answer=AuditPage, query=AUDIT_QUERY
            ),
        ),
        route(
            f"{API}/config",
            GET=Endpoint(ConfigurationApi(broker).show, Action.ADMINISTER, answer=SettingList),
        ),
        route("/metrics", GET=Endpoint(health.metrics, Action.DESCRIBE, other_formats=plain)),
        route("/metrics/", GET=Endpoint(health.moved, Action.DESCRIBE, statuses=(301,))),
    ]


def _job_routes(
    broker: Broker, bodies: BodyReader, consumers: Consumers, routes: Routes
) -> list[PathRoute]:
    """Return the routes of the lists of consumers over HTTP and of export jobs."""
    exports = ExportsApi(broker, bodies)
    return [
        routes.route(
            f"{API}/http-consumers",
            GET=Endpoint(
                HttpConsumersApi(broker, consumers).show,
                Action.DESCRIBE,
                lists=True,
                answer=HttpConsumerPage,
                query=(*PAGE, Query("topic", "Only consumers of that topic.", TEXT)),
            ),
        ),
        routes.route(
            f"{API}/exports",
            GET=Endpoint(exports.show, Action.DESCRIBE, lists=True, answer=ExportList),
            POST=Endpoint(
                exports.report, Action.CONSUME, lists=True, body=ExportRun, statuses=(204,)
            ),
        ),
    ]


def _admin_routes(
    broker: Broker, bodies: Bodies, registry: SchemaRegistry, routes: Routes
) -> list[PathRoute]:
    route = routes.route
    topics = TopicsApi(broker, bodies.of_others)
    connections = ConnectionsApi(broker)
    importing = ImportApi(broker, bodies.of_messages, registry)
    detail = messages.TopicDetail
    return [
        *user_routes(broker, bodies.of_others, routes, API),
        route(
            f"{API}/topics",
            GET=Endpoint(
                topics.list_topics,
                Action.DESCRIBE,
                lists=True,
                answer=messages.TopicPage,
                query=(
                    *PAGE,
                    Query("namespace", "tenant/namespace: only topics of this namespace.", TEXT),
                    Query("contains", "Only topics with this text in their full names.", TEXT),
                    Query("sort", "By name, or the largest first.", {"enum": list(TOPIC_SORTS)}),
                ),
            ),
        ),
        route(
            f"{API}/topics/{TOPIC}",
            GET=Endpoint(topics.show, Action.DESCRIBE, answer=detail),
            PUT=Endpoint(
                topics.create,
                Action.CREATE,
                body=messages.CreateTopic,
                answer=detail,
                statuses=(201,),
                needs_body=False,
            ),
            PATCH=Endpoint(
                topics.alter,
                Action.ALTER,
                body=messages.AlterTopic,
                answer=detail,
                needs_body=False,
            ),
            DELETE=Endpoint(topics.delete, Action.DELETE, statuses=(204,)),
        ),
        route(
            f"{API}/topics/{TOPIC}/messages",
            POST=Endpoint(
                importing.store, Action.ADMINISTER, body=ImportRequest, answer=ImportAnswer
            ),
        ),
        route(
            f"{API}/topics/{TOPIC}/writers",
            GET=Endpoint(
                connections.writers, Action.DESCRIBE, answer=ConnectionPage, query=(*PAGE,)
            ),
        ),
        *_groups(broker, routes),
    ]


def _groups(broker: Broker, routes: Routes) -> list[PathRoute]:
    route = routes.route
    groups = GroupsApi(broker)
    return [
        route(
            f"{API}/groups",
            GET=Endpoint(
                groups.list_groups,
                Action.DESCRIBE,
                lists=True,
                answer=messages.GroupPage,
                query=(
                    *PAGE,
                    Query("topic", "Only groups of that topic.", TEXT),
                    Query("group", "Only groups of that name.", TEXT),
                    Query("contains", "Only groups with this text in their names.", TEXT),
                    Query(
                        "sort", "By topic, or the largest lag first.", {"enum": ["topic", "lag"]}
                    ),
                    ENCODING,
                    AGES,
                ),
            ),
        ),
        route(
            f"{API}/groups/{TOPIC}/{{group}}",
            GET=Endpoint(
                groups.show, Action.DESCRIBE, answer=messages.GroupDetail, query=(ENCODING, AGES)
            ),
            DELETE=Endpoint(groups.delete, Action.DELETE, statuses=(204,), query=(ENCODING, FORCE)),
        ),
    ]


def _raw_log(
    broker: Broker, bodies: BodyReader, waiting: Waiting, routes: Routes
) -> list[PathRoute]:
    """Return the routes of the log as stored, for Spark's readers, and of the positions that
    readers store.
    """
    route = routes.route
    raw_log = RawLogApi(broker, bodies, waiting)
    partition = f"{API}/log/{TOPIC}/{{partition}}"
    stored = ("application/octet-stream",)
    return [
        route(f"{API}/log", GET=Endpoint(raw_log.list_partitions, Action.DESCRIBE, lists=True)),
        route(partition, GET=Endpoint(raw_log.state, Action.CONSUME)),
        route(
            f"{partition}/batches",
            GET=Endpoint(raw_log.batches, Action.CONSUME, other_formats=stored),
        ),
        route(
            f"{API}/groups/{TOPIC}/{{group}}/positions",
            PUT=Endpoint(raw_log.set_positions, Action.CONSUME),
        ),
    ]
