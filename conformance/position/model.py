"""The rules of docs/positions.md about a cursor, as simple code. Knows no protocol's bytes.

A cursor is a position with all offsets below acknowledged, acknowledged offsets above, and Kafka's
committed number. Each protocol's call is a method; `read_positions` returns each protocol's view.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

DELIVERIES_MAX = 5  # Of a record to members of a share group.


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """An entry in Pulsar's sense: a batch of `count` records, or a record of another protocol."""

    offset: int
    count: int = 1
    batched: bool = False

    @property
    def end(self) -> int:
        """Return the offset behind the last record."""
        return self.offset + self.count


@dataclass(frozen=True, slots=True)
class CursorViews:
    """All protocols' views of a cursor: the same place."""

    kafka: int  # OffsetFetch: -1 is none.
    iggy: int | None  # The last offset consumed.
    acked: tuple[tuple[int, int], ...] | None  # HTTP: closed ranges; None: no subscription.
    backlog: int | None
    mark_delete: tuple[int, int] | None  # Entry and batch index of the last record below.


@dataclass(slots=True)
class EntryLog:
    """The entries of the partition, in order."""

    entries: list[ModelEntry] = field(default_factory=list)

    @property
    def end(self) -> int:
        """Return the next offset."""
        return self.entries[-1].end if self.entries else 0

    def holding(self, offset: int) -> ModelEntry:
        """Return the entry that contains an offset."""
        return next(entry for entry in self.entries if entry.offset <= offset < entry.end)


