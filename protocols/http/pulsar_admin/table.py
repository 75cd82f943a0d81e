"""The paths of Pulsar's admin API and of its HTTP lookup: tier 1 of the calls by clients and tools.

Any other path of Apache Pulsar is refused with `not_supported`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
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
from braidlog.protocols.http.pulsar_admin.cluster_fields import ADDRESSES
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
from braidlog.protocols.http.pulsar_admin.topic_names import refuse_other_names
from braidlog.protocols.http.pulsar_admin.topics import AdminTopics
from braidlog.protocols.http.pulsar_admin.traffic_meter import TrafficMeter
from braidlog.protocols.http.pulsar_admin.write_content import (
    CLUSTER_DATA,
    DELETED_TOPIC,
    FORCED,
    HINT,
    HINTED,
    MESSAGE_ID,
    MORE_PARTITIONS,
    NEW_PARTITIONS,
    NEW_SUBSCRIPTION,
    NO_POLICY,
    NOTHING,
    OF_TOPIC_POLICY,
    POSITION,
    SCHEMA,
    TENANT_INFO,
    WHOLE,
    WHOLE_HINTED,
    WRITING,
    AdminEndpoint,
    Content,
    refuse_the_rest,
    silent,
)
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
    paths: dict[str, dict[str, Endpoint]] = {}
    for method, path, endpoint in admin_calls(broker, options, bodies):
        handler = endpoint.handler
        if method in WRITING and path not in REFUSED:
            assert isinstance(endpoint, AdminEndpoint), "a call that changes something has content"
            handler = refuse_the_rest(handler, endpoint.content, bodies)
        handler = refuse_other_names(broker, method, path, handler)
        endpoint = replace(endpoint, handler=in_apache_words(handler))
        paths.setdefault(path, {})[method] = endpoint
    return [routes.route(path, **methods) for path, methods in paths.items()]


def admin_calls(broker: Broker, options: RestOptions, bodies: BodyReader) -> Iterator[Call]:
    """Yield the calls. The first path that matches a request serves the request."""
    cluster = ClusterApi(broker, bodies, options.advertised_url)
    meter, policies = TrafficMeter(broker.now_us), AdminPolicies(broker, bodies)
    topics = AdminTopics(broker, bodies, meter)
    yield from _of_brokers(BrokersApi(cluster))
    yield from _of_stats(BrokerStats(broker, cluster, meter))
    yield from _of_cluster(cluster)
    yield from _of_clusters(ClustersApi(broker, bodies, cluster))
    yield from _of_namespace_jobs(NamespaceJobs(broker, bodies, cluster))
    yield from _of_details(AdminTopicDetails(broker, bodies))
    yield from _of_namespaces(cluster, topics)
    yield from _of_topics(topics)
    yield from policies.calls_of_non_persistent(NON_PERSISTENT)
    yield from _of_non_persistent(AdminNonPersistent(broker, bodies, meter))
    cursors = CursorApi(broker, bodies)
    yield from _of_subscriptions(AdminSubscriptions(broker, bodies, cursors, topics))
    yield from _of_schemas(AdminSchemas(broker, bodies))
    yield from _of_permissions(AdminPermissions(broker, bodies))
    yield from _of_policies(policies)
    yield from AbsentFeatures(broker, bodies).calls(SPACE, TOPIC)
    yield from _of_jobs(AdminTopicJobs(broker))
    yield from ((method, path, Endpoint(_not_served, SEE)) for path in OTHERS for method in METHODS)


async def _not_served(request: Request) -> Response:
    """Refuse paths of Apache Pulsar's admin API that this broker does not serve."""
    text = f"{request.method} {request.scope['path']} is not served here"
    raise RequestRefused(NOT_SUPPORTED, text)


def _answered(handler: Handler, action: Action, content: Content = NOTHING) -> Endpoint:
    """Return the endpoint of a call that changes something, with content in the answer."""
    return AdminEndpoint(handler, action, content=content)


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
    yield "GET", f"{ADMIN}/broker-stats/load-report", silent(api.load_report, SEE)


