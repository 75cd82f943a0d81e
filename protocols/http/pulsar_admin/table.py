"""The paths of Pulsar's admin API and of its HTTP lookup: tier 1 of the calls by clients and tools.

Any other path of Apache Pulsar is refused with `not_supported`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from braidlog.broker.access.rights import Action
from braidlog.protocols.http.bodies import BodyReader
from braidlog.protocols.http.errors import NOT_SUPPORTED, Refused
from braidlog.protocols.http.pip64.cursor import CursorApi
from braidlog.protocols.http.pulsar_admin.cluster import ClusterApi
from braidlog.protocols.http.pulsar_admin.non_persistent import AdminNonPersistent
from braidlog.protocols.http.pulsar_admin.permissions import AdminPermissions
from braidlog.protocols.http.pulsar_admin.policy_calls import AdminPolicies
from braidlog.protocols.http.pulsar_admin.schemas import AdminSchemas
from braidlog.protocols.http.pulsar_admin.subscriptions import AdminSubscriptions
from braidlog.protocols.http.pulsar_admin.topic_jobs import AdminTopicJobs
from braidlog.protocols.http.pulsar_admin.topics import AdminTopics
from braidlog.protocols.http.routes import Routes, Served

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.protocols.http.options import RestOptions

ADMIN = "/admin/v2"
NAMESPACE = "{tenant}/{namespace}"
NON_PERSISTENT = f"{ADMIN}/non-persistent/{NAMESPACE}/{{name}}"
TOPIC = f"{ADMIN}/persistent/{NAMESPACE}/{{name}}"
SCHEMAS = f"{ADMIN}/schemas/{NAMESPACE}/{{name}}"
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
SEE, MAKE, CHANGE = Action.DESCRIBE, Action.CREATE, Action.ALTER
READ, END, RULE = Action.CONSUME, Action.DELETE, Action.ADMINISTER
STORED = ("application/octet-stream",)


@dataclass(slots=True, frozen=True)
class Handlers:
    """The objects whose methods serve the paths."""

    cluster: ClusterApi
    topics: AdminTopics
    non_persistent: AdminNonPersistent
    subscriptions: AdminSubscriptions
    schemas: AdminSchemas
    permissions: AdminPermissions
    policies: AdminPolicies
    jobs: AdminTopicJobs


def admin_routes(
    broker: Broker, options: RestOptions, bodies: BodyReader, routes: Routes
) -> list[Route]:
    """Return the routes of Pulsar's admin API."""
    topics = AdminTopics(broker, bodies)
    handlers = Handlers(
        ClusterApi(broker, bodies, options.advertised_url),
        topics,
        AdminNonPersistent(broker, bodies),
        AdminSubscriptions(broker, bodies, CursorApi(broker, bodies), topics),
        AdminSchemas(broker, bodies),
        AdminPermissions(broker, bodies),
        AdminPolicies(broker, bodies),
        AdminTopicJobs(broker),
    )
    rest = Served(_not_served, SEE)
    return [
        *_cluster(routes, handlers.cluster),
        *_namespaces(routes, handlers),
        *_topics(routes, handlers.topics),
        *_non_persistent(routes, handlers.non_persistent),
        *_subscriptions(routes, handlers.subscriptions),
        *_schemas(routes, handlers.schemas),
        *_permissions(routes, handlers.permissions),
        *handlers.policies.routes(routes, f"{ADMIN}/namespaces/{NAMESPACE}", TOPIC),
        *_jobs(routes, handlers.jobs),
        routes.route(f"{ADMIN}/{{rest:path}}", **dict.fromkeys(METHODS, rest)),
    ]


async def _not_served(request: Request) -> Response:
    """Refuse paths of Apache Pulsar's admin API that this broker does not serve."""
    raise Refused(NOT_SUPPORTED, f"{request.method} {request.scope['path']} is not served here")


