"""The paths of Pulsar's admin API and of its HTTP lookup: tier 1 of the calls by clients and tools.

Any other path of Apache Pulsar is refused with `not_supported`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from braidlog.broker.access.rights import Action
from braidlog.protocols.http.bodies import BodyReader
from braidlog.protocols.http.errors import NOT_SUPPORTED, RequestRefused
from braidlog.protocols.http.pip64.cursor import CursorApi
from braidlog.protocols.http.pulsar_admin.absent import AbsentFeatures
from braidlog.protocols.http.pulsar_admin.apache_words import in_apache_words
from braidlog.protocols.http.pulsar_admin.broker_stats import BrokerStats
from braidlog.protocols.http.pulsar_admin.brokers import BrokersApi
from braidlog.protocols.http.pulsar_admin.cluster import ClusterApi
from braidlog.protocols.http.pulsar_admin.clusters import ClustersApi
from braidlog.protocols.http.pulsar_admin.namespace_jobs import NamespaceJobs
from braidlog.protocols.http.pulsar_admin.non_persistent import AdminNonPersistent
from braidlog.protocols.http.pulsar_admin.paths import (
    ADMIN,
    BROKERS,
    CLUSTERS,
    LOOKUP,
    NAMED,
    NAMESPACE,
    NON_PERSISTENT,
    OTHERS,
    OTHERS_OF_NON_PERSISTENT,
    RATE_OF_SUBSCRIPTION,
    SCHEMAS,
    SPACE,
    SPACES,
    SUBSCRIPTION,
    TENANTS,
    TOPIC,
    TOPICS,
)
from braidlog.protocols.http.pulsar_admin.permissions import AdminPermissions
from braidlog.protocols.http.pulsar_admin.policy_calls import AdminPolicies
from braidlog.protocols.http.pulsar_admin.schemas import AdminSchemas
from braidlog.protocols.http.pulsar_admin.subscriptions import AdminSubscriptions
from braidlog.protocols.http.pulsar_admin.topic_details import AdminTopicDetails
from braidlog.protocols.http.pulsar_admin.topic_jobs import AdminTopicJobs
from braidlog.protocols.http.pulsar_admin.topics import AdminTopics
from braidlog.protocols.http.pulsar_admin.write_content import refuse_the_rest
from braidlog.protocols.http.pulsar_admin.write_table import ROWS, WRITING
from braidlog.protocols.http.routes import Endpoint, Routes
from braidlog.protocols.http.routing import PathRoute

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.protocols.http.options import RestOptions
    from braidlog.protocols.http.requests import Handler

REFUSED = (*OTHERS, OTHERS_OF_NON_PERSISTENT)
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
SEE, MAKE, CHANGE = Action.DESCRIBE, Action.CREATE, Action.ALTER
READ, END, RULE = Action.CONSUME, Action.DELETE, Action.ADMINISTER
STORED, PLAIN = ("application/octet-stream",), ("text/plain",)
Call = tuple[str, str, Endpoint]  # Method, path, handler.


def admin_routes(
    broker: Broker, options: RestOptions, bodies: BodyReader, routes: Routes
) -> list[PathRoute]:
    """Return the routes of Pulsar's admin API."""
    cluster, topics = (
        ClusterApi(broker, bodies, options.advertised_url),
        AdminTopics(broker, bodies),
    )
    calls = chain(  # The first path that matches a request serves the request.
        _of_brokers(BrokersApi(cluster)),
        _of_stats(BrokerStats(broker, cluster)),
        _of_cluster(cluster),
        _of_clusters(ClustersApi(broker, bodies, cluster)),
        _of_namespace_jobs(NamespaceJobs(broker, bodies, cluster)),
        _of_details(AdminTopicDetails(broker, bodies)),
        _of_namespaces(cluster, topics),
        _of_topics(topics),
        AdminPolicies(broker, bodies).calls_of_non_persistent(NON_PERSISTENT),
        _of_non_persistent(AdminNonPersistent(broker, bodies)),
        _of_subscriptions(AdminSubscriptions(broker, bodies, CursorApi(broker, bodies), topics)),
        _of_schemas(AdminSchemas(broker, bodies)),
        _of_permissions(AdminPermissions(broker, bodies)),
        _of_policies(AdminPolicies(broker, bodies)),
        AbsentFeatures(broker, bodies).calls(SPACE, TOPIC),
        _of_jobs(AdminTopicJobs(broker)),
        ((method, path, Endpoint(_not_served, SEE)) for path in OTHERS for method in METHODS),
    )
    paths: dict[str, dict[str, Endpoint]] = {}
    for method, path, endpoint in calls:
        handler = endpoint.handler
        if method in WRITING and path not in REFUSED:
            handler = refuse_the_rest(handler, ROWS[method, path], bodies)
        endpoint = replace(endpoint, handler=in_apache_words(handler))
        paths.setdefault(path, {})[method] = endpoint
    return [routes.route(path, **methods) for path, methods in paths.items()]


