"""The client that a task works for: other brokers check the task's requests for that client.

A task calls `work_for` at its start. Its child tasks work for the same client unless they call
`work_for` too. A task without a client has an anonymous client's rights at other brokers.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol
from weakref import ref

from braidlog.broker.access.rights import ANONYMOUS

if TYPE_CHECKING:
    from braidlog.broker.access.rights import Principal


class ActingClient(Protocol):
    """The client: a connection or a request."""

    principal: Principal
    at: str  # Its protocol and host, for the audit log.


# Weak: a task that works for everybody may outlive the client that caused its start.
_CLIENT: ContextVar[ref[ActingClient] | None] = ContextVar("client", default=None)


def work_for(client: ActingClient) -> None:
    """Set the running task's client; a later login of the client counts too."""
    _CLIENT.set(ref(client))


def asks() -> tuple[Principal, str]:
    """Return principal and `at` of the running task's client; ANONYMOUS without a client."""
    principal = _CLIENT.get()
    client = None if principal is None else principal()
    return (ANONYMOUS, "") if client is None else (client.principal, client.at)