def _of_brokers(api: BrokersApi) -> Iterator[Call]:
    yield "GET", BROKERS, Endpoint(api.brokers, SEE)
    yield "GET", f"{BROKERS}/leaderBroker", Endpoint(api.leader, SEE)
    yield "GET", f"{BROKERS}/configuration", Endpoint(api.dynamic_names, SEE)
    yield "GET", f"{BROKERS}/configuration/values", Endpoint(api.dynamic_values, SEE)
    yield "GET", f"{BROKERS}/internal-configuration", Endpoint(_not_served, SEE)
    yield "GET", f"{BROKERS}/backlog-quota-check", silent(api.check_quotas, SEE)
    yield "GET", f"{ADMIN}/bookies/all", Endpoint(api.bookies, SEE)
    yield "GET", f"{ADMIN}/bookies/racks-info", Endpoint(api.racks, SEE)


def _of_clusters(api: ClustersApi) -> Iterator[Call]:
    yield "GET", CLUSTERS, Endpoint(api.clusters, SEE)
    cluster = f"{CLUSTERS}/{{cluster}}"
    yield "GET", cluster, Endpoint(api.cluster, SEE)
    yield "PUT", cluster, _answered(api.create, RULE, CLUSTER_DATA)
    yield "POST", cluster, _answered(api.alter, RULE, CLUSTER_DATA)
    yield "DELETE", cluster, silent(api.delete, RULE)
    domain = f"{cluster}/failureDomains/{{domain}}"
    yield "GET", domain, Endpoint(api.failure_domain, SEE)
    yield "DELETE", domain, silent(api.failure_domain, RULE)
    yield "GET", f"{cluster}/peers", Endpoint(api.peers, SEE)
    yield "POST", f"{cluster}/peers", silent(api.set_peers, RULE, WHOLE)
    yield "GET", f"{cluster}/migrate", Endpoint(api.migration, SEE)
    # Apache shows `empty` beside the addresses, which says that there are none.
    migration = Content((*ADDRESSES, "empty"), ("migrated",))
    yield "POST", f"{cluster}/migrate", _answered(api.set_migration, RULE, migration)
    yield "GET", f"{cluster}/failureDomains", Endpoint(api.failure_domains, SEE)


def _of_namespace_jobs(api: NamespaceJobs) -> Iterator[Call]:
    yield "GET", f"{SPACE}/bundles", Endpoint(api.bundles, SEE)
    yield "GET", f"{SPACE}/replication", Endpoint(api.clusters, SEE)
    # There is no other cluster whose partitions could be compared.
    clusters = Content(None, ("compareTopicPartitions",))
    yield "POST", f"{SPACE}/replication", _answered(api.set_clusters, CHANGE, clusters)
    yield "GET", f"{SPACE}/allowedClusters", Endpoint(api.allowed_clusters, SEE)
    yield "POST", f"{SPACE}/allowedClusters", _answered(api.set_allowed_clusters, CHANGE, WHOLE)
    yield "GET", f"{SPACE}/properties", Endpoint(api.properties, SEE)
    yield "PUT", f"{SPACE}/properties", silent(api.set_properties, CHANGE, WHOLE)
    yield "DELETE", f"{SPACE}/properties", silent(api.delete_properties, CHANGE)
    named = f"{SPACE}/property/{{key}}"
    yield "GET", named, Endpoint(api.property, SEE, other_formats=PLAIN)
    yield "DELETE", named, AdminEndpoint(api.delete_property, CHANGE, other_formats=PLAIN)
    yield "PUT", f"{named}/{{value}}", silent(api.set_property, CHANGE)
    for place in (SPACE, f"{SPACE}/{{bundle}}"):
        cleared = silent(api.clear_backlog, CHANGE, HINTED)
        yield "POST", f"{place}/clearBacklog", cleared
        yield "POST", f"{place}/clearBacklog/{{of_all_topics}}", cleared
        ended = f"{place}/unsubscribe/{{of_all_topics}}"
        yield "POST", ended, silent(api.unsubscribe, CHANGE, HINTED)
    positions = f"{SPACE}/{{bundle}}/topicHashPositions"
    yield "GET", positions, Endpoint(api.topic_positions, SEE, within=True)
    destination = Content(query=(HINT, "destinationBroker"))
    yield "PUT", f"{SPACE}/{{bundle}}/unload", silent(api.unload_bundle, CHANGE, destination)


