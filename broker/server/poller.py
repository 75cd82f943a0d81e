"""Serves all sockets that are ready, one after another, in one task. Knows no connection.

Waking a task for each socket costs as much as a small request. So sockets are watched by an epoll
of their own; trio waits for that one, and whatever is ready is served by plain calls in one pass.
"""

from __future__ import annotations

import math
import select
import time
from collections.abc import Callable

import trio

from broker.limits import GIVEN_WAY_FOR_S, GIVEN_WAY_S, PASS_S_MAX, PASS_SOCKETS_MAX

Serve = Callable[[], bool]


class Poller:
    """Whom to call for which descriptor. One per broker.

    Guarantees that every ready socket is served once in each pass. Only `run` and `give_way` wait.
    """

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._watched: dict[int, Serve] = {}
        self.in_pass = False
        self.pass_listeners: list[Callable[[], None]] = []
        """Called at the end of each pass; as `serve`, they neither wait nor raise."""
        self._due: dict[int, None] = {}  # descriptors to serve in the next pass, in order
        self._giving_way = trio.lowlevel.ParkingLot()
        self._going = 0  # of those who gave way, who have not had their turn yet
        self._runs = False
        self._rests = False  # until a socket is ready
        self._own: set[int] = set()  # descriptors that are no client's
        self._clients_at = -math.inf  # when a client was served last

    def watch(self, fd: int, serve: Serve, *, is_client: bool = True) -> None:
        """Call `serve` whenever the descriptor can be read.

        It returns True to be called again in the next pass, readable or not. It must neither wait
        nor raise: an error of its own ends the broker.
        """
        assert fd not in self._watched
        self._epoll.register(fd, select.EPOLLIN)
        self._watched[fd] = serve
        if not is_client:
            self._own.add(fd)

    def unwatch(self, fd: int) -> None:
        """Call for that descriptor no more. It must still be open."""
        del self._watched[fd]
        self._own.discard(fd)
        self._epoll.unregister(fd)
        if self._rests:  # It may have been the one that was ready: then no pass comes.
            self._let_go(len(self._giving_way))

    async def give_way(self) -> None:
        """Wait for a pass if a client is ready, and for those who wait already.

        For tasks whose turns are longer than those of the sockets. trio has no order among tasks:
        a socket that becomes ready would wait for all of theirs that are due. So it waits for one,
        as long as clients come at short intervals.
        """
        if self._runs and (self._giving_way or self._due or self._is_awaited()):
            await self._giving_way.park()
            self._going -= 1

    def _is_awaited(self) -> bool:
        """Whether a client is ready, or what one may wait for. Where there are none, passes in
        between would cost the others a tenth of their time.
        """
        ready = self._epoll.poll(0, 1 + len(self._own))
        if not ready:
            return False
        is_quiet = time.perf_counter() - self._clients_at > GIVEN_WAY_FOR_S
        return not is_quiet or any(fd not in self._own for fd, _ in ready)

    async def run(self) -> None:
        """Serve until cancelled. Other tasks have their turn after each pass."""
        self._runs = True
        try:
            while True:
                if self._due or self._giving_way:
                    await trio.lowlevel.checkpoint()
                else:
                    self._rests = True
                    await trio.lowlevel.wait_readable(self._epoll.fileno())
                    self._rests = False
                self._pass()
        finally:
            self._runs = False
            self._let_go(len(self._giving_way))

    def _pass(self) -> None:
        began = time.perf_counter()
        self.in_pass = True
        self._serve_ready()
        for listener in self.pass_listeners:
            listener()
        self.in_pass = False
        if self._giving_way and not self._going:
            now = time.perf_counter()
            is_quiet = now - self._clients_at > GIVEN_WAY_FOR_S
            count = len(self._giving_way) if is_quiet else 1 + int((now - began) / GIVEN_WAY_S)
            self._let_go(count)

    def _let_go(self, count: int) -> None:
        self._going += len(self._giving_way.unpark(count=count))

    def _serve_ready(self) -> None:  # hot: see make bench
        """One pass: each that is ready once, as many as PASS_S_MAX allows."""
        due, self._due = self._due, {}
        for fd, _ in self._epoll.poll(0, PASS_SOCKETS_MAX):
            due[fd] = None
        watched, now = self._watched, time.perf_counter
        begun = now()
        if len(due) > len(self._own) or not self._own.issuperset(due):
            self._clients_at = begun
        end = begun + PASS_S_MAX
        waiting = iter(due)
        for fd in waiting:
            serve = watched.get(fd)  # None: somebody ended it since it was found ready.
            if serve is not None and serve():
                self._due[fd] = None
            if now() >= end:
                # The rest comes first in the next pass.
                self._due = {**dict.fromkeys(waiting), **self._due}
                return
