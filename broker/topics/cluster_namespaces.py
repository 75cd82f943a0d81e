"""Implementation of `NamespaceRegistry` in a cluster; the counterpart of `cluster_topics.py`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from braidlog.broker import errors

if TYPE_CHECKING:
    from braidlog.broker.cluster.changes import CatalogueChanges
    from braidlog.broker.topics.namespaces import Namespaces
    from braidlog.broker.topics.registry import ClusterRegistry
    from braidlog.storage.metadata.catalogue_records import ClusterFields


class ForwardedClusters:
    """The implementation of `ClusterRegistry` in which the owner of the catalogue makes changes."""

    def __init__(self, local: ClusterRegistry, changes: CatalogueChanges) -> None:
        """`local` makes the changes if this broker owns the catalogue."""
        self._changes = changes
        self.names, self.find = local.names, local.find

    async def create(self, cluster: str, fields: ClusterFields) -> int:
        was_there = self.find(cluster) is not None
        is_set = self._is_set(cluster, fields)
        return await self._changes.make(
            "create_cluster",
            *(cluster, dict(fields)),
            is_made=lambda: not was_there and is_set(),
        )

    async def alter(self, cluster: str, fields: ClusterFields) -> int:
        is_made = self._is_set(cluster, fields)
        return await self._changes.make("alter_cluster", cluster, dict(fields), is_made=is_made)

    def _is_set(self, cluster: str, fields: ClusterFields) -> Callable[[], bool]:
        return lambda: self.find(cluster) == fields

    async def delete(self, cluster: str) -> int:
        was_there = self.find(cluster) is not None
        return await self._changes.make(
            "delete_cluster",
            cluster,
            is_made=lambda: was_there and self.find(cluster) is None,
        )


class ClusterNamespaces:
    """All namespaces of the cluster, their tenants, and descriptions of clusters."""

    def __init__(self, local: Namespaces, changes: CatalogueChanges) -> None:
        """`local` makes the changes if this broker owns the catalogue."""
        self._changes = changes
        # The local registry finds namespaces.
        self.all, self.find, self.get = local.all, local.find, local.get
        self.find_numbered, self.number = local.find_numbered, local.number
        self.has_topics, self.tenants = local.has_topics, local.tenants
        self.has_tenant, self.admin_roles = local.has_tenant, local.admin_roles
        self.allowed_clusters = local.allowed_clusters
        self.clusters = ForwardedClusters(local.clusters, changes)

    async def create(self, tenant: str, namespace: str, *, iggy_id: int | None = None) -> int:
        was_there = self.find(tenant, namespace) is not None
        is_made = self._has_number(tenant, namespace, iggy_id)
        ticket = await self._changes.make(
            "create_namespace",
            *(tenant, namespace, iggy_id),
            is_made=lambda: not was_there and is_made(),
        )
        self._check_known(tenant, namespace)
        return ticket

    async def renumber(self, tenant: str, namespace: str, iggy_id: int | None) -> int:
        is_made = self._has_number(tenant, namespace, iggy_id)
        request = (tenant, namespace, iggy_id)
        ticket = await self._changes.make("renumber_namespace", *request, is_made=is_made)
        self._check_known(tenant, namespace)
        return ticket

    def _has_number(self, tenant: str, namespace: str, iggy_id: int | None) -> Callable[[], bool]:
        def is_made() -> bool:
            meta = self.find(tenant, namespace)
            return meta is not None and meta.iggy_id == iggy_id

        return is_made

    def _check_known(self, tenant: str, namespace: str) -> None:
        """Check that callers find the namespace. Raises Unanswered."""
        if self.find(tenant, namespace) is None:
            text = f"{tenant}/{namespace} was changed, but is not known to this broker now"
            raise errors.Unanswered(text)

    async def delete(self, tenant: str, namespace: str) -> int:
        was_there = self.find(tenant, namespace) is not None

        def is_made() -> bool:
            return was_there and self.find(tenant, namespace) is None

        return await self._changes.make("delete_namespace", tenant, namespace, is_made=is_made)

    async def create_tenant(
        self, tenant: str, admin_roles: Sequence[str], allowed_clusters: Sequence[str] = ()
    ) -> int:
        was_there = self.has_tenant(tenant)
        is_set = self._is_set(tenant, admin_roles, allowed_clusters)
        return await self._changes.make(
            "create_tenant",
            *(tenant, [*admin_roles], [*allowed_clusters]),
            is_made=lambda: not was_there and is_set(),
        )

    async def alter_tenant(
        self, tenant: str, admin_roles: Sequence[str], allowed_clusters: Sequence[str] = ()
    ) -> int:
        is_made = self._is_set(tenant, admin_roles, allowed_clusters)
        request = (tenant, [*admin_roles], [*allowed_clusters])
        return await self._changes.make("alter_tenant", *request, is_made=is_made)

    def _is_set(
        self, tenant: str, admin_roles: Sequence[str], allowed_clusters: Sequence[str]
    ) -> Callable[[], bool]:
        def is_made() -> bool:
            stored = [*self.admin_roles(tenant)], [*self.allowed_clusters(tenant)]
            return self.has_tenant(tenant) and stored == ([*admin_roles], [*allowed_clusters])

        return is_made

    async def delete_tenant(self, tenant: str) -> int:
        was_there = self.has_tenant(tenant)

        def is_made() -> bool:
            return was_there and not self.has_tenant(tenant)

        return await self._changes.make("delete_tenant", tenant, is_made=is_made)
