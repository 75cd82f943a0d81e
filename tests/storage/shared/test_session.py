"""Sessions: possible owners of shards, and refusals of a start."""

import random
import threading
from dataclasses import replace

import pytest

from braidlog.storage.errors import StoreUnanswered
from braidlog.storage.shared.ledger import (
    FORMAT,
    FORMAT_MIN,
    Cluster,
    LedgerRefused,
    LedgerUnanswered,
    LedgerWentBack,
    SessionState,
)
from braidlog.storage.shared.proofs import open_cluster
from braidlog.storage.shared.publisher import ObjectForged
from braidlog.storage.shared.session import ClusterSession, SessionSettings
from braidlog.storage.shared.takeover import for_a_while, surely
from tests.storage.shared.memory import MemoryLedger
from tests.storage.shared.shared_dirs import Life, SharedStore

NEVER_MS = 3_600_000


@pytest.fixture
def store(tmp_path):
    return SharedStore(tmp_path)


def session_of(store, node, lease_ms=0):
    settings = SessionSettings(node, lease_ms=lease_ms, beat_ms=NEVER_MS)
    session = ClusterSession(store.ledger, store.objects, Cluster("c", FORMAT, 4), settings)
    session.begin({}, for_a_while(seconds=0))
    return session


ALL = range(5)


def test_a_shard_has_a_single_owner_until_its_release(store):
    first, second = session_of(store, 1, NEVER_MS), session_of(store, 2, NEVER_MS)
    assert first.take(ALL) == dict.fromkeys(ALL, 1)
    assert second.take(ALL) == {} and first.take(ALL) == {}
    first.release(3)
    assert second.take(ALL) == {3: 2} and 3 not in first.epochs
    first.leave()
    assert second.take(ALL) == {0: 2, 1: 2, 2: 2, 4: 2}
    view = second.look()
    assert [row.node for row in view.live.values()] == [2]
    assert {row.session for row in view.shards} == {second.number}
    for session in (first, second):
        session.close()


def test_a_cluster_of_earlier_brokers_is_upgraded_when_none_of_them_runs(store):
    ledger = store.ledger
    ledger._cluster = replace(ledger.cluster(), format=FORMAT_MIN)
    earlier = ledger.join(1, {})
    settings = SessionSettings(2, lease_ms=NEVER_MS, beat_ms=NEVER_MS)
    session = ClusterSession(ledger, store.objects, ledger.cluster(), settings)
    with pytest.raises(LedgerRefused, match="earlier version are running"):
        session.begin({}, for_a_while(seconds=0))
    assert [row.session for row in ledger.sessions()] == [earlier], "nothing was changed"
    assert ledger.cluster().format == FORMAT_MIN
    ledger.leave(earlier)
    session.begin({}, for_a_while(seconds=0))
    assert ledger.cluster().format == session.cluster.format == FORMAT
    session.close()


def test_a_lost_answer_is_looked_up(store):
    session = session_of(store, 1, NEVER_MS)
    session.pause = lambda seconds: None
    for name in ("take", "release"):
        losing(store.ledger, name)
    assert session.take([1, 2]) == {1: 1, 2: 1}, "it was done, and nobody said so"
    session.release(2)
    assert session.epochs == {1: 1}
    session.close()


def losing(ledger, name):
    """Lose the first answer to a call."""
    call, lost = getattr(ledger, name), []

    def once(*arguments):
        result = call(*arguments)
        if not lost:
            lost.append(name)
            raise LedgerUnanswered("lost")
        return result

    setattr(ledger, name, once)


def test_a_silent_owner_is_ended_after_a_lease(store):
    first = session_of(store, 1)
    first.take(ALL)
    second = session_of(store, 2)
    store.now_ms += 1
    second._beat()
    assert second.look().shards[0].session is None and second.fenced_others == 1
    assert len(second.take(ALL)) == 5
    assert store.ledger.session_state(first.number)[0] is SessionState.FENCED
    ended = []
    first.on_end(ended.append)
    first._beat()
    assert len(ended) == 1 and first.ended is ended[0]
    with pytest.raises(type(ended[0])):
        first.look()
    for session in (first, second):
        session.close()


def test_a_silent_owner_is_ended_even_if_the_clock_was_set_back(store):
    """Otherwise no broker would replace it before the clock has reached its last beat again."""
    first, second = session_of(store, 1), session_of(store, 2)
    first.take(ALL)
    store.now_ms -= NEVER_MS
    second._beat()
    assert second.look().shards[0].session == first.number, "it may beat by the new time yet"
    assert second.clock_went_back
    second._ahead_since_s = dict.fromkeys(second._ahead_since_s, -1e9)
    assert second.look().shards[0].session is None and second.fenced_others == 1
    assert not second.look().live.keys() & {first.number} and not second.clock_went_back
    for session in (first, second):
        session.close()