async def _not_served(request: Request) -> Response:
    """Refuse paths of Apache Pulsar's admin API that this broker does not serve."""
    text = f"{request.method} {request.scope['path']} is not served here"
    raise RequestRefused(NOT_SUPPORTED, text)


def _done(handler: Handler, action: Action) -> Endpoint:
    """Return the endpoint of a call without content in the answer."""
    return Endpoint(handler, action, statuses=(204,))


def _of_cluster(api: ClusterApi) -> Iterator[Call]:
    owned = f"{BROKERS}/{{cluster}}/{{broker}}/ownedNamespaces"
    yield "GET", owned, Endpoint(api.owned_namespaces, SEE)
    yield "GET", f"{BROKERS}/health", Endpoint(api.health, SEE, other_formats=PLAIN)
    yield "GET", f"{BROKERS}/ready", Endpoint(api.health, SEE, other_formats=PLAIN)
    yield "GET", f"{BROKERS}/version", Endpoint(api.version, SEE, other_formats=PLAIN)
    yield "GET", f"{BROKERS}/configuration/runtime", Endpoint(api.configuration, SEE)
    yield "GET", f"{BROKERS}/{{cluster}}", Endpoint(api.brokers, SEE)
    yield "GET", f"{LOOKUP}/persistent/{NAMED}", Endpoint(api.lookup, SEE)
    yield "GET", f"{LOOKUP}/non-persistent/{NAMED}", Endpoint(api.lookup, SEE)


def _of_stats(api: BrokerStats) -> Iterator[Call]:
    yield "GET", f"{ADMIN}/broker-stats/topics", Endpoint(api.topics, SEE)
    yield "GET", f"{ADMIN}/broker-stats/metrics", Endpoint(api.metrics, SEE)
    yield "GET", f"{ADMIN}/broker-stats/load-report", _done(api.load_report, SEE)


def _of_brokers(api: BrokersApi) -> Iterator[Call]:
    yield "GET", BROKERS, Endpoint(api.brokers, SEE)
    yield "GET", f"{BROKERS}/leaderBroker", Endpoint(api.leader, SEE)
    yield "GET", f"{BROKERS}/configuration", Endpoint(api.dynamic_names, SEE)
    yield "GET", f"{BROKERS}/configuration/values", Endpoint(api.dynamic_values, SEE)
    yield "GET", f"{BROKERS}/internal-configuration", Endpoint(_not_served, SEE)
    yield "GET", f"{BROKERS}/backlog-quota-check", _done(api.check_quotas, SEE)
    yield "GET", f"{ADMIN}/bookies/all", Endpoint(api.bookies, SEE)
    yield "GET", f"{ADMIN}/bookies/racks-info", Endpoint(api.racks, SEE)


def _of_clusters(api: ClustersApi) -> Iterator[Call]:
    yield "GET", CLUSTERS, Endpoint(api.clusters, SEE)
    cluster = f"{CLUSTERS}/{{cluster}}"
    yield "GET", cluster, Endpoint(api.cluster, SEE)
    yield "PUT", cluster, Endpoint(api.create, RULE)
    yield "POST", cluster, Endpoint(api.alter, RULE)
    yield "DELETE", cluster, _done(api.delete, RULE)
    domain = f"{cluster}/failureDomains/{{domain}}"
    yield "GET", domain, Endpoint(api.failure_domain, SEE)
    yield "DELETE", domain, _done(api.failure_domain, RULE)
    yield "GET", f"{cluster}/peers", Endpoint(api.peers, SEE)
    yield "POST", f"{cluster}/peers", _done(api.set_peers, RULE)
    yield "GET", f"{cluster}/migrate", Endpoint(api.migration, SEE)
    yield "POST", f"{cluster}/migrate", Endpoint(api.set_migration, RULE)
    yield "GET", f"{cluster}/failureDomains", Endpoint(api.failure_domains, SEE)


