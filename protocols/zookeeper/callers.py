"""The client of a request as the tree sees the client: session, identities and rights."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from braidlog.broker.access.rights import Action, Resource
from braidlog.broker.cluster.peers import Asker
from braidlog.protocols.zookeeper.acl import Identity

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.broker.server.connection import Connection


@dataclass(slots=True)
class Caller:
    """A connection's client. `identities` prove access to nodes, `check` is access control."""

    broker: Broker
    connection: Connection
    session_id: int = 0
    identities: list[Identity] = field(default_factory=list)
    is_forwarded: bool = False  # Connected through another broker.

    @property
    def asker(self) -> Asker:
        """The client for which other brokers are asked."""
        return Asker(self.connection.principal, self.connection.at)

    def check(self, action: Action, resource: Resource) -> None:
        """Raise NotAuthorized if the client may not do that."""
        self.connection.check(action, resource)

    def may_see(self, resource: Resource) -> bool:
        """Return True if a list shows the client this resource."""
        access = self.broker.access
        return access.allows_all or access.allows(
            self.connection.principal, Action.DESCRIBE, resource
        )
