"""The data directory of a broker in a cluster: a cache of the shared store.

Offers the interface of `storage/directory/directory.py` over a `DataDir`. Emptied
at every start: all content comes from ledger and object store. Knows no SQL and no S3.
"""

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from braidlog.storage.directory.data_dir import DataDir
from braidlog.storage.directory.directory import NewPartition
from braidlog.storage.directory.directory_lock import take_lock
from braidlog.storage.errors import DamagedLog, StorageFailed
from braidlog.storage.log.committer import Committer, Keeper
from braidlog.storage.log.directory_id import id_of_cluster
from braidlog.storage.log.layout import (
    ALL_JOURNAL_KINDS,
    DELETED_SUFFIX,
    JOURNAL_KINDS,
    PARTITIONS_NAME,
)
from braidlog.storage.log.log_place import LogPlace
from braidlog.storage.log.recovery import LogIdentity
from braidlog.storage.log.segment_header import KIND_PARTITION
from braidlog.storage.log.sequence_store import SEQUENCES_NAME, pack_table
from braidlog.storage.log.sequences import SequenceTable
from braidlog.storage.log.settings import LogSettings
from braidlog.storage.shared.cached_file import Cache, CachedFiles
from braidlog.storage.shared.journal import LedgerJournal
from braidlog.storage.shared.layout import BadObject, shard_of
from braidlog.storage.shared.ledger import Fenced, JournalRow, Owned, SessionState
from braidlog.storage.shared.packer import Packer, PackerSettings, PackingPlan, apply, plan
from braidlog.storage.shared.pieces import PartitionPieces
from braidlog.storage.shared.points import Backlog
from braidlog.storage.shared.publisher import Publisher, RoundSettings, Watch
from braidlog.storage.shared.session import ClusterSession
from braidlog.storage.shared.shard import Shard
from braidlog.storage.shared.shard_rounds import ShardLink
from braidlog.storage.shared.shared_log import SharedLog, check_settings, open_shared_log
from braidlog.storage.shared.sweeper import Sweeper
from braidlog.storage.shared.takeover import TakeoverShards, read_shards, surely

CATALOGUE_SHARD = 0  # Its journals are read by the catalogue's owner alone.

# File in a cache folder that names the cluster. A folder without this file is never emptied.
MARK_NAME = "cluster-cache"

# After a takeover the producers of this many offsets at a log's end are remembered, and those of
# this many bytes: five batches in flight of 1 MB each, of several producers, may have more offsets.
SEQUENCE_OFFSETS = 50_000
SEQUENCE_BYTES = 16 << 20


class NotACache(StorageFailed):
    """The folder holds something other than a cache of this cluster, and stays unchanged."""


@dataclass(slots=True, frozen=True)
class SharedSettings:
    """Settings of the shared store."""

    rounds: RoundSettings
    packs: PackerSettings
    cache_bytes: int = 10 << 30
    unpublished_bytes_max: int = 256 << 20


@dataclass(slots=True)
class ShardContents:
    """Contents of newly owned shards, as read."""

    shards: TakeoverShards
    journals: dict[tuple[int, int], list[JournalRow]]  # By shard and kind.


