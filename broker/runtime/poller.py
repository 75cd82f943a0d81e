"""Serves all ready sockets, one after another, in plain calls. Knows no connection.

Waking a task for each socket costs as much as a small request, and so does a turn of trio's loop.
So a separate epoll watches the sockets. While no task has work, the poller waits in this epoll,
instead of trio (`LoopClock`); the epoll also holds trio's own epoll. While tasks have work, a pass
runs before each turn of the tasks. In a trio run with another clock, trio waits for the epoll, and
a task makes the passes.
"""

from __future__ import annotations

import math
import select
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol

import trio

from braidlog.broker.limits import (
    GIVEN_WAY_FOR_S,
    GIVEN_WAY_S,
    HELD_BACK_S,
    PASS_DUE_ENOUGH,
    PASS_S_MAX,
    PASS_SOCKETS_MAX,
    TURN_S_MAX,
    TURN_S_MIN,
    TURNS_S,
)
from braidlog.broker.runtime.loop_clock import LoopClock

Serve = Callable[[], bool]

SLEEP_S_MAX = 3600.0  # epoll_wait(2) takes 24 days at most.
# A pass may move the deadline of a waiting task, which trio knows and the poller does not: this
# soon after the first pass, trio is asked again.
PASSES_S_MAX = 0.01


class Poller(Protocol):
    """Callbacks of watched descriptors. One per broker. Only `run` and `give_way` wait.

    Implementations: `EpollPoller`; `PlainPoller` (`broker/runtime/plain.py`).
    """

    in_pass: bool
    pass_listeners: list[Callable[[], None]]
    """Called at the end of each pass; as `serve`, they neither wait nor raise."""

    @property
    def turn_s(self) -> float:
        """Seconds of work for each socket of this pass; the rest of the work comes later."""

    @property
    def is_in_the_loop(self) -> bool:
        """True if trio's loop makes the passes. Then a pass for due descriptors comes soon, is
        short, and serves small requests first. Otherwise all tasks have a turn before the next
        small request.
        """

    def watch(self, fd: int, serve: Serve, *, is_client: bool = True, is_due: bool = False) -> None:
        """Call `serve` whenever the descriptor can be read; and in the next pass if it is due.

        It returns True to be called again in the next pass, readable or not. It must neither wait
        nor raise: an error of its own ends the broker.
        """

    def unwatch(self, fd: int) -> None:
        """Stop calling for that descriptor. The descriptor must still be open."""

    def call_soon(self, call: Callable[[], None]) -> None:
        """Make a call behind the sockets of this pass, or after HELD_BACK_S, so that the call does
        not delay them. Only within a pass; as with `serve`, the call neither waits nor raises.
        """

    async def give_way(self) -> None:
        """Give a turn to clients that are ready, and to the tasks that wait already."""

    async def run(self) -> None:
        """Serve until cancelled. Other tasks have their turn after each pass."""


