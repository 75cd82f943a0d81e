"""The local implementation of `NamespaceRegistry`: this broker makes every change.

Knows no protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from braidlog.broker import errors
from braidlog.broker.limits import STATE_LIMITS, StateLimits
from braidlog.broker.topics.catalogue import LocalCatalogue
from braidlog.broker.topics.described_clusters import DescribedClusters
from braidlog.storage.metadata.catalogue_records import NamespaceMeta, TenantGone, TenantSet
from braidlog.storage.metadata.names import (
    DEFAULT_NAMESPACE,
    DEFAULT_TENANT,
    InvalidTopicName,
    check_namespace,
)

# Per tenant, all names together.
ADMIN_ROLES_BYTES_MAX: Final = 4096
ALLOWED_CLUSTERS_BYTES_MAX: Final = 4096


class Namespaces:
    """All namespaces, their tenants, and descriptions of clusters."""

    def __init__(
        self,
        catalogue: LocalCatalogue,
        now_us: Callable[[], int],
        limits: StateLimits = STATE_LIMITS,
    ) -> None:
        self._limits = limits
        self._catalogue = catalogue
        self._now_us = now_us
        self.clusters = DescribedClusters(catalogue, limits)

    def all(self) -> Sequence[NamespaceMeta]:
        return self._catalogue.state.namespaces()

    def find(self, tenant: str, namespace: str) -> NamespaceMeta | None:
        return self._catalogue.state.namespace(tenant, namespace)

    def find_numbered(self, number: int) -> NamespaceMeta | None:
        return self._catalogue.state.namespace_by_stream_id(number)

    def number(self, meta: NamespaceMeta) -> int:
        return self._catalogue.state.stream_id(meta)

    def has_topics(self, tenant: str, namespace: str) -> bool:
        return bool(self._catalogue.state.numbered_topics(tenant, namespace))

    def get(self, tenant: str, namespace: str) -> NamespaceMeta:
        meta = self.find(tenant, namespace)
        if meta is None:
            raise errors.NamespaceNotFound(f"no namespace {tenant}/{namespace}")
        return meta

    async def create(self, tenant: str, namespace: str, *, iggy_id: int | None = None) -> int:
        _check_name(tenant, namespace)
        self._check_free(iggy_id)
        if self.find(tenant, namespace):
            raise errors.NamespaceExists(f"namespace {tenant}/{namespace} already exists")
        create, created_us = self._catalogue.state.create_namespace, self._now_us()
        return self._catalogue.change(
            create, tenant, namespace, created_us=created_us, iggy_id=iggy_id
        )

    async def renumber(self, tenant: str, namespace: str, iggy_id: int | None) -> int:
        self.get(tenant, namespace)
        self._check_free(iggy_id)
        renumber = self._catalogue.state.number_namespace
        return self._catalogue.change(renumber, tenant, namespace, iggy_id)

    async def delete(self, tenant: str, namespace: str) -> int:
        self.get(tenant, namespace)
        if (tenant, namespace) == (DEFAULT_TENANT, DEFAULT_NAMESPACE):
            raise errors.InvalidRequest(f"{tenant}/{namespace} stays")
        if self.has_topics(tenant, namespace):
            raise errors.TopicInUse(f"{tenant}/{namespace} has topics")
        return self._catalogue.free(self._catalogue.state.delete_namespace, tenant, namespace)

    # Tenants.

    def tenants(self) -> Sequence[str]:
        return sorted({*self._catalogue.state.tenants, *(meta.tenant for meta in self.all())})

    def has_tenant(self, tenant: str) -> bool:
        return tenant in self._catalogue.state.tenants or self._has_namespaces(tenant)

    def admin_roles(self, tenant: str) -> Sequence[str]:
        return self._catalogue.state.tenants.admin_roles(tenant)

    def allowed_clusters(self, tenant: str) -> Sequence[str]:
        return self._catalogue.state.tenants.allowed_clusters(tenant)

    async def create_tenant(
        self, tenant: str, admin_roles: Sequence[str], allowed_clusters: Sequence[str] = ()
    ) -> int:
        _check_name(tenant, DEFAULT_NAMESPACE)
        if self.has_tenant(tenant):
            raise errors.NamespaceExists(f"tenant {tenant} already exists")
        return self._set_tenant(tenant, admin_roles, allowed_clusters)

    async def alter_tenant(
        self, tenant: str, admin_roles: Sequence[str], allowed_clusters: Sequence[str] = ()
    ) -> int:
        if not self.has_tenant(tenant):
            raise _no_tenant(tenant)
        return self._set_tenant(tenant, admin_roles, allowed_clusters)

    async def delete_tenant(self, tenant: str) -> int:
        if self._has_namespaces(tenant):
            raise errors.TopicInUse(f"tenant {tenant} has namespaces")
        if tenant not in self._catalogue.state.tenants:
            raise _no_tenant(tenant)
        return self._catalogue.free(self._catalogue.state.change_tenants, TenantGone(tenant))

    def _has_namespaces(self, tenant: str) -> bool:
        return any(meta.tenant == tenant for meta in self.all())

    def _set_tenant(
        self, tenant: str, admin_roles: Sequence[str], allowed_clusters: Sequence[str]
    ) -> int:
        _check_size("admin roles", admin_roles, ADMIN_ROLES_BYTES_MAX)
        _check_size("allowed clusters", allowed_clusters, ALLOWED_CLUSTERS_BYTES_MAX)
        tenants = self._catalogue.state.tenants
        if len(tenants) >= self._limits.tenants and tenant not in tenants:
            raise errors.LimitExceeded(f"{self._limits.tenants} tenants are remembered")
        change = TenantSet(tenant, [*admin_roles], [*allowed_clusters])
        return self._catalogue.change(self._catalogue.state.change_tenants, change)

    def _check_free(self, number: int | None) -> None:
        if number is not None and self.find_numbered(number):
            raise errors.NamespaceExists(f"a namespace has the number {number}")


def _check_name(tenant: str, namespace: str) -> None:
    try:
        check_namespace(tenant, namespace)
    except InvalidTopicName as error:
        raise errors.InvalidName(str(error)) from error


def _check_size(noun: str, names: Sequence[str], bytes_max: int) -> None:
    if sum(len(name.encode()) + 1 for name in names) > bytes_max:
        raise errors.InvalidRequest(f"the {noun} of a tenant have at most {bytes_max} bytes")


def _no_tenant(tenant: str) -> errors.NamespaceNotFound:
    return errors.NamespaceNotFound(f"Tenant {tenant} does not exist")
