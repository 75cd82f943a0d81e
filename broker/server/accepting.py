"""The accept loop of every listener, framed or HTTP. Knows no protocol."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from braidlog.broker.limits import ACCEPT_PAUSE_S, ACCEPTED_PER_TURN
from braidlog.storage.log.descriptors import NO_DESCRIPTOR

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker

OUT_OF_RESOURCES = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))


async def accept_all(
    broker: Broker,
    listening: socket.socket,
    protocol: str,
    name: str,
    start: Callable[[socket.socket], None],
) -> None:
    """Take connections until cancelled; `start` gets those that the limits admit.

    `protocol` is what they count for, `name` the listener in the log. `listening` does not block.
    """
    accepted = 0  # in this turn
    while True:
        if accepted == ACCEPTED_PER_TURN:
            accepted = 0
            await trio.lowlevel.checkpoint()
        try:
            sock, _ = listening.accept()
        except BlockingIOError:
            accepted = 0
            await trio.lowlevel.wait_readable(listening)
            continue
        except OSError as error:
            if error.errno in NO_DESCRIPTOR and broker.close_idle_files():
                continue
            if error.errno in OUT_OF_RESOURCES:
                broker.seldom.error(
                    "accept_failed", cause=name, listener=name, reason=error.strerror
                )
                await trio.sleep(ACCEPT_PAUSE_S)
            # Otherwise the error concerns that connection alone: accept(2), "Error handling".
            continue
        accepted += 1
        if broker.admission.admit(protocol, name):
            start(sock)
        else:
            sock.close()