def _of_namespace_jobs(api: NamespaceJobs) -> Iterator[Call]:
    yield "GET", f"{SPACE}/bundles", Endpoint(api.bundles, SEE)
    yield "GET", f"{SPACE}/replication", Endpoint(api.clusters, SEE)
    yield "POST", f"{SPACE}/replication", Endpoint(api.set_clusters, CHANGE)
    yield "GET", f"{SPACE}/allowedClusters", Endpoint(api.allowed_clusters, SEE)
    yield "POST", f"{SPACE}/allowedClusters", Endpoint(api.set_allowed_clusters, CHANGE)
    yield "GET", f"{SPACE}/properties", Endpoint(api.properties, SEE)
    yield "PUT", f"{SPACE}/properties", _done(api.set_properties, CHANGE)
    yield "DELETE", f"{SPACE}/properties", _done(api.delete_properties, CHANGE)
    named = f"{SPACE}/property/{{key}}"
    yield "GET", named, Endpoint(api.property, SEE, other_formats=PLAIN)
    yield "DELETE", named, Endpoint(api.delete_property, CHANGE, other_formats=PLAIN)
    yield "PUT", f"{named}/{{value}}", _done(api.set_property, CHANGE)
    for place in (SPACE, f"{SPACE}/{{bundle}}"):
        yield "POST", f"{place}/clearBacklog", _done(api.clear_backlog, CHANGE)
        cleared = f"{place}/clearBacklog/{{of_all_topics}}"
        yield "POST", cleared, _done(api.clear_backlog, CHANGE)
        yield "POST", f"{place}/unsubscribe/{{of_all_topics}}", _done(api.unsubscribe, CHANGE)
    positions = f"{SPACE}/{{bundle}}/topicHashPositions"
    yield "GET", positions, Endpoint(api.topic_positions, SEE, within=True)
    yield "PUT", f"{SPACE}/{{bundle}}/unload", _done(api.unload_bundle, CHANGE)


def _of_details(api: AdminTopicDetails) -> Iterator[Call]:
    yield "GET", f"{TOPIC}/properties", Endpoint(api.properties, SEE)
    yield "PUT", f"{TOPIC}/properties", _done(api.set_properties, CHANGE)
    yield "DELETE", f"{TOPIC}/properties", _done(api.delete_property, CHANGE)
    yield "GET", f"{TOPIC}/replication", Endpoint(api.clusters, SEE)
    yield "POST", f"{TOPIC}/replication", _done(api.set_clusters, CHANGE)
    yield "DELETE", f"{TOPIC}/replication", _done(api.reset_clusters, CHANGE)
    yield "POST", f"{TOPIC}/createMissedPartitions", _done(api.create_missed, CHANGE)
    yield "POST", f"{TOPIC}/trim", Endpoint(api.trim, CHANGE)
    yield "PUT", f"{TOPIC}/backlogSize", Endpoint(api.backlog_size, SEE)
    stats = f"{TOPIC}/partitioned-internalStats"
    yield "GET", stats, Endpoint(api.partitioned_internal_stats, SEE)
    yield "GET", f"{TOPIC}/internal-info", Endpoint(api.internal_info, SEE)
    for domain in ("persistent", "non-persistent"):
        yield "GET", f"{LOOKUP}/{domain}/{NAMED}/bundle", Endpoint(api.bundle, SEE)


def _of_namespaces(api: ClusterApi, topics: AdminTopics) -> Iterator[Call]:
    yield "GET", TENANTS, Endpoint(api.tenants, SEE, lists=True)
    yield "GET", f"{TENANTS}/{{tenant}}", Endpoint(api.tenant, SEE)
    yield "PUT", f"{TENANTS}/{{tenant}}", _done(api.create_tenant, MAKE)
    yield "POST", f"{TENANTS}/{{tenant}}", _done(api.alter_tenant, CHANGE)
    yield "DELETE", f"{TENANTS}/{{tenant}}", _done(api.delete_tenant, END)
    yield "GET", f"{SPACES}/{{tenant}}", Endpoint(api.namespaces, SEE, within=True)
    yield "GET", SPACE, Endpoint(api.namespace, SEE)
    yield "PUT", SPACE, _done(api.put_namespace, MAKE)
    yield "DELETE", SPACE, _done(api.delete_namespace, END)
    yield "PUT", f"{SPACE}/unload", _done(api.unload, CHANGE)
    yield "GET", f"{SPACE}/topics", Endpoint(api.topics_of_namespace, SEE, within=True)
    yield "GET", TOPICS, Endpoint(topics.list_topics, SEE, within=True)
    yield "GET", f"{TOPICS}/partitioned", Endpoint(topics.list_partitioned, SEE, within=True)


