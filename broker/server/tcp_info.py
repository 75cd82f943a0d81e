"""The kernel's view of a TCP connection (tcp(7), TCP_INFO): state, and counters of bytes."""

from __future__ import annotations

import socket
import struct
from typing import Protocol

# States of a socket that is reset, or whose peer has closed its sending side.
TCP_CLOSE, TCP_CLOSE_WAIT = 7, 8
SILENCE = struct.Struct("=52xI")  # tcpi_last_data_recv, in milliseconds.
COUNTERS = struct.Struct("=120xQQ")  # tcpi_bytes_acked, tcpi_bytes_received (linux/tcp.h)


class WithOptions(Protocol):
    """A socket, plain or of TLS."""

    def getsockopt(self, level: int, option: int, size: int, /) -> bytes:
        """Work as a socket's method. Raises OSError."""


def tcp_state(sock: WithOptions) -> int:
    """Return the state of the connection. Raises OSError."""
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]


def tcp_silent_s(sock: WithOptions) -> float:
    """Return the seconds since the last bytes from the peer, or since the connection was made; 0
    after the end.
    """
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, SILENCE.size)
        silent_ms: int = SILENCE.unpack(info)[0]
    except (OSError, struct.error):
        return 0.0
    return silent_ms / 1000


def tcp_traffic(sock: WithOptions) -> tuple[int, int]:
    """Return the bytes received from the peer, and the bytes that the peer has acknowledged; (0, 0)
    after the end, and with a kernel before 4.2.
    """
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, COUNTERS.size)
        acked, received = COUNTERS.unpack(info)
    except (OSError, struct.error):
        return 0, 0
    return received, acked