def _cluster(routes: Routes, api: ClusterApi) -> list[Route]:
    route = routes.route
    plain = ("text/plain",)
    return [
        route(f"{ADMIN}/clusters", GET=Served(api.clusters, SEE)),
        route(f"{ADMIN}/clusters/{{cluster}}", GET=Served(api.cluster, SEE)),
        route(f"{ADMIN}/brokers/health", GET=Served(api.health, SEE, other_formats=plain)),
        route(f"{ADMIN}/brokers/ready", GET=Served(api.health, SEE, other_formats=plain)),
        route(f"{ADMIN}/brokers/version", GET=Served(api.version, SEE, other_formats=plain)),
        route(f"{ADMIN}/brokers/configuration/runtime", GET=Served(api.configuration, SEE)),
        route(f"{ADMIN}/brokers/{{cluster}}", GET=Served(api.brokers, SEE)),
        route(f"/lookup/v2/topic/persistent/{NAMESPACE}/{{name}}", GET=Served(api.lookup, SEE)),
        route(f"/lookup/v2/topic/non-persistent/{NAMESPACE}/{{name}}", GET=Served(api.lookup, SEE)),
    ]


def _namespaces(routes: Routes, handlers: Handlers) -> list[Route]:
    route, api, nothing = routes.route, handlers.cluster, (204,)
    base = f"{ADMIN}/namespaces"
    return [
        route(f"{ADMIN}/tenants", GET=Served(api.tenants, SEE, lists=True)),
        route(
            f"{ADMIN}/tenants/{{tenant}}",
            GET=Served(api.tenant, SEE),
            PUT=Served(api.create_tenant, MAKE, statuses=nothing),
            POST=Served(api.alter_tenant, CHANGE, statuses=nothing),
            DELETE=Served(api.delete_tenant, END, statuses=nothing),
        ),
        route(f"{base}/{{tenant}}", GET=Served(api.namespaces, SEE, within=True)),
        route(
            f"{base}/{NAMESPACE}",
            GET=Served(api.namespace, SEE),
            PUT=Served(api.put_namespace, MAKE, statuses=nothing),
            DELETE=Served(api.delete_namespace, END, statuses=nothing),
        ),
        route(f"{base}/{NAMESPACE}/unload", PUT=Served(api.unload, CHANGE, statuses=nothing)),
        route(f"{base}/{NAMESPACE}/topics", GET=Served(api.topics_of_namespace, SEE, within=True)),
        route(
            f"{ADMIN}/persistent/{NAMESPACE}",
            GET=Served(handlers.topics.list_topics, SEE, within=True),
        ),
        route(
            f"{ADMIN}/persistent/{NAMESPACE}/partitioned",
            GET=Served(handlers.topics.list_partitioned, SEE, within=True),
        ),
    ]


def _topics(routes: Routes, api: AdminTopics) -> list[Route]:
    route, nothing = routes.route, (204,)
    return [
        route(
            TOPIC,
            PUT=Served(api.create, MAKE, statuses=nothing),
            DELETE=Served(api.delete, END, statuses=nothing),
        ),
        route(
            f"{TOPIC}/partitions",
            GET=Served(api.partitions, SEE),
            PUT=Served(api.create_partitioned, MAKE, statuses=nothing),
            POST=Served(api.grow, CHANGE, statuses=nothing),
            DELETE=Served(api.delete_partitioned, END, statuses=nothing),
        ),
        route(f"{TOPIC}/stats", GET=Served(api.stats, SEE)),
        route(f"{TOPIC}/partitioned-stats", GET=Served(api.partitioned_stats, SEE)),
        route(f"{TOPIC}/internalStats", GET=Served(api.internal_stats, SEE)),
        route(f"{TOPIC}/unload", PUT=Served(api.unload, CHANGE, statuses=nothing)),
        route(f"{TOPIC}/truncate", DELETE=Served(api.truncate, END, statuses=nothing)),
        route(f"{TOPIC}/lastMessageId", GET=Served(api.last_message_id, SEE)),
        route(f"{TOPIC}/messageid/{{time}}", GET=Served(api.id_at, SEE)),
        route(
            f"{TOPIC}/ledger/{{ledger}}/entry/{{entry}}",
            GET=Served(api.message, READ, other_formats=STORED),
        ),
        route(f"{TOPIC}/examinemessage", GET=Served(api.examine, READ, other_formats=STORED)),
    ]