def _of_topics(api: AdminTopics) -> Iterator[Call]:
    yield "PUT", TOPIC, _done(api.create, MAKE)
    yield "DELETE", TOPIC, _done(api.delete, END)
    yield "GET", f"{TOPIC}/partitions", Endpoint(api.partitions, SEE)
    yield "PUT", f"{TOPIC}/partitions", _done(api.create_partitioned, MAKE)
    yield "POST", f"{TOPIC}/partitions", _done(api.grow, CHANGE)
    yield "DELETE", f"{TOPIC}/partitions", _done(api.delete_partitioned, END)
    yield "GET", f"{TOPIC}/stats", Endpoint(api.stats, SEE)
    yield "GET", f"{TOPIC}/partitioned-stats", Endpoint(api.partitioned_stats, SEE)
    yield "GET", f"{TOPIC}/internalStats", Endpoint(api.internal_stats, SEE)
    yield "PUT", f"{TOPIC}/unload", _done(api.unload, CHANGE)
    yield "DELETE", f"{TOPIC}/truncate", _done(api.truncate, END)
    yield "GET", f"{TOPIC}/lastMessageId", Endpoint(api.last_message_id, SEE)
    yield "GET", f"{TOPIC}/messageid/{{time}}", Endpoint(api.id_at, SEE)
    stored = f"{TOPIC}/ledger/{{ledger}}/entry/{{entry}}"
    yield "GET", stored, Endpoint(api.message, READ, other_formats=STORED)
    yield "GET", f"{TOPIC}/examinemessage", Endpoint(api.examine, READ, other_formats=STORED)


def _of_non_persistent(api: AdminNonPersistent) -> Iterator[Call]:
    listed = f"{ADMIN}/non-persistent/{NAMESPACE}"
    yield "GET", listed, Endpoint(api.list_topics, SEE, within=True)
    yield "GET", f"{listed}/partitioned", Endpoint(api.list_partitioned, SEE, within=True)
    yield "PUT", NON_PERSISTENT, _done(api.create, MAKE)
    yield "DELETE", NON_PERSISTENT, _done(api.delete, END)
    yield "GET", f"{NON_PERSISTENT}/partitions", Endpoint(api.partitions, SEE)
    yield "PUT", f"{NON_PERSISTENT}/partitions", _done(api.set_partitions, MAKE)
    yield "POST", f"{NON_PERSISTENT}/partitions", _done(api.set_partitions, CHANGE)
    yield "DELETE", f"{NON_PERSISTENT}/partitions", _done(api.delete_partitioned, END)
    yield "GET", f"{NON_PERSISTENT}/stats", Endpoint(api.stats, SEE)
    yield "GET", f"{NON_PERSISTENT}/partitioned-stats", Endpoint(api.partitioned_stats, SEE)
    yield "GET", f"{NON_PERSISTENT}/internalStats", Endpoint(api.internal_stats, SEE)
    yield "GET", f"{NON_PERSISTENT}/subscriptions", Endpoint(api.subscriptions, SEE)
    subscription = f"{NON_PERSISTENT}/subscription/{{subscription}}"
    yield "DELETE", subscription, _done(api.delete_subscription, END)
    yield "PUT", f"{NON_PERSISTENT}/unload", _done(api.unload, CHANGE)
    refused = Endpoint(api.not_here, SEE)
    yield from ((method, OTHERS_OF_NON_PERSISTENT, refused) for method in METHODS)


