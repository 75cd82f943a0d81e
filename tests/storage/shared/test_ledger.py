"""The contract of every ledger: the ledger in memory, for simulations, and PostgreSQL."""

import signal
import threading

import pytest

from braidlog.storage.errors import StorageError
from braidlog.storage.shared.ledger import (
    FORMAT,
    FORMAT_MIN,
    SNAPSHOT,
    Cluster,
    JournalRow,
    LedgerRefused,
    Owned,
    PackMove,
    PackRow,
    Publication,
    SegmentRow,
    SessionState,
)
from tests.storage.shared.memory import MemoryLedger

LONG_AGO_MS = -1  # Any session has been silent for longer.


@pytest.fixture(params=["memory", pytest.param("postgres", marks=pytest.mark.slow)])
def ledger(request):
    if request.param == "memory":
        fresh = MemoryLedger()
    else:
        fresh = fresh_postgres(request.getfixturevalue("postgres").database)
    assert fresh.cluster() is None
    assert fresh.init(Cluster("c1", FORMAT, 4))
    yield fresh
    fresh.close()


def fresh_postgres(database):
    import psycopg

    from braidlog.storage.shared.postgres import PostgresLedger

    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
    return PostgresLedger(database)


def test_a_cluster_is_created_once(ledger):
    assert ledger.cluster() == Cluster("c1", FORMAT, 4)
    assert not ledger.init(Cluster("c2", FORMAT, 9))
    assert ledger.cluster() == Cluster("c1", FORMAT, 4)
    assert [(row.shard, row.epoch, row.session) for row in ledger.shards()] == [
        (shard, 0, None) for shard in range(5)
    ]


def test_a_node_has_one_live_session(ledger):
    first = ledger.join(7, {"kafka": "a:1"})
    assert ledger.take(first, [0, 1]) == {0: 1, 1: 1}
    second = ledger.join(7, {})
    assert second > first
    assert ledger.session_state(first) == (SessionState.FENCED, 0)
    assert ledger.beat(first, store_ok=True)[0] is SessionState.FENCED
    assert ledger.beat(second, store_ok=True) == (SessionState.LIVE, 0)
    assert [row.session for row in ledger.shards()] == [None] * 5
    rows = {row.session: row for row in ledger.sessions()}
    assert rows[first].state is SessionState.FENCED and rows[first].listeners == {"kafka": "a:1"}
    assert rows[second].store_silent_ms is not None and rows[first].store_silent_ms is None
    assert ledger.session_state(99) == (SessionState.FENCED, -1)


def test_a_session_has_its_addresses_and_a_node_is_drained(ledger):
    session = ledger.join(7, {})
    ledger.set_listeners(session, {"kafka": "b:2"})
    assert ledger.drain(7, drains=True) and not ledger.drain(8, drains=True)
    [row] = ledger.sessions()
    assert (row.listeners, row.drains) == ({"kafka": "b:2"}, True) and row.age_ms >= 0
    assert ledger.drain(7, drains=False) and not ledger.sessions()[0].drains
    ledger.leave(session)
    assert not ledger.drain(7, drains=True)


def test_a_journal_is_read_from_a_place_on(ledger):
    session = ledger.join(1, {})
    rows = [JournalRow(0, place, 2, b"%d" % place) for place in (1, 2, 3)]
    assert ledger.publish(Publication(session, 1, [], [], rows))
    assert ledger.journal(0, 2, 0) == rows and ledger.journal(0, 2, 2) == rows[2:]
    assert ledger.journal(0, 2, 3) == [] and ledger.journal(0, 3, 0) == []


@pytest.mark.slow
def test_a_follower_is_notified_at_once_and_rejects_another_format(postgres):
    from braidlog.storage.shared.postgres import PostgresLedger

    ledger, waiting = fresh_postgres(postgres.database), PostgresLedger(postgres.database)
    assert ledger.init(Cluster("c1", FORMAT, 1))
    session = ledger.join(1, {})
    waiting.await_news(0.01)
    for change in (
        lambda: ledger.publish(Publication(session, 1, [], [], news=True)),
        lambda: ledger.drain(1, drains=True),
        lambda: ledger.take(session, [1]) and ledger.release(Owned(session, 1, 1)),
        lambda: ledger.leave(session),
    ):
        assert change()
        waiting.await_news(3600)
    for open_ledger in (ledger, waiting):
        open_ledger.close()
    older = fresh_postgres(postgres.database)
    older.init(Cluster("c1", FORMAT, 1))
    for number in (FORMAT_MIN - 1, FORMAT + 1):
        older._rows(f"UPDATE cluster SET format = {number} RETURNING 1")
        with pytest.raises(LedgerRefused, match=f"of format {number}, this program knows {FORMAT}"):
            older.cluster()
    older.close()


