"""The protocol of the shared store, step by step: several brokers over a ledger and a store in
memory.

Any call may fail, be late, or have an effect without an answer, while topics are deleted and
recreated. Publisher, takeover, shard and packer are the product's; a broker's logs and its
catalogue are small models. The seed decides the turns, so that each run can be repeated.
`World.check` compares the invariants with the acknowledged records.
"""

import random
import threading

from braidlog.storage.errors import StorageError
from braidlog.storage.shared.layout import CLUSTER_NAME, BadObject
from braidlog.storage.shared.ledger import FORMAT, Cluster, RoundRow
from braidlog.storage.shared.pieces import partitions_of
from braidlog.storage.shared.sweeper import Sweeper
from braidlog.storage.shared.takeover import is_unpacked, read_shards, round_slices
from tests.storage.shared.memory import MemoryLedger, MemoryStore
from tests.storage.shared.model_broker import POSITION, POSITIONS, USUAL, ModelBroker
from tests.storage.shared.model_catalogue import SHARDS, published_catalogue
from tests.storage.shared.model_logs import HEAD_BYTES, RECORD
from tests.storage.shared.model_turns import BrokerThread

NODES = 3
COUNTED = ("rounds", "takeovers", "packs", "uploads", "fenced", "topics deleted or made")


class Violation(AssertionError):
    """An invariant does not hold; the text names the invariant."""


