"""Tasks that wait for records: woken by the high watermark of what they wait for, never by a
timer.

A wait may name many partitions and costs one entry in each. A task may leave a function behind that
is called in its stead: a turn of the event loop costs more than a small delivery. Knows nothing of
storage and protocols: put a cancel scope around a wait to limit its time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import trio

from braidlog.broker.limits import AT_ONCE_S

if TYPE_CHECKING:
    from braidlog.broker.runtime.poller import Poller

# What a task leaves behind: it returns the offset to wait for next, None to have the task resumed.
# It waits for nothing.
AtOnce = Callable[[], int | None]


class Wait:
    """One waiting task; `done` once it is woken or cancelled."""

    __slots__ = ("at_once", "done", "error", "task")

    def __init__(self, task: trio.lowlevel.Task, at_once: AtOnce | None = None) -> None:
        self.task = task
        self.at_once = at_once
        self.done = False
        self.error: Exception | None = None  # of `at_once`

    def wake(self) -> None:
        """Resume the task; at most once."""
        if not self.done:
            self.done = True
            trio.lowlevel.reschedule(self.task)


class Awaited(Protocol):
    """What can be waited for: a partition."""

    waits: dict[Wait, int]  # who waits for a high watermark above which offset

    @property
    def high_watermark(self) -> int:
        """Records below it may be delivered."""

    @property
    def removed(self) -> bool:
        """Whether nothing will ever come again."""


class Waiters:
    """Every waiting task of the broker.

    Guarantees that no wake-up is lost: a watermark that has moved before `wait_any` is seen by it.
    Only `wait_any` waits.
    """

    def __init__(self, poller: Poller | None = None) -> None:
        """Without a poller every wake-up is one of a task."""
        self._poller = poller
        self._waits: set[Wait] = set()
        self._at_once: dict[Wait, Awaited] = {}  # whose functions are to be called in this pass
        self._stopped = False

    def __len__(self) -> int:
        return len(self._waits)

    async def wait_any(
        self, targets: Sequence[tuple[Awaited, int]], at_once: AtOnce | None = None
    ) -> None:
        """Return when one target's high watermark is above its offset, one is removed, or the
        broker stops. `at_once` is asked first where that comes in a pass of the poller, and the
        only target's watermark has moved. Raises what it raises.
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
        """The target's high watermark moved, or it was removed."""
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
        """Have what has come served by the functions that tasks left behind; after AT_ONCE_S by the
        tasks, between which others have their turn.
        """
        waits, self._at_once = self._at_once, {}
        end = time.perf_counter() + AT_ONCE_S
        for wait, target in waits.items():
            if wait.done or wait.at_once is None:
                continue
            offset = None
            if time.perf_counter() < end and not self._stopped:
                try:
                    offset = wait.at_once()
                except Exception as error:  # Its task raises it.
                    wait.error = error
            if offset is None:
                wait.wake()
            else:
                target.waits[wait] = offset
                if target.high_watermark > offset or target.removed:
                    wait.wake()

    def stop(self) -> None:
        """The broker is stopping: wake everybody; later waits return at once."""
        self._stopped = True
        for wait in self._waits:
            wait.wake()
