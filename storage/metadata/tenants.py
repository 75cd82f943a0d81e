"""Tenants that were made or given admin roles, and how journal changes are applied to them.

Part of the catalogue, which writes the changes. Knows no namespace.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from braidlog.storage.metadata.catalogue_records import TenantChange, TenantGone, TenantSet

TENANT_CHANGES: Final = (TenantSet, TenantGone)


class TenantBook:
    """Tenants that exist even without a namespace, and the names of their admin roles."""

    def __init__(self) -> None:
        self._roles: dict[str, list[str]] = {}

    def __len__(self) -> int:
        return len(self._roles)

    def __contains__(self, tenant: str) -> bool:
        return tenant in self._roles

    def __iter__(self) -> Iterator[str]:
        return iter(self._roles)

    def admin_roles(self, tenant: str) -> Sequence[str]:
        """The admin roles that a tenant was given; none for a tenant that is not in the book."""
        return self._roles.get(tenant, ())

    def apply(self, change: TenantChange) -> None:
        """Apply a change, live or replayed. Raises KeyError if it names something missing."""
        if isinstance(change, TenantSet):
            self._roles[change.tenant] = change.admin_roles
        else:
            del self._roles[change.tenant]

    def changes(self) -> Iterator[TenantChange]:
        """Everything as changes, for a snapshot."""
        for tenant, admin_roles in self._roles.items():
            yield TenantSet(tenant, admin_roles)
