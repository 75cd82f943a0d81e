"""The common part of catalogue and cursors: changes as journal records, replay, and rewriting.

Knows no record's meaning and no file: bytes go to a `Journal` (storage/journal/log.py). A record is
one byte of layout version and a msgpack array of changes (storage/FORMAT.md, section 9). Each
record is decoded once before the record goes to the file, so that every record can be read back.
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, Generic, Protocol, TypeVar

import msgspec

from braidlog.storage.errors import DamagedLog, StorageError, StorageFull, UnwritableChange
from braidlog.storage.metadata.ranges import RangeSet

LAYOUT_VERSION: Final = 2  # Unless a change in the record has a later layout (`LAYOUT`).
# Read as far as changes are known.
READABLE: Final = frozenset(bytes([layout]) for layout in range(1, 9))
PREFIX: Final = bytes([LAYOUT_VERSION])
ONE_CHANGE: Final = b"\x91"  # Start of a msgpack array with a single element.
# A journal is rewritten once the bytes added since the last snapshot reach a quarter of that
# snapshot, and at least 1 MiB, so that a small state is not written often. A byte of single changes
# takes three to four times as long to replay as a byte of a snapshot: a start takes at most about
# twice the time that the state alone would take (processor time for 100,000 cursors of a thousand
# subscriptions: 35 to 65 ms; of as many subscriptions as cursors: 70 to 110 ms, half of that for
# memory).
SNAPSHOT_GROWTH_DIVISOR: Final = 4
SNAPSHOT_GROWTH_MIN_BYTES: Final = 1 << 20
RECORD_CHANGES: Final = 256  # Changes in a record of a snapshot.

ChangeT = TypeVar("ChangeT")


class UnknownRecord(StorageError):
    """A journal holds a record of another layout, written by a later version."""


class _Unreadable(Exception):
    """A record of our layout that does not hold changes; the text gives the reason."""


class Journal(Protocol):
    """A synced, checksummed list of byte strings."""

    @property
    def size_bytes(self) -> int:
        """Bytes that a replay would read."""

    @property
    def snapshot_bytes(self) -> int:
        """Bytes of these that the last snapshot wrote; 0 if there was none."""

    @property
    def last_place(self) -> int:
        """Place of the last record; a place is never used twice."""

    @property
    def next_place(self) -> int:
        """Place that the next record will have, behind the lazy records that wait."""

    @property
    def replayed_place(self) -> int:
        """Place of the record that `replay` yielded last."""

    def replay(self) -> Iterator[bytes]:
        """Yield every record, in order. Raises DamagedLog."""

    def damage(self, reason: str) -> DamagedLog:
        """Return the error, with its place, for the record that `replay` yielded last."""

    def append(self, body: bytes) -> int:
        """Add a record; return the commit ticket after which it is on disk. Raises StorageFull,
        StorageFailed.
        """

    def append_lazy(self, body: bytes) -> object:
        """Add a record that is on disk within the flush interval."""

    def snapshot(self, bodies: Iterable[bytes]) -> object:
        """Replace all records by these."""


class ChangeJournal(Generic[ChangeT]):
    """A journal of typed changes.

    Guarantees: `append` refuses a change that a start could not read back. Never waits for the
    disk: a ticket says when a change is durable.
    """

    def __init__(self, journal: Journal, change_type: object, name: str) -> None:
        """Store the parameters; `change_type` is the union of all changes; `name` appears in
        errors.
        """
        self._journal = journal
        self._name = name
        self._encoder = msgspec.msgpack.Encoder(enc_hook=_encode_ranges)
        self._decoder: msgspec.msgpack.Decoder[list[ChangeT]] = msgspec.msgpack.Decoder(
            list[change_type],  # type: ignore[valid-type]  # A union made at run time.
            dec_hook=_decode_ranges,
        )
        self._has_lazy = False
        self._next_snapshot_bytes = 0
        self._gathered: list[bytes] | None = None
        self._since: list[bytes] = []  # Changes since the gathering began.
        self.ticket = 0
        """After this ticket every change that was not lazy is on disk."""

    @property
    def last_place(self) -> int:
        """Place of the last change; rises with each change, also over restarts."""
        return self._journal.last_place

    @property
    def next_place(self) -> int:
        """Place that the next record will have."""
        return self._journal.next_place

    def placed(self) -> Iterator[tuple[int, ChangeT]]:
        """Yield every change on the disk with its record's place, in order, after the first replay.
        A journal that forgets its records with the replay has none. Raises DamagedLog.
        """
        for body in self._journal.replay():
            place = self._journal.replayed_place
            for change in self._changes(body, lambda damage: None):
                yield place, change

    def replay(
        self,
        apply: Callable[[ChangeT], None],
        lost: Callable[[DamagedLog], None] | None = None,
        history: list[tuple[int, ChangeT]] | None = None,
    ) -> None:
        """Apply the last snapshot and every change since, in order; add each change with its
        record's place to `history`.

        An unreadable change, or a change that names something missing, is damage. With `lost` the
        change is skipped, and `lost` is called with its place. Raises DamagedLog, UnknownRecord.
        """
        for body in self._journal.replay():
            for change in self._changes(body, lost):
                if history is not None:  # A copy: the state goes on changing the change.
                    history.append((self._journal.replayed_place, copy.deepcopy(change)))
                try:
                    apply(change)
                except KeyError as error:
                    self._leave_out(f"{type(change).__name__} of unknown {error}", lost)
        self._plan_snapshot()

    def _leave_out(self, reason: str, lost: Callable[[DamagedLog], None] | None) -> None:
        damage = self._journal.damage(reason)
        if lost is None:
            raise damage
        lost(damage)

    def rewrite(self, state: Iterable[Sequence[ChangeT]]) -> None:
        """Replace all records by `state`. Raises StorageFull, StorageFailed."""
        self._journal.snapshot(self._body(changes) for changes in state)

    def append(self, *changes: ChangeT, lazy: bool = False) -> int:
        """Write changes as one record; return the ticket of the record, 0 for a lazy record.

        Raises UnwritableChange, StorageFull, StorageFailed, and then no change is written.
        """
        body = self._checked_body(changes)
        if lazy:
            self._journal.append_lazy(body)
        else:
            self.ticket = self._journal.append(body)
        self._has_lazy = lazy
        if self._gathered is not None:
            self._since.append(body)
        return 0 if lazy else self.ticket

    def flush_lazy(self) -> int:
        """Return a ticket after which all changes so far are on disk, lazy changes too."""
        if self._has_lazy:
            self.ticket = self._journal.append(self._body([]))
            self._has_lazy = False
        return self.ticket

    def snapshot_if_due(self, state: Iterable[Sequence[ChangeT]]) -> None:
        """Shorten the journal to `state`, a list for each record, if the journal has grown enough.

        A full disk postpones the snapshot.
        """
        if self.snapshot_is_due:
            self._snapshot(self._body(changes) for changes in state)

    @property
    def snapshot_is_due(self) -> bool:
        """True if the journal has grown enough for a snapshot."""
        return self._journal.size_bytes >= self._next_snapshot_bytes

    def begin_gathering(self) -> None:
        """Begin a snapshot of the present state; `gather` adds the pieces while the
        state changes.
        """
        self._gathered, self._since = [], []

    def gather(self, changes: Sequence[ChangeT]) -> None:
        """Add a record to the snapshot: a part of the state as of the snapshot's beginning."""
        assert self._gathered is not None
        self._gathered.append(self._body(changes))

    def finish_gathering(self) -> None:
        """Shorten the journal to the gathered records and the changes since gathering began."""
        assert self._gathered is not None
        records = self._gathered + self._since
        self._gathered, self._since = None, []
        self._snapshot(records)

    def _snapshot(self, records: Iterable[bytes]) -> None:
        try:
            self._journal.snapshot(records)
        except StorageFull:  # The change itself is written: the journal only stays longer.
            self._next_snapshot_bytes = self._journal.size_bytes + SNAPSHOT_GROWTH_MIN_BYTES
            return
        self._plan_snapshot()

    def _plan_snapshot(self) -> None:
        base = self._journal.snapshot_bytes
        growth = max(base // SNAPSHOT_GROWTH_DIVISOR, SNAPSHOT_GROWTH_MIN_BYTES)
        self._next_snapshot_bytes = base + growth

    def _checked_body(self, changes: Sequence[ChangeT]) -> bytes:
        """Encode a record, and check that a start can read the record. Raises UnwritableChange."""
        try:
            body = self._body(changes)
            self._decode(body)
        except (_Unreadable, TypeError, ValueError, OverflowError) as error:
            raise UnwritableChange(f"{self._name}: this cannot be stored: {error}") from error
        return body

    def _body(self, changes: Sequence[ChangeT]) -> bytes:
        """Encode a record; the layout is later only if earlier programs do not know a change."""
        layout = max((getattr(change, "LAYOUT", LAYOUT_VERSION) for change in changes), default=0)
        prefix = PREFIX if layout <= LAYOUT_VERSION else bytes([layout])
        return prefix + self._encoder.encode(changes)

    def _decode(self, body: bytes) -> list[ChangeT]:
        try:
            return self._decoder.decode(memoryview(body)[1:])
        except (msgspec.DecodeError, ValueError) as error:
            raise _Unreadable(str(error)) from error

    def _changes(self, body: bytes, lost: Callable[[DamagedLog], None] | None) -> Iterable[ChangeT]:
        """Return the changes of a replayed record; with `lost`, only the readable changes."""
        if body[:1] not in READABLE and body:
            raise UnknownRecord(f"{self._name}: a record has the unknown layout {body[:1].hex()}")
        try:
            return self._decode(body)
        except _Unreadable as error:
            if lost is None:
                raise self._journal.damage(f"a record cannot be read: {error}") from error
            return self._readable(body, lost)

    def _readable(self, body: bytes, lost: Callable[[DamagedLog], None]) -> Iterator[ChangeT]:
        """Read a damaged record change by change, and skip unreadable changes."""
        try:
            pieces = msgspec.msgpack.decode(memoryview(body)[1:], type=list[msgspec.Raw])
        except (msgspec.DecodeError, ValueError) as error:
            lost(self._journal.damage(f"a record cannot be read: {error}"))
            return
        for piece in pieces:
            try:
                yield from self._decode(PREFIX + ONE_CHANGE + piece)
            except _Unreadable as error:
                lost(self._journal.damage(f"a change cannot be read: {error}"))


def in_records(changes: Iterator[ChangeT]) -> Iterator[Sequence[ChangeT]]:
    """Gather changes into records of a snapshot: large records replay faster."""
    while piece := list(islice(changes, RECORD_CHANGES)):
        yield piece


def _encode_ranges(value: object) -> bytes:
    assert isinstance(value, RangeSet)
    return value.to_bytes()


def _decode_ranges(kind: type, value: bytes) -> RangeSet:
    assert kind is RangeSet
    return RangeSet.from_bytes(value)
