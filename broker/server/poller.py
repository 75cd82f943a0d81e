"""Serves all sockets that are ready, one after another, in one task. Knows no connection.

Waking a task for each socket costs as much as a small request. So sockets are watched by an epoll
of their own; trio waits for that one, and whatever is ready is served by plain calls in one pass.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable

import trio

from broker.limits import PASS_S_MAX, PASS_SOCKETS_MAX

Serve = Callable[[], bool]


class Poller:
    """Whom to call for which descriptor. One per broker.

    Guarantees that every ready socket is served once in each pass. Only `run` waits.
    """

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._watched: dict[int, Serve] = {}
        self.in_pass = False
        self.pass_listeners: list[Callable[[], None]] = []
        """Called at the end of each pass; as `serve`, they neither wait nor raise."""
        self._due: dict[int, None] = {}  # descriptors to serve in the next pass, in order

    def watch(self, fd: int, serve: Serve) -> None:
        """Call `serve` whenever the descriptor can be read.

        It returns True to be called again in the next pass, readable or not. It must neither wait
        nor raise: an error of its own ends the broker.
        """
        assert fd not in self._watched
        self._epoll.register(fd, select.EPOLLIN)
        self._watched[fd] = serve

    def unwatch(self, fd: int) -> None:
        """Call for that descriptor no more. It must still be open."""
        del self._watched[fd]
        self._epoll.unregister(fd)

    async def run(self) -> None:
        """Serve until cancelled. Other tasks have their turn after each pass."""
        while True:
            if self._due:
                await trio.lowlevel.checkpoint()
            else:
                await trio.lowlevel.wait_readable(self._epoll.fileno())
            self.in_pass = True
            self._serve_ready()
            for listener in self.pass_listeners:
                listener()
            self.in_pass = False

    def _serve_ready(self) -> None:  # hot: see make bench
        """One pass: each that is ready once, as many as PASS_S_MAX allows."""
        due, self._due = self._due, {}
        for fd, _ in self._epoll.poll(0, PASS_SOCKETS_MAX):
            due[fd] = None
        watched, now = self._watched, time.perf_counter
        end = now() + PASS_S_MAX
        waiting = iter(due)
        for fd in waiting:
            serve = watched.get(fd)  # None: somebody ended it since it was found ready.
            if serve is not None and serve():
                self._due[fd] = None
            if now() >= end:
                # The rest comes first in the next pass.
                self._due = {**dict.fromkeys(waiting), **self._due}
                return
