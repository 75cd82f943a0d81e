"""The client that a task works for: other brokers check what the task asks of them for that client.

A task says so once, at its start. Tasks that it starts work for the same client, unless they say
otherwise; one that works for nobody has an anonymous client's rights at other brokers.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol
from weakref import ref

from braidlog.broker.access.rights import ANONYMOUS

if TYPE_CHECKING:
    from braidlog.broker.access.rights import Principal


class Client(Protocol):
    """Who asks: a connection, or a request."""

    principal: Principal
    at: str  # Its protocol and host, for the audit log.


# Weak: a task that works for everybody may outlive the client that caused its start.
_CLIENT: ContextVar[ref[Client] | None] = ContextVar("client", default=None)


def work_for(client: Client) -> None:
    """The running task works for that client from now on, whichever user it logs in as."""
    _CLIENT.set(ref(client))


def asks() -> tuple[Principal, str]:
    """The current principal of the running task's client, and its `at`; ANONYMOUS for nobody."""
    found = _CLIENT.get()
    client = None if found is None else found()
    return (ANONYMOUS, "") if client is None else (client.principal, client.at)
