"""What the shared store asks of its ledger: who owns what, which rounds count, and the journals.

Each method is one transaction, whole or not at all. `LedgerUnanswered` means that it is unknown
whether it was done; the caller finds out (`publisher.py`, `packer.py`). Knows no SQL: `postgres.py`
does, and FORMAT.md section 11.2 describes the tables.
"""

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from braidlog.storage.errors import StorageError, StorageFailed
from braidlog.storage.shared.layout import pack_name, round_name, segment_name

FORMAT = 2


class LedgerUnanswered(StorageError):
    """No answer: what was asked for may have been done, or may still be done later."""


class LedgerRefused(StorageFailed):
    """The ledger is not one that this program can use; the text says why."""


class Fenced(StorageFailed):
    """This session was ended by another broker: nothing more may be acknowledged."""


class LedgerWentBack(StorageFailed):
    """PostgreSQL has lost commits that it had confirmed: an older state of it is running."""


class State(enum.IntEnum):
    """The state of a session."""

    LIVE = 1
    LEFT = 2
    FENCED = 3


@dataclass(slots=True, frozen=True)
class Cluster:
    """What `cluster init` decided. Brokers prove to each other that they know the secret."""

    cluster_id: str
    format: int
    shards: int
    secret: str = ""


@dataclass(slots=True, frozen=True)
class SessionRow:
    """One run of a broker. `silent_ms` is the time since its last beat by the ledger's clock,
    `store_silent_ms` since it last reached the object store (None: never). `listeners` says where
    they are (column `doors`); `drains`: it is to own nothing.
    """

    session: int
    node: int
    state: State
    round: int
    silent_ms: int
    store_silent_ms: int | None = None
    listeners: dict[str, str] = field(default_factory=dict)
    drains: bool = False
    age_ms: int = 0  # Since it joined.


@dataclass(slots=True, frozen=True)
class ShardRow:
    """A shard: how many owners it has had, and the session that owns it now."""

    shard: int
    epoch: int
    session: int | None


@dataclass(slots=True, frozen=True)
class Tenure:
    """One ownership: rounds of the session in `(from_round, to_round]` are the shard's.

    Rounds up to `packed_round` are in packs or segments, or had nothing of the shard.
    """

    shard: int
    epoch: int
    session: int
    from_round: int
    to_round: int | None
    packed_round: int


@dataclass(slots=True, frozen=True)
class RoundRow:
    """A published round: bytes of each of its objects, and of each one's footer and trailer."""

    session: int
    round: int
    parts: tuple[int, ...]
    footers: tuple[int, ...]


@dataclass(slots=True, frozen=True)
class JournalRow:
    """A record of a journal. `kind` is that of its segment header, plus 16 in a snapshot."""

    shard: int
    place: int
    kind: int
    body: bytes


SNAPSHOT = 16  # Added to the kind of a snapshot's rows.


@dataclass(slots=True, frozen=True)
class PackRow:
    """A pack; `index` are its footer entries."""

    shard: int
    pack: int
    epoch: int
    size: int
    index: bytes


@dataclass(slots=True, frozen=True)
class SegmentRow:
    """A whole segment in one object: the log file, then its index."""

    partition_id: int
    base: int
    shard: int
    epoch: int
    generation: int
    end_offset: int
    size: int
    index_bytes: int
    last_append_us: int
    max_time_us: int | None


@dataclass(slots=True, frozen=True)
class Publication:
    """What makes a round count. `snapshots` are (shard, kind, first place): rows of that journal
    below it are removed. `news`: followers of the catalogue are notified.
    """

    session: int
    round: int
    parts: Sequence[int]
    footers: Sequence[int]
    rows: Sequence[JournalRow] = ()
    snapshots: Sequence[tuple[int, int, int]] = ()
    news: bool = False


@dataclass(slots=True, frozen=True)
class Owned:
    """Whose statement it is: it counts only while the session is live and owns the shard."""

    session: int
    shard: int
    epoch: int


@dataclass(slots=True, frozen=True)
class PackMove:
    """A tenure whose rounds up to `new` are packed now; `old` is what its row must say."""

    epoch: int
    old: int
    new: int