def _of_details(api: AdminTopicDetails) -> Iterator[Call]:
    yield "GET", f"{TOPIC}/properties", Endpoint(api.properties, SEE)
    yield "PUT", f"{TOPIC}/properties", silent(api.set_properties, CHANGE, WHOLE_HINTED)
    key = Content(query=(HINT, "key"))
    yield "DELETE", f"{TOPIC}/properties", silent(api.delete_property, CHANGE, key)
    clusters = f"{TOPIC}/replication"
    yield "GET", clusters, Endpoint(api.clusters, SEE)
    yield "POST", clusters, silent(api.set_clusters, CHANGE, Content(None, OF_TOPIC_POLICY))
    yield "DELETE", clusters, silent(api.reset_clusters, CHANGE, NO_POLICY)
    yield "POST", f"{TOPIC}/createMissedPartitions", silent(api.create_missed, CHANGE)
    yield "POST", f"{TOPIC}/trim", _answered(api.trim, CHANGE, HINTED)
    # Bytes are those of whole entries, so `batchIndex` has no effect, as in Apache.
    message = Content(MESSAGE_ID, (HINT,))
    yield "PUT", f"{TOPIC}/backlogSize", _answered(api.backlog_size, SEE, message)
    stats = f"{TOPIC}/partitioned-internalStats"
    yield "GET", stats, Endpoint(api.partitioned_internal_stats, SEE)
    yield "GET", f"{TOPIC}/internal-info", Endpoint(api.internal_info, SEE)
    for domain in ("persistent", "non-persistent"):
        yield "GET", f"{LOOKUP}/{domain}/{NAMED}/bundle", Endpoint(api.bundle, SEE)


def _of_namespaces(api: ClusterApi, topics: AdminTopics) -> Iterator[Call]:
    yield "GET", TENANTS, Endpoint(api.tenants, SEE, lists=True)
    tenant = f"{TENANTS}/{{tenant}}"
    yield "GET", tenant, Endpoint(api.tenant, SEE)
    yield "PUT", tenant, silent(api.create_tenant, MAKE, TENANT_INFO)
    yield "POST", tenant, silent(api.alter_tenant, CHANGE, TENANT_INFO)
    yield "DELETE", tenant, silent(api.delete_tenant, END, Content(query=("force",)))
    yield "GET", f"{SPACES}/{{tenant}}", Endpoint(api.namespaces, SEE, within=True)
    yield "GET", SPACE, Endpoint(api.namespace, SEE)
    # An object with all policies, checked by `given_policies`.
    yield "PUT", SPACE, silent(api.put_namespace, MAKE, WHOLE)
    yield "DELETE", SPACE, silent(api.delete_namespace, END, FORCED)
    yield "PUT", f"{SPACE}/unload", silent(api.unload, CHANGE)
    yield "GET", f"{SPACE}/topics", Endpoint(api.topics_of_namespace, SEE, within=True)
    yield "GET", TOPICS, Endpoint(topics.list_topics, SEE, within=True)
    yield "GET", f"{TOPICS}/partitioned", Endpoint(topics.list_partitioned, SEE, within=True)


