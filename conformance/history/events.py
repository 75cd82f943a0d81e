"""Requests and answers of the clients of a partition, in order.

A writer's values are unique. An event has the times of its request and its answer, by the history's
own count. Knows no protocol and no broker.
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field


class RequestOutcome(enum.Enum):
    """A client's knowledge of its request."""

    DONE = "done"  # The answer says that the request happened.
    REFUSED = "refused"  # The answer says that the request did not happen, and never will.
    UNKNOWN = "unknown"  # No answer came: the request may have happened.


@dataclass(slots=True)
class SentValue:
    """A sent value; `again`: the writer sent the value more than once, without an answer."""

    writer: str
    value: bytes
    asked_at: int
    outcome: RequestOutcome = RequestOutcome.UNKNOWN
    offset: int | None = None  # Set if the protocol returns the offset.
    answered: int = -1
    again: bool = False


@dataclass(slots=True)
class Read:
    """All records of `[start, end)`, as received by a reader; `whole`: the whole log."""

    reader: str
    start: int
    end: int
    records: Sequence[tuple[int, bytes]]
    asked_at: int
    whole: bool = False


@dataclass(slots=True)
class PositionMove:
    """A request to set a group's position, such as Kafka's commit."""

    group: str
    position: int
    outcome: RequestOutcome = RequestOutcome.UNKNOWN
    answered: int = -1


@dataclass(slots=True)
class PositionRead:
    """A group's position, as read back by a protocol."""

    group: str
    position: int
    reader: str
    asked_at: int


Event = SentValue | Read | PositionMove | PositionRead


@dataclass(slots=True)
class EventHistory:
    """Events in the order of their requests."""

    events: list[Event] = field(default_factory=list)
    _clock: int = 0

    def tick(self) -> int:
        """Return the time now, unique for each event."""
        self._clock += 1
        return self._clock

    def send(self, writer: str, value: bytes) -> SentValue:
        """Record that a value is on its way."""
        sent = SentValue(writer, value, self.tick())
        self.events.append(sent)
        return sent

    def answer(self, sent: SentValue, outcome: RequestOutcome, offset: int | None = None) -> None:
        """Record the answer for a value."""
        sent.outcome, sent.offset, sent.answered = outcome, offset, self.tick()

    def move(self, group: str, position: int) -> PositionMove:
        """Record the request to set a position."""
        moved = PositionMove(group, position)
        self.events.append(moved)
        return moved

    def moved(self, moved: PositionMove, outcome: RequestOutcome = RequestOutcome.DONE) -> None:
        """Record the answer for a position."""
        moved.outcome, moved.answered = outcome, self.tick()

    def read(
        self,
        reader: str,
        span: tuple[int, int],
        records: Sequence[tuple[int, bytes]],
        *,
        whole: bool,
    ) -> None:
        """Record that a reader received all of a span."""
        self.events.append(Read(reader, *span, records, self.tick(), whole))

    def position_read(self, group: str, position: int, reader: str) -> None:
        """Record that a position was read back."""
        self.events.append(PositionRead(group, position, reader, self.tick()))

    @property
    def sent(self) -> list[SentValue]:
        """Return all sent values, in order."""
        return [event for event in self.events if isinstance(event, SentValue)]

    @property
    def reads(self) -> list[Read]:
        """Return all reads, in order."""
        return [event for event in self.events if isinstance(event, Read)]
