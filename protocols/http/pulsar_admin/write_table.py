"""The content that each call of Pulsar's admin API understands, of all calls that change something:
the fields of the body, and the query parameters. All other content is refused.

A route without a row cannot be made. The tests compare the rows with Apache's calls, recorded in
`conformance/vectors/pulsar/admin-calls.tsv`. Knows no handler.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from braidlog.protocols.http.pulsar_admin.absent import (
    REMOVED_FROM_NAMESPACES,
    REMOVED_FROM_TOPICS,
    SETTABLE_ON_NAMESPACES,
    SETTABLE_ON_TOPICS,
)
from braidlog.protocols.http.pulsar_admin.cluster_fields import ADDRESSES, PEERS, SWITCHES, TEXTS
from braidlog.protocols.http.pulsar_admin.paths import (
    CLUSTERS,
    NON_PERSISTENT,
    RATE_OF_SUBSCRIPTION,
    SCHEMAS,
    SPACE,
    SUBSCRIPTION,
    TENANTS,
    TOPIC,
)
from braidlog.protocols.http.pulsar_admin.policy_table import BY_PATH, POLICIES
from braidlog.protocols.http.pulsar_admin.write_content import Content

if TYPE_CHECKING:
    from braidlog.protocols.http.pulsar_admin.policies import Policy

WRITING: Final = ("POST", "PUT", "DELETE")
# Apache's hint for the broker that receives a redirected request: without effect on the outcome.
HINT: Final = "authoritative"
# A policy of the topic in every cluster; with a single cluster, a plain policy of the topic.
EVERYWHERE: Final = "isGlobal"
OF_TOPIC_POLICY: Final = (HINT, EVERYWHERE)
# Apache knows no `isGlobal` of these policies.
OF_ONE_CLUSTER: Final = ("schemaCompatibilityStrategy", "schemaValidationEnforced", "shadowTopics")
RATE_FIELDS: Final = BY_PATH["dispatchRate"].names
NOTHING: Final = Content()
HINTED: Final = Content(query=(HINT,))
FORCED: Final = Content(query=(HINT, "force"))
# A topic's schemas are always deleted with the topic. Java's client asks for that.
DELETED_TOPIC: Final = Content(query=(HINT, "force", "deleteSchema"))
# The handler checks the whole body: a list, a map of names that the client chooses, a value.
WHOLE: Final = Content(None)
WHOLE_HINTED: Final = Content(None, (HINT,))
CLUSTER_DATA: Final = Content((*TEXTS, *SWITCHES, PEERS))
TENANT_INFO: Final = Content(("adminRoles", "allowedClusters"))
SCHEMA: Final = Content(("type", "schema", "properties"), (HINT,))
# The path names the partition, so `partitionIndex` repeats it, as in Apache.
MESSAGE_ID: Final = ("ledgerId", "entryId", "partitionIndex", "batchIndex")
PLACE: Final = (*MESSAGE_ID, "excluded", "isExcluded")
POSITION: Final = Content(PLACE, (HINT,))
NEW_SUBSCRIPTION: Final = Content((*PLACE, "properties"), (HINT, "replicated"))


def _of_clusters() -> Iterator[tuple[str, str, Content]]:
    cluster = f"{CLUSTERS}/{{cluster}}"
    yield "PUT", cluster, CLUSTER_DATA
    yield "POST", cluster, CLUSTER_DATA
    yield "DELETE", cluster, NOTHING
    yield "DELETE", f"{cluster}/failureDomains/{{domain}}", NOTHING
    yield "POST", f"{cluster}/peers", WHOLE
    # Apache shows `empty` beside the addresses, which says that there are none.
    yield "POST", f"{cluster}/migrate", Content((*ADDRESSES, "empty"), ("migrated",))
    tenant = f"{TENANTS}/{{tenant}}"
    yield "PUT", tenant, TENANT_INFO
    yield "POST", tenant, TENANT_INFO
    yield "DELETE", tenant, Content(query=("force",))


def _of_namespaces() -> Iterator[tuple[str, str, Content]]:
    yield "PUT", SPACE, WHOLE  # An object with all policies, checked by `given_policies`.
    yield "DELETE", SPACE, FORCED
    yield "PUT", f"{SPACE}/unload", NOTHING
    # There is no other cluster whose partitions could be compared.
    yield "POST", f"{SPACE}/replication", Content(None, ("compareTopicPartitions",))
    yield "POST", f"{SPACE}/allowedClusters", WHOLE
    yield "PUT", f"{SPACE}/properties", WHOLE
    yield "DELETE", f"{SPACE}/properties", NOTHING
    yield "DELETE", f"{SPACE}/property/{{key}}", NOTHING
    yield "PUT", f"{SPACE}/property/{{key}}/{{value}}", NOTHING
    for place in (SPACE, f"{SPACE}/{{bundle}}"):
        yield "POST", f"{place}/clearBacklog", HINTED
        yield "POST", f"{place}/clearBacklog/{{of_all_topics}}", HINTED
        yield "POST", f"{place}/unsubscribe/{{of_all_topics}}", HINTED
    yield "PUT", f"{SPACE}/{{bundle}}/unload", Content(query=(HINT, "destinationBroker"))
    yield "POST", f"{SPACE}/permissions/{{role}}", WHOLE
    yield "DELETE", f"{SPACE}/permissions/{{role}}", NOTHING
    yield "POST", f"{SPACE}/permissions/subscription/{{of_subscription}}", WHOLE
    yield "DELETE", f"{SPACE}/permissions/{{of_subscription}}/{{role}}", NOTHING


def _of_topics() -> Iterator[tuple[str, str, Content]]:
    for topic in (TOPIC, NON_PERSISTENT):
        yield "PUT", topic, WHOLE_HINTED
        yield "DELETE", topic, DELETED_TOPIC
        # A single cluster: each topic is local.
        new_partitions = Content(("partitions", "properties"), (HINT, "createLocalTopicOnly"))
        yield "PUT", f"{topic}/partitions", new_partitions
        # Nothing is checked that `force` would skip.
        more_partitions = Content(("partitions",), (HINT, "updateLocalTopicOnly", "force"))
        yield "POST", f"{topic}/partitions", more_partitions
        yield "DELETE", f"{topic}/partitions", DELETED_TOPIC
        yield "PUT", f"{topic}/unload", HINTED
        yield "DELETE", f"{topic}/subscription/{{subscription}}", FORCED
    yield "DELETE", f"{TOPIC}/truncate", HINTED
    yield "PUT", f"{TOPIC}/properties", WHOLE_HINTED
    yield "DELETE", f"{TOPIC}/properties", Content(query=(HINT, "key"))
    yield "POST", f"{TOPIC}/replication", Content(None, OF_TOPIC_POLICY)
    yield "DELETE", f"{TOPIC}/replication", Content(query=OF_TOPIC_POLICY)
    yield "POST", f"{TOPIC}/createMissedPartitions", NOTHING
    yield "POST", f"{TOPIC}/trim", HINTED
    # Bytes are those of whole entries, so `batchIndex` has no effect, as in Apache.
    yield "PUT", f"{TOPIC}/backlogSize", Content(MESSAGE_ID, (HINT,))
    yield "PUT", f"{TOPIC}/compaction", HINTED
    yield "POST", f"{TOPIC}/terminate", HINTED
    yield "POST", f"{TOPIC}/terminate/partitions", HINTED
    yield "POST", f"{TOPIC}/permissions/{{role}}", WHOLE
    yield "DELETE", f"{TOPIC}/permissions/{{role}}", NOTHING
    yield "POST", f"{SCHEMAS}/schema", SCHEMA
    yield "POST", f"{SCHEMAS}/version", SCHEMA
    yield "POST", f"{SCHEMAS}/compatibility", SCHEMA
    # `force` asks for the end of all versions too; no call shows a version after a deletion.
    yield "DELETE", f"{SCHEMAS}/schema", FORCED


def _of_subscriptions() -> Iterator[tuple[str, str, Content]]:
    yield "PUT", SUBSCRIPTION, NEW_SUBSCRIPTION
    for end in ("resetcursor", "expireMessages", "analyzeBacklog"):
        yield "POST", f"{SUBSCRIPTION}/{end}", POSITION
    for end in ("resetcursor/{time}", "skip/{number}", "skip_all", "expireMessages/{seconds}"):
        yield "POST", f"{SUBSCRIPTION}/{end}", HINTED
    yield "POST", f"{TOPIC}/all_subscription/expireMessages/{{seconds}}", HINTED
    yield "PUT", f"{SUBSCRIPTION}/properties", WHOLE_HINTED


def _of_policies() -> Iterator[tuple[str, str, Content]]:
    for level, place in (("namespace", SPACE), ("topic", TOPIC), ("topic", NON_PERSISTENT)):
        for policy in (policy for policy in POLICIES if level in policy.levels):
            calls = policy.calls(is_topic=level == "topic")
            for method, path in ((method, path) for path, methods in calls for method in methods):
                if method in WRITING:
                    yield method, f"{place}/{path}", _of_policy(policy, level, method)
    yield "POST", RATE_OF_SUBSCRIPTION, Content(RATE_FIELDS, OF_TOPIC_POLICY)
    yield "DELETE", RATE_OF_SUBSCRIPTION, Content(query=OF_TOPIC_POLICY)
    yield "DELETE", f"{TOPIC}/policies", HINTED


def _of_policy(policy: Policy, level: str, method: str) -> Content:
    is_removal, is_topic = method == "DELETE", level == "topic"
    query = policy.query
    if is_topic:
        query = (*query, HINT) if policy.path in OF_ONE_CLUSTER else (*query, *OF_TOPIC_POLICY)
    if is_removal:
        return Content(query=query)
    if is_topic and policy.topic_query:
        return Content(query=(policy.topic_query, *query))
    return Content(policy.names, query)


def _of_absent_features() -> Iterator[tuple[str, str, Content]]:
    """Yield the rows of settings that nothing has: the handlers check the whole body."""
    for end in SETTABLE_ON_NAMESPACES:
        yield "POST", f"{SPACE}/{end}", WHOLE
    for end in REMOVED_FROM_NAMESPACES:
        yield "DELETE", f"{SPACE}/{end}", NOTHING
    for end in SETTABLE_ON_TOPICS:
        yield "POST", f"{TOPIC}/{end}", WHOLE_HINTED
    for end in REMOVED_FROM_TOPICS:
        query = (HINT,) if end in OF_ONE_CLUSTER else OF_TOPIC_POLICY
        yield "DELETE", f"{TOPIC}/{end}", Content(query=query)


ROWS: Final = {
    (method, path): content
    for rows in (
        _of_clusters,
        _of_namespaces,
        _of_topics,
        _of_subscriptions,
        _of_policies,
        _of_absent_features,
    )
    for method, path, content in rows()
}
