"""Ports of loopback for servers that a run starts, and starts again."""

import socket
from contextlib import ExitStack


def reserve_ports(count: int, held: ExitStack) -> list[int]:
    """Return different ports that the kernel gives to nobody else until `held` closes.

    The sockets are bound with SO_REUSEADDR and never listen, so a server that sets SO_REUSEADDR
    can listen on the ports, now and after a restart.
    """
    ports = []
    for _ in range(count):
        holder = held.enter_context(socket.socket())
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        ports.append(int(holder.getsockname()[1]))
    return ports
