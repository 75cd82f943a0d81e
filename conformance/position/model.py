"""What docs/positions.md says of one cursor, as simple code. Knows no protocol's bytes.

A cursor is a place below which all is acknowledged, offsets acknowledged above it, and what Kafka
committed. Each protocol's call is a method; `told` is what each protocol reads back.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class Entry:
    """What Pulsar counts: a batch of `count` records, or one record of another protocol."""

    offset: int
    count: int = 1
    batched: bool = False

    @property
    def end(self) -> int:
        """Behind its last record."""
        return self.offset + self.count


@dataclass(frozen=True, slots=True)
class Told:
    """What the protocols read back of one cursor: all of them the same place."""

    kafka: int  # OffsetFetch: -1 is none.
    iggy: int | None  # The last offset consumed.
    acked: tuple[tuple[int, int], ...] | None  # HTTP: closed ranges; None: no subscription.
    backlog: int | None
    mark_delete: tuple[int, int] | None  # Entry and batch index of the last record below.


@dataclass(slots=True)
class Log:
    """The entries of the partition, in order."""

    entries: list[Entry] = field(default_factory=list)

    @property
    def end(self) -> int:
        """The offset that comes next."""
        return self.entries[-1].end if self.entries else 0

    def holding(self, offset: int) -> Entry:
        """The entry that an offset is in."""
        return next(one for one in self.entries if one.offset <= offset < one.end)


@dataclass(slots=True)
class Cursor:
    """One cursor. `below` None: never set."""

    log: Log
    below: int | None = None
    above: frozenset[int] = frozenset()
    floor: int = 0  # Where a commit or a seek put it: what lies between is Pulsar's.
    committed: int | None = None  # Kafka's number, until another protocol moves the cursor.

    @property
    def position(self) -> int | None:
        """The first offset that is not acknowledged."""
        position = self.below
        while position is not None and position in self.above:
            position += 1
        return position

    def is_acked(self, offset: int) -> bool:
        """Whether one record is."""
        return self.below is not None and (offset < self.below or offset in self.above)

    # Kafka, Iggy.

    def commit(self, offset: int, *, kafka: bool) -> None:
        """Forward it acknowledges, backward it is a seek, and to where it stands it is nothing but
        Kafka's number. So is one from the number that Kafka reads back up to where the cursor is.
        """
        position, given = self.position, offset
        offset = max(offset, 0)
        if position is not None and offset > position:
            self.below, self.floor = offset, offset
            self.committed = given if kafka else None
        elif position is None or (offset < position and not (kafka and self._follows(given))):
            self.seek(offset)
            self.committed = given if kafka else None
        elif kafka:
            self.committed = given

    def _follows(self, given: int) -> bool:
        return self.committed is not None and given >= self.committed

    def given_by_poll(self, offsets: list[int]) -> None:
        """Iggy's auto-commit of what a poll was answered with."""
        if offsets:
            self.commit(offsets[-1] + 1, kafka=False)

    # Pulsar, HTTP.

    def ack(self, offsets: Iterable[int]) -> None:
        """One by one. A cursor that is not set takes none; HTTP sets it to the first record."""
        if self.below is None:
            return
        before = self.position
        self.above |= frozenset(offsets)
        if self.position != before:
            self.committed = None

    def ack_to(self, offset: int) -> None:
        """Cumulatively: never back."""
        self.ack(range(offset))

    def start(self, offset: int) -> None:
        """Set it where it was never set."""
        if self.below is None:
            self.seek(offset)

    def seek(self, offset: int) -> None:
        """Forget what is acknowledged and go on there."""
        self.below = self.floor = offset
        self.above, self.committed = frozenset(), None

    def end(self) -> None:
        """Never set again."""
        self.below, self.above, self.floor, self.committed = None, frozenset(), 0, None

    # Reading.

    def wanted(self) -> list[int]:
        """What is not acknowledged, in order."""
        return [offset for offset in range(self.log.end) if not self.is_acked(offset)]

    def deliveries(self) -> list[tuple[Entry, tuple[int, ...]]]:
        """What a Pulsar consumer is sent: entries with something left, and the offsets in each that
        Pulsar acknowledged (those that another protocol's commit passed come again).
        """
        found = []
        for entry in self.log.entries:
            offsets = range(entry.offset, entry.end)
            if not all(self.is_acked(one) for one in offsets):
                told = tuple(one for one in offsets if one >= self.floor and self.is_acked(one))
                found.append((entry, told))
        return found

    def told(self, *, is_there: bool) -> Told:
        """What everybody reads back; `is_there`: the subscription is, whether this cursor is set or
        only those of other partitions.
        """
        position = self.position
        if position is None:
            return Told(
                -1, None, () if is_there else None, self.log.end if is_there else None, None
            )
        kafka = position if self.committed is None else self.committed
        acked = [one for one in sorted(self.above) if one > position]
        backlog = sum(offset >= position for offset in self.wanted())
        return Told(kafka, position - 1 if position else None, runs(acked), backlog, self._mark())

    def _mark(self) -> tuple[int, int] | None:
        last = min(self.position or 0, self.log.end) - 1
        if last < 0:
            return None
        entry = self.log.holding(last)
        return entry.offset, -1 if last == entry.end - 1 else last - entry.offset


@dataclass(slots=True)
class Place:
    """One partition of a topic: its log, and a subscription's cursor there."""

    index: int
    log: Log = field(default_factory=Log)
    cursor: Cursor = field(init=False)
    maybe: list[Cursor] = field(init=False)  # Since the last step that is on disk for sure.
    ledger: int = -1

    def __post_init__(self) -> None:
        self.cursor = Cursor(self.log)
        self.maybe = [replace(self.cursor)]

    def stepped(self, *, is_on_disk: bool) -> None:
        """A step was made: it may be gone after a SIGKILL, unless it is on disk."""
        self.maybe = [*([] if is_on_disk else self.maybe), replace(self.cursor)]


def runs(offsets: list[int]) -> tuple[tuple[int, int], ...]:
    """Closed ranges of ascending offsets."""
    found: list[tuple[int, int]] = []
    for offset in offsets:
        if found and found[-1][1] == offset - 1:
            found[-1] = (found[-1][0], offset)
        else:
            found.append((offset, offset))
    return tuple(found)