@dataclass(slots=True)
class Contents:
    """What the ledger says of some shards, at one moment."""

    tenures: list[Tenure]
    rounds: list[RoundRow]  # Those that some tenure has not packed.
    packs: list[PackRow]
    segments: list[SegmentRow]
    starts: dict[int, tuple[int, int]]  # Shard and log start by partition, where it was raised.


class Ledger(Protocol):
    """Safe in several threads. Every call may raise LedgerUnanswered."""

    def cluster(self) -> Cluster | None:
        """The cluster of this ledger; None if none was made in it."""

    def init(self, cluster: Cluster) -> bool:
        """Make the tables and their first rows; False if that was done before."""

    # Sessions.

    def join(self, node: int, listeners: dict[str, str]) -> int:
        """Begin a session of that node, and fence an older live one; returns its number."""

    def beat(self, session: int, *, store_ok: bool) -> tuple[State, int]:
        """Give a sign of life; returns the session's state and round, as `session_state`."""

    def session_state(self, session: int) -> tuple[State, int]:
        """State and round, once no statement of that session is under way any more. A session that
        does not exist has round -1.
        """

    def sessions(self) -> list[SessionRow]:
        """All sessions that are live or may still have objects."""

    def set_listeners(self, session: int, listeners: dict[str, str]) -> None:
        """Say where a live session's listeners are."""

    def drain(self, node: int, *, drains: bool) -> bool:
        """Make a node give up what it owns, or own again. False if it has no live session."""

    def fence(self, session: int, silent_ms: int) -> bool:
        """End a live session that has been silent for that long, or whose last beat is in the
        future: the clock was set back since.
        """

    def leave(self, session: int) -> bool:
        """End one's own session: its shards are free. False if it was not live."""

    # Shards.

    def shards(self) -> list[ShardRow]:
        """All shards."""

    def take(self, session: int, wanted: Sequence[int]) -> dict[int, int]:
        """Own those of the wanted shards that are free; returns their epochs by shard."""

    def release(self, owned: Owned) -> bool:
        """Give up a shard, with everything published."""

    def publish(self, publication: Publication) -> bool:
        """Make a round count: exactly once, in order, and only of a live session."""

    def contents(self, shards: Sequence[int]) -> Contents:
        """Everything that says where the records of these shards are."""

    def journal(self, shard: int, kind: int, after: int = 0) -> list[JournalRow]:
        """The journal's last snapshot and every row since, in order, if after place `after`."""

    def await_news(self, timeout_s: float) -> None:
        """Return when the catalogue or the owners of shards may have changed, or after that time.
        Blocks every other call: use a separate ledger for it.
        """

    # What an owner changes besides rounds. False: nothing was changed.

    def add_packs(self, owned: Owned, moves: Sequence[PackMove], packs: Sequence[PackRow]) -> bool:
        """Say which rounds are packed now, and where, if they held anything."""

    def add_segment(
        self, owned: Owned, segment: SegmentRow, packs: Sequence[int], after_ms: int
    ) -> bool:
        """Note that a segment has an object of its own, and drop these packs."""

    def set_start(
        self,
        owned: Owned,
        partition: tuple[int, int, int],
        packs: Sequence[int],
        after_ms: int,
    ) -> bool:
        """Raise the log start of (partition, from, to); drop segments below it and these packs."""

    def drop_partitions(
        self, owned: Owned, partitions: Sequence[int], packs: Sequence[int], after_ms: int
    ) -> bool:
        """Drop segments and starts of partitions whose topics are gone, and these packs."""

    # Cleaning, by any broker.

    def trash_rounds(self, after_ms: int) -> int:
        """Put rounds that every tenure has packed into the trash, and drop tenures that are over
        and packed; returns how many rounds.
        """

    def due_trash(self, count_max: int) -> list[str]:
        """Objects in the trash that are due to be deleted."""

    def drop_trash(self, objects: Sequence[str]) -> None:
        """Forget these objects, which were deleted."""

    def trash(self) -> set[str]:
        """All objects in the trash."""

    def close(self) -> None:
        """Close the connection."""


def object_names(contents: Contents) -> Iterator[str]:
    """Names of all objects that the contents refer to."""
    for one in contents.rounds:
        yield from (round_name(one.session, one.round, part) for part in range(len(one.parts)))
    yield from (pack_name(pack.shard, pack.epoch, pack.pack) for pack in contents.packs)
    for row in contents.segments:
        yield segment_name(row.partition_id, row.base, row.epoch, row.generation)
