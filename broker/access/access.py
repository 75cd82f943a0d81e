"""The one question of access control: may this principal do that to this resource?

It is asked where a name is resolved, and before dispatch for commands that name nothing. Knows no
protocol and no connection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from braidlog.broker.access.rights import Action, Principal, Resource, ResourceKind
from braidlog.broker.errors import NotAuthorized

if TYPE_CHECKING:
    from braidlog.broker.access.audit import AuditLog
    from braidlog.broker.access.quotas import Quotas


class Rules(Protocol):
    """Decide what is allowed. Called in the event loop: they answer from memory, at once."""

    def allows(self, principal: Principal, action: Action, resource: Resource) -> bool:
        """Whether the principal may do that."""

    def reaches(self, principal: Principal, tenant: str, namespace: str = "") -> bool:
        """Whether it may do anything with something in that tenant or namespace, whether or not
        that exists.
        """


class Access:
    """Asks the rules for the broker. Without rules everybody may do everything."""

    def __init__(
        self,
        rules: Rules | None = None,
        audit: AuditLog | None = None,
        quotas: Quotas | None = None,
        refused: Callable[[Principal], object] = lambda principal: None,
    ) -> None:
        """`audit` is told of each check, `quotas` of each topic that may be made; `refused` is
        called with the principal that is refused.
        """
        self._refused = refused
        self.rules = rules
        self._audit = audit
        self._quotas = quotas

    @property
    def allows_all(self) -> bool:
        """Whether everybody may do everything: there are no rules."""
        return self.rules is None

    def allows(self, principal: Principal, action: Action, resource: Resource) -> bool:
        """Whether the principal may do that; for lists, which leave out what it may not see."""
        return self.rules is None or self.rules.allows(principal, action, resource)

    def reaches(self, principal: Principal, tenant: str, namespace: str = "") -> bool:
        """Whether the principal may do anything with something in that tenant or namespace."""
        return self.rules is None or self.rules.reaches(principal, tenant, namespace)

    def check_within(self, principal: Principal, within: Resource, at: str = "") -> None:
        """Check that the principal may list a tenant or namespace: it may if it may see anything
        there, whether or not that exists. Raises NotAuthorized.
        """
        if not self.reaches(principal, within.tenant, within.namespace):
            self.check(principal, Action.DESCRIBE, within, at)
        elif self._audit is not None:
            self._audit.decided(principal, at, Action.DESCRIBE, within, allowed=True)

    def check(self, principal: Principal, action: Action, resource: Resource, at: str = "") -> None:
        """Check and note an action; `at` is the protocol and the client's host, for the audit log.

        Raises NotAuthorized if the principal may not do that, LimitExceeded if it has made too many
        topics.
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
