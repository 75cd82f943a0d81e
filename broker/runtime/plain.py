"""The switch that turns the runtime off, and the sockets of a broker on plain trio.

With BRAIDLOG_PLAIN_TRIO in the environment trio waits for every socket, Python collects garbage by
its own rules, and the allocator keeps its memory. So a fault can be looked for with and without the
runtime, and tests compare both.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import trio

from braidlog.broker.limits import TURN_S_MIN
from braidlog.broker.runtime.poller import EpollPoller, Poller, Serve


def is_plain() -> bool:
    """Return True if the environment turns the runtime off."""
    return bool(os.environ.get("BRAIDLOG_PLAIN_TRIO"))


def make_poller() -> Poller:
    """Return a broker's poller: the runtime's, or that of plain trio."""
    return PlainPoller() if is_plain() else EpollPoller()


class PlainPoller:
    """Serves each watched socket in a task of its own. See `Poller`."""

    is_in_the_loop = False
    turn_s = TURN_S_MIN

    def __init__(self) -> None:
        self.in_pass = False
        self.pass_listeners: list[Callable[[], None]] = []
        self._watched: dict[int, tuple[Serve, trio.CancelScope]] = {}
        self._soon: list[Callable[[], None]] = []
        self._nursery: trio.Nursery | None = None  # while `run` runs

    def watch(self, fd: int, serve: Serve, *, is_client: bool = True, is_due: bool = False) -> None:
        assert fd not in self._watched and not is_due
        scope = trio.CancelScope()
        self._watched[fd] = serve, scope
        if self._nursery is not None:
            self._nursery.start_soon(self._serve_socket, fd, serve, scope)

    def unwatch(self, fd: int) -> None:
        _, scope = self._watched.pop(fd)
        scope.cancel()
        trio.lowlevel.notify_closing(fd)  # At once: the descriptor may be closed next.

    def call_soon(self, call: Callable[[], None]) -> None:
        assert self.in_pass
        self._soon.append(call)

    async def give_way(self) -> None:
        await trio.lowlevel.checkpoint()

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            for fd, (serve, scope) in self._watched.items():
                nursery.start_soon(self._serve_socket, fd, serve, scope)
            self._nursery = nursery
            try:
                await trio.sleep_forever()
            finally:
                self._nursery = None

    async def _serve_socket(self, fd: int, serve: Serve, scope: trio.CancelScope) -> None:
        with scope:
            try:
                while True:
                    await trio.lowlevel.wait_readable(fd)
                    while self._has_more(serve):
                        await trio.lowlevel.checkpoint()
            except trio.ClosedResourceError:
                pass  # Unwatched meanwhile.

    def _has_more(self, serve: Serve) -> bool:
        """Serve a socket once, as a pass of its own."""
        self.in_pass = True
        has_more = serve()
        calls, self._soon = self._soon, []
        for call in calls:
            call()
        for listener in self.pass_listeners:
            listener()
        self.in_pass = False
        return has_more