class EpollPoller:
    """Passes over the ready sockets of a separate epoll. See `Poller`.

    Guarantees that every ready socket is served once in each pass.
    """

    def __init__(self, due_enough: int = PASS_DUE_ENOUGH) -> None:
        """A pass asks epoll for no further sockets while `due_enough` are known to be ready."""
        self._due_enough = due_enough
        self._epoll = select.epoll()
        # The broker's own descriptors once more, for passes that do not ask about the clients.
        self._own_epoll = select.epoll()
        self._watched: dict[int, Serve] = {}
        self.in_pass = False
        self.pass_listeners: list[Callable[[], None]] = []
        self._soon: list[Callable[[], None]] = []
        # Descriptors to serve in the next pass, in order: of whom nothing was served yet, and those
        # with more to do. Half of a pass is for each, so that a small request waits for no client
        # that has many large requests.
        self._due: deque[int] = deque()
        self._is_due: set[int] = set()  # the same descriptors
        self._more: dict[int, None] = {}
        self._giving_way = trio.lowlevel.ParkingLot()
        self._going = 0  # number of tasks that gave way and have not had their turn yet
        self._runs = False
        self._rests = False  # until a socket is ready
        self._own: set[int] = set()  # descriptors of the broker itself
        self._trio_fd: int | None = None  # trio's epoll, while the poller holds it
        self._clients_at = -math.inf  # time of the last service of a client
        self.turn_s = TURN_S_MAX
        self.pass_s_max = PASS_S_MAX
        self.held_back_s = HELD_BACK_S

    @property
    def is_in_the_loop(self) -> bool:
        return self._trio_fd is not None

    def watch(self, fd: int, serve: Serve, *, is_client: bool = True, is_due: bool = False) -> None:
        assert fd not in self._watched
        self._epoll.register(fd, select.EPOLLIN)
        self._watched[fd] = serve
        if not is_client:
            self._own.add(fd)
            self._own_epoll.register(fd, select.EPOLLIN)
        if is_due:
            assert self.is_in_the_loop
            self._more[fd] = None

    def unwatch(self, fd: int) -> None:
        del self._watched[fd]
        if fd in self._own:
            self._own.discard(fd)
            self._own_epoll.unregister(fd)
        self._epoll.unregister(fd)
        if self._rests:  # The descriptor may have been the ready one: then no pass comes.
            self._unpark(len(self._giving_way))

    def call_soon(self, call: Callable[[], None]) -> None:
        assert self.in_pass
        self._soon.append(call)

    async def give_way(self) -> None:
        """Wait for a pass if a client is ready, and for the tasks that wait already.

        For tasks with longer turns than those of the sockets. trio has no order among tasks: a
        ready socket would wait for all due turns of such tasks. So such a task waits for a pass, as
        long as requests of clients arrive at short intervals.
        """
        if self._runs and (self._giving_way or self._has_due or self._is_awaited()):
            await self._giving_way.park()
            self._going -= 1

    @property
    def _has_due(self) -> bool:
        return bool(self._due or self._more)

    def _is_awaited(self) -> bool:
        """Return True if a client is ready, or if something waits for which a client may come.
        Otherwise passes in between would cost the other tasks a tenth of their time.
        """
        events = self._epoll.poll(0, 1 + len(self._own))
        ready = [fd for fd, _ in events if fd != self._trio_fd]
        if not ready:
            return False
        is_quiet = time.perf_counter() - self._clients_at > GIVEN_WAY_FOR_S
        return not is_quiet or any(fd not in self._own for fd in ready)

    async def run(self) -> None:
        clock = trio.lowlevel.current_clock()
        self._runs = True
        try:
            if isinstance(clock, LoopClock) and clock.epoll_fd is not None:
                await self._run_in_the_loop(clock, clock.epoll_fd)
            while True:
                if self._has_due or self._giving_way:
                    await trio.lowlevel.checkpoint()
                else:
                    self._rests = True
                    await trio.lowlevel.wait_readable(self._epoll.fileno())
                    self._rests = False
                self.make_pass(0)
        finally:
            self._runs = False
            self._unpark(len(self._giving_way))

    async def _run_in_the_loop(self, clock: LoopClock, trio_fd: int) -> None:
        in_the_loop = _InTheLoop(self, clock)
        self._trio_fd = trio_fd
        self.watch(trio_fd, in_the_loop.trio_is_ready, is_client=False)
        try:
            await in_the_loop.run()
        finally:
            self.unwatch(trio_fd)
            self._trio_fd = None

    def make_pass(self, seconds: float) -> None:
        """Wait for at most `seconds` until a socket is ready, and serve all ready sockets."""
        is_due = bool(self._has_due or self._giving_way)
        is_full = len(self._due) >= self._due_enough
        if is_full:  # More sockets are known to be ready than this pass serves.
            ready = self._own_epoll.poll(0)
        else:
            ready = self._epoll.poll(0 if is_due else seconds, PASS_SOCKETS_MAX)
        if not ready and not is_due:
            return
        began = time.perf_counter()
        self.in_pass = True
        if is_full:
            self._serve_first(ready)
        else:
            self._note_due(ready)
        self._serve_ready(began)
        for listener in self.pass_listeners:
            listener()
        self.in_pass = False
        if self._giving_way and not self._going:
            now = time.perf_counter()
            is_quiet = now - self._clients_at > GIVEN_WAY_FOR_S
            count = len(self._giving_way) if is_quiet else 1 + int((now - began) / GIVEN_WAY_S)
            self._unpark(count)

    def _unpark(self, count: int) -> None:
        self._going += len(self._giving_way.unpark(count=count))

    def _serve_first(self, ready: list[tuple[int, int]]) -> None:
        """Serve the broker's own descriptors before hundreds of clients."""
        for fd, _ in ready:
            serve = self._watched.get(fd)
            if serve is not None and serve():
                self._more[fd] = None

    def _note_due(self, ready: list[tuple[int, int]]) -> None:
        """Add ready descriptors behind those that this pass has to serve."""
        # hot: see make bench
        due, is_due, more = self._due, self._is_due, self._more
        for fd, _ in ready:
            if fd not in more and fd not in is_due:
                is_due.add(fd)
                due.append(fd)

    def _serve_ready(self, begun: float) -> None:
        """Make a pass: serve each ready socket once, as many as `pass_s_max` allows."""
        # hot: see make bench
        due = self._due
        more, self._more = self._more, {}
        if len(due) > len(self._own) or more or not self._own.issuperset(due):
            self._clients_at = begun
        self.turn_s = max(min(TURN_S_MAX, TURNS_S / (len(due) + len(more) or 1)), TURN_S_MIN)
        if due:
            self._serve_some(
                self._next_due(len(due)), begun + (self.pass_s_max / 2 if more else self.pass_s_max)
            )
        if more:
            waiting = iter(more)
            self._serve_some(waiting, begun + self.pass_s_max)
            self._more = {**dict.fromkeys(waiting), **self._more}
        self._call_soon()

    def _next_due(self, count: int) -> Iterator[int]:
        """Take so many descriptors from those that are due, one at a time."""
        due, is_due = self._due, self._is_due
        for _ in range(count):
            fd = due.popleft()
            is_due.discard(fd)
            yield fd

    def _serve_some(self, waiting: Iterator[int], end: float) -> None:
        """Serve descriptors in order up to the time `end`, at least one."""
        # hot: see make bench
        watched, now = self._watched, time.perf_counter
        held_back_s = self.held_back_s
        soon = now() + held_back_s
        for fd in waiting:
            serve = watched.get(fd)  # None: ended since the descriptor was found ready.
            if serve is not None and serve():
                self._more[fd] = None
            at = now()
            if at >= soon:
                self._call_soon()
                soon = now() + held_back_s
            if at >= end:
                break

    def _call_soon(self) -> None:
        calls, self._soon = self._soon, []
        for call in calls:
            call()