def test_a_ledger_of_an_earlier_format_is_upgraded_once_its_brokers_are_gone():
    upgraded(MemoryLedger())


@pytest.mark.slow
def test_postgres_upgrades_a_ledger_of_an_earlier_format(postgres):
    ledger = fresh_postgres(postgres.database)
    upgraded(ledger)
    ledger.close()


def upgraded(ledger):
    """Upgrade a ledger; the sessions of the test are never silent for an hour."""
    hour_ms = 3_600_000
    ledger.init(Cluster("c1", FORMAT_MIN, 1))
    other, mine = ledger.join(1, {}), ledger.join(2, {})
    assert not ledger.upgrade(2, hour_ms) and ledger.cluster().format == FORMAT_MIN
    ledger.leave(other)
    assert ledger.upgrade(2, hour_ms) and ledger.cluster() == Cluster("c1", FORMAT, 1)
    assert ledger.session_state(mine)[0] is SessionState.LIVE
    ledger.join(3, {})
    assert ledger.upgrade(2, hour_ms), "another broker has upgraded it meanwhile"


def test_a_shard_is_taken_only_once_and_only_when_free(ledger):
    a, b = ledger.join(1, {}), ledger.join(2, {})
    assert ledger.take(a, [1, 2]) == {1: 1, 2: 1}
    assert ledger.take(b, [2, 3]) == {3: 1}
    assert ledger.release(Owned(a, 2, 1))
    assert not ledger.release(Owned(a, 2, 1))
    assert ledger.take(b, [1, 2]) == {2: 2}
    assert not ledger.release(Owned(a, 2, 2))
    assert ledger.leave(a) and not ledger.leave(a)
    assert ledger.take(a, [4]) == {}
    assert ledger.take(b, [1]) == {1: 2}
    tenures = ledger.contents([1, 2]).tenures
    assert [(t.shard, t.epoch, t.session, t.to_round) for t in tenures] == [
        (1, 1, a, 0),
        (1, 2, b, None),
        (2, 1, a, 0),
        (2, 2, b, None),
    ]


def test_rounds_count_once_in_order_and_never_after_a_fence(ledger):
    a = ledger.join(1, {})
    assert ledger.take(a, [1]) == {1: 1}
    assert ledger.publish(Publication(a, 1, [100], [50]))
    assert not ledger.publish(Publication(a, 1, [100], [50]))
    assert not ledger.publish(Publication(a, 3, [], []))
    assert ledger.publish(Publication(a, 2, [], [], news=True))
    assert ledger.session_state(a) == (SessionState.LIVE, 2)
    assert not ledger.fence(a, 3_600_000)
    assert ledger.fence(a, LONG_AGO_MS)
    assert not ledger.fence(a, LONG_AGO_MS)
    assert not ledger.publish(Publication(a, 3, [1], [1]))
    (tenure,) = ledger.contents([1]).tenures
    assert (tenure.from_round, tenure.to_round, tenure.packed_round) == (0, 2, 0)
    assert [(r.round, r.parts, r.footers) for r in ledger.contents([1]).rounds] == [
        (1, (100,), (50,)),
        (2, (), ()),
    ]


def test_a_journal_keeps_order_and_a_snapshot_replaces_earlier_rows(ledger):
    a = ledger.join(1, {})

    def row(place, body, kind=2, shard=0):
        return JournalRow(shard, place, kind, body)

    others = [row(1, b"cursor", kind=3), row(1, b"other", shard=1)]
    rows = [row(1, b"one"), row(2, b"two\0"), *others]
    assert ledger.publish(Publication(a, 1, [], [], rows))
    assert [r.body for r in ledger.journal(0, 2)] == [b"one", b"two\0"]
    snapshot = [row(3, b"all", kind=2 + SNAPSHOT), row(4, b"next")]
    assert ledger.publish(Publication(a, 2, [], [], snapshot, [(0, 2, 3)]))
    assert ledger.journal(0, 2) == snapshot
    assert ledger.journal(0, 3) == others[:1] and ledger.journal(1, 2) == others[1:]
    ledger.leave(a)
    assert not ledger.publish(Publication(a, 3, [], [], [row(5, b"late")], [(0, 2, 5)]))
    assert ledger.journal(0, 2) == snapshot