class World:
    """The brokers, their stores, and the known facts."""

    def __init__(
        self,
        seed,
        ledger_type=MemoryLedger,
        takeover=read_shards,
        sweeper=Sweeper,
        mistakes=(),
    ):
        self.random = random.Random(seed)
        self.now = 0
        self.back = threading.Lock()
        self.back.acquire()
        self.ledger = ledger_type(lambda: self.now)
        self.store = MemoryStore()
        self.takeover = takeover
        self.sweeper = sweeper
        self.mistakes = mistakes  # Of brokers, by the names that `ModelBroker` checks.
        self.late = []
        self.acked = {}  # (partition, offset) -> value.
        self.published = {}
        self.positions = {}  # (shard, partition) -> last acknowledged position.
        self.values = 0
        self.lives = {}
        self.weights = [usual * self.random.choice((0.3, 1, 1, 3)) for usual in USUAL.values()]
        self.unrest = self.random.choice((0.2, 1))  # Rate at which brokers end, and release shards.
        self.fault_rate = self.random.choice((0.0, 0.05, 0.2))
        self.counts = dict.fromkeys(COUNTED, 0)
        self.ledger.init(Cluster("sim", FORMAT, SHARDS))
        self.store.put(CLUSTER_NAME, b"sim")

    def outcome(self, do, is_change, unanswered):
        """Make a call: done, lost before or after its effect, or done later."""
        draw = self.random.random()
        if draw >= self.fault_rate:
            return do()
        kind = self.random.randrange(3 if is_change else 2)
        if kind == 1:
            do()
        elif kind == 2:
            self.late.append(do)
        raise unanswered("no answer")

    def run(self, steps):
        """Run that many steps, then every check again. Raises Violation."""
        try:
            for _ in range(steps):
                self._step()
            self.check()
        finally:
            for turn in self.lives.values():
                turn.killed = True
                while not turn.over:
                    turn.resume()

    def _step(self):
        self.now += 1
        chance = self.random.random()
        if self.late and chance < 0.05:
            self._do_late(self.late.pop(self.random.randrange(len(self.late))))
        if chance > 0.996:
            self.check()
        node = self.random.randrange(NODES)
        turn = self.lives.get(node)
        if turn is None or turn.over:
            self.lives[node] = turn = BrokerThread(self, ModelBroker(self, node).live)
            turn.start()
        elif chance < 0.001 * self.unrest * (1 + 5 * (self.fault_rate > 0)):
            turn.killed = True
        turn.resume()
        if turn.error is not None:
            if isinstance(turn.error, StorageError):  # A wrong assumption of the broker.
                raise Violation(f"broker {node}: {turn.error}") from turn.error
            raise turn.error

    def _do_late(self, do):
        try:
            do()
        except Exception:
            return  # The answer reaches nobody.

    # Invariants.

    def note_published(self, publication):
        """Note a published round: none of its offsets may already have another value."""
        row = RoundRow(
            publication.session, publication.round, publication.parts, publication.footers
        )
        try:
            slices = round_slices(self.store, row)
        except BadObject as error:
            raise Violation(f"a round counts whose objects are not there: {error}") from error
        for number, offset, value in records_of(slices, self.store):
            known = self.published.setdefault((number, offset), value)
            if known != value:
                raise Violation(f"offset {offset} of partition {number} has two values")

    def acknowledge(self, records):
        """Note a broker's answers to its clients."""
        for number, offset, value in records:
            known = self.acked.setdefault((number, offset), value)
            if known != value:
                raise Violation(f"offset {offset} of partition {number} acknowledged twice")

    def check(self):
        """Check that every acknowledged, kept record of an existing topic is readable, and
        positions are right.
        """
        contents = self.ledger.contents(range(SHARDS + 1))
        located = []
        try:
            for row in contents.rounds:
                for round_slice in round_slices(self.store, row):
                    tenures = [t for t in contents.tenures if t.shard == round_slice.entry.shard]
                    if is_unpacked(row, tenures):
                        located.append(round_slice)
            partitions = partitions_of(contents, located)
        except Exception as error:
            raise Violation(f"the store cannot be read: {error}") from error
        known = {*published_catalogue(self.ledger).partitions.values()}
        for number, records in self._by_partition().items():
            if number in known:
                self._check_partition(partitions.get(number), number, records)
        self._check_tenures(contents.tenures)
        for (shard, number), position in self.positions.items():
            if number in known:
                self._check_position(shard, partitions.get(number), number, position)

    def _check_position(self, shard, partition_state, number, position):
        moves = [POSITION.unpack(row.body) for row in self.ledger.journal(shard, POSITIONS)]
        targets = [to for partition, to in moves if partition == number]
        if not targets or targets[-1] < position:
            raise Violation(f"the position {position} of partition {number} is lost")
        if partition_state is not None and position > partition_state.log_end:
            raise Violation(f"position {position} lies beyond the log of partition {number}")

    def _by_partition(self):
        groups = {}
        for (number, offset), value in self.acked.items():
            groups.setdefault(number, []).append((offset, value))
        return groups

    def _check_partition(self, partition, number, records):
        if partition is None or partition.fault:
            raise Violation(f"partition {number} is gone: {partition and partition.fault}")
        values = {}
        for segment in partition.segments:
            data = b""
            for piece in segment.pieces:
                whole = self.store.objects.get(piece.object)
                if whole is None:
                    raise Violation(f"{piece.object} is gone")
                data += whole[piece.object_pos : piece.object_pos + piece.size]
            values.update(RECORD.iter_unpack(data[HEAD_BYTES:]))
        for offset, value in records:
            if offset >= partition.log_start and values.get(offset) != value:
                raise Violation(f"acknowledged offset {offset} of partition {number} is lost")

    def _check_tenures(self, tenures):
        open_ones = [t.shard for t in tenures if t.to_round is None]
        if len(open_ones) != len(set(open_ones)):
            raise Violation("a shard has two owners")


def records_of(slices, store):
    """Return (partition, offset, value) of a round's slices, whose parts end anywhere."""
    joined = {}
    for located in slices:
        entry = located.entry
        data = store.objects[located.object][entry.object_pos : entry.object_pos + entry.size]
        start, before = joined.get((entry.partition_id, entry.segment_base), (entry.file_pos, b""))
        joined[entry.partition_id, entry.segment_base] = start, before + data
    for (number, _), (start, data) in joined.items():
        for offset, value in RECORD.iter_unpack(data if start else data[HEAD_BYTES:]):
            yield number, offset, value


def run_seed(seed, steps=1000, **wrong):
    """Run a seed. Raises Violation, with the seed in its text."""
    world = World(seed, **wrong)
    try:
        world.run(steps)
    except Violation as violation:
        raise Violation(f"seed {seed}, step {world.now}: {violation}") from violation
    return world
