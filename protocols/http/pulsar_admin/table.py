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
from braidlog.protocols.http.errors import NOT_SUPPORTED, RequestRefused
from braidlog.protocols.http.pip64.cursor import CursorApi
from braidlog.protocols.http.pulsar_admin.cluster import ClusterApi
from braidlog.protocols.http.pulsar_admin.non_persistent import AdminNonPersistent
from braidlog.protocols.http.pulsar_admin.permissions import AdminPermissions
from braidlog.protocols.http.pulsar_admin.policy_calls import AdminPolicies
from braidlog.protocols.http.pulsar_admin.schemas import AdminSchemas
from braidlog.protocols.http.pulsar_admin.subscriptions import AdminSubscriptions
from braidlog.protocols.http.pulsar_admin.topic_jobs import AdminTopicJobs
from braidlog.protocols.http.pulsar_admin.topics import AdminTopics
from braidlog.protocols.http.routes import Endpoint, Routes

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
class AdminHandlers:
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
    handlers = AdminHandlers(
        ClusterApi(broker, bodies, options.advertised_url),
        topics,
        AdminNonPersistent(broker, bodies),
        AdminSubscriptions(broker, bodies, CursorApi(broker, bodies), topics),
        AdminSchemas(broker, bodies),
        AdminPermissions(broker, bodies),
        AdminPolicies(broker, bodies),
        AdminTopicJobs(broker),
    )
    rest = Endpoint(_not_served, SEE)
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
    raise RequestRefused(
        NOT_SUPPORTED, f"{request.method} {request.scope['path']} is not served here"
    )


def _cluster(routes: Routes, api: ClusterApi) -> list[Route]:
    route = routes.route
    plain = ("text/plain",)
    return [
        route(f"{ADMIN}/clusters", GET=Endpoint(api.clusters, SEE)),
        route(f"{ADMIN}/clusters/{{cluster}}", GET=Endpoint(api.cluster, SEE)),
        route(f"{ADMIN}/brokers/health", GET=Endpoint(api.health, SEE, other_formats=plain)),
        route(f"{ADMIN}/brokers/ready", GET=Endpoint(api.health, SEE, other_formats=plain)),
        route(f"{ADMIN}/brokers/version", GET=Endpoint(api.version, SEE, other_formats=plain)),
        route(f"{ADMIN}/brokers/configuration/runtime", GET=Endpoint(api.configuration, SEE)),
        route(f"{ADMIN}/brokers/{{cluster}}", GET=Endpoint(api.brokers, SEE)),
        route(f"/lookup/v2/topic/persistent/{NAMESPACE}/{{name}}", GET=Endpoint(api.lookup, SEE)),
        route(
            f"/lookup/v2/topic/non-persistent/{NAMESPACE}/{{name}}",
            GET=Endpoint(api.lookup, SEE),
        ),
    ]


def _namespaces(routes: Routes, handlers: AdminHandlers) -> list[Route]:
    route, api, nothing = routes.route, handlers.cluster, (204,)
    base = f"{ADMIN}/namespaces"
    return [
        route(f"{ADMIN}/tenants", GET=Endpoint(api.tenants, SEE, lists=True)),
        route(
            f"{ADMIN}/tenants/{{tenant}}",
            GET=Endpoint(api.tenant, SEE),
            PUT=Endpoint(api.create_tenant, MAKE, statuses=nothing),
            POST=Endpoint(api.alter_tenant, CHANGE, statuses=nothing),
            DELETE=Endpoint(api.delete_tenant, END, statuses=nothing),
        ),
        route(f"{base}/{{tenant}}", GET=Endpoint(api.namespaces, SEE, within=True)),
        route(
            f"{base}/{NAMESPACE}",
            GET=Endpoint(api.namespace, SEE),
            PUT=Endpoint(api.put_namespace, MAKE, statuses=nothing),
            DELETE=Endpoint(api.delete_namespace, END, statuses=nothing),
        ),
        route(f"{base}/{NAMESPACE}/unload", PUT=Endpoint(api.unload, CHANGE, statuses=nothing)),
        route(
            f"{base}/{NAMESPACE}/topics",
            GET=Endpoint(api.topics_of_namespace, SEE, within=True),
        ),
        route(
            f"{ADMIN}/persistent/{NAMESPACE}",
            GET=Endpoint(handlers.topics.list_topics, SEE, within=True),
        ),
        route(
            f"{ADMIN}/persistent/{NAMESPACE}/partitioned",
            GET=Endpoint(handlers.topics.list_partitioned, SEE, within=True),
        ),
    ]


