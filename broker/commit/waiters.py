"""Waits for records; a high watermark ends them.

A wait may name many partitions and costs an entry in each. A task may leave a function that the
broker calls instead of resuming the task, because a turn of the event loop costs more than a small
delivery. A `TimedWait` needs no task at all: one task of the broker ends all such waits that are
due. Knows nothing of storage and protocols: put a cancel scope around a task's wait to limit its
time, with `common_deadline` where thousands of clients wait.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Protocol

import trio

from braidlog.broker.limits import AT_ONCE_S
from braidlog.broker.runtime.steps import PlainWait

if TYPE_CHECKING:
    from braidlog.broker.runtime.poller import Poller

# Function that a waiting task leaves behind. Returns the offset to wait for next, or None to have
# the task resumed. Must not wait.
AtOnce = Callable[[], int | None]


def common_deadline(now: float, seconds: float) -> float:
    """Return the end of a wait of `seconds` that begins now, up to a 64th part of the wait early.

    Ends are multiples of a power of two, so that waits of like lengths end together: a turn of the
    event loop for each of a thousand waits costs more than all else about an idle client.
    """
    end = now + seconds
    if not 0 < seconds < math.inf:
        return end
    step = math.ldexp(1.0, math.frexp(seconds)[1] - 7)  # From a 128th to a 64th of the wait.
    return max(end - end % step, now)


class Wait:
    """A waiting task; `done` once woken or cancelled."""

    __slots__ = ("at_once", "done", "error", "task")

    def __init__(self, task: trio.lowlevel.Task, at_once: AtOnce | None = None) -> None:
        self.task = task
        self.at_once = at_once
        self.done = False
        self.error: Exception | None = None  # raised by `at_once`

    def wake(self) -> None:
        """Resume the task; at most once."""
        if not self.done:
            self.done = True
            trio.lowlevel.reschedule(self.task)


class TimedWait(PlainWait):
    """A wait for records up to a deadline; see `Waiters.until`.

    `is_done` once it has ended; then `is_due` if no records but the deadline has ended it.
    """

    __slots__ = ("_call", "_deadline", "_waiters", "is_done", "is_due", "targets")

    def __init__(
        self, waiters: Waiters, targets: Sequence[tuple[Awaited, int]], deadline: float
    ) -> None:
        self.targets = targets
        self.is_done = self.is_due = False
        self._waiters = waiters
        self._deadline = deadline
        self._call: Callable[[], None] | None = None

    @property
    def deadline(self) -> float:
        """The latest end of the wait, in trio's seconds; may be changed."""
        return self._deadline

    @deadline.setter
    def deadline(self, deadline: float) -> None:
        before, self._deadline = self._deadline, deadline
        self._waiters.deadline_moved(self, before)

    def wake(self, *, is_due: bool = False) -> None:
        """End the wait; at most once."""
        if not self.is_done:
            self.is_done, self.is_due = True, is_due
            if self._call is not None:
                self._waiters.serve_soon(self)

    def call_at_end(self, call: Callable[[], None] | None) -> None:
        self._call = call
        if self.is_done and call is not None:
            self._waiters.serve_soon(self)

    def end(self) -> None:
        """Make the call, unless the caller has gone meanwhile."""
        call, self._call = self._call, None
        if call is not None:
            call()

    def close(self) -> None:
        self._call = None
        self._waiters.forget(self)

    def __await__(self) -> Generator[Any, Any, None]:
        return self._awaited().__await__()

    async def _awaited(self) -> None:
        ended = trio.Event()
        self.call_at_end(ended.set)
        await ended.wait()


class Awaited(Protocol):
    """A target of a wait: a partition."""

    # for each wait, the offset that the high watermark must exceed
    waits: dict[Wait | TimedWait, int]

    @property
    def high_watermark(self) -> int:
        """Records below this offset may be delivered."""

    @property
    def removed(self) -> bool:
        """True if no record will ever follow."""


