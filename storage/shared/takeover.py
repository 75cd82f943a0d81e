"""The takeover reads of a new owner: the ledger's rows and the footers of unpacked rounds.

Needs nothing from the machine that had the shard before. Knows no partition log and no journal.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from time import monotonic
from time import sleep as sleep_for
from typing import TypeVar

from braidlog.storage.errors import StoreUnanswered
from braidlog.storage.shared.layout import (
    HEADER_BYTES,
    KIND_ROUND,
    BadObject,
    SliceEntry,
    round_name,
    unpack_footer,
    unpack_header,
)
from braidlog.storage.shared.ledger import (
    Contents,
    Ledger,
    LedgerUnanswered,
    PackRow,
    RoundRow,
    Tenure,
)
from braidlog.storage.shared.object_store import ObjectMissing, ObjectStore
from braidlog.storage.shared.pieces import Located, PartitionPieces, partitions_of
from braidlog.storage.shared.publisher import Patience, pauses

# How long store and database are asked again: a failover of PostgreSQL takes seconds.
ANSWER_S = 60.0

# Footers read at once: each waits for the store most of its time.
READS_AT_ONCE = 16

T = TypeVar("T")


@dataclass(slots=True)
class FoundShard:
    """A shard as a new owner finds it; `rounds` are the slices that no pack holds yet."""

    tenures: list[Tenure]
    rounds: list[Located]
    packs: list[PackRow]


@dataclass(slots=True)
class TakeoverShards:
    """All shards of a takeover, and their partitions by id."""

    shards: dict[int, FoundShard]
    partitions: dict[int, PartitionPieces]
    contents: Contents


def read_shards(
    ledger: Ledger,
    objects: ObjectStore,
    shards: Sequence[int],
    patience: Patience,
    *,
    at_once: int = READS_AT_ONCE,
) -> TakeoverShards:
    """Read everything about these shards, which this session owns. An unanswered read is repeated
    until `patience` ends it; `at_once` footers are read at a time, 1: in this thread.

    Raises BadObject, which names the missing or wrong object.
    """
    contents = surely(lambda: ledger.contents(shards), patience)
    shards_found = {shard: FoundShard([], [], []) for shard in shards}
    for tenure in contents.tenures:
        shards_found[tenure.shard].tenures.append(tenure)
    for pack in contents.packs:
        shards_found[pack.shard].packs.append(pack)
    for row, slices in read_rounds(objects, contents.rounds, patience, at_once):
        for located in slices:
            shard = shards_found.get(located.entry.shard)
            if shard is not None and is_unpacked(row, shard.tenures):
                shard.rounds.append(located)
    rounds = [located for shard in shards_found.values() for located in shard.rounds]
    return TakeoverShards(shards_found, partitions_of(contents, rounds), contents)


def read_rounds(
    objects: ObjectStore, rows: Sequence[RoundRow], patience: Patience, at_once: int
) -> Iterable[tuple[RoundRow, list[Located]]]:
    """Yield published rounds with the slices of each. Raises BadObject, and the errors of
    `patience`.
    """

    def read(row: RoundRow) -> list[Located]:
        return surely(lambda: round_slices(objects, row), patience)

    if at_once == 1:
        return [(row, read(row)) for row in rows]
    with ThreadPoolExecutor(at_once) as pool:
        return list(zip(rows, pool.map(read, rows), strict=True))


def is_unpacked(row: RoundRow, tenures: Iterable[Tenure]) -> bool:
    """Return True if a tenure covers the round and has not packed it."""
    return any(
        tenure.session == row.session
        and max(tenure.from_round, tenure.packed_round) < row.round
        and (tenure.to_round is None or row.round <= tenure.to_round)
        for tenure in tenures
    )


def round_slices(objects: ObjectStore, row: RoundRow) -> list[Located]:
    """The slices of a published round, of all its parts. Raises BadObject, StoreUnanswered."""
    slices: list[Located] = []
    for part, (size, footer_bytes) in enumerate(zip(row.parts, row.footers, strict=True)):
        name = round_name(row.session, row.round, part)
        try:
            entries = read_footer(objects, name, size, footer_bytes, (row.session, row.round, part))
        except ObjectMissing as error:
            raise BadObject(f"object {name}, which round {row.round} is made of, is missing") from (
                error
            )
        except BadObject as error:
            raise BadObject(f"object {name}: {error}") from error
        slices += [Located(entry, name, True) for entry in entries]
    return slices


def read_footer(
    objects: ObjectStore, name: str, size: int, footer_bytes: int, place: tuple[int, int, int]
) -> list[SliceEntry]:
    """The footer of a part of a round; `place` is (session, round, part). Raises BadObject."""
    header_bytes = objects.get(name, 0, HEADER_BYTES)
    header = unpack_header(header_bytes)
    if (header.kind, header.owner, header.number, header.part) != (KIND_ROUND, *place):
        raise BadObject("its header says that it is another object")
    return unpack_footer(header_bytes, objects.get(name, size - footer_bytes, footer_bytes))


def surely(ask: Callable[[], T], patience: Patience) -> T:
    """Ask until there is an answer; asking twice must do no harm."""
    for pause_s in pauses():
        try:
            return ask()
        except (LedgerUnanswered, StoreUnanswered) as error:
            patience.tell(str(error))
            patience.pause(pause_s)
    raise AssertionError("the pauses have no end")


def for_a_while(
    clock: Callable[[], float] = monotonic,
    sleep: Callable[[float], None] = sleep_for,
    *,
    seconds: float = ANSWER_S,
    tell: Callable[[str], None] = lambda reason: None,
) -> Patience:
    """Ask again for that many seconds, all questions together, then raise the last error. `tell`
    gets the reason of each try without an answer.
    """
    end_s = clock() + seconds
    last = ""

    def tell_reason(reason: str) -> None:
        nonlocal last
        last = reason
        tell(reason)

    def pause(pause_s: float) -> None:
        if clock() + pause_s > end_s:
            raise sys.exception() or StoreUnanswered(last)
        sleep(pause_s)

    return Patience(pause, tell=tell_reason)