def _topics(routes: Routes, api: AdminTopics) -> list[Route]:
    route, nothing = routes.route, (204,)
    return [
        route(
            TOPIC,
            PUT=Endpoint(api.create, MAKE, statuses=nothing),
            DELETE=Endpoint(api.delete, END, statuses=nothing),
        ),
        route(
            f"{TOPIC}/partitions",
            GET=Endpoint(api.partitions, SEE),
            PUT=Endpoint(api.create_partitioned, MAKE, statuses=nothing),
            POST=Endpoint(api.grow, CHANGE, statuses=nothing),
            DELETE=Endpoint(api.delete_partitioned, END, statuses=nothing),
        ),
        route(f"{TOPIC}/stats", GET=Endpoint(api.stats, SEE)),
        route(f"{TOPIC}/partitioned-stats", GET=Endpoint(api.partitioned_stats, SEE)),
        route(f"{TOPIC}/internalStats", GET=Endpoint(api.internal_stats, SEE)),
        route(f"{TOPIC}/unload", PUT=Endpoint(api.unload, CHANGE, statuses=nothing)),
        route(f"{TOPIC}/truncate", DELETE=Endpoint(api.truncate, END, statuses=nothing)),
        route(f"{TOPIC}/lastMessageId", GET=Endpoint(api.last_message_id, SEE)),
        route(f"{TOPIC}/messageid/{{time}}", GET=Endpoint(api.id_at, SEE)),
        route(
            f"{TOPIC}/ledger/{{ledger}}/entry/{{entry}}",
            GET=Endpoint(api.message, READ, other_formats=STORED),
        ),
        route(f"{TOPIC}/examinemessage", GET=Endpoint(api.examine, READ, other_formats=STORED)),
    ]


def _non_persistent(routes: Routes, api: AdminNonPersistent) -> list[Route]:
    route, nothing = routes.route, (204,)
    namespace = f"{ADMIN}/non-persistent/{NAMESPACE}"
    return [
        route(namespace, GET=Endpoint(api.list_topics, SEE, within=True)),
        route(f"{namespace}/partitioned", GET=Endpoint(api.list_partitioned, SEE, within=True)),
        route(
            NON_PERSISTENT,
            PUT=Endpoint(api.create, MAKE, statuses=nothing),
            DELETE=Endpoint(api.delete, END, statuses=nothing),
        ),
        route(
            f"{NON_PERSISTENT}/partitions",
            GET=Endpoint(api.partitions, SEE),
            PUT=Endpoint(api.set_partitions, MAKE, statuses=nothing),
            POST=Endpoint(api.set_partitions, CHANGE, statuses=nothing),
            DELETE=Endpoint(api.delete_partitioned, END, statuses=nothing),
        ),
        route(f"{NON_PERSISTENT}/stats", GET=Endpoint(api.stats, SEE)),
        route(f"{NON_PERSISTENT}/partitioned-stats", GET=Endpoint(api.partitioned_stats, SEE)),
        route(f"{NON_PERSISTENT}/internalStats", GET=Endpoint(api.internal_stats, SEE)),
        route(f"{NON_PERSISTENT}/subscriptions", GET=Endpoint(api.subscriptions, SEE)),
        route(
            f"{NON_PERSISTENT}/subscription/{{subscription}}",
            DELETE=Endpoint(api.delete_subscription, END, statuses=nothing),
        ),
        route(f"{NON_PERSISTENT}/unload", PUT=Endpoint(api.unload, CHANGE, statuses=nothing)),
        route(
            f"{NON_PERSISTENT}/{{rest:path}}",
            **dict.fromkeys(METHODS, Endpoint(api.not_here, SEE)),
        ),
    ]