class Waiters:
    """Every wait of the broker.

    Guarantees that no wake-up is lost: `wait_any` and `until` notice a watermark that moved before
    the call. Only `wait_any` and `run` wait.
    """

    def __init__(self, poller: Poller | None = None, at_once_s: float = AT_ONCE_S) -> None:
        """Without a poller every wake-up resumes a task. In a pass of the poller the functions that
        tasks left behind run for `at_once_s`, and so do the calls at the ends of timed waits.
        """
        self._at_once_s = at_once_s
        self._poller = poller
        self._waits: set[Wait | TimedWait] = set()
        self._at_once: dict[Wait, Awaited] = {}  # targets whose functions are called in this pass
        self._stopped = False
        self._timed: dict[float, dict[TimedWait, None]] = {}  # by deadline
        self._deadlines: list[float] = []  # Heap of the keys of `_timed`.
        self._ended: deque[TimedWait] = deque()  # to be served
        self._is_serving_soon = False  # at the end of this pass
        self._sleep = trio.CancelScope()  # of `run`

    def __len__(self) -> int:
        return len(self._waits)

    async def wait_any(
        self, targets: Sequence[tuple[Awaited, int]], at_once: AtOnce | None = None
    ) -> None:
        """Return when a target's high watermark exceeds its offset, a target is removed, or the
        broker stops.

        `at_once` is called first if the wake-up comes in a pass of the poller and the watermark of
        the only target has moved. Raises the errors of `at_once`.
        """
        if self._stopped or any(
            target.high_watermark > offset or target.removed for target, offset in targets
        ):
            await trio.lowlevel.checkpoint()
            return
        wait = Wait(trio.lowlevel.current_task(), at_once)
        self._waits.add(wait)
        for target, offset in targets:
            target.waits[wait] = min(offset, target.waits.get(wait, offset))

        def abort(_: object) -> trio.lowlevel.Abort:
            wait.done = True
            return trio.lowlevel.Abort.SUCCEEDED

        try:
            await trio.lowlevel.wait_task_rescheduled(abort)
        finally:
            self._waits.discard(wait)
            for target, _ in targets:
                target.waits.pop(wait, None)
        if wait.error is not None:
            raise wait.error

    def until(self, targets: Sequence[tuple[Awaited, int]], deadline: float) -> TimedWait:
        """Return a wait that ends when `wait_any` would return, or at the deadline. Close the wait
        in any case.
        """
        wait = TimedWait(self, targets, deadline)
        self._waits.add(wait)
        for target, offset in targets:
            target.waits[wait] = min(offset, target.waits.get(wait, offset))
        self._note_deadline(wait)
        if self._stopped or any(
            target.high_watermark > offset or target.removed for target, offset in targets
        ):
            wait.wake()
        return wait

    def forget(self, wait: TimedWait) -> None:
        """Wake a closed wait no more."""
        self._waits.discard(wait)
        for target, _ in wait.targets:
            target.waits.pop(wait, None)
        self._timed.get(wait.deadline, {}).pop(wait, None)

    def deadline_moved(self, wait: TimedWait, before: float) -> None:
        """Note that a wait has another deadline than before."""
        if wait in self._waits:
            self._timed.get(before, {}).pop(wait, None)
            self._note_deadline(wait)

    def _note_deadline(self, wait: TimedWait) -> None:
        deadline = wait.deadline
        together = self._timed.get(deadline)
        if together is None:
            together = self._timed[deadline] = {}
            heappush(self._deadlines, deadline)
            if deadline < self._sleep.deadline:
                self._sleep.deadline = deadline
        together[wait] = None

    def serve_soon(self, wait: TimedWait) -> None:
        """Make the call of a wait that has ended: behind the sockets of this pass, or in `run`."""
        self._ended.append(wait)
        poller = self._poller
        if poller is None or not poller.in_pass:
            self._sleep.cancel()
        elif not self._is_serving_soon:
            self._is_serving_soon = True
            poller.call_soon(self._serve_in_pass)

    def _serve_in_pass(self) -> None:
        self._serve_ended()
        self._is_serving_soon = False
        if self._ended:
            self._sleep.cancel()

    def _serve_ended(self) -> None:
        """Make calls of ended waits for `at_once_s`, at least one."""
        end = time.perf_counter() + self._at_once_s
        while self._ended:
            self._ended.popleft().end()
            if time.perf_counter() >= end:
                return

    async def run(self) -> None:
        """End timed waits at their deadlines, and make the calls of all that have ended, until
        cancelled.
        """
        while True:
            deadline = self._deadlines[0] if self._deadlines else math.inf
            with trio.CancelScope(deadline=deadline) as self._sleep:
                if not self._ended:
                    await trio.sleep_forever()
            while self._deadlines and self._deadlines[0] <= trio.current_time():
                for wait in self._timed.pop(heappop(self._deadlines)):
                    wait.wake(is_due=True)
            while self._ended:
                self._serve_ended()
                await trio.lowlevel.checkpoint()

    def wake(self, target: Awaited) -> None:
        """End the waits for a target whose high watermark moved or that was removed."""
        high_watermark = target.high_watermark
        poller = self._poller
        for wait, offset in target.waits.items():
            if high_watermark > offset or target.removed:
                if (
                    isinstance(wait, TimedWait)
                    or wait.at_once is None
                    or target.removed
                    or poller is None
                    or not poller.in_pass
                ):
                    wait.wake()
                    continue
                if not self._at_once:
                    poller.call_soon(self._serve_at_once)
                self._at_once[wait] = target

    def _serve_at_once(self) -> None:
        """Serve new records through the functions that tasks left behind.

        After `at_once_s` the tasks serve them, so that other tasks have their turn.
        """
        waits, self._at_once = self._at_once, {}
        end = time.perf_counter() + self._at_once_s
        for wait, target in waits.items():
            if wait.done or wait.at_once is None:
                continue
            offset = None
            if time.perf_counter() < end and not self._stopped:
                try:
                    offset = wait.at_once()
                except Exception as error:  # The waiting task raises the error.
                    wait.error = error
            if offset is None:
                wait.wake()
            else:
                target.waits[wait] = offset
                if target.high_watermark > offset or target.removed:
                    wait.wake()

    def stop(self) -> None:
        """End all waits because the broker is stopping; later waits return at once."""
        self._stopped = True
        for wait in self._waits:
            wait.wake()
