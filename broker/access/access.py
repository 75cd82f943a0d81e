"""The one question of access control: may this principal do that to this resource?

It is asked where a name is resolved, and before dispatch for commands that name nothing. Knows no
protocol and no connection.
"""

from __future__ import annotations

from typing import Protocol

from broker.access.rights import Action, Principal, Resource
from broker.errors import NotAuthorized


class Rules(Protocol):
    """Decides. Called in the event loop: it answers from memory, at once."""

    def allows(self, principal: Principal, action: Action, resource: Resource) -> bool:
        """Whether the principal may do that."""


class Access:
    """What the broker asks its rules. Without rules everybody may do everything."""

    def __init__(self, rules: Rules | None = None) -> None:
        self.rules = rules

    def allows(self, principal: Principal, action: Action, resource: Resource) -> bool:
        """Whether the principal may do that; for lists, which leave out what it may not see."""
        return self.rules is None or self.rules.allows(principal, action, resource)

    def check(self, principal: Principal, action: Action, resource: Resource) -> None:
        """Raises NotAuthorized if the principal may not do that."""
        if self.rules is not None and not self.rules.allows(principal, action, resource):
            raise NotAuthorized(f"{principal.name} may not {action.value} {resource}")
