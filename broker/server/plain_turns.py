"""The turns of a connection that need no task: the connection's task is parked, and the poller
makes the turns in plain calls. Knows no protocol.

A request that waits for records needs no task either (`Suspended`). Its connection stays with the
poller: anything that the peer sends meanwhile, also its end, gives the request to the task.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from braidlog.broker.runtime.receiver import Receiver, Waiting
from braidlog.broker.runtime.steps import Suspended

if TYPE_CHECKING:
    from braidlog.broker.runtime.poller import Poller


class PlainTurns:
    """Turns of a connection made by the poller while the connection's task is parked in
    `until_wait`.

    Guarantees: a turn is made either here or in the task, and never begins while a request waits.
    """

    def __init__(self, fd: int, receiver: Receiver, poller: Poller) -> None:
        """The descriptor belongs to the receiver's socket."""
        self._fd = fd
        self._receiver = receiver
        self._poller = poller
        self.parked: trio.lowlevel.Task | None = None  # the connection's task, while parked
        self._in_turn = False
        self._is_cancelled = False  # during that turn
        self.suspended: Suspended | None = None  # a request that waits without a task
        self._met: Waiting | Exception | None = None  # the reason that the turns stopped

    @property
    def are_receiving(self) -> bool:
        """True if the next bytes of the peer begin a turn."""
        return self.parked is not None and self.suspended is None

    async def until_wait(self, *, has_more: bool) -> Waiting | None:
        """Park the calling task until a turn has to wait in it, and return the wait; None at the
        end of the connection.

        Raises the errors of handlers.
        """

        def abort(_: object) -> trio.lowlevel.Abort:
            if self._in_turn:  # The poller wakes this task at the end of the turn.
                self._is_cancelled = True
                return trio.lowlevel.Abort.FAILED
            self.parked = None
            return trio.lowlevel.Abort.SUCCEEDED

        self.parked = trio.lowlevel.current_task()
        self._poller.watch(self._fd, self._make, is_due=has_more)
        try:
            await trio.lowlevel.wait_task_rescheduled(abort)
        finally:
            self._poller.unwatch(self._fd)
            if self.suspended is not None:  # Cancelled.
                self.suspended.close()
                self.suspended = None
        met, self._met = self._met, None
        if isinstance(met, Exception):
            raise met
        return met

    def stop(self) -> None:
        """Give the request that waits to the task, or end; does nothing unless parked."""
        if self.parked is not None:
            self._unpark(self._take_suspended())

    def _make(self) -> bool:  # hot: see make bench
        """Make a turn in a pass; return True if there is more to do."""
        if self.parked is None:  # This connection's task was woken in this pass.
            return False
        if self.suspended is not None:
            self._unpark(self._take_suspended())
            return False
        self._in_turn = True
        try:
            waiting = self._receiver.begin_turn()
        except Exception as error:  # Raised in the reading task, which sorts errors.
            self._unpark(error)
            return False
        finally:
            self._in_turn = False
        return self._end_turn(waiting)

    def _resume(self) -> None:
        """Go on with a turn behind a wait that needed no task."""
        suspended, self.suspended = self.suspended, None
        assert suspended is not None
        self._in_turn = True
        try:
            waiting = self._receiver.resume_turn(suspended)
        except Exception as error:
            self._unpark(error)
            return
        finally:
            self._in_turn = False
        if self._end_turn(waiting):  # The task goes on: perhaps no byte comes to begin a pass.
            self._unpark(trio.lowlevel.checkpoint())

    def _end_turn(self, waiting: Waiting | None) -> bool:
        """Stop if the turn waits or was the last; return True if there is more to do."""
        receiver = self._receiver
        is_over = self._is_cancelled or receiver.stopped
        if waiting is not None:
            if isinstance(waiting, Suspended) and not is_over:
                self.suspended = waiting
                waiting.call_at_end(self._resume)
            else:
                self._unpark(waiting)
        elif is_over or receiver.at_end:
            self._unpark(None)
        else:
            return receiver.has_more
        return False

    def _take_suspended(self) -> Suspended | None:
        suspended, self.suspended = self.suspended, None
        return suspended

    def _unpark(self, met: Waiting | Exception | None) -> None:
        assert self.parked is not None
        self._met = met
        task, self.parked = self.parked, None
        trio.lowlevel.reschedule(task)
