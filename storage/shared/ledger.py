"""The interface of the shared store's ledger: ownership, counted rounds, and journals.

Each method is a transaction, done entirely or not at all. `LedgerUnanswered` means that the outcome
is unknown; the caller finds out (`publisher.py`, `packer.py`). Knows no SQL: `postgres.py` does,
and FORMAT.md section 11.2 describes the tables.
"""

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from braidlog.storage.errors import StorageError, StorageFailed
from braidlog.storage.shared.layout import pack_name, round_name, segment_name

FORMAT = 3
FORMAT_MIN = 2  # Segments name no cluster, and calls between brokers no place in the catalogue.


class LedgerUnanswered(StorageError):
    """No answer: the request may have been done, or may still be done later."""


class LedgerRefused(StorageFailed):
    """This program cannot use the ledger; the text gives the reason."""


class Fenced(StorageFailed):
    """Another broker ended this session: nothing more may be acknowledged."""


class LedgerWentBack(StorageFailed):
    """PostgreSQL has lost confirmed commits: an older state of the database is running."""


class SessionState(enum.IntEnum):
    """The state of a session."""

    LIVE = 1
    LEFT = 2
    FENCED = 3


@dataclass(slots=True, frozen=True)
class Cluster:
    """The decisions of `cluster init`. Brokers prove to each other that they know the secret."""

    cluster_id: str
    format: int
    shards: int
    secret: str = ""


@dataclass(slots=True, frozen=True)
class SessionRow:
    """A run of a broker. `silent_ms` is the time since the last beat by the ledger's clock,
    `store_silent_ms` since the broker last reached the object store (None: never). `listeners` has
    the addresses of the listeners (column `doors`); `drains`: the broker must give up its shards.
    """

    session: int
    node: int
    state: SessionState
    round: int
    silent_ms: int
    store_silent_ms: int | None = None
    listeners: dict[str, str] = field(default_factory=dict)
    drains: bool = False
    age_ms: int = 0  # Since the broker joined.


@dataclass(slots=True, frozen=True)
class ShardRow:
    """A shard: the number of owners so far, and the session that owns the shard now."""

    shard: int
    epoch: int
    session: int | None


@dataclass(slots=True, frozen=True)
class Tenure:
    """An ownership: rounds of the session in `(from_round, to_round]` belong to the shard.

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
    """A published round: bytes of each object, and of the footer and trailer of each object."""

    session: int
    round: int
    parts: tuple[int, ...]
    footers: tuple[int, ...]


@dataclass(slots=True, frozen=True)
class JournalRow:
    """A record of a journal. `kind` is the kind of the segment header, plus 16 in a snapshot."""

    shard: int
    place: int
    kind: int
    body: bytes


SNAPSHOT = 16  # Added to the kind of a snapshot's rows.


@dataclass(slots=True, frozen=True)
class PackRow:
    """A pack; `index` holds the footer entries."""

    shard: int
    pack: int
    epoch: int
    size: int
    index: bytes


@dataclass(slots=True, frozen=True)
class SegmentRow:
    """A whole segment in an object: the log file, then its index."""

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
    """The change that makes a round count. `snapshots` are (shard, kind, first place): rows of that
    journal below the place are removed. `news`: followers of the catalogue are notified.
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
    """The author of a statement, which counts only while the session is live and owns the shard."""

    session: int
    shard: int
    epoch: int


@dataclass(slots=True, frozen=True)
class PackMove:
    """A tenure whose rounds up to `new` are now packed; `old` is the value expected in the row."""

    epoch: int
    old: int
    new: int


@dataclass(slots=True)
class Contents:
    """The ledger's contents about some shards, at a single moment."""

    tenures: list[Tenure]
    rounds: list[RoundRow]  # Rounds that some tenure has not packed.
    packs: list[PackRow]
    segments: list[SegmentRow]
    starts: dict[int, tuple[int, int]]  # Shard and log start by partition, for raised log starts.


