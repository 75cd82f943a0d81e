"""The clusters that tenants, namespaces and topics name, checked as Apache checks them.

A tenant may name each known cluster, which is only stored. A namespace or topic may be stored in
the own cluster alone: replication is not served. Knows no route.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from braidlog.protocols.http.errors import (
    BAD_BODY,
    BAD_CLUSTER,
    BAD_LIMIT,
    NOT_SUPPORTED,
    RequestRefused,
)
from braidlog.protocols.http.pulsar_admin.cluster_fields import read_names
from braidlog.protocols.http.pulsar_admin.new_objects import CLUSTER

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.protocols.http.pulsar_admin.policies import Setting, Settings

NAMESPACE_CLUSTERS: Final = "allowed_clusters"  # The setting of a namespace: names with commas.
NAME_SHOWN: Final = 60  # Characters of a name in an error.


def is_known(broker: Broker, cluster: str) -> bool:
    """Return whether there is a cluster of that name."""
    return cluster == CLUSTER or broker.namespaces.clusters.find(cluster) is not None


def tenant_clusters(broker: Broker, body: object) -> Sequence[str]:
    """Return the allowed clusters in a body about a tenant; empty for the own cluster alone. Raises
    RequestRefused.
    """
    if body is None:
        raise RequestRefused(BAD_LIMIT, "TenantInfo is null")
    listed = body.get("allowedClusters") if isinstance(body, dict) else None
    if listed is None:
        raise RequestRefused(BAD_LIMIT, "Clusters cannot be null")
    clusters = read_names(listed, "allowedClusters")
    if not clusters or not all(name.strip() for name in clusters):
        raise RequestRefused(BAD_LIMIT, "Clusters cannot be empty or blank")
    if not all(is_known(broker, name) for name in clusters):
        raise RequestRefused(BAD_LIMIT, "Clusters do not exist")
    return () if clusters == [CLUSTER] else clusters


def allowed_clusters(broker: Broker, tenant: str) -> Sequence[str]:
    """Return the clusters that a tenant may use."""
    return broker.namespaces.allowed_clusters(tenant) or [CLUSTER]


def check_still_allowed(broker: Broker, tenant: str, clusters: Sequence[str]) -> None:
    """Check that a tenant with namespaces keeps the own cluster. Raises RequestRefused."""
    if not clusters or CLUSTER in clusters:
        return
    metas = (meta for meta in broker.namespaces.all() if meta.tenant == tenant)
    if (meta := next(metas, None)) is not None:
        text = f"Cannot remove cluster {CLUSTER} from tenant {tenant}: namespace"
        place = f"{tenant}/{meta.namespace}"
        raise RequestRefused(BAD_LIMIT, f"{text} {place} still has it as a replication cluster")


def check_allowed(broker: Broker, tenant: str, clusters: Sequence[str]) -> None:
    """Check that a tenant may use these clusters. Raises RequestRefused."""
    allowed = allowed_clusters(broker, tenant)
    for cluster in clusters:
        if cluster not in allowed:
            text = "is not in the list of allowed clusters list for tenant"
            raise RequestRefused(BAD_CLUSTER, f"Cluster [{_short(cluster)}] {text} [{tenant}]")


def check_no_replication(clusters: Sequence[str]) -> None:
    """Refuse replication to other clusters. Raises RequestRefused."""
    others = [cluster for cluster in clusters if cluster != CLUSTER]
    if others:
        text = "is not served here, only the own cluster"
        raise RequestRefused(NOT_SUPPORTED, f"replication to {_short(others[0])} {text}, {CLUSTER}")


def replication_clusters(body: object) -> Sequence[str]:
    """Return the clusters of a namespace or topic in a body. Raises RequestRefused."""
    clusters = read_names(body, "the names of the clusters")
    if not clusters:
        raise RequestRefused(BAD_LIMIT, "ClusterIds should not be null or empty")
    return clusters


def check_namespace_clusters(broker: Broker, tenant: str, body: object) -> None:
    """Check the replication clusters of a namespace. Raises RequestRefused."""
    clusters = replication_clusters(body)
    for cluster in clusters:
        if not is_known(broker, cluster):
            raise RequestRefused(BAD_CLUSTER, f"Invalid cluster id: {_short(cluster)}")
    check_allowed(broker, tenant, clusters)
    check_no_replication(clusters)


def check_topic_clusters(broker: Broker, tenant: str, body: object) -> None:
    """Check the replication clusters of a topic. Raises RequestRefused."""
    clusters = replication_clusters(body)
    if CLUSTER not in clusters:
        text = "Can not remove local cluster from the local topic-level replication clusters policy"
        raise RequestRefused(BAD_LIMIT, text)
    check_allowed(broker, tenant, clusters)
    check_no_replication(clusters)


def allowed_by(settings: Settings) -> Sequence[str]:
    """Return the clusters that a namespace allows; none if they were never set."""
    stored = str(settings.get(NAMESPACE_CLUSTERS, ""))
    return stored.split(",") if stored else []


def changes_of_allowed(broker: Broker, tenant: str, body: object) -> dict[str, Setting | None]:
    """Return the change of a namespace's allowed clusters. Raises RequestRefused."""
    clusters = read_names(body, "the names of the allowed clusters")
    if clusters is None:
        raise RequestRefused(BAD_BODY, "the allowed clusters: expected a list of names")
    check_allowed(broker, tenant, clusters)
    if CLUSTER not in clusters:
        text = f"Allowed clusters do not contain the replication cluster [{CLUSTER}]"
        more = "Please remove the replication cluster if the cluster is not allowed for this"
        raise RequestRefused(BAD_BODY, f"{text}. {more} namespace")
    return {NAMESPACE_CLUSTERS: ",".join(clusters)}


def _short(name: str) -> str:
    return name[:NAME_SHOWN]
