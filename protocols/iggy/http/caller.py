"""The client of an HTTP request, with the part of a connection that Iggy's handlers use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import structlog

from braidlog.broker.access.rights import ANONYMOUS, Action, Principal, Resource
from braidlog.broker.errors import LimitExceeded

if TYPE_CHECKING:
    from braidlog.broker.access.authentication import Identity
    from braidlog.broker.broker import Broker
    from braidlog.broker.runtime.output_budget import OutputBudget
    from braidlog.broker.server.written_topics import WrittenTopics

PROTOCOL = "iggy-http"


class NoOutbox:
    """The outbox of a client whose requests do not share a stream."""

    unsent_bytes = 0
    pending_answers = 0

    def __init__(self, budget: OutputBudget) -> None:
        self.budget = budget

    async def drained(self) -> None:
        """Return at once: an answer does not wait behind another."""


class RequestClient(Protocol):
    """The connection of a client, here or at the broker that forwards the client's requests."""

    peer: str
    is_encrypted: bool
    written_topics: WrittenTopics

    @property
    def local(self) -> tuple[str, int]:
        """Return the broker's address of the connection. Raises OSError."""


class HttpCaller:
    """See `braidlog.protocols.iggy.context.AskingClient`."""

    listener_name = PROTOCOL

    def __init__(self, broker: Broker, client: RequestClient, *, loopback: bool) -> None:
        self.principal: Principal = ANONYMOUS
        self.peer = client.peer
        self.host = client.peer.rpartition(":")[0].strip("[]")
        self.at = f"{PROTOCOL} {self.host}"
        self.loopback = loopback
        self.is_encrypted = client.is_encrypted
        self.local = self.advertised = client.local
        listener = broker.listeners.get(PROTOCOL)
        if listener is not None:
            self.advertised = listener.advertised_to(client.local)
        self.outbox = NoOutbox(broker.output)
        self._broker = broker
        self._client = client
        self.written_topics = client.written_topics

    @property
    def log(self) -> structlog.typing.FilteringBoundLogger:
        """Return the log, with the client's address."""
        logger: structlog.typing.FilteringBoundLogger = structlog.get_logger()
        return logger.bind(protocol=PROTOCOL, peer=self.peer)

    def check(self, action: Action, resource: Resource) -> None:
        """Raise NotAuthorized if the client may not do that."""
        self._broker.access.check(self.principal, action, resource, self.at)

    def act_for(self, principal: Principal, proof: Identity | None = None) -> None:
        """Set the principal of the request."""
        self.principal = principal

    def note_library(self, name: str) -> None:
        """Do nothing: the connection shows the client's `User-Agent`."""

    def end(self, reason: str) -> None:
        """Do nothing: a request over HTTP carries no session of dialect W."""

    def spend(self, size: int) -> None:
        """Count a request with a body of `size` bytes. Raises LimitExceeded."""
        allowance = self._broker.quotas.of(self.principal)
        if allowance is None:
            return
        wait_s = allowance.spend(0, 0)
        if wait_s > 0:
            raise LimitExceeded(f"{self.principal.name} is over its rate: again in {wait_s:.1f} s")
        allowance.spend(1, size)