class Ledger(Protocol):
    """Safe in several threads. Every call may raise LedgerUnanswered."""

    def cluster(self) -> Cluster | None:
        """Return the cluster of this ledger; None if the ledger has no cluster."""

    def init(self, cluster: Cluster) -> bool:
        """Make the tables and their first rows; return False if they exist."""

    def upgrade(self, node: int, silent_ms: int) -> bool:
        """Raise the format of the cluster to `FORMAT`. Return False, with nothing done, while
        another node's session is live that was not silent for that long.
        """

    # Sessions.

    def join(self, node: int, listeners: dict[str, str]) -> int:
        """Begin a session of that node and fence an older live session; return the new number."""

    def beat(self, session: int, *, store_ok: bool) -> tuple[SessionState, int]:
        """Give a sign of life; return the session's state and round, as `session_state`."""

    def session_state(self, session: int) -> tuple[SessionState, int]:
        """Return state and round, once no statement of that session is under way any more. A
        session that does not exist has round -1.
        """

    def sessions(self) -> list[SessionRow]:
        """Return all sessions that are live or may still have objects."""

    def set_listeners(self, session: int, listeners: dict[str, str]) -> None:
        """Store the listener addresses of a live session."""

    def drain(self, node: int, *, drains: bool) -> bool:
        """Make a node give up its shards, or own shards again. False if the node has no live
        session.
        """

    def fence(self, session: int, silent_ms: int) -> bool:
        """End a live session that has been silent for that long, or whose last beat is in the
        future because the clock was set back.
        """

    def leave(self, session: int) -> bool:
        """End the caller's own session and free its shards. Return False if the session was not
        live.
        """

    # Shards.

    def shards(self) -> list[ShardRow]:
        """Return all shards."""

    def take(self, session: int, wanted: Sequence[int]) -> dict[int, int]:
        """Take ownership of the free shards among the wanted; return their epochs by shard."""

    def release(self, owned: Owned) -> bool:
        """Give up a shard, with everything published."""

    def publish(self, publication: Publication) -> bool:
        """Make a round count: exactly once, in order, and only of a live session."""

    def contents(self, shards: Sequence[int]) -> Contents:
        """Return all rows that locate the records of these shards."""

    def journal(self, shard: int, kind: int, after: int = 0) -> list[JournalRow]:
        """Return the journal's last snapshot and every later row, in order, above place `after`."""

    def await_news(self, timeout_s: float) -> None:
        """Return when the catalogue or the owners of shards may have changed, or after that time.
        Blocks every other call: use a separate ledger for it.
        """

    # Changes by an owner besides rounds. False: nothing was changed.

    def add_packs(self, owned: Owned, moves: Sequence[PackMove], packs: Sequence[PackRow]) -> bool:
        """Note the rounds that are packed now, and the packs if the rounds held anything."""

    def add_segment(
        self, owned: Owned, segment: SegmentRow, packs: Sequence[int], after_ms: int
    ) -> bool:
        """Note that a segment has its own object, and drop these packs."""

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
        """Drop segments and starts of partitions with deleted topics, and these packs."""

    # Cleaning, by any broker.

    def trash_rounds(self, after_ms: int) -> int:
        """Put rounds that every tenure has packed into the trash, and drop tenures that have ended
        and are packed; return the number of rounds.
        """

    def due_trash(self, count_max: int) -> list[str]:
        """Return the objects in the trash that are due for deletion."""

    def drop_trash(self, objects: Sequence[str]) -> None:
        """Forget these deleted objects."""

    def trash(self) -> set[str]:
        """Return all objects in the trash."""

    def close(self) -> None:
        """Close the connection."""


def check_format(version: int) -> None:
    """Check that this program can use a cluster of that format. Raises LedgerRefused."""
    text = f"the database holds a cluster of format {version}, this program knows {FORMAT}"
    if version > FORMAT:
        raise LedgerRefused(f"{text}: use the version that its brokers have")
    if version < FORMAT_MIN:
        raise LedgerRefused(f"{text}: begin a new one in another database")


def object_names(contents: Contents) -> Iterator[str]:
    """Yield the names of all objects that the contents refer to."""
    for stored_round in contents.rounds:
        yield from (
            round_name(stored_round.session, stored_round.round, part)
            for part in range(len(stored_round.parts))
        )
    yield from (pack_name(pack.shard, pack.epoch, pack.pack) for pack in contents.packs)
    for row in contents.segments:
        yield segment_name(row.partition_id, row.base, row.epoch, row.generation)
