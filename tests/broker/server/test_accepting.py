"""The accept loop: how many connections it takes between two turns of the others."""

import socket
from itertools import pairwise

import trio

from broker.broker import Broker
from broker.limits import ACCEPTED_PER_TURN
from broker.server.accepting import accept_all


async def test_connections_that_come_together_are_accepted_some_in_each_turn(
    broker: Broker,
) -> None:
    count = 5 * ACCEPTED_PER_TURN + 3
    taken: list[socket.socket] = []
    turns = [0]
    with socket.create_server(("127.0.0.1", 0), backlog=count) as listening:
        listening.setblocking(False)
        clients = [socket.create_connection(listening.getsockname()) for _ in range(count)]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(accept_all, broker, listening, "echo", "echo", taken.append)
            while len(taken) < count:
                await trio.lowlevel.checkpoint()
                turns.append(len(taken))
            nursery.cancel_scope.cancel()
    for sock in clients + taken:
        sock.close()
    accepted = [after - before for before, after in pairwise(turns)]
    assert max(accepted) <= 2 * ACCEPTED_PER_TURN  # It may go last in one round, first in the next.
    assert 3 <= sum(found > 0 for found in accepted) <= 6
