"""Restrictions of a namespace on its subscriptions: their names, and the clients of each.

These are Pulsar's `subscriptionAuthMode` and permissions of a subscription. They take rights away
and give none. Principals who may administer the subscription are exempt, as are the administrators
of a tenant in Apache. Knows no protocol.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from braidlog.broker.access.rights import ROLE_PREFIX, Action, Principal, Resource, ResourceKind

if TYPE_CHECKING:
    from braidlog.broker.access.access import AccessRules
    from braidlog.storage.metadata.catalogue_records import NamespaceMeta, Setting

AUTH_MODE: Final = "subscription_auth_mode"
ROLES_OF: Final = "subscription_roles:"  # Begins a setting of a namespace: a list in JSON.
LISTS_MAX: Final = 1000  # Parsed lists in memory.


class SubscriptionAuthMode(enum.Enum):
    """Rule for the names of subscriptions; the value is Pulsar's word."""

    NONE = "None"
    PREFIX = "Prefix"  # A name begins with that of the client's user.


class SubscriptionRules:
    """The rules of a broker with the restrictions of namespaces. Implements `AccessRules`."""

    def __init__(
        self,
        rules: AccessRules,
        namespace: Callable[[str, str], NamespaceMeta | None],
        namespaces: Callable[[], Iterable[NamespaceMeta]],
    ) -> None:
        """`namespace` returns that of a tenant and a name, `namespaces` all."""
        self._rules = rules
        self._namespace = namespace
        self._namespaces = namespaces

    def allows(self, principal: Principal, action: Action, resource: Resource) -> bool:
        if not self._rules.allows(principal, action, resource):
            return False
        if resource.kind is not ResourceKind.GROUP or action is Action.DESCRIBE:
            return True
        meta = self._namespace(resource.tenant, resource.namespace)
        if meta is None or _may_use(meta.settings, principal, resource.group):
            return True
        return self._rules.allows(principal, Action.ADMINISTER, resource)

    def reaches(self, principal: Principal, tenant: str, namespace: str = "") -> bool:
        return self._rules.reaches(principal, tenant, namespace)

    def version(self) -> int:
        """Return a number that differs after a change of the restrictions."""
        metas = (meta for meta in self._namespaces() if meta.settings)
        return hash(
            tuple(
                (meta.tenant, meta.namespace, name, value)
                for meta in metas
                for name, value in meta.settings.items()
                if is_restriction(name)
            )
        )


def is_restriction(name: str) -> bool:
    """Return True for the name of a setting that restricts subscriptions."""
    return name == AUTH_MODE or name.startswith(ROLES_OF)


def roles_by_subscription(settings: Mapping[str, Setting]) -> dict[str, list[str]]:
    """Return the lists of roles, by subscription."""
    return {
        name.removeprefix(ROLES_OF): sorted(_roles(str(value)))
        for name, value in settings.items()
        if name.startswith(ROLES_OF)
    }


def roles_setting(subscription: str, roles: Iterable[str]) -> dict[str, str]:
    """Return the setting that lets only these roles use a subscription."""
    return {ROLES_OF + subscription: json.dumps(sorted(set(roles)))}


def _may_use(settings: Mapping[str, Setting], principal: Principal, group: bytes) -> bool:
    is_by_prefix = settings.get(AUTH_MODE) == SubscriptionAuthMode.PREFIX.value
    if is_by_prefix and not group.startswith(principal.name.encode()):
        return False
    listed = settings.get(ROLES_OF + group.decode(errors="replace"))
    roles = _roles(str(listed)) if listed is not None else ()
    return not roles or not roles.isdisjoint(_names(principal))


def _names(principal: Principal) -> set[str]:
    """Return the names by which a list can mean a principal."""
    own = set() if principal.name.startswith(ROLE_PREFIX) else {principal.name}
    return own | {ROLE_PREFIX + role for role in principal.roles}


@lru_cache(LISTS_MAX)
def _roles(text: str) -> frozenset[str]:
    return frozenset(json.loads(text))
