"""A round of the shared store: objects first, then a statement of the ledger, then answers.

A crash in between leaves objects without a row, never a hole. An outcome without an answer is
looked up, never guessed: a put by looking at the object, a statement by the session's row. `keep`
blocks until the round counts or the session is over, in the committer's thread. Knows no SQL and no
S3.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from time import monotonic
from typing import Protocol

from braidlog.storage.errors import StorageFailed, StoreUnanswered, reason_of
from braidlog.storage.log.committer import RoundParticipant, SyncPoint
from braidlog.storage.log.files import FileGone
from braidlog.storage.log.sync_queue import SyncQueue
from braidlog.storage.shared.layout import (
    HEADER_BYTES,
    KIND_ROUND,
    TRAILER_BYTES,
    Buffer,
    ObjectHeader,
    SliceEntry,
    pack_footer,
    pack_header,
    round_name,
)
from braidlog.storage.shared.ledger import (
    Fenced,
    Ledger,
    LedgerUnanswered,
    LedgerWentBack,
    Publication,
    SessionState,
)
from braidlog.storage.shared.object_store import ObjectExists, ObjectMissing, ObjectStore
from braidlog.storage.shared.points import SharedPoint, Slice, read_whole

# Parts of a large round uploaded at once: four of 4 MiB fill the capacity that a single connection
# leaves idle.
PUTS_AT_ONCE = 4

# Between two tries of a put or a statement, doubling.
PAUSE_FIRST_S, PAUSE_MAX_S = 0.05, 1.0

# After a round with records the next round gathers at least this long, or it would hold only the
# records that arrived while an answer was written.
GATHER_S = 0.005


class ObjectForged(StorageFailed):
    """An object of this session's name is there and is not ours: its number was given out twice."""


@dataclass(slots=True, frozen=True)
class SessionIdentity:
    """A session's number and its random nonce, which reveals a number that is used twice."""

    session: int
    nonce: int


@dataclass(slots=True, frozen=True)
class RoundSettings:
    """Pace and retries of rounds. Times in milliseconds."""

    round_ms: int = 100
    round_bytes: int = 4 << 20
    stall_ms: int = 30_000


class Watch(Protocol):
    """Measures rounds. `phase` is `put` or `publish`; `kind` and `size` are an object's."""

    def phase(self, phase: str, seconds: float) -> None:
        """A phase of a round took this long."""

    def uploaded(self, kind: str, size: int) -> None:
        """An object was put."""

    def unanswered(self, reason: str) -> None:
        """A round waits for a store that does not answer."""


class NoWatch:
    """Measures nothing."""

    def phase(self, phase: str, seconds: float) -> None:
        """Do nothing."""

    def uploaded(self, kind: str, size: int) -> None:
        """Do nothing."""

    def unanswered(self, reason: str) -> None:
        """Do nothing."""