def _non_persistent(routes: Routes, api: AdminNonPersistent) -> list[Route]:
    route, nothing = routes.route, (204,)
    namespace = f"{ADMIN}/non-persistent/{NAMESPACE}"
    return [
        route(namespace, GET=Served(api.list_topics, SEE, within=True)),
        route(f"{namespace}/partitioned", GET=Served(api.list_partitioned, SEE, within=True)),
        route(
            NON_PERSISTENT,
            PUT=Served(api.create, MAKE, statuses=nothing),
            DELETE=Served(api.delete, END, statuses=nothing),
        ),
        route(
            f"{NON_PERSISTENT}/partitions",
            GET=Served(api.partitions, SEE),
            PUT=Served(api.set_partitions, MAKE, statuses=nothing),
            POST=Served(api.set_partitions, CHANGE, statuses=nothing),
            DELETE=Served(api.delete_partitioned, END, statuses=nothing),
        ),
        route(f"{NON_PERSISTENT}/stats", GET=Served(api.stats, SEE)),
        route(f"{NON_PERSISTENT}/partitioned-stats", GET=Served(api.partitioned_stats, SEE)),
        route(f"{NON_PERSISTENT}/internalStats", GET=Served(api.internal_stats, SEE)),
        route(f"{NON_PERSISTENT}/subscriptions", GET=Served(api.subscriptions, SEE)),
        route(
            f"{NON_PERSISTENT}/subscription/{{subscription}}",
            DELETE=Served(api.delete_subscription, END, statuses=nothing),
        ),
        route(f"{NON_PERSISTENT}/unload", PUT=Served(api.unload, CHANGE, statuses=nothing)),
        route(
            f"{NON_PERSISTENT}/{{rest:path}}", **dict.fromkeys(METHODS, Served(api.not_here, SEE))
        ),
    ]


def _subscriptions(routes: Routes, api: AdminSubscriptions) -> list[Route]:
    route, nothing = routes.route, (204,)
    base = f"{TOPIC}/subscription/{{subscription}}"
    return [
        route(f"{TOPIC}/subscriptions", GET=Served(api.list_subscriptions, SEE)),
        route(
            base,
            PUT=Served(api.create, READ, statuses=nothing),
            DELETE=Served(api.delete, END, statuses=nothing),
        ),
        route(f"{base}/resetcursor", POST=Served(api.reset_to_id, READ, statuses=nothing)),
        route(
            f"{base}/resetcursor/{{time}}", POST=Served(api.reset_to_time, READ, statuses=nothing)
        ),
        route(f"{base}/skip/{{number}}", POST=Served(api.skip, READ, statuses=nothing)),
        route(
            f"{base}/expireMessages/{{seconds}}", POST=Served(api.expire, READ, statuses=nothing)
        ),
        route(f"{base}/skip_all", POST=Served(api.skip_all, READ, statuses=nothing)),
        route(f"{base}/position/{{number}}", GET=Served(api.peek, READ, other_formats=STORED)),
    ]


def _schemas(routes: Routes, api: AdminSchemas) -> list[Route]:
    route = routes.route
    return [
        route(
            f"{SCHEMAS}/schema",
            GET=Served(api.latest, SEE),
            POST=Served(api.post, CHANGE),
            DELETE=Served(api.delete, CHANGE),
        ),
        route(f"{SCHEMAS}/schema/{{version}}", GET=Served(api.of_version, SEE)),
        route(f"{SCHEMAS}/schemas", GET=Served(api.all_versions, SEE)),
        route(f"{SCHEMAS}/compatibility", POST=Served(api.compatibility, SEE)),
    ]


def _permissions(routes: Routes, api: AdminPermissions) -> list[Route]:
    route, nothing = routes.route, (204,)
    namespace = f"{ADMIN}/namespaces/{NAMESPACE}/permissions"
    return [
        route(namespace, GET=Served(api.of_namespace, RULE)),
        route(
            f"{namespace}/{{role}}",
            POST=Served(api.grant_in_namespace, RULE, statuses=nothing),
            DELETE=Served(api.revoke_in_namespace, RULE, statuses=nothing),
        ),
        route(f"{TOPIC}/permissions", GET=Served(api.of_topic, RULE)),
        route(
            f"{TOPIC}/permissions/{{role}}",
            POST=Served(api.grant_on_topic, RULE, statuses=nothing),
            DELETE=Served(api.revoke_on_topic, RULE, statuses=nothing),
        ),
    ]


def _jobs(routes: Routes, api: AdminTopicJobs) -> list[Route]:
    route, nothing = routes.route, (204,)
    return [
        route(
            f"{TOPIC}/compaction",
            GET=Served(api.compaction_status, SEE),
            PUT=Served(api.compact, CHANGE, statuses=nothing),
        ),
        route(f"{TOPIC}/terminate", POST=Served(api.terminate, CHANGE)),
        route(f"{TOPIC}/terminate/partitions", POST=Served(api.terminate_partitions, CHANGE)),
    ]
