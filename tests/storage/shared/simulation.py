"""The protocol of the shared store, step by step: several brokers over one ledger and one store in
memory, where any call may fail, be late, or be done without an answer.

Publisher, takeover, shard and packer are the real ones; a broker's logs are small models. Whoever
has the turn is decided by the seed, so that each run can be had again. `World.check` holds the
invariants against what was acknowledged.
"""

import random
import struct
import threading

from storage.errors import StorageError
from storage.shared.layout import BadObject, shard_of
from storage.shared.ledger import (
    FORMAT,
    Cluster,
    Fenced,
    JournalRow,
    LedgerUnanswered,
    Owned,
    RoundRow,
    State,
)
from storage.shared.object_store import StoreUnanswered
from storage.shared.packer import PackerSettings, apply, plan
from storage.shared.pieces import partitions_of
from storage.shared.points import SharedPoint
from storage.shared.publisher import Patience, Publisher, RoundSettings, SessionIdentity
from storage.shared.shard import Shard
from storage.shared.sweeper import Sweeper
from storage.shared.takeover import is_unpacked, read_shards, round_slices
from tests.storage.shared.memory import MemoryLedger, MemoryStore
from tests.storage.shared.model_logs import HEAD_BYTES, RECORD, ModelLog, ModelPacker

SHARDS = 3
PARTITIONS = {number: shard_of(f"t/n/topic{number}", SHARDS) for number in range(1, 6)}
NODES = 3
POSITIONS = 3  # The kind of journal rows that hold positions here.
CHANGES = frozenset(
    {"put", "delete", "join", "fence", "leave", "take", "release", "publish", "trash_rounds"}
    | {"add_pack", "add_segment", "set_start", "drop_partitions", "drop_trash"}
)


class Violation(AssertionError):
    """An invariant does not hold; the text says which."""


class Killed(BaseException):
    """The process of a broker was killed."""


class Turn(threading.Thread):
    """One broker's process: runs while it has the turn, gives it back at each call outside."""

    def __init__(self, world, body):
        super().__init__(daemon=True)
        self._world = world
        self._body = body
        self._go = threading.Lock()
        self._go.acquire()
        self.killed = False
        self.over = False
        self.error = None

    def run(self):
        self._go.acquire()
        try:
            if not self.killed:
                self._body(self)
        except Killed:
            pass
        except BaseException as error:
            self.error = error
        self.over = True
        self._world.back.release()

    def resume(self):
        """Let it run to its next call."""
        self._go.release()
        self._world.back.acquire()

    def switch(self):
        """Give the turn back until it comes again."""
        self._world.back.release()
        self._go.acquire()
        if self.killed:
            raise Killed


class Port:
    """Ledger or store as one broker reaches it."""

    def __init__(self, world, turn, target, unanswered):
        self._world, self._turn, self._target = world, turn, target
        self._unanswered = unanswered

    def __getattr__(self, name):
        def call(*args, **kwargs):
            self._turn.switch()

            def do():
                done = getattr(self._target, name)(*args, **kwargs)
                if name == "publish" and done:
                    self._world.note_published(*args)
                return done

            return self._world.outcome(do, name in CHANGES, self._unanswered)

        return call


