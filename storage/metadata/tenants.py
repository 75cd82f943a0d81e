"""Tenants that were made or given admin roles, and descriptions of clusters: journal changes are
applied here.

Part of the catalogue, which writes the changes. Knows no namespace.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from braidlog.storage.metadata.catalogue_records import (
    ClusterDescribed,
    ClusterField,
    ClusterForgotten,
    TenantChange,
    TenantGone,
    TenantSet,
)

TENANT_CHANGES: Final = (TenantSet, TenantGone, ClusterDescribed, ClusterForgotten)


class TenantBook:
    """Tenants that exist even without a namespace, with admin roles and allowed clusters; and the
    clusters that were described.
    """

    def __init__(self) -> None:
        self._tenants: dict[str, TenantSet] = {}
        self.clusters: dict[str, Mapping[str, ClusterField]] = {}

    def __len__(self) -> int:
        return len(self._tenants)

    def __contains__(self, tenant: str) -> bool:
        return tenant in self._tenants

    def __iter__(self) -> Iterator[str]:
        return iter(self._tenants)

    def admin_roles(self, tenant: str) -> Sequence[str]:
        """The admin roles that a tenant was given; none for a tenant that is not in the book."""
        stored = self._tenants.get(tenant)
        return () if stored is None else stored.admin_roles

    def allowed_clusters(self, tenant: str) -> Sequence[str]:
        """The clusters that a tenant was given; none stands for the own cluster alone."""
        stored = self._tenants.get(tenant)
        return () if stored is None else stored.allowed_clusters

    def apply(self, change: TenantChange) -> None:
        """Apply a change, live or replayed. Raises KeyError if it names something missing."""
        match change:
            case TenantSet():
                self._tenants[change.tenant] = change
            case TenantGone():
                del self._tenants[change.tenant]
            case ClusterDescribed():
                self.clusters[change.cluster] = change.fields
            case ClusterForgotten():
                del self.clusters[change.cluster]

    def changes(self) -> Iterator[TenantChange]:
        """Everything as changes, for a snapshot."""
        yield from self._tenants.values()
        for cluster, fields in self.clusters.items():
            yield ClusterDescribed(cluster, dict(fields))
