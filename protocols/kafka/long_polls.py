"""Waiting fetches by client: those of a client that has to rejoin its group end early.

Some clients (kafkajs) send heartbeats only between their fetches, over another connection, and
would notice a rebalance only when their long poll of five seconds ends. A fetch does not name a
group member, so a client is known by its client id and host.
"""

from __future__ import annotations

from types import TracebackType

import trio

from braidlog.broker.commit.waiters import common_deadline
from braidlog.protocols.kafka.roster import Client

# How long a fetch may still wait if its client has to rejoin its group: short for a person, long
# for a client that goes on fetching until its next heartbeat.
REJOIN_POLL_S = 0.2
# How long after the start of a rebalance its members' fetches are cut short: a heartbeat interval.
CALLED_S = 3.0
# If more fetches wait under one client id on one host, nothing tells the group's members from the
# others, and all of them would fetch again at once.
CLIENT_POLLS_MAX = 20
CLIENTS_CALLED_MAX = 10_000  # Clients in rebalances; beyond that the oldest are forgotten.


class LongPoll:
    """The wait of a fetch up to a deadline. A class, as thousands wait and a generator costs more:
    the scope of the wait is among those of its client meanwhile.
    """

    __slots__ = ("_client", "_parked", "_scope")

    def __init__(
        self, parked: dict[Client, set[trio.CancelScope]], client: Client, deadline: float
    ) -> None:
        self._parked = parked
        self._client = client
        self._scope = trio.CancelScope(deadline=deadline)

    def __enter__(self) -> None:
        self._parked.setdefault(self._client, set()).add(self._scope)
        self._scope.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        scopes = self._parked[self._client]
        scopes.remove(self._scope)
        if not scopes:
            del self._parked[self._client]
        return self._scope.__exit__(kind, error, traceback)


class LongPolls:
    """The waiting fetches of a namespace."""

    def __init__(self) -> None:
        """None yet."""
        self._parked: dict[Client, set[trio.CancelScope]] = {}
        self._called: dict[int, float] = {}  # hash of a client (ids may be long) -> until when

    def waiting(self, client: Client, seconds: float) -> LongPoll:
        """Limit the wait inside to `seconds`, and to less if the client is called."""
        now = trio.current_time()
        if now < self._called.get(hash(client), 0.0):
            seconds = min(seconds, REJOIN_POLL_S)
        return LongPoll(self._parked, client, common_deadline(now, seconds))

    def call(self, client: Client, at: float = 0.0) -> None:
        """Cut a client's fetches short: it has to rejoin its group, now or at a later time."""
        parked = self._parked.get(client, ())
        if len(parked) > CLIENT_POLLS_MAX:
            return
        at = max(at, trio.current_time())
        for scope in parked:
            scope.deadline = min(scope.deadline, at + REJOIN_POLL_S)
        self._called[hash(client)] = at + CALLED_S
        if len(self._called) > CLIENTS_CALLED_MAX:
            del self._called[next(iter(self._called))]