def test_packs_move_all_tenures_or_none(ledger):
    a = ledger.join(1, {})
    ledger.take(a, [1])
    ledger.publish(Publication(a, 1, [10], [10]))
    ledger.leave(a)
    b = ledger.join(2, {})
    assert ledger.take(b, [1]) == {1: 2}
    ledger.publish(Publication(b, 1, [10], [10]))
    owned = Owned(b, 1, 2)
    packs = [PackRow(1, 1, 2, 500, b"\0\xff"), PackRow(1, 2, 2, 60, b"")]
    assert not ledger.add_packs(owned, [PackMove(1, 0, 1), PackMove(2, 7, 1)], packs)
    assert not ledger.add_packs(Owned(b, 1, 1), [PackMove(1, 0, 1)], packs)
    assert len(ledger.contents([1]).rounds) == 2
    assert ledger.add_packs(owned, [PackMove(1, 0, 1), PackMove(2, 0, 1)], packs)
    assert not ledger.add_packs(owned, [PackMove(1, 0, 1), PackMove(2, 0, 1)], packs)
    contents = ledger.contents([1])
    assert contents.packs == packs and contents.rounds == []
    assert [t.packed_round for t in contents.tenures] == [1, 1]
    ledger.publish(Publication(b, 2, [], []))
    assert ledger.add_packs(owned, [PackMove(2, 1, 2)], [])
    assert ledger.contents([1]).packs == packs


def test_rounds_are_removed_once_every_tenure_has_packed_them(ledger):
    a = ledger.join(1, {})
    ledger.take(a, [1, 2])
    ledger.publish(Publication(a, 1, [10, 11], [10, 10]))
    ledger.publish(Publication(a, 2, [12], [10]))
    assert ledger.add_packs(Owned(a, 1, 1), [PackMove(1, 0, 2)], [])
    assert ledger.trash_rounds(0) == 0
    assert ledger.add_packs(Owned(a, 2, 1), [PackMove(1, 0, 1)], [])
    assert ledger.trash_rounds(0) == 1
    assert set(ledger.due_trash(10)) == {
        "rounds/1/00000000000000000001.0".replace("/1/", f"/{a}/"),
        f"rounds/{a}/00000000000000000001.1",
    }
    assert len(ledger.due_trash(1)) == 1
    assert ledger.add_packs(Owned(a, 2, 1), [PackMove(1, 1, 2)], [])
    assert ledger.trash_rounds(0) == 0, "the newest round of a live session stays"
    ledger.leave(a)
    assert ledger.trash_rounds(3_600_000) == 1
    assert len(ledger.due_trash(10)) == 2 and len(ledger.trash()) == 3
    assert ledger.contents([1, 2]).tenures == [], "they are over and packed"
    ledger.drop_trash(sorted(ledger.trash()))
    assert ledger.trash() == set()


def segment(partition_id, base, end, shard=1, epoch=1):
    return SegmentRow(partition_id, base, shard, epoch, 0, end, 1000, 64, 5, None)


def test_segments_starts_and_packs_change_in_a_single_statement(ledger):
    a = ledger.join(1, {})
    ledger.take(a, [1])
    ledger.publish(Publication(a, 1, [10], [10]))
    owned = Owned(a, 1, 1)
    for number in (1, 2, 3):
        move = [PackMove(1, 0, 1)] if number == 1 else []
        assert ledger.add_packs(owned, move, [PackRow(1, number, 1, 9, b"x")])
    assert ledger.add_segment(owned, segment(5, 0, 10), [1], 0)
    assert not ledger.add_segment(owned, segment(5, 0, 10), [2], 0)
    assert not ledger.add_segment(Owned(a, 1, 2), segment(5, 10, 20), [2], 0)
    assert ledger.add_segment(owned, segment(5, 10, 20), [], 0)
    assert ledger.contents([1]).segments == [segment(5, 0, 10), segment(5, 10, 20)]
    assert [pack.pack for pack in ledger.contents([1]).packs] == [2, 3]
    assert ledger.due_trash(9) == ["packs/1/1-1"]
    assert not ledger.set_start(owned, (5, 3, 10), [2], 0)
    assert ledger.set_start(owned, (5, 0, 10), [2], 0)
    assert not ledger.set_start(owned, (5, 0, 10), [2], 0)
    assert ledger.contents([1]).starts == {5: (1, 10)}
    assert ledger.contents([1]).segments == [segment(5, 10, 20)]
    assert not ledger.add_segment(owned, segment(5, 0, 10), [], 0), "it came late"
    gone = {"packs/1/1-1", "packs/1/1-2", "segments/5/00000000000000000000-1-0"}
    assert ledger.trash() == gone
    assert ledger.set_start(owned, (5, 10, 12), [], 0)
    assert ledger.contents([1]).starts == {5: (1, 12)}
    assert ledger.drop_partitions(owned, [5, 6], [3], 0)
    contents = ledger.contents([1])
    assert (contents.segments, contents.starts, contents.packs) == ([], {}, [])
    assert "segments/5/00000000000000000010-1-0" in ledger.trash()
    assert not ledger.drop_partitions(Owned(a + 1, 1, 1), [5], [], 0)


