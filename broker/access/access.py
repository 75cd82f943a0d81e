"""Access control: may this principal do this action to this resource?

The check runs where a name is resolved, and before dispatch for commands that name nothing. The
module knows no protocol and no connection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from braidlog.broker.access.rights import Action, Principal, Resource, ResourceKind
from braidlog.broker.errors import NotAuthorized

if TYPE_CHECKING:
    from braidlog.broker.access.audit import AuditLog
    from braidlog.broker.access.quotas import Quotas


class AccessRules(Protocol):
    """Decisions about permissions. The event loop calls them: they answer from memory, at once."""

    def allows(self, principal: Principal, action: Action, resource: Resource) -> bool:
        """Return True if the principal may do the action."""

    def reaches(self, principal: Principal, tenant: str, namespace: str = "") -> bool:
        """Return True if the principal may do anything in that tenant or namespace, existing or
        not.
        """


class Access:
    """Asks the rules for the broker. Without rules every client may do everything.

    Implements `AccessRules`.
    """

    def __init__(
        self,
        rules: AccessRules | None = None,
        audit: AuditLog | None = None,
        quotas: Quotas | None = None,
        refused: Callable[[Principal], object] = lambda principal: None,
    ) -> None:
        """`audit` notes each check and `quotas` each created topic; `refused` is called with each
        refused principal.
        """
        self._refused = refused
        self.rules = rules
        self._audit = audit
        self._quotas = quotas

    @property
    def allows_all(self) -> bool:
        """True without rules: every client may do everything."""
        return self.rules is None

    def allows(self, principal: Principal, action: Action, resource: Resource) -> bool:
        """Return True if the principal may do the action; lists use this to leave out resources."""
        return self.rules is None or self.rules.allows(principal, action, resource)

    def reaches(self, principal: Principal, tenant: str, namespace: str = "") -> bool:
        return self.rules is None or self.rules.reaches(principal, tenant, namespace)

    def check_within(self, principal: Principal, within: Resource, at: str = "") -> None:
        """Check that the principal may list a tenant or namespace. Raises NotAuthorized.

        A principal that may see anything there may list, whether or not the resource exists.
        """
        if not self.reaches(principal, within.tenant, within.namespace):
            self.check(principal, Action.DESCRIBE, within, at)
        elif self._audit is not None:
            self._audit.decided(principal, at, Action.DESCRIBE, within, allowed=True)

    def check(self, principal: Principal, action: Action, resource: Resource, at: str = "") -> None:
        """Check and note an action; `at` is the protocol and the client's host, for the audit log.

        Raises NotAuthorized if the action is not allowed, LimitExceeded if the principal has
        created too many topics.
        """
        if self.rules is None:
            return
        allowed = self.rules.allows(principal, action, resource)
        if self._audit is not None:
            self._audit.decided(principal, at, action, resource, allowed=allowed)
        if not allowed:
            self._refused(principal)
            raise NotAuthorized(f"{principal.name} may not {action.value} {resource}")
        if (
            action is Action.CREATE
            and resource.kind is ResourceKind.TOPIC
            and self._quotas is not None
            and (allowance := self._quotas.of(principal)) is not None
        ):
            allowance.make_topic()
