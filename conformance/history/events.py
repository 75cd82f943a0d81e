"""What clients of one partition did and were told, in the order in which it happened.

A writer's values are unique. An event has the times, by the history's own count, at which it was
asked for and answered. Knows no protocol and no broker.
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field


class Outcome(enum.Enum):
    """What a client knows of its request."""

    DONE = "done"  # It was answered: it happened.
    REFUSED = "refused"  # It was answered: it did not happen, and never will.
    UNKNOWN = "unknown"  # No answer came: it may have happened.


@dataclass(slots=True)
class Sent:
    """One value, as its writer sent it; `again`: it was sent more than once, without an answer."""

    writer: str
    value: bytes
    asked: int
    outcome: Outcome = Outcome.UNKNOWN
    offset: int | None = None  # Where the protocol says.
    answered: int = -1
    again: bool = False


@dataclass(slots=True)
class Read:
    """All records of `[start, end)`, as one reader was given them; `whole`: the whole log."""

    reader: str
    start: int
    end: int
    records: Sequence[tuple[int, bytes]]
    asked: int
    whole: bool = False


@dataclass(slots=True)
class Moved:
    """A group's position, put somewhere: what Kafka commits."""

    group: str
    position: int
    outcome: Outcome = Outcome.UNKNOWN
    answered: int = -1


@dataclass(slots=True)
class Told:
    """A group's position, as some protocol reads it back."""

    group: str
    position: int
    reader: str
    asked: int


Event = Sent | Read | Moved | Told


@dataclass(slots=True)
class History:
    """Events in the order in which they were asked for."""

    events: list[Event] = field(default_factory=list)
    _clock: int = 0

    def tick(self) -> int:
        """The time now, which no other event has."""
        self._clock += 1
        return self._clock

    def send(self, writer: str, value: bytes) -> Sent:
        """A value is on its way."""
        sent = Sent(writer, value, self.tick())
        self.events.append(sent)
        return sent

    def answer(self, sent: Sent, outcome: Outcome, offset: int | None = None) -> None:
        """Its answer came."""
        sent.outcome, sent.offset, sent.answered = outcome, offset, self.tick()

    def move(self, group: str, position: int) -> Moved:
        """A position is to be put somewhere."""
        moved = Moved(group, position)
        self.events.append(moved)
        return moved

    def moved(self, moved: Moved, outcome: Outcome = Outcome.DONE) -> None:
        """The answer came."""
        moved.outcome, moved.answered = outcome, self.tick()

    def read(
        self,
        reader: str,
        span: tuple[int, int],
        records: Sequence[tuple[int, bytes]],
        *,
        whole: bool,
    ) -> None:
        """A reader was given all of a span."""
        self.events.append(Read(reader, *span, records, self.tick(), whole))

    def told(self, group: str, position: int, reader: str) -> None:
        """A position was read back."""
        self.events.append(Told(group, position, reader, self.tick()))

    @property
    def sent(self) -> list[Sent]:
        """All that was sent, in order."""
        return [one for one in self.events if isinstance(one, Sent)]

    @property
    def reads(self) -> list[Read]:
        """All that was read, in order."""
        return [one for one in self.events if isinstance(one, Read)]