class SharedDir:
    """The cache folder of a session, and the shards held. Implements `Directory`."""

    def __init__(
        self, local: DataDir, files: CachedFiles, session: ClusterSession, settings: SharedSettings
    ) -> None:
        """Use `of_session`; `local` is the emptied folder over `files`."""
        self._local = local
        self.path, self.files, self.reserve = local.path, files, local.reserve
        self.in_turn, self.remove_retired = local.in_turn, local.remove_retired
        self.prepare_names, self.take_names = local.prepare_names, local.take_names
        self.session = session
        ledger, objects = session.ledger, session.objects
        self.publisher = Publisher(ledger, objects, session.identity, settings.rounds)
        session.on_end(self.publisher.end)
        session.follow_rounds(lambda: self.publisher.round)
        self.backlog = Backlog(settings.rounds.round_bytes, settings.unpublished_bytes_max)
        self.sweeper = Sweeper(ledger, objects, settings.packs.delete_after_ms)
        self._packer = Packer(ledger, objects, self.files, settings.packs, session.patience)
        self._unopened: dict[int, PartitionPieces] = {}  # Of held shards, not opened yet.
        self._logs: dict[int, SharedLog] = {}  # Of held shards, by partition.
        self._logs_of: dict[int, dict[int, SharedLog]] = {}
        self._shards: dict[int, Shard] = {}
        self._ledger_journals: dict[int, list[LedgerJournal]] = {}

    @classmethod
    def of_session(
        cls, path: str, session: ClusterSession, settings: SharedSettings
    ) -> "SharedDir":
        """Lock and empty the folder; no shard is held yet.

        Raises: DirectoryLocked, NotACache, StorageFull, StorageFailed.
        """
        path = os.path.abspath(path)
        os.makedirs(path, exist_ok=True)
        lock_fd = take_lock(path)
        try:
            _empty(path, session.cluster.cluster_id)
            files = CachedFiles(path, session.objects, Cache(settings.cache_bytes))
            local = DataDir(path, files, lock_fd)
            local.prepare()
            files.name_directory(id_of_cluster(session.cluster.cluster_id))
            return cls(local, files, session, settings)
        except BaseException:  # Release the lock on any error.
            os.close(lock_fd)
            raise

    # Shards.

    def read(self, shards: Sequence[int]) -> "ShardContents":
        """Read the contents of these shards, which this session owns now. Blocks. Raises
        StorageFailed; DamagedLog if an object is missing or wrong; Fenced if another broker has
        taken over meanwhile.
        """
        session = self.session
        try:
            takeover = read_shards(session.ledger, session.objects, shards, session.patience)
        except BadObject as error:
            ask = session.ledger.session_state
            state, _ = surely(lambda: ask(session.number), session.patience)
            # The next owner has packed and deleted the missing objects.
            if state is not SessionState.LIVE:
                text = f"session {session.number} was ended: another broker took over"
                raise Fenced(text) from error
            raise DamagedLog("the shared store", 0, 0, str(error)) from error
        journals = {
            (shard, kind): self._rows(shard, kind)
            for shard in shards
            for kind in _journal_kinds(shard).values()
        }
        return ShardContents(takeover, journals)

    def _rows(self, shard: int, kind: int) -> list[JournalRow]:
        session = self.session
        return surely(lambda: session.ledger.journal(shard, kind), session.patience)

    def check(self, contents: "ShardContents", partitions: Iterable[int]) -> None:
        """Check that these partitions of existing topics can be opened. Raises DamagedLog."""
        for number in partitions:
            if (pieces := contents.shards.partitions.get(number)) is not None:
                pieces.check()

    def hold(
        self, shard: int, contents: "ShardContents", committer: Committer
    ) -> dict[str, LedgerJournal]:
        """Hold a shard that was read; return its journals by name. Raises DamagedLog."""
        shards, epoch = contents.shards, self.session.epochs[shard]
        whole = {(row.partition_id, row.base) for row in shards.contents.segments}
        starts = {
            number: start
            for number, (owner, start) in shards.contents.starts.items()
            if owner == shard
        }
        journals = {
            name: LedgerJournal(shard, kind, contents.journals[shard, kind], committer)
            for name, kind in _journal_kinds(shard).items()
        }
        owned = Owned(self.session.number, shard, epoch)
        self._shards[shard] = Shard(owned, shards.shards[shard], whole, starts)
        self._logs_of[shard] = {}
        self._ledger_journals[shard] = [*journals.values()]
        partitions = shards.partitions.items()
        self._unopened |= {number: pieces for number, pieces in partitions if pieces.shard == shard}
        return journals

    def drop_unopened(self, shard: int) -> None:
        """Drop the rest of a shard's contents once every topic of the shard is open: the rest
        belongs to deleted topics.
        """
        for number in [
            number for number, pieces in self._unopened.items() if pieces.shard == shard
        ]:
            del self._unopened[number]
            self._shards[shard].gone.add(number)

    def give_up(self, shard: int) -> None:
        """Give up a shard: its logs and journals take no more records."""
        epoch = self._shards[shard].owned.epoch
        for number, log in self._logs_of.pop(shard).items():
            if self._logs.get(number) is log:
                del self._logs[number]
            log.close()
            folder = self._local.partition_folder(number)
            self.files.rename(folder, f"{folder}.{epoch}{DELETED_SUFFIX}")
        del self._shards[shard]
        self._unopened = {
            n: pieces for n, pieces in self._unopened.items() if pieces.shard != shard
        }
        for journal in self._ledger_journals.pop(shard):
            journal.close()

    def shard_of(self, topic: str) -> int:
        """Return the shard of a topic, by the full topic name."""
        return shard_of(topic, self.session.cluster.shards)

    def holds(self, shard: int) -> bool:
        """Return True if a shard is ours and was read."""
        return shard in self._shards

    @property
    def keeper(self) -> Keeper:
        """Makes the rounds durable."""
        return self.publisher

    # Partitions.

    def check_settings(self, settings: LogSettings) -> None:
        """Check settings. Raises UnwritableChange for durability `written`."""
        check_settings(settings)

    def create_partitions(
        self, new: Sequence[NewPartition], settings: LogSettings, committer: Committer
    ) -> Sequence[SharedLog]:
        """Open logs of new partitions: nothing is stored before their first record.

        Raises: UnwritableChange for durability `written`; StorageFull, StorageFailed.
        """
        check_settings(settings)
        return [self.open_of_topic(partition, settings, committer) for partition in new]

    def open_of_topic(
        self, part: NewPartition, settings: LogSettings, committer: Committer
    ) -> SharedLog:
        """Open a partition as found. If its shard is not ours, the log is empty and takes no
        records. Raises StorageFull, StorageFailed; DamagedLog, as `check`.
        """
        number, shard = part.partition_id, self.shard_of(part.topic)
        folder = self._local.partition_folder(number)
        is_held = shard in self._shards
        if is_held and not os.path.isdir(folder):
            self.files.make_folder(folder)
        pieces = (self._unopened.pop(number, None) if is_held else None) or PartitionPieces(
            number, shard
        )
        pieces.check()
        epoch = self.session.epochs[shard] if is_held else 0
        if pieces.log_end:
            self._give_sequences(folder, pieces)
        identity = LogIdentity(folder, KIND_PARTITION, number)
        place = LogPlace(self.files, identity, committer, owner_epoch=epoch)
        log = open_shared_log(place, settings, pieces, ShardLink(shard, self.backlog))
        if is_held:
            self._logs[number] = self._logs_of[shard][number] = log
        else:
            log.seal()
        return log

    def _give_sequences(self, folder: str, pieces: PartitionPieces) -> None:
        """Prepare a sequence table that is filled from the newest batches: an earlier owner's table
        is not stored, and a producer that resends does so soon.
        """
        start = min(pieces.log_end - SEQUENCE_OFFSETS, pieces.offset_before(SEQUENCE_BYTES))
        table = SequenceTable(max(pieces.log_start, start))
        path = f"{folder}/{SEQUENCES_NAME}"
        self.files.unwritten[path] = pack_table(table, pieces.partition_id)

    def retire_partition(self, partition_id: int) -> None:
        """Close a partition that no topic has any more; the next pack drops its objects."""
        log = self._logs.pop(partition_id, None)
        if log is not None:
            self._logs_of[log.shard].pop(partition_id, None)
            self._shards[log.shard].gone.add(partition_id)
            log.close()
            self._local.retire_folder(partition_id)

    def is_open(self, partition_id: int) -> bool:
        return partition_id in self._logs

    # Packs: plan and apply in the owner's thread, the work in any single thread.

    def plans(self, last_round: Callable[[], int]) -> Iterator[PackingPlan]:
        """Yield the packing and upload plan of each shard, a shard per step. `last_round` returns
        at each step the last round that the logs know of.
        """
        for number in [*self._shards]:
            if number in self._shards:  # The shard may have been given up since.
                yield plan(self._shards[number], list(self._logs_of[number].values()), last_round())

    @property
    def cache(self) -> Cache:
        """The cache of bytes read from objects."""
        return self.files.cache

    def carry_out(self, todo: PackingPlan) -> None:
        """Carry out a plan. Blocks. Raises StorageFailed."""
        self._packer.carry_out(todo)

    def apply(self, done: PackingPlan) -> None:
        """Tell the logs the results of a plan."""
        apply(done, self._logs_of[done.shard.owned.shard])

    # Ending.

    def note_used(self) -> None:
        """Note nothing: a shard's log and positions are published together."""

    def close(self, committer: Committer) -> None:
        """Stop cleanly: everything published, and all shards free for others. Raises StorageFailed;
        always releases the lock.
        """
        try:
            committer.commit()
            for log in self._logs.values():
                log.seal()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Let go of everything as it is, so that others take over at once: unpublished records
        never count.
        """
        self.session.leave()
        for journals in self._ledger_journals.values():
            for journal in journals:
                journal.close()
        for log in self._logs.values():
            log.close()
        self._logs = {}
        self._local.abandon()
        self.session.close()

    def measure(self, watch: Watch) -> None:
        """Measure rounds and packs with `watch`."""
        self.publisher.measure(watch)
        self._packer.measure(watch)

    def on_round_full(self, call: Callable[[], None]) -> None:
        """Call this when the gathering round has `round_bytes`."""
        self.backlog.call_when_full(call)


def _journal_kinds(shard: int) -> Mapping[str, int]:
    """Return the journals of a shard: the nodes of ZooKeeper's clients are beside the catalogue."""
    return ALL_JOURNAL_KINDS if shard == CATALOGUE_SHARD else JOURNAL_KINDS


def _empty(path: str, cluster_id: str) -> None:
    """Empty a cache of this cluster, or turn an empty folder into a cache. Raises NotACache."""
    mark = os.path.join(path, MARK_NAME)
    names = set(os.listdir(path)) - {"lock"}
    if MARK_NAME in names:
        with open(mark, encoding="ascii", errors="replace") as file:
            named = file.read().strip()
        if named != cluster_id:
            raise NotACache(f"{path} is a cache of cluster {named}, not of {cluster_id}")
    elif names:
        raise NotACache(f"{path} is not empty and no cache of a cluster: name another data_dir")
    shutil.rmtree(os.path.join(path, PARTITIONS_NAME), ignore_errors=True)
    with open(mark, "w", encoding="ascii") as file:
        file.write(cluster_id + "\n")
