"""The faults that a test can inject, a class each; the control address takes them as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec

from braidlog.testing.rebalance import force_rebalance

if TYPE_CHECKING:
    from collections.abc import Iterable

    from braidlog.testing.gates import Gate
    from braidlog.testing.running import Running

Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=3600)]


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of the faults. In JSON the field `fault` has the fault's name."""

    async def inject(self, running: Running) -> dict[str, object]:
        """Begin the fault; return its figures. Each fault does this. Raises ValueError, OSError."""
        raise NotImplementedError


class GateFault(Fault, frozen=True, kw_only=True):
    """A fault of a listener's connections; without `listener`, of all listeners."""

    listener: str | None = None

    def gates(self, running: Running) -> Iterable[Gate]:
        """Return the gates of the fault. Raises ValueError for an unknown listener."""
        if self.listener is None:
            return running.gates.values()
        if self.listener not in running.gates:
            names = ", ".join(running.gates)
            raise ValueError(f"listener {self.listener!r} is unknown, expected one of {names}")
        return (running.gates[self.listener],)


class Cut(GateFault, frozen=True, kw_only=True, tag_field="fault", tag="cut"):
    """Reset the connections."""

    async def inject(self, running: Running) -> dict[str, object]:
        return {"connections": sum(gate.cut() for gate in self.gates(running))}


class Delay(GateFault, frozen=True, kw_only=True, tag_field="fault", tag="delay"):
    """Send each answer later by `seconds`, until a delay of 0 or `heal`."""

    seconds: Seconds

    async def inject(self, running: Running) -> dict[str, object]:
        for gate in self.gates(running):
            gate.faults.delay_s = self.seconds
        return {}


class DropAnswers(GateFault, frozen=True, kw_only=True, tag_field="fault", tag="drop_answers"):
    """Do the work of the next requests, and reset the connection in place of the answer.

    The client cannot know whether the work was done. `count` requests of each listener.
    """

    count: Count = 1

    async def inject(self, running: Running) -> dict[str, object]:
        for gate in self.gates(running):
            gate.drop_answers(self.count)
        return {}


class Refuse(Fault, frozen=True, kw_only=True, tag_field="fault", tag="refuse"):
    """Refuse the next `count` calls of an operation with an error of the broker.

    The client gets its protocol's code for the error. Operations: append, read, commit,
    create_topic, alter_topic, delete_topic. Errors: the classes of `broker/errors.py`, such as
    storage_full, not_owner and limit_exceeded.
    """

    operation: str
    error: str
    count: Count = 1

    async def inject(self, running: Running) -> dict[str, object]:
        running.faults.refusals.refuse(self.operation, self.error, self.count)
        return {}


class Rebalance(Fault, frozen=True, kw_only=True, tag_field="fault", tag="rebalance"):
    """Let all members of a Kafka group join again."""

    group: str

    async def inject(self, running: Running) -> dict[str, object]:
        await force_rebalance(running.broker_addresses["kafka"], self.group)
        return {}


class FullDisk(Fault, frozen=True, kw_only=True, tag_field="fault", tag="full_disk"):
    """Refuse every write as a full disk does, until `full` is false or `heal`."""

    full: bool = True

    async def inject(self, running: Running) -> dict[str, object]:
        running.faults.disk.is_full = self.full
        return {}


class MoveClock(Fault, frozen=True, kw_only=True, tag_field="fault", tag="move_clock"):
    """Move the broker's clock by `seconds`: retention, delays and expiry follow.

    The move stays after `heal`: a clock that goes back is another fault.
    """

    seconds: Annotated[float, msgspec.Meta(ge=-3_155_760_000, le=3_155_760_000)]

    async def inject(self, running: Running) -> dict[str, object]:
        running.faults.clock.move(self.seconds)
        return {"now_us": running.faults.clock.now_us()}


AnyFault = Cut | Delay | DropAnswers | Refuse | Rebalance | FullDisk | MoveClock