class Publisher:
    """Publishes the rounds of a session. `round` is the last round that counts."""

    def __init__(
        self,
        ledger: Ledger,
        objects: ObjectStore,
        identity: SessionIdentity,
        settings: RoundSettings,
    ) -> None:
        self.round = 0
        self.ended: StorageFailed | None = None
        self._ledger = ledger
        self._objects = objects
        self._identity = identity
        self._settings = settings
        self._watch: Watch = NoWatch()
        self._stop = threading.Event()
        self._keeping = threading.Lock()
        self._begun_s = self._ended_s = -1e9

    def measure(self, watch: Watch) -> None:
        """Report the work of rounds to `watch` from now on."""
        self._watch = watch

    # For the committer.

    def sync_queue(self, eventfd: int) -> SyncQueue | None:
        """None: a round here is more than syncs of files."""
        return None

    def wait_s(self, members: Iterable[RoundParticipant]) -> float:
        """Return how long to gather before the next round: at most a single round with records
        starts per `round_ms`, and none right after another.
        """
        if not any(getattr(member, "has_records", False) for member in members):
            return 0.0
        due_s = max(self._begun_s + self._settings.round_ms / 1000, self._ended_s + GATHER_S)
        return max(due_s - monotonic(), 0.0)

    def keep(self, points: Iterable[SyncPoint]) -> None:
        """Publish the slices that the members bring. Raises Fenced and other StorageFailed: nothing
        of the round may be acknowledged then.

        A stop may ask again for the round under way: that round is published once.
        """
        shared = [point for point in points if isinstance(point, SharedPoint)]
        with self._keeping:
            if not any(point.round for point in shared):
                self._keep(shared)

    def _keep(self, shared: Sequence[SharedPoint]) -> None:
        slices = [entry_slice for point in shared for entry_slice in point.slices]
        rows = [row for point in shared for row in point.rows]
        snapshots = [snapshot for point in shared for snapshot in point.snapshots]
        number = self.round + 1
        if slices:
            self._begun_s = monotonic()
        parts = self._put_parts(number, slices)
        begun_s = monotonic()
        self._publish(
            Publication(
                self._identity.session,
                number,
                [size for size, _ in parts],
                [footer for _, footer in parts],
                rows,
                snapshots,
                news=any(row.shard == 0 for row in rows),
            )
        )
        self.round = number
        for point in shared:
            point.round = number
        self._watch.phase("publish", monotonic() - begun_s)
        if slices:
            self._ended_s = monotonic()

    def end(self, reason: StorageFailed) -> None:
        """End the session: all running work gives up. In any thread."""
        self.ended = self.ended or reason
        self._stop.set()

    # Objects.

    def _put_parts(self, number: int, slices: Sequence[Slice]) -> list[tuple[int, int]]:
        if not slices:
            return []
        begun_s = monotonic()
        parts = list(enumerate(cut(slices, self._settings.round_bytes)))
        jobs = [
            (lambda p=part, s=part_slices: self._put_part(number, p, s))
            for part, part_slices in parts
        ]
        done = self.run_all(jobs)
        self._watch.phase("put", monotonic() - begun_s)
        return done

    def run_all(self, jobs: Sequence[Callable[[], tuple[int, int]]]) -> list[tuple[int, int]]:
        """Do all jobs, several at once; the first error is raised."""
        if len(jobs) == 1:
            return [jobs[0]()]
        with ThreadPoolExecutor(PUTS_AT_ONCE) as pool:
            return list(pool.map(lambda job: job(), jobs))

    def _put_part(self, number: int, part: int, slices: Sequence[Slice]) -> tuple[int, int]:
        """Put an object; return its size, and the size of footer and trailer."""
        identity = self._identity
        header = pack_header(
            ObjectHeader(KIND_ROUND, identity.session, number, identity.nonce, part)
        )
        data, footer_bytes = build_object(header, slices)
        put_surely(
            self._objects, round_name(identity.session, number, part), data, self._patience()
        )
        self._watch.uploaded("round", len(data))
        return len(data), footer_bytes

    def _patience(self) -> "Patience":
        stall_s = self._settings.stall_ms / 1000
        return Patience(self.pause, self._stalled, stall_s, self._watch.unanswered)

    def _stalled(self) -> None:
        """The object store has not answered for long: leave, if other brokers can reach it."""
        with suppress(LedgerUnanswered):  # It is unknown; the next pause asks again.
            mine = self._identity.session
            reached = [
                row.store_silent_ms
                for row in self._ledger.sessions()
                if row.session != mine and row.state is SessionState.LIVE
            ]
            fresh_ms = self._settings.stall_ms / 2
            if any(ms is not None and ms < fresh_ms for ms in reached):
                self._ledger.leave(mine)
                self.end(Fenced("this broker alone cannot reach the object store: others go on"))

    def pause(self, seconds: float) -> None:
        """Wait before the next try. Raises the error that ended the session."""
        self._stop.wait(seconds)
        if self.ended is not None:
            raise self.ended

    # The statement.

    def _publish(self, publication: Publication) -> None:
        for pause_s in pauses():
            try:
                if self._ledger.publish(publication) or self._is_published(publication):
                    return
                continue  # It is known not to be done: try again at once.
            except LedgerUnanswered as error:
                self._watch.unanswered(str(error))
            self.pause(pause_s)

    def _is_published(self, publication: Publication) -> bool:
        """Return True if a statement was done, once no statement of this session runs any more.
        Raises Fenced, LedgerWentBack, LedgerUnanswered.
        """
        state, number = self._ledger.session_state(publication.session)
        if number < publication.round - 1:
            raise LedgerWentBack(
                f"PostgreSQL says that session {publication.session} is at round {number}, but"
                f" round {publication.round - 1} was confirmed: an older state of it is running"
            )
        if state is not SessionState.LIVE:
            raise Fenced(f"session {publication.session} was ended: another broker took over")
        return number == publication.round


