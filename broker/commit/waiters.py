"""Tasks that wait for records; a high watermark wakes them, never a timer.

A wait may name many partitions and costs an entry in each. A task may leave a function that the
broker calls instead of resuming the task, because a turn of the event loop costs more than a small
delivery. Knows nothing of storage and protocols: put a cancel scope around a wait to limit its
time, with `common_deadline` where thousands of clients wait.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import trio

from braidlog.broker.limits import AT_ONCE_S

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


class Awaited(Protocol):
    """A target of a wait: a partition."""

    waits: dict[Wait, int]  # per waiting task, the offset that the high watermark must exceed

    @property
    def high_watermark(self) -> int:
        """Records below this offset may be delivered."""

    @property
    def removed(self) -> bool:
        """True if no record will ever follow."""


class Waiters:
    """Every waiting task of the broker.

    Guarantees that no wake-up is lost: `wait_any` notices a watermark that moved before the call.
    Only `wait_any` waits.
    """

    def __init__(self, poller: Poller | None = None, at_once_s: float = AT_ONCE_S) -> None:
        """Without a poller every wake-up resumes a task. In a pass of the poller the functions that
        tasks left behind run for `at_once_s`.
        """
        self._at_once_s = at_once_s
        self._poller = poller
        self._waits: set[Wait] = set()
        self._at_once: dict[Wait, Awaited] = {}  # targets whose functions are called in this pass
        self._stopped = False

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

    def wake(self, target: Awaited) -> None:
        """Wake the tasks that wait for a target whose high watermark moved or that was removed."""
        high_watermark = target.high_watermark
        poller = self._poller
        for wait, offset in target.waits.items():
            if high_watermark > offset or target.removed:
                if wait.at_once is None or target.removed or poller is None or not poller.in_pass:
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
        """Wake all tasks because the broker is stopping; later waits return at once."""
        self._stopped = True
        for wait in self._waits:
            wait.wake()