def test_a_beating_owner_is_not_ended_after_a_clock_set_back(store):
    first, second = session_of(store, 1, 1000), session_of(store, 2, 1000)
    store.now_ms -= NEVER_MS
    second.look()
    first._beat()
    second._beat()
    second._answered_since_s = -1e9
    assert len(second.look().live) == 2 and not second.clock_went_back
    for session in (first, second):
        session.close()


def test_a_disconnected_broker_ends_no_other(store):
    first = session_of(store, 1)
    first.take(ALL)
    second = session_of(store, 2)
    store.now_ms += 1000
    beat = store.ledger.beat
    store.ledger.beat = lambda *a, **k: raised(LedgerUnanswered("lost"))
    second._beat()
    store.ledger.beat = beat
    assert len(second.look().live) == 2
    second._beat()
    assert len(second.look().live) == 1, "answered for a whole lease, which is nothing here"
    for session in (first, second):
        session.close()


def raised(error):
    raise error


def test_a_broker_without_postgres_for_long_stops(store):
    session = session_of(store, 1)
    session.settings = SessionSettings(1, serve_without_beat_ms=0)
    store.ledger.beat = lambda *a, **k: raised(LedgerUnanswered("lost"))
    session._beat()
    assert "PostgreSQL" in str(session.ended)
    session.close()


def test_a_hanging_store_delays_no_beat(store):
    hangs, is_asked = threading.Event(), threading.Event()
    answer = store.objects.size

    def hanging(name):
        is_asked.set()
        hangs.wait(60)
        return answer(name)

    store.objects.size = hanging
    session = session_of(store, 1)
    assert is_asked.wait(60)
    store.now_ms += 1000
    session._beat()
    [row] = store.ledger.sessions()
    assert row.silent_ms == 0 and row.store_silent_ms is None
    hangs.set()
    while row.store_silent_ms is None:
        session._beat()
        [row] = store.ledger.sessions()
    session.close()


def test_an_outdated_database_ends_the_session(store):
    session = session_of(store, 1)
    session.follow_rounds(lambda: 1)  # PostgreSQL confirmed round 1, and now has no round.
    session._beat()
    assert isinstance(session.ended, LedgerWentBack) and "round 1 was confirmed" in str(
        session.ended
    )
    session.close()


def test_an_outdated_database_is_noticed_at_every_start(store):
    life = Life(store)
    life.append(b"a")
    life.append(b"b")
    life.crash()
    ledger = store.ledger
    store.ledger = MemoryLedger(lambda: store.now_ms)  # The state before any session.
    store.ledger.init(ledger.cluster())
    for _ in range(3):
        with pytest.raises((LedgerWentBack, ObjectForged)):
            session_of(store, 1)
    store.ledger = ledger
    assert Life(store).read() == [b"a", b"b"]


def test_a_silent_store_begins_no_session(store):
    store.objects.put = lambda *a: raised(StoreUnanswered("lost"))
    with pytest.raises(StoreUnanswered, match="lost"):
        session_of(store, 1)
    [row] = store.ledger.sessions()
    assert row.state is SessionState.LEFT, "others need not wait for its lease"


class RandomFaults:
    """A ledger or store whose calls may have no answer; some take effect nonetheless."""

    def __init__(self, target, unanswered, seed):
        self._target, self._unanswered = target, unanswered
        self._random = random.Random(seed)

    def close(self):
        """Close as the ledger does, without a call."""

    def __getattr__(self, name):
        def call(*arguments, **named):
            draw = self._random.random()
            if draw < 0.2:
                raise self._unanswered("503")
            result = getattr(self._target, name)(*arguments, **named)
            if draw > 0.8:
                raise self._unanswered("no answer in time")
            return result

        return call


@pytest.mark.parametrize("seed", range(5))
def test_a_start_asks_silent_stores_again(store, seed):
    ledger = RandomFaults(store.ledger, LedgerUnanswered, seed)
    objects = RandomFaults(store.objects, StoreUnanswered, -seed)
    now_s, reports = [0.0], []

    def sleep(seconds):
        now_s[0] += seconds

    patience = for_a_while(lambda: now_s[0], sleep, seconds=3600, tell=reports.append)
    cluster = surely(lambda: open_cluster(ledger, objects), patience)
    session = ClusterSession(ledger, objects, cluster, SessionSettings(1, beat_ms=NEVER_MS))
    session.begin({}, patience)
    assert reports and 0 < now_s[0] < 3600
    live = [row.session for row in store.ledger.sessions() if row.state is SessionState.LIVE]
    assert live == [session.number]
    session.close()
