"""Ports of a run: nobody else is given them, and a server can listen on them."""

import socket
from contextlib import ExitStack

from conformance.ports import reserve_ports

# So many sockets among 28,000 ports would meet one of 200 ports that nobody holds.
CROWD = 400


def test_ports_are_all_different():
    with ExitStack() as held:
        assert len(set(reserve_ports(200, held))) == 200


def test_a_server_listens_on_a_reserved_port_and_again_after_its_end():
    with ExitStack() as held:
        (port,) = reserve_ports(1, held)
        for _ in range(2):
            with (
                socket.create_server(("127.0.0.1", port)) as server,
                socket.create_connection(server.getsockname()) as client,
            ):
                accepted, _ = server.accept()
                accepted.close()
                assert client.recv(1) == b""


def test_the_kernel_gives_a_reserved_port_to_nobody_else():
    with ExitStack() as held:
        reserved = set(reserve_ports(200, held))
        for _ in range(CROWD):
            other = held.enter_context(socket.socket())
            other.bind(("127.0.0.1", 0))
            assert other.getsockname()[1] not in reserved
        with socket.create_server(("127.0.0.1", 0)) as server:
            for _ in range(CROWD // 4):
                client = held.enter_context(socket.create_connection(server.getsockname()))
                assert client.getsockname()[1] not in reserved