def _of_topics(api: AdminTopics) -> Iterator[Call]:
    yield "PUT", TOPIC, silent(api.create, MAKE, WHOLE_HINTED)
    yield "DELETE", TOPIC, silent(api.delete, END, DELETED_TOPIC)
    partitions = f"{TOPIC}/partitions"
    yield "GET", partitions, Endpoint(api.partitions, SEE)
    yield "PUT", partitions, silent(api.create_partitioned, MAKE, NEW_PARTITIONS)
    yield "POST", partitions, silent(api.grow, CHANGE, MORE_PARTITIONS)
    yield "DELETE", partitions, silent(api.delete_partitioned, END, DELETED_TOPIC)
    yield "GET", f"{TOPIC}/stats", Endpoint(api.stats, SEE)
    yield "GET", f"{TOPIC}/partitioned-stats", Endpoint(api.partitioned_stats, SEE)
    yield "GET", f"{TOPIC}/internalStats", Endpoint(api.internal_stats, SEE)
    yield "PUT", f"{TOPIC}/unload", silent(api.unload, CHANGE, HINTED)
    yield "DELETE", f"{TOPIC}/truncate", silent(api.truncate, END, HINTED)
    yield "GET", f"{TOPIC}/lastMessageId", Endpoint(api.last_message_id, SEE)
    yield "GET", f"{TOPIC}/messageid/{{time}}", Endpoint(api.id_at, SEE)
    stored = f"{TOPIC}/ledger/{{ledger}}/entry/{{entry}}"
    yield "GET", stored, Endpoint(api.message, READ, other_formats=STORED)
    yield "GET", f"{TOPIC}/examinemessage", Endpoint(api.examine, READ, other_formats=STORED)


def _of_non_persistent(api: AdminNonPersistent) -> Iterator[Call]:
    listed = f"{ADMIN}/non-persistent/{NAMESPACE}"
    yield "GET", listed, Endpoint(api.list_topics, SEE, within=True)
    yield "GET", f"{listed}/partitioned", Endpoint(api.list_partitioned, SEE, within=True)
    yield "PUT", NON_PERSISTENT, silent(api.create, MAKE, WHOLE_HINTED)
    yield "DELETE", NON_PERSISTENT, silent(api.delete, END, DELETED_TOPIC)
    partitions = f"{NON_PERSISTENT}/partitions"
    yield "GET", partitions, Endpoint(api.partitions, SEE)
    yield "PUT", partitions, silent(api.set_partitions, MAKE, NEW_PARTITIONS)
    yield "POST", partitions, silent(api.set_partitions, CHANGE, MORE_PARTITIONS)
    yield "DELETE", partitions, silent(api.delete_partitioned, END, DELETED_TOPIC)
    yield "GET", f"{NON_PERSISTENT}/stats", Endpoint(api.stats, SEE)
    yield "GET", f"{NON_PERSISTENT}/partitioned-stats", Endpoint(api.partitioned_stats, SEE)
    yield "GET", f"{NON_PERSISTENT}/internalStats", Endpoint(api.internal_stats, SEE)
    yield "GET", f"{NON_PERSISTENT}/subscriptions", Endpoint(api.subscriptions, SEE)
    subscription = f"{NON_PERSISTENT}/subscription/{{subscription}}"
    yield "DELETE", subscription, silent(api.delete_subscription, END, FORCED)
    yield "PUT", f"{NON_PERSISTENT}/unload", silent(api.unload, CHANGE, HINTED)
    refused = Endpoint(api.not_here, SEE)
    yield from ((method, OTHERS_OF_NON_PERSISTENT, refused) for method in METHODS)


def _of_subscriptions(api: AdminSubscriptions) -> Iterator[Call]:
    yield "GET", f"{TOPIC}/subscriptions", Endpoint(api.list_subscriptions, SEE)
    yield "PUT", SUBSCRIPTION, silent(api.create, READ, NEW_SUBSCRIPTION)
    yield "DELETE", SUBSCRIPTION, silent(api.delete, END, FORCED)
    yield "POST", f"{SUBSCRIPTION}/resetcursor", silent(api.reset_to_id, READ, POSITION)
    reset = f"{SUBSCRIPTION}/resetcursor/{{time}}"
    yield "POST", reset, silent(api.reset_to_time, READ, HINTED)
    yield "POST", f"{SUBSCRIPTION}/skip/{{number}}", silent(api.skip, READ, HINTED)
    expired = f"{SUBSCRIPTION}/expireMessages/{{seconds}}"
    yield "POST", expired, silent(api.expire, READ, HINTED)
    all_expired = f"{TOPIC}/all_subscription/expireMessages/{{seconds}}"
    yield "POST", all_expired, silent(api.expire_all, READ, HINTED)
    yield "POST", f"{SUBSCRIPTION}/expireMessages", silent(api.expire_to_id, READ, POSITION)
    yield "GET", f"{SUBSCRIPTION}/properties", Endpoint(api.properties, SEE)
    yield "PUT", f"{SUBSCRIPTION}/properties", silent(api.set_properties, CHANGE, WHOLE_HINTED)
    yield "POST", f"{SUBSCRIPTION}/analyzeBacklog", _answered(api.analyze, SEE, POSITION)
    yield "POST", f"{SUBSCRIPTION}/skip_all", silent(api.skip_all, READ, HINTED)
    peeked = f"{SUBSCRIPTION}/position/{{number}}"
    yield "GET", peeked, Endpoint(api.peek, READ, other_formats=STORED)