class World:
    """Everything, and what is known to be true of it."""

    def __init__(
        self,
        seed,
        ledger_type=MemoryLedger,
        takeover=read_shards,
        sweeper=Sweeper,
        releases_early=False,
        reorders=False,
    ):
        self.random = random.Random(seed)
        self.now = 0
        self.back = threading.Lock()
        self.back.acquire()
        self.ledger = ledger_type(lambda: self.now)
        self.store = MemoryStore()
        self.takeover = takeover
        self.sweeper = sweeper
        self.releases_early = releases_early
        self.reorders = reorders
        self.late = []
        self.acked = {}  # (partition, offset) -> value.
        self.published = {}
        self.positions = {}  # (shard, partition) -> position acknowledged last.
        self.values = 0
        self.lives = {}
        self.fault_rate = self.random.choice((0.0, 0.05, 0.2))
        self.counts = dict.fromkeys(("rounds", "takeovers", "packs", "uploads", "fenced"), 0)
        self.ledger.init(Cluster("sim", FORMAT, SHARDS))

    def outcome(self, do, is_change, unanswered):
        """One call: done, lost before or after it was done, or done later."""
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
        """That many steps, then every check once more. Raises Violation."""
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
            self.lives[node] = turn = Turn(self, Broker(self, node).live)
            turn.start()
        elif chance < 0.001 * (1 + 5 * (self.fault_rate > 0)):
            turn.killed = True
        turn.resume()
        if turn.error is not None:
            if isinstance(turn.error, StorageError):  # What it relied on is not so.
                raise Violation(f"broker {node}: {turn.error}") from turn.error
            raise turn.error

    def _do_late(self, do):
        try:
            do()
        except Exception:
            return  # Nobody hears it.

    # What must hold.

    def note_published(self, publication):
        """A round counts: none of its offsets may have another value already."""
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
        """A broker answers its clients."""
        for number, offset, value in records:
            known = self.acked.setdefault((number, offset), value)
            if known != value:
                raise Violation(f"offset {offset} of partition {number} acknowledged twice")

    def check(self):
        """Every acknowledged record that retention kept can be read, and positions are right."""
        contents = self.ledger.contents(range(SHARDS + 1))
        located = []
        try:
            for row in contents.rounds:
                for one in round_slices(self.store, row):
                    tenures = [t for t in contents.tenures if t.shard == one.entry.shard]
                    if is_unpacked(row, tenures):
                        located.append(one)
            found = partitions_of(contents, located)
        except Exception as error:
            raise Violation(f"the store cannot be read: {error}") from error
        for number, records in self._by_partition().items():
            self._check_partition(found.get(number), number, records)
        self._check_tenures(contents.tenures)
        for (shard, number), position in self.positions.items():
            row = [
                r for r in self.ledger.journal(shard, POSITIONS) if r.body[:1] == bytes([number])
            ]
            if not row or struct.unpack("<Q", row[-1].body[1:])[0] < position:
                raise Violation(f"the position {position} of partition {number} is lost")
            if number in found and position > found[number].log_end:
                raise Violation(f"position {position} lies beyond the log of partition {number}")

    def _by_partition(self):
        groups = {}
        for (number, offset), value in self.acked.items():
            groups.setdefault(number, []).append((offset, value))
        return groups

    def _check_partition(self, found, number, records):
        if found is None or found.fault:
            raise Violation(f"partition {number} is gone: {found and found.fault}")
        there = {}
        for segment in found.segments:
            data = b""
            for piece in segment.pieces:
                whole = self.store.objects.get(piece.object)
                if whole is None:
                    raise Violation(f"{piece.object} is gone")
                data += whole[piece.object_pos : piece.object_pos + piece.size]
            there.update(RECORD.iter_unpack(data[HEAD_BYTES:]))
        for offset, value in records:
            if offset >= found.log_start and there.get(offset) != value:
                raise Violation(f"acknowledged offset {offset} of partition {number} is lost")

    def _check_tenures(self, tenures):
        open_ones = [t.shard for t in tenures if t.to_round is None]
        if len(open_ones) != len(set(open_ones)):
            raise Violation("a shard has two owners")


def records_of(slices, store):
    """(partition, offset, value) of a round's slices, whose parts end anywhere."""
    joined = {}
    for located in slices:
        entry = located.entry
        data = store.objects[located.object][entry.object_pos : entry.object_pos + entry.size]
        start, before = joined.get((entry.partition_id, entry.segment_base), (entry.file_pos, b""))
        joined[entry.partition_id, entry.segment_base] = start, before + data
    for (number, _), (start, data) in joined.items():
        for offset, value in RECORD.iter_unpack(data if start else data[HEAD_BYTES:]):
            yield number, offset, value


class ModelPublisher(Publisher):
    """Waits by giving the turn away, and puts its parts one after the other."""

    turn: Turn

    def pause(self, seconds):
        self.turn.switch()

    def run_all(self, jobs):
        return [job() for job in jobs]


