"""Waiting fetches by client: those of a client that has to rejoin its group end early.

Some clients (kafkajs) send heartbeats only between their fetches, over another connection, and
would notice a rebalance only when their long poll of five seconds ends. A fetch does not name a
group member, so a client is known by its client id and host.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

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


class LongPoll(Protocol):
    """The wait of a fetch: a cancel scope, or a wait without a task."""

    deadline: float  # in trio's seconds; may be changed


class LongPolls:
    """The waiting fetches of a namespace."""

    def __init__(self) -> None:
        """None yet."""
        self._parked: dict[Client, set[LongPoll]] = {}
        self._called: dict[int, float] = {}  # hash of a client (ids may be long) -> until when

    def deadline(self, client: Client, seconds: float) -> float:
        """Return the end of a wait of `seconds` that begins now; sooner if the client is called."""
        now = trio.current_time()
        if now < self._called.get(hash(client), 0.0):
            seconds = min(seconds, REJOIN_POLL_S)
        return common_deadline(now, seconds)

    def park(self, client: Client, poll: LongPoll) -> None:
        """Note a client's wait, up to `unpark`: `call` may move its deadline meanwhile."""
        self._parked.setdefault(client, set()).add(poll)

    def unpark(self, client: Client, poll: LongPoll) -> None:
        """Note that the wait has ended."""
        polls = self._parked[client]
        polls.remove(poll)
        if not polls:
            del self._parked[client]

    @contextmanager
    def waiting(self, client: Client, deadline: float) -> Iterator[None]:
        """Limit the wait inside to the deadline, and to less if the client is called."""
        with trio.CancelScope(deadline=deadline) as scope:
            self.park(client, scope)
            try:
                yield
            finally:
                self.unpark(client, scope)

    def call(self, client: Client, at: float = 0.0) -> None:
        """Cut a client's fetches short: it has to rejoin its group, now or at a later time."""
        parked = self._parked.get(client, ())
        if len(parked) > CLIENT_POLLS_MAX:
            return
        at = max(at, trio.current_time())
        for poll in parked:
            poll.deadline = min(poll.deadline, at + REJOIN_POLL_S)
        self._called[hash(client)] = at + CALLED_S
        if len(self._called) > CLIENTS_CALLED_MAX:
            del self._called[next(iter(self._called))]