def _of_schemas(api: AdminSchemas) -> Iterator[Call]:
    yield "GET", f"{SCHEMAS}/schema", Endpoint(api.latest, SEE)
    yield "POST", f"{SCHEMAS}/schema", _answered(api.post, CHANGE, SCHEMA)
    # `force` asks for the end of all versions too; no call shows a version after a deletion.
    yield "DELETE", f"{SCHEMAS}/schema", _answered(api.delete, CHANGE, FORCED)
    yield "GET", f"{SCHEMAS}/schema/{{version}}", Endpoint(api.of_version, SEE)
    yield "GET", f"{SCHEMAS}/schemas", Endpoint(api.all_versions, SEE)
    checked = AdminEndpoint(api.compatibility, SEE, statuses=(202,), content=SCHEMA)
    yield "POST", f"{SCHEMAS}/compatibility", checked
    yield "POST", f"{SCHEMAS}/version", _answered(api.version, SEE, SCHEMA)
    yield "GET", f"{SCHEMAS}/metadata", Endpoint(api.metadata, SEE)


def _of_permissions(api: AdminPermissions) -> Iterator[Call]:
    yield "GET", f"{SPACE}/permissions", Endpoint(api.of_namespace, RULE)
    of_role = f"{SPACE}/permissions/{{role}}"
    yield "POST", of_role, silent(api.grant_in_namespace, RULE, WHOLE)
    yield "DELETE", of_role, silent(api.revoke_in_namespace, RULE)
    yield "GET", f"{SPACE}/permissions/subscription", Endpoint(api.of_subscriptions, RULE)
    listed = f"{SPACE}/permissions/subscription/{{of_subscription}}"
    yield "POST", listed, silent(api.grant_on_subscription, RULE, WHOLE)
    revoked = f"{SPACE}/permissions/{{of_subscription}}/{{role}}"
    yield "DELETE", revoked, silent(api.revoke_on_subscription, RULE)
    yield "GET", f"{TOPIC}/permissions", Endpoint(api.of_topic, RULE)
    yield "POST", f"{TOPIC}/permissions/{{role}}", silent(api.grant_on_topic, RULE, WHOLE)
    yield "DELETE", f"{TOPIC}/permissions/{{role}}", silent(api.revoke_on_topic, RULE)


def _of_policies(api: AdminPolicies) -> Iterator[Call]:
    yield from api.calls(SPACE, TOPIC)
    yield from api.calls_of_subscription(RATE_OF_SUBSCRIPTION)
    yield "DELETE", f"{TOPIC}/policies", api.removal_of_all()


def _of_jobs(api: AdminTopicJobs) -> Iterator[Call]:
    yield "GET", f"{TOPIC}/compaction", Endpoint(api.compaction_status, SEE)
    yield "PUT", f"{TOPIC}/compaction", silent(api.compact, CHANGE, HINTED)
    yield "POST", f"{TOPIC}/terminate", _answered(api.terminate, CHANGE, HINTED)
    ended = f"{TOPIC}/terminate/partitions"
    yield "POST", ended, _answered(api.terminate_partitions, CHANGE, HINTED)