def _subscriptions(routes: Routes, api: AdminSubscriptions) -> list[Route]:
    route, nothing = routes.route, (204,)
    base = f"{TOPIC}/subscription/{{subscription}}"
    return [
        route(f"{TOPIC}/subscriptions", GET=Endpoint(api.list_subscriptions, SEE)),
        route(
            base,
            PUT=Endpoint(api.create, READ, statuses=nothing),
            DELETE=Endpoint(api.delete, END, statuses=nothing),
        ),
        route(f"{base}/resetcursor", POST=Endpoint(api.reset_to_id, READ, statuses=nothing)),
        route(
            f"{base}/resetcursor/{{time}}",
            POST=Endpoint(api.reset_to_time, READ, statuses=nothing),
        ),
        route(f"{base}/skip/{{number}}", POST=Endpoint(api.skip, READ, statuses=nothing)),
        route(
            f"{base}/expireMessages/{{seconds}}",
            POST=Endpoint(api.expire, READ, statuses=nothing),
        ),
        route(f"{base}/skip_all", POST=Endpoint(api.skip_all, READ, statuses=nothing)),
        route(f"{base}/position/{{number}}", GET=Endpoint(api.peek, READ, other_formats=STORED)),
    ]


def _schemas(routes: Routes, api: AdminSchemas) -> list[Route]:
    route = routes.route
    return [
        route(
            f"{SCHEMAS}/schema",
            GET=Endpoint(api.latest, SEE),
            POST=Endpoint(api.post, CHANGE),
            DELETE=Endpoint(api.delete, CHANGE),
        ),
        route(f"{SCHEMAS}/schema/{{version}}", GET=Endpoint(api.of_version, SEE)),
        route(f"{SCHEMAS}/schemas", GET=Endpoint(api.all_versions, SEE)),
        route(f"{SCHEMAS}/compatibility", POST=Endpoint(api.compatibility, SEE)),
    ]


def _permissions(routes: Routes, api: AdminPermissions) -> list[Route]:
    route, nothing = routes.route, (204,)
    namespace = f"{ADMIN}/namespaces/{NAMESPACE}/permissions"
    return [
        route(namespace, GET=Endpoint(api.of_namespace, RULE)),
        route(
            f"{namespace}/{{role}}",
            POST=Endpoint(api.grant_in_namespace, RULE, statuses=nothing),
            DELETE=Endpoint(api.revoke_in_namespace, RULE, statuses=nothing),
        ),
        route(f"{TOPIC}/permissions", GET=Endpoint(api.of_topic, RULE)),
        route(
            f"{TOPIC}/permissions/{{role}}",
            POST=Endpoint(api.grant_on_topic, RULE, statuses=nothing),
            DELETE=Endpoint(api.revoke_on_topic, RULE, statuses=nothing),
        ),
    ]


def _jobs(routes: Routes, api: AdminTopicJobs) -> list[Route]:
    route, nothing = routes.route, (204,)
    return [
        route(
            f"{TOPIC}/compaction",
            GET=Endpoint(api.compaction_status, SEE),
            PUT=Endpoint(api.compact, CHANGE, statuses=nothing),
        ),
        route(f"{TOPIC}/terminate", POST=Endpoint(api.terminate, CHANGE)),
        route(f"{TOPIC}/terminate/partitions", POST=Endpoint(api.terminate_partitions, CHANGE)),
    ]
