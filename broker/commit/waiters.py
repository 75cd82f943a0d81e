"""Tasks that wait for records: woken by the high watermark of what they wait for, never by a
timer.

A wait may name many partitions and costs one entry in each. Knows nothing of storage, protocols
or time: put a cancel scope around a wait to limit its time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import trio


class Wait:
    """One waiting task; `done` once it is woken or cancelled."""

    __slots__ = ("done", "task")

    def __init__(self, task: trio.lowlevel.Task) -> None:
        self.task = task
        self.done = False

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

    def __init__(self) -> None:
        self._waits: set[Wait] = set()
        self._stopped = False

    def __len__(self) -> int:
        return len(self._waits)

    async def wait_any(self, targets: Sequence[tuple[Awaited, int]]) -> None:
        """Return when one target's high watermark is above its offset, one is removed, or the
        broker stops.
        """
        if self._stopped or any(
            target.high_watermark > offset or target.removed for target, offset in targets
        ):
            await trio.lowlevel.checkpoint()
            return
        wait = Wait(trio.lowlevel.current_task())
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

    def wake(self, target: Awaited) -> None:
        """The target's high watermark moved, or it was removed."""
        high_watermark = target.high_watermark
        for wait, offset in target.waits.items():
            if high_watermark > offset or target.removed:
                wait.wake()

    def stop(self) -> None:
        """The broker is stopping: wake everybody; later waits return at once."""
        self._stopped = True
        for wait in self._waits:
            wait.wake()
