"""The end of a connection whose client may still send. Knows no protocol."""

from __future__ import annotations

import socket

import trio

from braidlog.broker.limits import LINGER_BYTES_MAX, LINGER_S
from braidlog.broker.runtime.streams import Stream

DISCARD_BYTES = 64 * 1024


async def close_sending_side(sock: Stream) -> None:
    """Close the sending side, and wait up to LINGER_S for the client to close its side."""
    try:
        sock.shutdown(socket.SHUT_WR)
        with trio.move_on_after(LINGER_S):
            await _linger(sock)
    except OSError:
        pass  # The client is gone, for which lingering waits.


async def _linger(sock: Stream) -> None:
    """Read on until the client closes its side, or has sent LINGER_BYTES_MAX: closing a socket with
    unread bytes sends a reset, which can overtake the last answer. Raises OSError.
    """
    discarded = 0
    while discarded < LINGER_BYTES_MAX:
        try:
            received = len(sock.recv(DISCARD_BYTES))
        except BlockingIOError:
            await trio.lowlevel.wait_readable(sock)
            continue
        if not received:
            return
        discarded += received
        await trio.lowlevel.checkpoint()