@dataclass(slots=True)
class Patience:
    """Rules for retries without an answer: `pause` between tries (it may raise), `stalled` after
    each try once `stall_s` seconds are over; `tell` is called with each reason.
    """

    pause: Callable[[float], None]
    stalled: Callable[[], None] = lambda: None
    stall_s: float = float("inf")
    tell: Callable[[str], None] = lambda reason: None


def pauses() -> Iterator[float]:
    """Yield the wait after each try, without end."""
    seconds = PAUSE_FIRST_S
    while True:
        yield seconds
        seconds = min(seconds * 2, PAUSE_MAX_S)


def put_surely(objects: ObjectStore, name: str, data: bytes, patience: Patience) -> None:
    """Put an object until it is known to be there: retries use the same name.

    Raises ObjectForged where the name holds something else.
    """
    begun_s = monotonic()
    for pause_s in pauses():
        try:
            objects.put(name, data)
            return
        except ObjectExists:
            with suppress(StoreUnanswered, ObjectMissing):  # Put it again.
                check_same(objects, name, data)
                return
        except StoreUnanswered as error:
            patience.tell(str(error))
        if monotonic() - begun_s > patience.stall_s:
            patience.stalled()
        patience.pause(pause_s)


def check_same(objects: ObjectStore, name: str, data: bytes) -> None:
    """Check that the object of that name equals this object, by its size and its last bytes, whose
    checksum covers session, nonce and slices. Raises ObjectForged, ObjectMissing, StoreUnanswered.
    """
    size = objects.size(name)
    tail_bytes = min(TRAILER_BYTES, len(data))
    if (
        size != len(data)
        or objects.get(name, size - tail_bytes, tail_bytes) != (data[-tail_bytes:])
    ):
        raise ObjectForged(f"object {name} is there and is not ours: a number was given out twice")


def build_object(header: bytes, slices: Sequence[Slice]) -> tuple[bytes, int]:
    """The object with these slices, and the bytes of its footer and trailer. Raises StorageFailed
    where the local file cannot be read.
    """
    try:
        pieces, entries = gather(slices)
    except FileGone as error:
        raise StorageFailed(f"what was appended is gone: {error}") from error
    footer = pack_footer(header, entries)
    return b"".join([header, *pieces, footer]), len(footer)


def gather(slices: Sequence[Slice]) -> tuple[list[Buffer], list[SliceEntry]]:
    """The bytes of the slices, and their entries as they follow an object's header. Raises
    FileGone; StorageFailed if a local file cannot be read.
    """
    pieces: list[Buffer] = []
    entries: list[SliceEntry] = []
    object_pos = HEADER_BYTES
    for entry_slice in slices:
        entry = entry_slice.entry
        try:
            pieces.append(read_whole(entry_slice.file, entry.size, entry.file_pos))
        except OSError as error:
            text = f"cannot read what was appended to partition {entry.partition_id}"
            raise StorageFailed(f"{text}: {reason_of(error)}") from error
        entries.append(replace(entry, object_pos=object_pos))
        object_pos += entry.size
    return pieces, entries


def cut(slices: Sequence[Slice], bytes_max: int) -> Iterator[list[Slice]]:
    """Yield the slices in parts of about `bytes_max`; a slice that does not fit is cut, and each
    cut carries the whole slice's offsets.
    """
    part: list[Slice] = []
    left = bytes_max
    for entry_slice in slices:
        pos, end = entry_slice.entry.file_pos, entry_slice.entry.file_end
        while pos < end:
            size = min(end - pos, left)
            part.append(
                Slice(replace(entry_slice.entry, file_pos=pos, size=size), entry_slice.file)
            )
            pos += size
            left -= size
            if not left:
                yield part
                part, left = [], bytes_max
    if part:
        yield part