class _InTheLoop(trio.abc.Instrument):
    """Passes made by trio's loop itself: before each turn of the tasks, and as long as no task has
    work.
    """

    def __init__(self, poller: EpollPoller, clock: LoopClock) -> None:
        self._poller = poller
        self._clock = clock
        self._trio_has_work = True
        self._has_slept = False
        self._failure: Exception | None = None
        self._failed = trio.Event()

    async def run(self) -> None:
        """Make passes until cancelled. Raises errors of passes."""
        self._clock.sleep_by(self._sleep)
        trio.lowlevel.add_instrument(self)
        try:
            await self._failed.wait()
        finally:
            trio.lowlevel.remove_instrument(self)
            self._clock.sleep_by(None)
        assert self._failure is not None
        raise self._failure

    def task_scheduled(self, task: trio.lowlevel.Task) -> None:  # hot: see make bench
        """See trio.abc.Instrument."""
        self._trio_has_work = True

    def before_io_wait(self, timeout: float) -> None:
        """See trio.abc.Instrument. Tasks are scheduled, unless all tasks slept until now."""
        if self._has_slept:
            self._has_slept = False
        else:
            self._pass(0)

    def _sleep(self, seconds: float) -> None:
        """Wait and make passes until trio has work, for at most `seconds`."""
        self._has_slept = True
        self._trio_has_work = False
        now = time.perf_counter
        end = now() + seconds
        while not self._trio_has_work and seconds > 0:
            self._pass(seconds)
            after = now()
            end = min(end, after + PASSES_S_MAX)
            seconds = end - after

    def trio_is_ready(self) -> bool:
        """Note that trio's epoll is readable."""
        self._trio_has_work = True
        return False

    def _pass(self, seconds: float) -> None:
        try:
            self._poller.make_pass(min(seconds, SLEEP_S_MAX))
        except Exception as error:  # A bug: `run` raises the error, which ends the broker.
            self._failure = self._failure or error
            self._failed.set()
