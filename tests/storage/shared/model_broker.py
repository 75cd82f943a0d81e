"""A broker of the simulation over several lives: the product's publisher, takeover, shards, packer
and sweeper, over model logs and a model catalogue.
"""

import struct
from contextlib import suppress

from braidlog.storage.errors import StoreUnanswered
from braidlog.storage.shared.layout import BadObject
from braidlog.storage.shared.ledger import Fenced, JournalRow, LedgerUnanswered, Owned, SessionState
from braidlog.storage.shared.packer import PackerSettings, apply, plan
from braidlog.storage.shared.points import SharedPoint
from braidlog.storage.shared.proofs import Mark, Marker
from braidlog.storage.shared.publisher import Patience, Publisher, RoundSettings, SessionIdentity
from braidlog.storage.shared.shard import Shard
from tests.storage.shared.model_catalogue import (
    CATALOGUE,
    CATALOGUE_SHARD,
    TOPIC_SHARDS,
    ModelCatalogue,
)
from tests.storage.shared.model_logs import HEAD_BYTES, RECORD, ModelLog, ModelPacker
from tests.storage.shared.model_turns import BrokerThread, Port

POSITIONS = 3  # The kind of journal rows that hold positions.
POSITION = struct.Struct("<QQ")  # Partition and position.

# A broker's actions and their percentages; a seed has its own mix.
USUAL = {"append": 40, "round": 40, "take": 10, "pack": 8, "retain": 3, "clean": 4}
USUAL |= {"change": 4, "follow": 5}
ACTS = tuple(USUAL)
RARE = ("release", "fence_somebody", "leave")


class ModelPublisher(Publisher):
    """Waits by passing the turn, and puts its parts in sequence."""

    turn: BrokerThread

    def pause(self, seconds):
        self.turn.switch()

    def run_all(self, jobs):
        return [job() for job in jobs]


