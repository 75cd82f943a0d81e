"""The policies of a namespace as a single object: in the body that creates a namespace, and in the
answer that shows the namespace.

The names are those of Apache's `Policies`; the values are those of each policy's own calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request

from braidlog.protocols.http.errors import BAD_BODY, NOT_SUPPORTED, RequestRefused
from braidlog.protocols.http.pulsar_admin.bundles import FIELDS, Bundles, bundle_changes
from braidlog.protocols.http.pulsar_admin.cluster_rules import (
    allowed_by,
    changes_of_allowed,
    check_allowed,
    check_no_replication,
    replication_clusters,
)
from braidlog.protocols.http.pulsar_admin.new_objects import CLUSTER, given_policies
from braidlog.protocols.http.pulsar_admin.policies import Changes, Settings
from braidlog.protocols.http.pulsar_admin.policy_table import BY_PATH
from braidlog.protocols.http.pulsar_admin.properties import (
    OF_NAMESPACE,
    changes_to,
    properties_of,
    read_properties,
)
from braidlog.protocols.http.pulsar_admin.storage_policies import (
    NO_QUOTA,
    NO_QUOTAS,
    QUOTA_KINDS,
    quota_changes,
    quotas_shown,
)
from braidlog.protocols.http.pulsar_admin.write_content import check_fields

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker

Json = dict[str, Any]
QUOTAS, PROPERTIES, BUNDLES = "backlog_quota_map", "properties", "bundles"
# Apache's names in the object, and the paths of the policies' own calls.
PLAIN: Final[Mapping[str, str]] = {
    "message_ttl_in_seconds": "messageTTL",
    "retention_policies": "retention",
    "deduplicationEnabled": "deduplication",
    "deduplicationSnapshotIntervalSeconds": "deduplicationSnapshotInterval",
    "persistence": "persistence",
    "compaction_threshold": "compactionThreshold",
    "schema_compatibility_strategy": "schemaCompatibilityStrategy",
    "schema_auto_update_compatibility_strategy": "schemaAutoUpdateCompatibilityStrategy",
    "subscription_auth_mode": "subscriptionAuthMode",
    "schema_validation_enforced": "schemaValidationEnforced",
    "is_allow_auto_update_schema": "isAllowAutoUpdateSchema",
    "encryption_required": "encryptionRequired",
    "autoTopicCreationOverride": "autoTopicCreation",
    "autoSubscriptionCreationOverride": "autoSubscriptionCreation",
    "subscription_types_enabled": "subscriptionTypesEnabled",
    "subscription_expiration_time_minutes": "subscriptionExpirationTime",
    "inactive_topic_policies": "inactiveTopicPolicies",
    "delayed_delivery_policies": "delayedDelivery",
    "max_producers_per_topic": "maxProducersPerTopic",
    "max_consumers_per_topic": "maxConsumersPerTopic",
    "max_consumers_per_subscription": "maxConsumersPerSubscription",
    "max_unacked_messages_per_consumer": "maxUnackedMessagesPerConsumer",
    "max_unacked_messages_per_subscription": "maxUnackedMessagesPerSubscription",
    "max_subscriptions_per_topic": "maxSubscriptionsPerTopic",
    "max_topics_per_namespace": "maxTopicsPerNamespace",
}
# The value is an object with a value for each cluster.
BY_CLUSTER: Final[Mapping[str, str]] = {
    "publishMaxMessageRate": "publishRate",
    "clusterDispatchRate": "dispatchRate",  # The older name, which Apache keeps beside the other.
    "topicDispatchRate": "dispatchRate",
    "subscriptionDispatchRate": "subscriptionDispatchRate",
    "clusterSubscribeRate": "subscribeRate",
}
# Shown also where they are not set.
WITH_DEFAULT: Final = (
    "subscription_auth_mode",
    "schema_compatibility_strategy",
    "schema_validation_enforced",
    "is_allow_auto_update_schema",
    "encryption_required",
    "subscription_types_enabled",
)
REPLICATED, ALLOWED = "replication_clusters", "allowed_clusters"
SERVED: Final = frozenset((*PLAIN, *BY_CLUSTER, QUOTAS, PROPERTIES, BUNDLES, REPLICATED, ALLOWED))
AUTH_KINDS: Final = ("namespace_auth", "destination_auth", "subscription_auth_roles")
# The values of a namespace without policies.
DEFAULTS: Final[Json] = {
    REPLICATED: [CLUSTER],
    "replicatorDispatchRate": {},
    "latency_stats_sample_rate": {},
    "deleted": False,
    "offload_threshold": -1,
    "offload_threshold_in_seconds": -1,
    "migrated": False,
}


def changes_of(broker: Broker, tenant: str, body: object, request: Request) -> Changes:
    """Return the settings of a new namespace with these policies. Raises RequestRefused."""
    clusters = body.get(REPLICATED) if isinstance(body, dict) else None
    replicated = replication_clusters(clusters or [CLUSTER])
    check_allowed(broker, tenant, replicated)
    check_no_replication(replicated)
    stated = given_policies(body, SERVED)
    stated.pop(REPLICATED, None)
    changes: Changes = {}
    if ALLOWED in stated:
        changes |= changes_of_allowed(broker, tenant, stated.pop(ALLOWED))
    for name, value in stated.items():
        if name == QUOTAS:
            changes |= _changes_of_quotas(value)
        elif name == PROPERTIES:
            changes |= changes_to({}, OF_NAMESPACE, read_properties(value))
        elif name == BUNDLES:
            check_fields(value, FIELDS, f"{BUNDLES}: ")
            changes |= bundle_changes(value)
        else:
            policy = BY_PATH[PLAIN.get(name) or BY_CLUSTER[name]]
            if policy.check is not None:
                policy.check(broker)
            own = _of_cluster(name, value) if name in BY_CLUSTER else value
            if policy.names:
                check_fields(own, policy.names, f"{name}: ")
            changes |= policy.changes(own, request)
    return changes


def document_of(settings: Settings) -> Json:
    """Return the policies of a namespace; a policy without a value is absent, as in Apache, or has
    its default.
    """
    auth: Json = {"auth_policies": {kind: {} for kind in AUTH_KINDS}}  # Filled by the caller.
    document: Json = {**DEFAULTS, **auth, QUOTAS: {**NO_QUOTAS, **quotas_shown(settings)}}
    document[BUNDLES] = Bundles(settings).shown()
    for name, path in PLAIN.items():
        policy = BY_PATH[path]
        shown = policy.shown(settings)
        value = policy.unset if shown is None and name in WITH_DEFAULT else shown
        if value is not None:
            document[name] = value
    for name, path in BY_CLUSTER.items():
        shown = BY_PATH[path].shown(settings)
        document[name] = {} if shown is None else {CLUSTER: shown}
    document[ALLOWED] = allowed_by(settings)
    return document | {PROPERTIES: properties_of(settings, OF_NAMESPACE)}


def _changes_of_quotas(quotas: object) -> Changes:
    if not isinstance(quotas, dict) or not quotas.keys() <= QUOTA_KINDS.keys():
        kinds = ", ".join(QUOTA_KINDS)
        raise RequestRefused(BAD_BODY, f"{QUOTAS}: expected an object with {kinds}")
    changes: Changes = {}
    for kind, quota in quotas.items():
        check_fields(quota, tuple(NO_QUOTA), f"{QUOTAS}: ")
        changes |= quota_changes(quota, kind)
    return changes


def _of_cluster(name: str, value: object) -> object:
    if not isinstance(value, dict):
        raise RequestRefused(BAD_BODY, f"{name}: expected an object with a value for each cluster")
    if value.keys() != {CLUSTER}:
        text = f"{name}: there is one cluster, {CLUSTER}, and no replication"
        raise RequestRefused(NOT_SUPPORTED, text)
    return value[CLUSTER]