def _of_subscriptions(api: AdminSubscriptions) -> Iterator[Call]:
    yield "GET", f"{TOPIC}/subscriptions", Endpoint(api.list_subscriptions, SEE)
    yield "PUT", SUBSCRIPTION, _done(api.create, READ)
    yield "DELETE", SUBSCRIPTION, _done(api.delete, END)
    yield "POST", f"{SUBSCRIPTION}/resetcursor", _done(api.reset_to_id, READ)
    yield "POST", f"{SUBSCRIPTION}/resetcursor/{{time}}", _done(api.reset_to_time, READ)
    yield "POST", f"{SUBSCRIPTION}/skip/{{number}}", _done(api.skip, READ)
    yield "POST", f"{SUBSCRIPTION}/expireMessages/{{seconds}}", _done(api.expire, READ)
    expired = f"{TOPIC}/all_subscription/expireMessages/{{seconds}}"
    yield "POST", expired, _done(api.expire_all, READ)
    yield "POST", f"{SUBSCRIPTION}/expireMessages", _done(api.expire_to_id, READ)
    yield "GET", f"{SUBSCRIPTION}/properties", Endpoint(api.properties, SEE)
    yield "PUT", f"{SUBSCRIPTION}/properties", _done(api.set_properties, CHANGE)
    yield "POST", f"{SUBSCRIPTION}/analyzeBacklog", Endpoint(api.analyze, SEE)
    yield "POST", f"{SUBSCRIPTION}/skip_all", _done(api.skip_all, READ)
    peeked = f"{SUBSCRIPTION}/position/{{number}}"
    yield "GET", peeked, Endpoint(api.peek, READ, other_formats=STORED)


def _of_schemas(api: AdminSchemas) -> Iterator[Call]:
    yield "GET", f"{SCHEMAS}/schema", Endpoint(api.latest, SEE)
    yield "POST", f"{SCHEMAS}/schema", Endpoint(api.post, CHANGE)
    yield "DELETE", f"{SCHEMAS}/schema", Endpoint(api.delete, CHANGE)
    yield "GET", f"{SCHEMAS}/schema/{{version}}", Endpoint(api.of_version, SEE)
    yield "GET", f"{SCHEMAS}/schemas", Endpoint(api.all_versions, SEE)
    yield "POST", f"{SCHEMAS}/compatibility", Endpoint(api.compatibility, SEE, statuses=(202,))
    yield "POST", f"{SCHEMAS}/version", Endpoint(api.version, SEE)
    yield "GET", f"{SCHEMAS}/metadata", Endpoint(api.metadata, SEE)


def _of_permissions(api: AdminPermissions) -> Iterator[Call]:
    yield "GET", f"{SPACE}/permissions", Endpoint(api.of_namespace, RULE)
    yield "POST", f"{SPACE}/permissions/{{role}}", _done(api.grant_in_namespace, RULE)
    yield "DELETE", f"{SPACE}/permissions/{{role}}", _done(api.revoke_in_namespace, RULE)
    yield "GET", f"{SPACE}/permissions/subscription", Endpoint(api.of_subscriptions, RULE)
    listed = f"{SPACE}/permissions/subscription/{{of_subscription}}"
    yield "POST", listed, _done(api.grant_on_subscription, RULE)
    revoked = f"{SPACE}/permissions/{{of_subscription}}/{{role}}"
    yield "DELETE", revoked, _done(api.revoke_on_subscription, RULE)
    yield "GET", f"{TOPIC}/permissions", Endpoint(api.of_topic, RULE)
    yield "POST", f"{TOPIC}/permissions/{{role}}", _done(api.grant_on_topic, RULE)
    yield "DELETE", f"{TOPIC}/permissions/{{role}}", _done(api.revoke_on_topic, RULE)


def _of_policies(api: AdminPolicies) -> Iterator[Call]:
    yield from api.calls(SPACE, TOPIC)
    yield from api.calls_of_subscription(RATE_OF_SUBSCRIPTION)
    yield "DELETE", f"{TOPIC}/policies", api.removal_of_all()


def _of_jobs(api: AdminTopicJobs) -> Iterator[Call]:
    yield "GET", f"{TOPIC}/compaction", Endpoint(api.compaction_status, SEE)
    yield "PUT", f"{TOPIC}/compaction", _done(api.compact, CHANGE)
    yield "POST", f"{TOPIC}/terminate", Endpoint(api.terminate, CHANGE)
    yield "POST", f"{TOPIC}/terminate/partitions", Endpoint(api.terminate_partitions, CHANGE)