@dataclass(slots=True)
class ModelCursor:
    """A cursor. `below` None: never set."""

    log: EntryLog
    below: int | None = None
    above: frozenset[int] = frozenset()
    floor: int = 0  # Place of the last commit or seek: acks between it and `below` are Pulsar's.
    committed: int | None = None  # Kafka's number, until another protocol moves the cursor.
    # Deliveries of records that came back to a share group; None: unknown after a SIGKILL.
    deliveries_of: dict[int, int] | None = field(default_factory=dict)

    @property
    def position(self) -> int | None:
        """Return the first unacknowledged offset."""
        position = self.below
        while position is not None and position in self.above:
            position += 1
        return position

    def is_acked(self, offset: int) -> bool:
        """Return True if a record is acknowledged."""
        return self.below is not None and (offset < self.below or offset in self.above)

    # Kafka, Iggy.

    def commit(self, offset: int, *, kafka: bool) -> None:
        """Commit: forward acknowledges, backward is a seek, and the present position changes only
        Kafka's number. A commit between Kafka's number and the position also changes only Kafka's
        number.
        """
        position, number = self.position, offset
        offset = max(offset, 0)
        if position is not None and offset > position:
            self.below, self.floor = offset, offset
            self.committed = number if kafka else None
        elif position is None or (offset < position and not (kafka and self._follows(number))):
            self.seek(offset)
            self.committed = number if kafka else None
        elif kafka:
            self.committed = number

    def _follows(self, number: int) -> bool:
        return self.committed is not None and number >= self.committed

    def given_by_poll(self, offsets: list[int]) -> None:
        """Apply Iggy's auto-commit of the messages in a poll's answer."""
        if offsets:
            self.commit(offsets[-1] + 1, kafka=False)

    # Pulsar, HTTP.

    def ack(self, offsets: Iterable[int]) -> None:
        """Acknowledge individually. An unset cursor takes none; HTTP sets the cursor to the first
        record.
        """
        if self.below is None:
            return
        before = self.position
        self.above |= frozenset(offsets)
        if self.position != before:
            self.committed = None

    def ack_to(self, offset: int) -> None:
        """Acknowledge cumulatively: never back."""
        self.ack(range(offset))

    def start(self, offset: int) -> None:
        """Set a cursor that was never set."""
        if self.below is None:
            self.seek(offset)

    def seek(self, offset: int) -> None:
        """Forget the acknowledgements and continue at `offset`."""
        self.below = self.floor = offset
        self.above, self.committed, self.deliveries_of = frozenset(), None, {}

    def end(self) -> None:
        """Return to the state of a cursor that was never set."""
        self.below, self.above, self.floor, self.committed = None, frozenset(), 0, None
        self.deliveries_of = {}

    # Share groups.

    def offered(self, offered: Sequence[tuple[int, int]], count: int) -> bool:
        """Return True if a member of a share group that asks for `count` records may get these, by
        offset and delivery count.
        """
        if [offset for offset, _ in offered] != self.wanted()[:count]:
            return False
        known = self.deliveries_of
        return known is None or all(
            deliveries == known.get(offset, 0) + 1 for offset, deliveries in offered
        )

    def came_back(self, offered: Sequence[tuple[int, int]]) -> bool:
        """Take back records of a share group; return True if some are archived, because they were
        delivered too often.
        """
        spent = [offset for offset, deliveries in offered if deliveries >= DELIVERIES_MAX]
        if self.deliveries_of is not None:  # Copies of the cursor share the dictionary.
            self.deliveries_of = {**self.deliveries_of, **dict(offered)}
        self.ack(spent)
        return bool(spent)

    # Reads.

    def wanted(self) -> list[int]:
        """Return the unacknowledged offsets, in order."""
        return [offset for offset in range(self.log.end) if not self.is_acked(offset)]

    def deliveries(self) -> list[tuple[ModelEntry, tuple[int, ...]]]:
        """Return a Pulsar consumer's deliveries: entries with unacknowledged records, and their ack
        sets.

        An ack set has only the offsets that Pulsar acknowledged: offsets passed by another
        protocol's commit are delivered again.
        """
        deliveries = []
        for entry in self.log.entries:
            offsets = range(entry.offset, entry.end)
            if not all(self.is_acked(offset) for offset in offsets):
                acked = tuple(
                    offset for offset in offsets if offset >= self.floor and self.is_acked(offset)
                )
                deliveries.append((entry, acked))
        return deliveries

    def read_positions(self, *, is_there: bool) -> CursorViews:
        """Return all protocols' views of the cursor.

        `is_there`: the subscription exists, with this cursor or only cursors of other partitions
        set.
        """
        position = self.position
        if position is None:
            return CursorViews(
                -1, None, () if is_there else None, self.log.end if is_there else None, None
            )
        kafka = position if self.committed is None else self.committed
        acked = [offset for offset in sorted(self.above) if offset > position]
        backlog = sum(offset >= position for offset in self.wanted())
        return CursorViews(
            kafka, position - 1 if position else None, runs(acked), backlog, self._mark()
        )

    def _mark(self) -> tuple[int, int] | None:
        last = min(self.position or 0, self.log.end) - 1
        if last < 0:
            return None
        entry = self.log.holding(last)
        return entry.offset, -1 if last == entry.end - 1 else last - entry.offset


@dataclass(slots=True)
class ModelPartition:
    """A partition of a topic: its log, and a subscription's cursor there."""

    index: int
    log: EntryLog = field(default_factory=EntryLog)
    cursor: ModelCursor = field(init=False)
    maybe: list[ModelCursor] = field(init=False)  # Since the last step that is certainly on disk.
    ledger: int = -1

    def __post_init__(self) -> None:
        self.cursor = ModelCursor(self.log)
        self.maybe = [replace(self.cursor)]

    def stepped(self, *, is_on_disk: bool) -> None:
        """Record a step: a SIGKILL may undo the step unless it is on disk."""
        self.maybe = [*([] if is_on_disk else self.maybe), replace(self.cursor)]


def runs(offsets: list[int]) -> tuple[tuple[int, int], ...]:
    """Return closed ranges of ascending offsets."""
    ranges: list[tuple[int, int]] = []
    for offset in offsets:
        if ranges and ranges[-1][1] == offset - 1:
            ranges[-1] = (ranges[-1][0], offset)
        else:
            ranges.append((offset, offset))
    return tuple(ranges)