@pytest.mark.slow
def test_a_publication_and_a_fence_are_ordered(postgres):
    """The two race over many sessions: the tenure has all publications before the fence, and none
    after.
    """
    from braidlog.storage.shared.postgres import PostgresLedger

    ledger = fresh_postgres(postgres.database)
    ledger.init(Cluster("c1", FORMAT, 1))
    others = [PostgresLedger(postgres.database) for _ in range(2)]
    for _ in range(60):
        session = ledger.join(1, {})
        (epoch,) = ledger.take(session, [1]).values()
        published = []

        def publish(session=session, published=published):
            for number in range(1, 9):
                if not others[0].publish(Publication(session, number, [], [])):
                    return
                published.append(number)

        racing = threading.Thread(target=publish)
        racing.start()
        assert others[1].fence(session, LONG_AGO_MS)
        next_owner = others[1].join(2, {})
        assert others[1].take(next_owner, [1]) == {1: epoch + 1}
        racing.join()
        assert others[1].leave(next_owner)
        tenure = next(t for t in ledger.contents([1]).tenures if t.epoch == epoch)
        assert tenure.to_round == len(published)
    for open_ledger in (ledger, *others):
        open_ledger.close()


@pytest.mark.slow
def test_a_killed_connection_is_no_answer_and_the_next_call_reconnects(postgres):
    import psycopg

    from braidlog.storage.shared.ledger import LedgerUnanswered

    ledger = fresh_postgres(postgres.database)
    ledger.init(Cluster("c1", FORMAT, 1))
    with psycopg.connect(postgres.database, autocommit=True) as other:
        other.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
            " AND application_name = 'braidlog'"
        )
    with pytest.raises(LedgerUnanswered):
        ledger.cluster()
    assert ledger.cluster() == Cluster("c1", FORMAT, 1)
    ledger.close()


@pytest.mark.slow
def test_a_hanging_server_is_no_answer_and_works_later(postgres):
    from braidlog.storage.shared.ledger import LedgerUnanswered

    ledger = fresh_postgres(postgres.database)
    ledger.init(Cluster("c1", FORMAT, 1))
    session = ledger.join(1, {})
    ledger._connection.answer_s = 0.2  # Of this connection only: the next has more time.
    postgres.send(signal.SIGSTOP)
    try:
        with pytest.raises(LedgerUnanswered):
            ledger.beat(session, store_ok=True)
    finally:
        postgres.send(signal.SIGCONT)
    assert ledger.beat(session, store_ok=True)[0] is SessionState.LIVE
    ledger.close()


@pytest.mark.slow
def test_a_future_beat_is_no_sign_of_life(postgres):
    import psycopg

    ledger = fresh_postgres(postgres.database)
    ledger.init(Cluster("c1", FORMAT, 1))
    session = ledger.join(1, {})
    assert not ledger.fence(session, 3_600_000)
    with psycopg.connect(postgres.database, autocommit=True) as other:
        other.execute("UPDATE sessions SET beat = clock_timestamp() + interval '1 hour'")
    assert ledger.sessions()[0].silent_ms < 0
    assert ledger.fence(session, 3_600_000)
    ledger.close()


@pytest.mark.slow
def test_a_reader_changes_nothing_and_sees_no_secret(postgres):
    from braidlog.storage.shared.postgres import PostgresLedger

    owner = fresh_postgres(postgres.database)
    owner.init(Cluster("c1", FORMAT, 4, "hidden"))
    session = owner.join(1, {})
    owner.take(session, [0, 1])
    reader = PostgresLedger(postgres.database, read_only=True)
    assert reader.cluster() == Cluster("c1", FORMAT, 4)
    assert reader.contents([0, 1]) == owner.contents([0, 1])
    assert reader.journal(0, 2) == []
    for change in (lambda: reader.join(2, {}), lambda: reader.trash_rounds(0)):
        with pytest.raises(StorageError, match="read-only"):
            change()
    assert owner.session_state(session)[0] is SessionState.LIVE
    reader.close()
    owner.close()
