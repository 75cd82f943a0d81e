"""Fetches that wait, by client: those of a client that is to join its group again end early.

Some clients (kafkajs) send heartbeats between their fetches only, over another connection, and
would notice a rebalance when their long poll of five seconds ends. Nothing in a fetch says whose
member it is, so a client is whoever has this client id on this host.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import trio

from protocols.kafka.membership import Client

# How long a fetch may still wait if its client has to rejoin its group: short for a person, long
# for a client that goes on fetching until its next heartbeat.
REJOIN_POLL_S = 0.2
# For so long after a rebalance began fetches of its members are cut short: a heartbeat's interval.
CALLED_S = 3.0
# With more fetches than these under one client id on one host nothing tells the members of the
# group from the others, and all of them would come again at once.
CLIENT_POLLS_MAX = 20
CLIENTS_CALLED_MAX = 10_000  # Clients in rebalances; of more, the oldest are forgotten.


class LongPolls:
    """The fetches that wait, of one namespace."""

    def __init__(self) -> None:
        """None yet."""
        self._parked: dict[Client, set[trio.CancelScope]] = {}
        self._called: dict[int, float] = {}  # by a client's hash: its id may be long; until when

    @contextmanager
    def waiting(self, client: Client, seconds: float) -> Iterator[None]:
        """Wait within this for so long at most, and shorter if the client is called."""
        with trio.move_on_after(seconds) as scope:
            if trio.current_time() < self._called.get(hash(client), 0.0):
                scope.deadline = min(scope.deadline, trio.current_time() + REJOIN_POLL_S)
            parked = self._parked.setdefault(client, set())
            parked.add(scope)
            try:
                yield
            finally:
                parked.remove(scope)
                if not parked:
                    del self._parked[client]

    def call(self, client: Client, at: float = 0.0) -> None:
        """A client is to join its group again, now or at a later time."""
        parked = self._parked.get(client, ())
        if len(parked) > CLIENT_POLLS_MAX:
            return
        at = max(at, trio.current_time())
        for scope in parked:
            scope.deadline = min(scope.deadline, at + REJOIN_POLL_S)
        self._called[hash(client)] = at + CALLED_S
        if len(self._called) > CLIENTS_CALLED_MAX:
            del self._called[next(iter(self._called))]