class Broker:
    """One life of a broker after the other; `live` is the body of a turn."""

    def __init__(self, world, node):
        self.world, self.node = world, node
        self.random = world.random
        self.held = {}  # Shard -> (its Shard, logs by partition).

    def live(self, turn):
        world = self.world
        self.turn = turn
        self.ledger = Port(world, turn, world.ledger, LedgerUnanswered)
        self.objects = Port(world, turn, world.store, StoreUnanswered)
        self.patience = Patience(lambda seconds: turn.switch())
        self.places = {}  # Shard -> next place of its journal.
        try:
            session = self.surely(lambda: self.ledger.join(self.node, {}))
            identity = SessionIdentity(session, self.random.getrandbits(64))
            settings = RoundSettings(round_bytes=self.random.choice((40, 200, 4096)))
            self.publisher = ModelPublisher(self.ledger, self.objects, identity, settings)
            self.publisher.turn = turn
            self.session = session
            packing = PackerSettings(delete_after_ms=self.random.choice((0, 100)))
            self.packer = ModelPacker(self.ledger, self.objects, None, packing, self.patience)
            while True:
                turn.switch()
                self.act()
        except Fenced:
            world.counts["fenced"] += 1

    def surely(self, do):
        while True:
            try:
                return do()
            except (LedgerUnanswered, StoreUnanswered):
                self.turn.switch()

    def act(self):
        acts = (self.append, self.round, self.take, self.pack, self.retain, self.clean)
        rare = (self.release, self.fence_somebody, self.leave)
        if self.random.random() < 0.03:
            act = self.random.choice(rare)
        else:
            act = self.random.choices(acts, (40, 40, 10, 8, 2, 4))[0]
        act()

    def append(self):
        if self.held:
            _, logs = self.held[self.random.choice(sorted(self.held))]
            if logs:
                log = logs[self.random.choice(sorted(logs))]
                count = self.random.randint(1, 4)
                values = range(self.world.values, self.world.values + count)
                self.world.values += count
                log.append(values, rolls=self.random.random() < 0.15)

    def round(self):
        points = self.points()
        if self.world.reorders:
            self.append()
            self.publish(self.points())
        self.publish(points)

    def points(self):
        logs = [log for _, logs in self.held.values() for log in logs.values()]
        points = [(log, log.point()) for log in logs]
        return [(log, point) for log, point in points if point.slices]

    def publish(self, points):
        rows, positions = self.new_positions(points)
        everything = [point for _, point in points]
        if not everything and not rows:
            return
        self.publisher.keep([*everything, SharedPoint((), rows=rows)])
        self.world.counts["rounds"] += 1
        for log, point in points:
            log.published(point)
            for one in point.slices:
                self.acknowledge(one)
        self.world.positions.update(positions)

    def acknowledge(self, one):
        entry = one.entry
        data = one.file.read_at(entry.size, entry.file_pos)
        data = data[HEAD_BYTES:] if entry.file_pos == 0 else data
        self.world.acknowledge((entry.partition_id, *record) for record in RECORD.iter_unpack(data))

    def new_positions(self, points):
        """Commits of readers, who were shown what is durable."""
        rows, positions = [], {}
        for shard, (_, logs) in self.held.items():
            for log in logs.values():
                if log.durable_offset and self.random.random() < 0.2:
                    place = self.places[shard]
                    self.places[shard] = place + 1
                    known = self.world.positions.get((shard, log.partition_id), 0)
                    position = max(known, self.random.randint(0, log.durable_offset))
                    body = bytes([log.partition_id]) + struct.pack("<Q", position)
                    rows.append(JournalRow(shard, place, POSITIONS, body))
                    positions[shard, log.partition_id] = position
        return rows, positions

    def take(self):
        try:
            free = [row.shard for row in self.ledger.shards() if row.session is None]
            if free:
                self.ledger.take(self.session, self.random.sample(free, 1))
        except LedgerUnanswered:
            pass
        for row in self.surely(self.ledger.shards):
            if row.session == self.session and row.shard not in self.held:
                self.take_over(Owned(self.session, row.shard, row.epoch))

    def take_over(self, owned):
        try:
            found = self.world.takeover(
                self.ledger, self.objects, [owned.shard], self.patience, at_once=1
            )
        except BadObject:
            if self.surely(lambda: self.ledger.session_state(self.session))[0] is State.LIVE:
                raise
            raise Fenced("the next owner has deleted what we looked for") from None
        rows = self.surely(lambda: self.ledger.journal(owned.shard, POSITIONS))
        self.places[owned.shard] = rows[-1].place + 1 if rows else 1
        contents = found.contents
        whole = {(row.partition_id, row.base) for row in contents.segments}
        starts = {number: start for number, (_, start) in contents.starts.items()}
        shard = Shard(owned, found.shards[owned.shard], whole, starts)
        logs = {
            number: ModelLog(self.objects, found.partitions.get(number), number, owned.shard)
            for number, its in PARTITIONS.items()
            if its == owned.shard
        }
        self.held[owned.shard] = shard, logs
        self.world.counts["takeovers"] += 1

    def pack(self):
        if self.held:
            shard, logs = self.held[self.random.choice(sorted(self.held))]
            todo = plan(shard, logs.values(), self.publisher.round)
            if self.random.random() < 0.5:
                todo.uploads = []
            try:
                self.packer.carry_out(todo)
            except (StoreUnanswered, LedgerUnanswered):
                self.world.counts["packs"] -= 1
            apply(todo, logs)
            self.world.counts["packs"] += 1
            self.world.counts["uploads"] += len(todo.done_uploads)

    def retain(self):
        for _, logs in self.held.values():
            for log in logs.values():
                if len(log.segments) > 3:
                    log.retain(self.random.randint(1, 2))
                elif self.random.random() < 0.1:
                    log.purge()

    def clean(self):
        sweeper = self.world.sweeper(self.ledger, self.objects, self.random.choice((0, 100)))
        try:
            sweeper.sweep() if self.random.random() < 0.3 else sweeper.clean()
        except (LedgerUnanswered, StoreUnanswered):
            return

    def release(self):
        """A shard is given up with everything published."""
        if not self.held:
            return None
        self.round()
        number = self.random.choice(sorted(self.held))
        shard, logs = self.held[number]
        if any(log.durable_offset < log.log_end_offset for log in logs.values()):
            return None
        if not self.world.releases_early:
            del self.held[number]  # It takes nothing more from here on.
        try:
            self.ledger.release(shard.owned)
        except LedgerUnanswered:
            return self.surely(lambda: self.ledger.release(shard.owned))

    def fence_somebody(self):
        try:
            for row in self.ledger.sessions():
                if row.state is State.LIVE and row.session != self.session:
                    self.ledger.fence(row.session, -1)
                    return
        except LedgerUnanswered:
            return

    def leave(self):
        self.round()
        self.surely(lambda: self.ledger.leave(self.session))
        raise Fenced("left")


def run_seed(seed, steps=1000, **wrong):
    """One run. Raises Violation, with the seed in its text."""
    world = World(seed, **wrong)
    try:
        world.run(steps)
    except Violation as violation:
        raise Violation(f"seed {seed}, step {world.now}: {violation}") from violation
    return world
