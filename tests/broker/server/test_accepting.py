"""The accept loop: the number of accepted connections between two turns of other tasks."""

import errno
import os
import socket
from itertools import pairwise
from pathlib import Path

import pytest
import trio
import trio.testing

from braidlog.broker.broker import Broker
from braidlog.broker.limits import ACCEPTED_PER_TURN
from braidlog.broker.server.accepting import accept_all
from braidlog.storage.log.files import Files


async def test_simultaneous_connections_are_accepted_over_several_turns(
    broker: Broker,
) -> None:
    count = 5 * ACCEPTED_PER_TURN + 3
    sockets: list[socket.socket] = []
    turns = [0]
    with socket.create_server(("127.0.0.1", 0), backlog=count) as listening:
        listening.setblocking(False)
        clients = [socket.create_connection(listening.getsockname()) for _ in range(count)]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(accept_all, broker, listening, "echo", "echo", sockets.append)
            while len(sockets) < count:
                await trio.lowlevel.checkpoint()
                turns.append(len(sockets))
            nursery.cancel_scope.cancel()
    for sock in clients + sockets:
        sock.close()
    accepted = [after - before for before, after in pairwise(turns)]
    # The task may be last in a round and first in the next.
    assert max(accepted) <= 2 * ACCEPTED_PER_TURN
    assert 3 <= sum(turn_count > 0 for turn_count in accepted) <= 6


class CrowdedSocket(socket.socket):
    """A listening socket whose process has no descriptor until `files` has closed an idle file."""

    files: Files
    number = errno.EMFILE

    def accept(self) -> tuple[socket.socket, object]:
        if self.files.open_count == FILES:
            raise OSError(self.number, os.strerror(self.number))
        return super().accept()


FILES = 3


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
async def test_an_accept_without_a_descriptor_closes_idle_files(
    broker: Broker, tmp_path: Path, number: int
) -> None:
    files = broker._storage.files
    files.close_idle()
    held = files.open_count
    for name in range(FILES - held):
        files.create(str(tmp_path / str(name)))
    sockets: list[socket.socket] = []
    with CrowdedSocket() as listening:
        listening.files, listening.number = files, number
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        listening.setblocking(False)
        with socket.create_connection(listening.getsockname()):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(accept_all, broker, listening, "echo", "echo", sockets.append)
                await trio.testing.wait_all_tasks_blocked()
                nursery.cancel_scope.cancel()
    assert len(sockets) == 1
    sockets[0].close()
    assert files.open_count == held
