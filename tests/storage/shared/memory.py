"""Ledger and object store in memory, with the semantics of PostgreSQL's statements and S3's puts.

The contract in `test_ledger.py` compares `MemoryLedger` with the real ledger. `now_ms` is its
clock.
"""

import threading
import time
from copy import deepcopy
from dataclasses import replace
from functools import wraps

from braidlog.storage.shared.layout import BadObject, pack_name, round_name, segment_name
from braidlog.storage.shared.ledger import (
    FORMAT,
    SNAPSHOT,
    Contents,
    JournalRow,
    RoundRow,
    SessionRow,
    SessionState,
    ShardRow,
    Tenure,
)
from braidlog.storage.shared.object_store import ObjectExists, ObjectMissing

# Longest wait for news: no notification comes.
NEWS_S = 0.005


class MemoryStore:
    """Objects by name."""

    def __init__(self):
        self.objects = {}

    def put(self, name, data):
        if name in self.objects:
            raise ObjectExists(name)
        self.objects[name] = bytes(data)

    def get(self, name, pos, size):
        if name not in self.objects:
            raise ObjectMissing(name)
        data = self.objects[name][pos : pos + size]
        if len(data) != size:
            raise BadObject(f"{name} is shorter than {pos + size} bytes")
        return data

    def size(self, name):
        if name not in self.objects:
            raise ObjectMissing(name)
        return len(self.objects[name])

    def delete(self, name):
        self.objects.pop(name, None)

    def names(self, prefix):
        return iter(sorted(name for name in self.objects if name.startswith(prefix)))


def one_at_a_time(kind):
    """Let the statements of a ledger follow each other, as the row locks of PostgreSQL do: the
    threads of several brokers call them.
    """
    for name, method in list(vars(kind).items()):
        if callable(method) and not name.startswith("_") and name != "await_news":
            setattr(kind, name, _in_turn(method))
    return kind


def _in_turn(method):
    @wraps(method)
    def in_turn(self, *arguments, **more):
        with self._statement:
            return method(self, *arguments, **more)

    return in_turn


