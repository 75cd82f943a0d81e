"""Implementation of `NamespaceRegistry` in a cluster; the counterpart of `cluster_topics.py`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from braidlog.broker import errors

if TYPE_CHECKING:
    from braidlog.broker.cluster.changes import CatalogueChanges
    from braidlog.broker.topics.namespaces import Namespaces


class ClusterNamespaces:
    """All namespaces of the cluster, and their tenants."""

    def __init__(self, local: Namespaces, changes: CatalogueChanges) -> None:
        """`local` makes the changes if this broker owns the catalogue."""
        self._changes = changes
        # The local registry finds namespaces.
        self.all, self.find, self.get = local.all, local.find, local.get
        self.find_numbered, self.number = local.find_numbered, local.number
        self.has_topics, self.tenants = local.has_topics, local.tenants
        self.has_tenant, self.admin_roles = local.has_tenant, local.admin_roles

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

    async def create_tenant(self, tenant: str, admin_roles: Sequence[str]) -> int:
        was_there, has_roles = self.has_tenant(tenant), self._has_roles(tenant, admin_roles)
        return await self._changes.make(
            "create_tenant",
            *(tenant, [*admin_roles]),
            is_made=lambda: not was_there and has_roles(),
        )

    async def alter_tenant(self, tenant: str, admin_roles: Sequence[str]) -> int:
        is_made = self._has_roles(tenant, admin_roles)
        request = (tenant, [*admin_roles])
        return await self._changes.make("alter_tenant", *request, is_made=is_made)

    def _has_roles(self, tenant: str, admin_roles: Sequence[str]) -> Callable[[], bool]:
        def is_made() -> bool:
            return self.has_tenant(tenant) and [*self.admin_roles(tenant)] == [*admin_roles]

        return is_made

    async def delete_tenant(self, tenant: str) -> int:
        was_there = self.has_tenant(tenant)

        def is_made() -> bool:
            return was_there and not self.has_tenant(tenant)

        return await self._changes.make("delete_tenant", tenant, is_made=is_made)
