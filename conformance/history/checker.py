"""The rules for every history, in the manner of Jepsen's checker for Kafka: pure functions, a
function for each kind of fault.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise

from conformance.history.events import (
    EventHistory,
    PositionMove,
    PositionRead,
    RequestOutcome,
    SentValue,
)


def check(history: EventHistory) -> list[str]:
    """Return every fault, with its kind first."""
    return [f"{kind}: {text}" for kind, find in CHECKS.items() for text in find(history)]


def lost(history: EventHistory) -> Iterator[str]:
    """Find acknowledged values that a later read of their offset, or of the whole log, lacks."""
    done = [sent for sent in history.sent if sent.outcome is RequestOutcome.DONE]
    for read in history.reads:
        at = dict(read.records)
        values = set(at.values())
        for sent in done:
            if sent.answered > read.asked_at:
                continue
            where = sent.offset
            if where is not None and read.start <= where < read.end and at.get(where) != sent.value:
                yield f"{read.reader} has {at.get(where)!r} at {where}, {_stored_text(sent)}"
            elif read.whole and sent.value not in values:
                yield f"{read.reader} lacks {sent.value!r}, {_stored_text(sent)}"


def changed(history: EventHistory) -> Iterator[str]:
    """Find offsets with two values."""
    first: dict[int, tuple[bytes, str]] = {}
    for read in history.reads:
        for offset, value in read.records:
            known, reader = first.setdefault(offset, (value, read.reader))
            if known != value:
                yield f"offset {offset} is {known!r} to {reader} and {value!r} to {read.reader}"


def gone(history: EventHistory) -> Iterator[str]:
    """Find values that were read, and that a later read of their offset lacks."""
    known: dict[int, tuple[bytes, str]] = {}
    for read in history.reads:
        at = dict(read.records)
        for offset, (value, reader) in known.items():
            if read.start <= offset < read.end and offset not in at:
                yield f"{reader} had {value!r} at {offset}, {read.reader} has nothing there"
        if read.whole and known and read.end <= max(known):
            yield f"{read.reader} ends at {read.end}, {max(known)} had been read"
        known |= {offset: (value, read.reader) for offset, value in read.records}


def doubled(history: EventHistory) -> Iterator[str]:
    """Find values that were sent once and have two offsets."""
    again = {sent.value for sent in history.sent if sent.again}
    places: dict[bytes, set[int]] = defaultdict(set)
    for read in history.reads:
        for offset, value in read.records:
            places[value].add(offset)
    for value, offsets in places.items():
        if len(offsets) > 1 and value not in again:
            yield f"{value!r} was sent once and is at {sorted(offsets)}"


def reordered(history: EventHistory) -> Iterator[str]:
    """Find reads whose offsets do not rise, and values of a writer out of their sending order.

    If a value has several offsets, the first counts.
    """
    order = {sent.value: (sent.writer, number) for number, sent in enumerate(history.sent)}
    for read in history.reads:
        offsets = [offset for offset, _ in read.records]
        if any(previous >= other for previous, other in pairwise(offsets)):
            yield f"{read.reader} was given offsets {offsets[:20]}"
        if not read.whole:
            continue  # The first offset of a repeated value may lie earlier.
        latest: dict[str, tuple[int, bytes]] = {}
        for value in dict.fromkeys(value for _, value in sorted(read.records)):
            writer, number = order.get(value, ("", -1))
            before = latest.get(writer, (-1, b""))
            if number < before[0]:
                yield f"order of {writer}: {before[1]!r} lies before {value!r}"
            latest[writer] = (number, value)


def refused(history: EventHistory) -> Iterator[str]:
    """Find refused values that are in the log."""
    gone = {
        sent.value
        for sent in history.sent
        if sent.outcome is RequestOutcome.REFUSED and not sent.again
    }
    for read in history.reads:
        for offset, value in read.records:
            if value in gone:
                yield f"{value!r} was refused, and {read.reader} has it at {offset}"


def invented(history: EventHistory) -> Iterator[str]:
    """Find values in the log that no writer has sent yet."""
    asked_at = {sent.value: sent.asked_at for sent in history.sent}
    for read in history.reads:
        for offset, value in read.records:
            if asked_at.get(value, read.asked_at + 1) > read.asked_at:
                yield f"{read.reader} has {value!r} at {offset}, which nobody had sent"


def backwards(history: EventHistory) -> Iterator[str]:
    """Find positions behind the acknowledged position, or that no client ever set.

    Moves happen in the order of their requests; a move without an answer may have happened.
    """
    moves: dict[str, list[PositionMove]] = defaultdict(list)
    for event in history.events:
        if isinstance(event, PositionMove):
            moves[event.group].append(event)
        elif isinstance(event, PositionRead):
            may_be = {-1, 0}
            for moved in moves[event.group]:
                if not 0 <= moved.answered < event.asked_at:
                    may_be.add(moved.position)
                elif moved.outcome is RequestOutcome.DONE:
                    may_be = {moved.position}
            if event.position not in may_be:
                yield f"{event.group} is at {event.position} to {event.reader}, not in {may_be}"


CHECKS: dict[str, Callable[[EventHistory], Iterator[str]]] = {
    "lost": lost,
    "read and gone": gone,
    "two values at one offset": changed,
    "twice": doubled,
    "order": reordered,
    "refused and read": refused,
    "made up": invented,
    "position": backwards,
}


def _stored_text(sent: SentValue) -> str:
    where = "" if sent.offset is None else f" at {sent.offset}"
    return f"which {sent.writer} was told is stored{where}"
