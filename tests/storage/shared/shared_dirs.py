"""A shared store in memory with brokers' folders over it, for a series of sessions."""

from braidlog.storage.directory.directory import NewPartition
from braidlog.storage.errors import DamagedLog
from braidlog.storage.formats.api import BodyInfo
from braidlog.storage.log.committer import Committer
from braidlog.storage.log.settings import LogSettings
from braidlog.storage.shared.making import make_cluster
from braidlog.storage.shared.packer import PackerSettings
from braidlog.storage.shared.proofs import open_cluster
from braidlog.storage.shared.publisher import RoundSettings
from braidlog.storage.shared.session import ClusterSession, SessionSettings
from braidlog.storage.shared.shared_dir import SharedDir, SharedSettings
from braidlog.storage.shared.takeover import for_a_while
from tests.storage.shared.memory import MemoryLedger, MemoryStore

SHARDS = 4
APPEND_US = 1_700_000_000_000_000
FOREVER_MS = 3_600_000


class SharedStore:
    """A ledger and objects, and the folders of sessions below a path."""

    def __init__(self, path):
        self.path = path
        self.now_ms = 0
        self.ledger = MemoryLedger(lambda: self.now_ms)
        self.objects = MemoryStore()
        make_cluster(self.ledger, self.objects, SHARDS)

    def session(self, node=1, *, takes=True, lease_ms=FOREVER_MS):
        """Return a session that owns all free shards, practically without beats."""
        settings = SessionSettings(node, lease_ms=lease_ms, beat_ms=FOREVER_MS)
        cluster = open_cluster(self.ledger, self.objects)
        session = ClusterSession(self.ledger, self.objects, cluster, settings)
        session.begin({}, for_a_while(seconds=0))
        if takes:
            session.take(range(SHARDS + 1))
        return session

    def open(self, node=1, *, cache_bytes=1 << 30, takes=True, lease_ms=FOREVER_MS, **rounds):
        """Return the folder of a new session of that node, with no shard read."""
        settings = SharedSettings(
            RoundSettings(round_ms=1, **rounds),
            PackerSettings(delete_after_ms=1000),
            cache_bytes=cache_bytes,
        )
        session = self.session(node, takes=takes, lease_ms=lease_ms)
        return SharedDir.of_session(str(self.path / f"node{node}"), session, settings)

    def names(self, prefix):
        """Return the objects of a kind."""
        return list(self.objects.names(prefix))


def hold_all(directory, committer=None):
    """Hold the shards of the folder's session; return the committer of its rounds."""
    committer = committer or Committer(directory.files, keeper=directory.keeper)
    shards = sorted(directory.session.epochs)
    contents = directory.read(shards)
    for shard in shards:
        directory.hold(shard, contents, committer)
    return committer


class Life:
    """A session with a partition, without a broker."""

    def __init__(self, store, node=1, partition_id=1, settings=None, **how):
        self.directory = store.open(node, **how)
        self.committer = Committer(self.directory.files, keeper=self.directory.keeper)
        try:
            hold_all(self.directory, self.committer)
        except DamagedLog:
            self.directory.abandon()
            raise
        named = NewPartition(partition_id, "public/default/t", 0)
        self.log = self.directory.open_of_topic(named, settings or LogSettings(), self.committer)

    def append(self, *bodies):
        """Append each body as a batch of a single record; published on return."""
        for body in bodies:
            self.write(body)
        self.committer.commit()

    def write(self, body):
        """Write a batch for the next round."""
        return self.log.append([body], BodyInfo(1), body_format=1, append_us=APPEND_US)

    def read(self, offset=None, *, wait=True):
        """Return all bodies from an offset on."""
        offset = self.log.log_start_offset if offset is None else offset
        bodies = []
        while batches := self.log.read(offset, 1 << 20, wait=wait):
            bodies += [bytes(batch.body) for batch in batches]
            offset = batches[-1].next_offset
        return bodies

    def pack(self):
        """Run a cycle over all shards, and delete due objects."""
        for todo in self.directory.plans(lambda: self.directory.publisher.round):
            if not todo.is_empty:
                self.directory.carry_out(todo)
                self.directory.apply(todo)
        self.directory.sweeper.clean()

    def crash(self):
        """End the process without notice to any peer."""
        self.directory.session.leave = lambda: None
        self.directory.abandon()

    def stop(self):
        """Stop cleanly."""
        self.directory.close(self.committer)
