"""Hypercorn's trio worker inside the broker's own run: sockets in, an ASGI application served, an
end that nobody can hold up. Knows no route.

Kept to `Config`, `serve` and `shutdown_trigger`, so that a fork or another front can take its
place.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import hypercorn.trio
import structlog
import trio
from hypercorn.config import Config
from hypercorn.typing import Framework

from protocols.rest.app import make_app

if TYPE_CHECKING:
    from broker.broker import Broker
    from protocols.rest.adapter import RestOptions

log = structlog.get_logger()

HEAD_BYTES_MAX = 32 * 1024  # Request line and headers; browsers behind proxies need 8 to 16 KiB.
KEEP_ALIVE_S = 15.0  # An idle connection; also the whole time for a request's head to arrive.
STOP_S = 3.0  # Requests that still run at a stop take milliseconds; what waits ends at once.
# Sent bytes that the client does not take. Hypercorn shields its sends from cancellation, so the
# kernel has to end them (tcp(7); it counts closed windows too), or one client could hold a stop.
SEND_STALL_MS = 10_000
RESTART_S = 1.0  # Between a failure inside the server and the next try.


async def serve(
    broker: Broker, sockets: Sequence[socket.socket], options: RestOptions, stopping: trio.Event
) -> None:
    """Serve until `stopping` is set and running requests are answered, at most `STOP_S` more.

    A fault inside the HTTP server ends its connections, is logged, and the server starts again:
    the other listeners do not notice.
    """
    app = make_app(broker, options, stopping)
    while not stopping.is_set():
        try:
            await hypercorn.trio.serve(
                cast(Framework, app), _config(sockets), shutdown_trigger=stopping.wait, mode="asgi"
            )
        except Exception:
            log.exception("http_server_failed", protocol="http")
            with trio.move_on_after(RESTART_S):
                await stopping.wait()


def _config(sockets: Sequence[socket.socket]) -> Config:
    config = Config()
    # Hypercorn closes what it is given; the sockets are the caller's.
    config.bind = [f"fd://{os.dup(sock.fileno())}" for sock in sockets]
    for sock in sockets:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SEND_STALL_MS)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    config.backlog = socket.SOMAXCONN
    config.h11_max_incomplete_size = HEAD_BYTES_MAX
    config.keep_alive_timeout = KEEP_ALIVE_S
    config.graceful_timeout = STOP_S
    config.include_server_header = False
    config.accesslog = None
    config.errorlog = logging.getLogger("hypercorn.error")
    return config