@one_at_a_time
class MemoryLedger:
    """The tables as dicts."""

    def __init__(self, now_ms=lambda: 0):
        self._statement = threading.RLock()
        self._now_ms = now_ms
        self._cluster = None
        self._sessions = {}  # Session -> row.
        self._beats = {}  # Session -> (beat, store_ok) in ms.
        self._joined = {}  # In ms.
        self._shards = {}
        self._tenures = {}  # (shard, epoch) -> row.
        self._rounds = {}
        self._journal = {}  # (shard, place) -> row.
        self._packs = {}
        self._segments = {}
        self._starts = {}  # Partition -> (shard, log start).
        self._trash = {}  # Object -> due.

    def __deepcopy__(self, memo):
        """Return a ledger with the same rows, as a restored database."""
        copied = type(self)(self._now_ms)
        with self._statement:
            rows = {name: rows for name, rows in vars(self).items() if name != "_statement"}
            vars(copied).update(deepcopy(rows, memo))
        return copied

    def cluster(self):
        return self._cluster

    def init(self, cluster):
        if self._cluster is not None:
            return False
        self._cluster = cluster
        self._shards = {n: ShardRow(n, 0, None) for n in range(cluster.shards + 1)}
        return True

    def upgrade(self, node, silent_ms):
        since_ms = self._now_ms() - silent_ms
        live = [row for row in self._sessions.values() if row.state is SessionState.LIVE]
        if self._cluster.format != FORMAT and any(
            row.node != node and self._beats[row.session][0] > since_ms for row in live
        ):
            return False
        self._cluster = replace(self._cluster, format=FORMAT)
        return True

    def join(self, node, listeners):
        for row in self._sessions.values():
            if row.node == node and row.state is SessionState.LIVE:
                self._end(row.session, SessionState.FENCED)
        session = len(self._sessions) + 1
        self._sessions[session] = SessionRow(
            session, node, SessionState.LIVE, 0, 0, None, listeners
        )
        self._beats[session] = (self._now_ms(), None)
        self._joined[session] = self._now_ms()
        return session

    def beat(self, session, *, store_ok):
        if self.is_live(session):
            now_ms = self._now_ms()
            self._beats[session] = (now_ms, now_ms if store_ok else self._beats[session][1])
        return self.session_state(session)

    def session_state(self, session):
        row = self._sessions.get(session)
        return (SessionState.FENCED, -1) if row is None else (row.state, row.round)

    def sessions(self):
        now_ms = self._now_ms()
        rows = []
        for session, row in self._sessions.items():
            beat, store_ok = self._beats[session]
            silent = None if store_ok is None else now_ms - store_ok
            age = now_ms - self._joined[session]
            rows.append(replace(row, silent_ms=now_ms - beat, store_silent_ms=silent, age_ms=age))
        return rows

    def set_listeners(self, session, listeners):
        if self.is_live(session):
            self._sessions[session] = replace(self._sessions[session], listeners=listeners)

    def drain(self, node, *, drains):
        rows = [row for row in self._sessions.values() if row.node == node]
        live = [row.session for row in rows if row.state is SessionState.LIVE]
        for session in live:
            self._sessions[session] = replace(self._sessions[session], drains=drains)
        return bool(live)

    def fence(self, session, silent_ms):
        row = self._sessions.get(session)
        if row is None or row.state is not SessionState.LIVE:
            return False
        if 0 <= self._now_ms() - self._beats[session][0] <= silent_ms:
            return False
        self._end(session, SessionState.FENCED)
        return True

    def leave(self, session):
        row = self._sessions.get(session)
        if row is None or row.state is not SessionState.LIVE:
            return False
        self._end(session, SessionState.LEFT)
        return True

    def _end(self, session, state):
        row = self._sessions[session]
        self._sessions[session] = replace(row, state=state)
        for key, tenure in self._tenures.items():
            if tenure.session == session and tenure.to_round is None:
                self._tenures[key] = replace(tenure, to_round=row.round)
        for shard, owned in self._shards.items():
            if owned.session == session:
                self._shards[shard] = replace(owned, session=None)

    def shards(self):
        return [self._shards[shard] for shard in sorted(self._shards)]

    def is_live(self, session):
        row = self._sessions.get(session)
        return row is not None and row.state is SessionState.LIVE

    def take(self, session, wanted):
        if not self.is_live(session):
            return {}
        epochs = {}
        round_ = self._sessions[session].round
        for shard in wanted:
            row = self._shards[shard]
            if row.session is None:
                epochs[shard] = row.epoch + 1
                self._shards[shard] = ShardRow(shard, row.epoch + 1, session)
                tenure = Tenure(shard, row.epoch + 1, session, round_, None, round_)
                self._tenures[shard, row.epoch + 1] = tenure
        return epochs

    def owns(self, owned):
        row = self._shards[owned.shard]
        return self.is_live(owned.session) and (row.session, row.epoch) == (
            owned.session,
            owned.epoch,
        )

    def release(self, owned):
        if not self.owns(owned):
            return False
        key = owned.shard, owned.epoch
        round_ = self._sessions[owned.session].round
        self._tenures[key] = replace(self._tenures[key], to_round=round_)
        self._shards[owned.shard] = replace(self._shards[owned.shard], session=None)
        return True

    def may_publish(self, publication):
        row = self._sessions.get(publication.session)
        return (
            row is not None
            and row.state is SessionState.LIVE
            and row.round == publication.round - 1
        )

    def publish(self, publication):
        if not self.may_publish(publication):
            return False
        session = publication.session
        self._sessions[session] = replace(self._sessions[session], round=publication.round)
        self._beats[session] = (self._now_ms(), self._beats[session][1])
        key = session, publication.round
        self._rounds[key] = RoundRow(*key, tuple(publication.parts), tuple(publication.footers))
        for shard, kind, first in publication.snapshots:
            for place_key, row in list(self._journal.items()):
                if row.shard == shard and row.kind % SNAPSHOT == kind and row.place < first:
                    del self._journal[place_key]
        for row in publication.rows:
            assert (row.shard, row.kind % SNAPSHOT, row.place) not in self._journal
            self._journal[row.shard, row.kind % SNAPSHOT, row.place] = row
        return True

    def contents(self, shards):
        wanted = set(shards)
        tenures = [
            tenure for key, tenure in sorted(self._tenures.items()) if tenure.shard in wanted
        ]
        rounds = [
            row
            for (session, number), row in sorted(self._rounds.items())
            if any(self._wants(tenure, session, number) for tenure in tenures)
        ]
        return Contents(
            tenures,
            rounds,
            [row for _, row in sorted(self._packs.items()) if row.shard in wanted],
            [row for _, row in sorted(self._segments.items()) if row.shard in wanted],
            {p: start for p, start in self._starts.items() if start[0] in wanted},
        )

    def _wants(self, tenure, session, number):
        to_round = self._sessions[session].round if tenure.to_round is None else tenure.to_round
        return (
            tenure.session == session
            and tenure.from_round < number <= to_round
            and tenure.packed_round < number
        )

    def await_news(self, timeout_s):
        time.sleep(min(timeout_s, NEWS_S))

    def journal(self, shard, kind, after=0):
        rows = [row for key, row in sorted(self._journal.items()) if key[:2] == (shard, kind)]
        rows = [row for row in rows if row.place > after]
        return [JournalRow(row.shard, row.place, row.kind, row.body) for row in rows]

    def add_packs(self, owned, moves, packs):
        keys = [(owned.shard, move.epoch) for move in moves]
        if not self.owns(owned) or any(
            key not in self._tenures or self._tenures[key].packed_round != move.old
            for key, move in zip(keys, moves, strict=True)
        ):
            return False
        for key, move in zip(keys, moves, strict=True):
            self._tenures[key] = replace(self._tenures[key], packed_round=move.new)
        for pack in packs:
            assert (pack.shard, pack.pack) not in self._packs
            self._packs[pack.shard, pack.pack] = pack
        return True

    def add_segment(self, owned, segment, packs, after_ms):
        key = segment.partition_id, segment.base
        if not self.owns(owned) or key in self._segments:
            return False
        if self._starts.get(segment.partition_id, (0, 0))[1] >= segment.end_offset:
            return False  # A late statement: retention has already dropped it.
        self._segments[key] = segment
        self._drop_packs(owned.shard, packs, after_ms)
        return True

    def _drop_packs(self, shard, packs, after_ms):
        for pack in packs:
            row = self._packs.pop((shard, pack), None)
            if row is not None:
                self._throw(pack_name(shard, row.epoch, pack), after_ms)

    def _throw(self, name, after_ms):
        self._trash[name] = self._now_ms() + after_ms

    def set_start(self, owned, partition, packs, after_ms):
        number, old, new = partition
        if not self.owns(owned) or self._starts.get(number, (0, 0))[1] != old:
            return False
        self._starts[number] = (owned.shard, new)
        self._drop_segments(number, new, after_ms)
        self._drop_packs(owned.shard, packs, after_ms)
        return True

    def _drop_segments(self, partition_id, below, after_ms):
        for key, row in list(self._segments.items()):
            if row.partition_id == partition_id and (below is None or row.end_offset <= below):
                del self._segments[key]
                self._throw(
                    segment_name(partition_id, row.base, row.epoch, row.generation), after_ms
                )

    def drop_partitions(self, owned, partitions, packs, after_ms):
        if not self.owns(owned):
            return False
        for partition_id in partitions:
            self._drop_segments(partition_id, None, after_ms)
            self._starts.pop(partition_id, None)
        self._drop_packs(owned.shard, packs, after_ms)
        return True

    def trash_rounds(self, after_ms):
        count = 0
        for (session, number), row in list(self._rounds.items()):
            owner = self._sessions[session]
            if number >= owner.round and owner.state is SessionState.LIVE:
                continue
            if any(self._wants(tenure, session, number) for tenure in self._tenures.values()):
                continue
            del self._rounds[session, number]
            count += 1
            for part in range(len(row.parts)):
                self._throw(round_name(session, number, part), after_ms)
        self._tenures = {
            key: tenure
            for key, tenure in self._tenures.items()
            if tenure.to_round is None or tenure.packed_round < tenure.to_round
        }
        return count

    def due_trash(self, count_max):
        now_ms = self._now_ms()
        return sorted(name for name, due in self._trash.items() if due <= now_ms)[:count_max]

    def drop_trash(self, objects):
        for name in objects:
            self._trash.pop(name, None)

    def trash(self):
        return set(self._trash)

    def close(self):
        pass