class ModelBroker:
    """A broker over several lives; `live` is the body of a turn."""

    def __init__(self, world, node):
        self.world, self.node = world, node
        self.random = world.random
        self.held = {}  # Shard -> (its Shard, logs by partition).
        self.catalogue = ModelCatalogue()
        self.leaving = []  # Numbers whose deletion is in no round yet.

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
            self.marker = Marker(self.objects)
            packing = PackerSettings(
                delete_after_ms=self.random.choice((0, 100)),
                pack_bytes=self.random.choice((64, 1 << 20)),
            )
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
        act = self.random.choices(ACTS, self.world.weights)[0]
        if self.random.random() < 0.03 * self.world.unrest:
            act = self.random.choice(RARE)
        getattr(self, act)()

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
        if "reorders" in self.world.mistakes:
            self.append()
            self.publish(self.points())
        self.publish(points)

    def points(self):
        logs = [log for _, logs in self.held.values() for log in logs.values()]
        points = [(log, log.point()) for log in logs]
        return [(log, point) for log, point in points if point.slices]

    def publish(self, points):
        rows, positions = self.new_positions(points)
        rows += self.catalogue.take_pending()
        everything = [point for _, point in points]
        if not everything and not rows:
            return
        self.publisher.keep([*everything, SharedPoint((), rows=rows)])
        self.world.counts["rounds"] += 1
        self.mark()
        self.drop_left()
        for log, point in points:
            log.published(point)
            for piece in point.slices:
                self.acknowledge(piece)
        self.world.positions.update(positions)

    def mark(self):
        """Write the session's mark at random, as a session does each second."""
        if self.random.random() < 0.3:
            with suppress(StoreUnanswered):
                self.marker.put(Mark(self.session, self.publisher.round, 0))

    def acknowledge(self, piece):
        entry = piece.entry
        data = piece.file.read_at(entry.size, entry.file_pos)
        data = data[HEAD_BYTES:] if entry.file_pos == 0 else data
        self.world.acknowledge((entry.partition_id, *record) for record in RECORD.iter_unpack(data))

    def new_positions(self, points):
        """Return commits of readers, which have seen the durable records."""
        rows, positions = [], {}
        for shard, (_, logs) in self.held.items():
            for log in logs.values():
                if log.durable_offset and self.random.random() < 0.2:
                    place = self.places[shard]
                    self.places[shard] = place + 1
                    known = self.world.positions.get((shard, log.partition_id), 0)
                    position = max(known, self.random.randint(0, log.durable_offset))
                    body = POSITION.pack(log.partition_id, position)
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
            takeover = self.world.takeover(
                self.ledger, self.objects, [owned.shard], self.patience, at_once=1
            )
        except BadObject:
            if self.surely(lambda: self.ledger.session_state(self.session))[0] is SessionState.LIVE:
                raise
            raise Fenced("the next owner has deleted what we looked for") from None
        rows = self.surely(lambda: self.ledger.journal(owned.shard, POSITIONS))
        self.places[owned.shard] = rows[-1].place + 1 if rows else 1
        self.know_catalogue()
        contents = takeover.contents
        whole = {(row.partition_id, row.base) for row in contents.segments}
        starts = {number: start for number, (_, start) in contents.starts.items()}
        shard = Shard(owned, takeover.shards[owned.shard], whole, starts)
        numbers = self.catalogue.numbers(owned.shard)
        for number in numbers & takeover.partitions.keys():
            takeover.partitions[number].check()  # Otherwise the shard is unavailable.
        logs = {
            number: self.open(takeover.partitions.get(number), number, shard) for number in numbers
        }
        shard.gone |= takeover.partitions.keys() - numbers
        self.held[owned.shard] = shard, logs
        self.world.counts["takeovers"] += 1

    def open(self, pieces, number, shard):
        return ModelLog(self.objects, pieces, number, shard.owned.shard)

    # The catalogue.

    def know_catalogue(self):
        """Follow earlier owners: changes that they saw are visible here too."""
        if "takes without following" in self.world.mistakes:
            return
        if CATALOGUE_SHARD in self.held:
            self.round()
        else:
            self.apply_news(self.surely(self.news))

    def follow(self):
        if CATALOGUE_SHARD not in self.held:
            try:
                self.apply_news(self.news())
            except LedgerUnanswered:
                return

    def news(self):
        return self.ledger.journal(CATALOGUE_SHARD, CATALOGUE, self.catalogue.place)

    def apply_news(self, rows):
        before = {*self.catalogue.partitions.items()}
        self.catalogue.follow(rows)
        self.changed(before)
        self.drop_left()

    def change(self):
        """Delete or recreate a topic, as the catalogue's owner."""
        if CATALOGUE_SHARD not in self.held:
            return
        before = {*self.catalogue.partitions.items()}
        gone = sorted(TOPIC_SHARDS.keys() - self.catalogue.partitions.keys())
        shards = gone if gone and self.random.random() < 0.6 else sorted(TOPIC_SHARDS)
        self.catalogue.change(self.random.choice(shards))
        self.world.counts["topics deleted or made"] += 1
        self.changed(before)
        if "drops before the round" in self.world.mistakes:
            self.drop_left()
        if self.random.random() < 0.3:
            self.pack()

    def changed(self, before):
        now = {*self.catalogue.partitions.items()}
        self.leaving += [number for _, number in sorted(before - now)]
        for topic, number in sorted(now - before):
            if TOPIC_SHARDS[topic] in self.held:
                shard, logs = self.held[TOPIC_SHARDS[topic]]
                logs[number] = self.open(None, number, shard)

    def drop_left(self):
        """Remove the leftovers of durable deletions with the next pack."""
        leaving, self.leaving = self.leaving, []
        for shard, logs in self.held.values():
            for number in leaving:
                if logs.pop(number, None) is not None:
                    shard.gone.add(number)

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
                elif self.random.random() < 0.25:
                    log.purge()

    def clean(self):
        sweeper = self.world.sweeper(self.ledger, self.objects, self.random.choice((0, 100)))
        try:
            sweeper.sweep() if self.random.random() < 0.3 else sweeper.clean()
        except (LedgerUnanswered, StoreUnanswered):
            return

    def release(self):
        """Release a shard with everything published."""
        if not self.held:
            return None
        self.round()
        number = self.random.choice(sorted(self.held))
        shard, logs = self.held[number]
        if any(log.durable_offset < log.log_end_offset for log in logs.values()):
            return None
        if "releases early" not in self.world.mistakes:
            del self.held[number]  # The shard takes nothing more from here on.
        try:
            self.ledger.release(shard.owned)
        except LedgerUnanswered:
            return self.surely(lambda: self.ledger.release(shard.owned))

    def fence_somebody(self):
        try:
            for row in self.ledger.sessions():
                if row.state is SessionState.LIVE and row.session != self.session:
                    self.ledger.fence(row.session, -1)
                    return
        except LedgerUnanswered:
            return

    def leave(self):
        self.round()
        self.surely(lambda: self.ledger.leave(self.session))
        raise Fenced("left")
