"""Ledger and object store belong together, and the ledger is not older than the objects."""

import copy
from contextlib import suppress

import pytest

from braidlog.storage.shared.layout import round_name
from braidlog.storage.shared.ledger import Cluster, LedgerWentBack
from braidlog.storage.shared.making import make_cluster
from braidlog.storage.shared.proofs import NoCluster, check_not_older, open_cluster
from braidlog.storage.shared.sweeper import Sweeper
from tests.storage.shared.memory import MemoryLedger, MemoryStore
from tests.storage.shared.shared_dirs import Life, SharedStore


@pytest.fixture
def store(tmp_path):
    return SharedStore(tmp_path)


def dump_of(store):
    """Return the present database, for a restore."""
    return copy.deepcopy(store.ledger)


def marked(life):
    """Make the session mark its published rounds, as each second."""
    life.directory.session.mark()


def test_stores_that_do_not_belong_together_are_refused(store):
    with pytest.raises(NoCluster, match="init"):
        open_cluster(MemoryLedger(), store.objects)
    with pytest.raises(NoCluster, match="init"):
        open_cluster(store.ledger, MemoryStore())
    other = MemoryLedger()
    other.init(Cluster("another", 2, 4))
    with pytest.raises(NoCluster, match="is of cluster"):
        open_cluster(other, store.objects)


def test_a_dump_is_older_if_a_round_was_published_since(store):
    life = Life(store)
    life.append(b"in the dump")
    dump = dump_of(store)
    life.append(b"after it")
    marked(life)
    life.crash()
    with pytest.raises(LedgerWentBack, match="round 2 of session 1"):
        check_not_older(dump, store.objects)
    check_not_older(store.ledger, store.objects)


def test_a_dump_is_older_if_only_positions_were_published_since(store):
    """Rounds of positions have no object."""
    life = Life(store)
    life.append(b"in the dump")
    dump = dump_of(store)
    session = life.directory.session
    publisher = life.directory.publisher
    publisher.keep([])
    assert not store.names(f"rounds/{session.number}/{2:020d}")
    marked(life)
    with pytest.raises(LedgerWentBack):
        check_not_older(dump, store.objects)
    life.crash()


def test_an_uploaded_unpublished_round_is_legal(store):
    life = Life(store)
    life.append(b"published")
    marked(life)
    life.crash()
    store.objects.put(round_name(1, 2, 0), b"uploaded, and the broker was killed")
    check_not_older(store.ledger, store.objects)
    again = Life(store)
    assert again.read() == [b"published"]
    again.stop()


def test_a_dump_is_older_if_a_shard_was_taken_since(store):
    first = store.session(1, takes=False)
    second = store.session(2)
    second.release(3)
    dump = dump_of(store)
    first.take([3])
    first.mark()
    with pytest.raises(LedgerWentBack, match="taken"):
        check_not_older(dump, store.objects)
    check_not_older(store.ledger, store.objects)
    for session in (first, second):
        session.close()


def test_a_dump_is_older_if_a_session_began_since(store):
    dump = dump_of(store)
    Life(store).stop()
    with pytest.raises(LedgerWentBack, match="session 1"):
        check_not_older(dump, store.objects)


def test_the_end_of_a_session_is_marked_by_its_stop_and_by_a_fence(store):
    life = Life(store)
    dump = dump_of(store)
    life.append(b"last")
    life.stop()
    with pytest.raises(LedgerWentBack, match="round 1 of session 1"):
        check_not_older(dump, store.objects)
    silent = Life(store)
    silent.append(b"last")
    silent.crash()
    dump = dump_of(store)
    other = store.session(2, takes=False, lease_ms=0)
    store.now_ms += 1
    other._beat()
    other.look()
    other.mark()
    names = store.names("marks/")
    assert any(name.startswith(f"marks/2/{1:020d}-") for name in names), names
    with pytest.raises(LedgerWentBack):
        check_not_older(dump, store.objects)
    other.close()


def test_repeated_refused_starts_change_nothing(store):
    """Otherwise each start would begin a session of the older database, until its numbers caught
    up.
    """
    life = Life(store)
    dump = dump_of(store)
    for _ in range(3):
        life.stop()
        life = Life(store)
        life.append(b"after it")
    life.stop()
    ledger, store.ledger = store.ledger, dump
    before = dump.sessions()
    for _ in range(8):
        with pytest.raises(LedgerWentBack):
            store.session()
    assert dump.sessions() == before
    store.ledger = ledger


def test_marks_of_sessions_that_ended_before_a_start_are_removed(store):
    for number in range(5):
        life = Life(store)
        life.append(b"%d" % number)
        life.stop()
    [name] = store.names("marks/")
    assert name.startswith("marks/5/")


def swept(ledger, objects):
    """Run a sweep that may be refused."""
    with suppress(NoCluster, LedgerWentBack):
        Sweeper(ledger, objects, 0).sweep()


def test_a_sweep_with_another_clusters_database_deletes_nothing(store, tmp_path):
    other = SharedStore(tmp_path / "other")
    stranger = Life(other)
    stranger.append(b"x")
    stranger.pack()
    stranger.stop()
    other.now_ms += 10_000
    life = Life(store)
    life.append(b"a")
    life.pack()
    life.append(b"b")
    before = dict(store.objects.objects)
    for work in ("sweep", "clean"):
        with pytest.raises(NoCluster, match="is of cluster"):
            getattr(Sweeper(other.ledger, store.objects, 0), work)()
    assert store.objects.objects == before
    life.stop()


@pytest.mark.parametrize("rounds", [1, 3])
def test_a_sweep_with_a_restored_database_deletes_nothing(store, rounds):
    life = Life(store)
    life.append(b"in the dump")
    dump = dump_of(store)
    for number in range(rounds):
        life.append(b"%d" % number)
        life.pack()
    marked(life)
    life.crash()
    dump.join(1, {})  # The broker's session has ended, as after a start on this database.
    before = dict(store.objects.objects)
    with pytest.raises(LedgerWentBack):
        Sweeper(dump, store.objects, 0).sweep()
    assert store.objects.objects == before


def test_a_sweep_deletes_nothing_if_a_rows_object_is_missing(store):
    """The dump has every round, but they were packed and deleted since: only the packs exist."""
    life = Life(store)
    life.append(b"a")
    life.append(b"b")
    marked(life)
    dump = dump_of(store)
    life.pack()
    life.crash()
    for name in store.names("rounds/1/"):
        if "00.0" not in name:
            store.objects.delete(name)
    dump.join(1, {})
    packs = store.names("packs/")
    assert packs
    with pytest.raises(LedgerWentBack, match="rounds/1/"):
        Sweeper(dump, store.objects, 0).sweep()
    assert store.names("packs/") == packs


def test_a_new_database_is_not_filled_for_a_store_of_another_cluster(store):
    ledger = MemoryLedger()
    with pytest.raises(NoCluster, match="the store is of cluster"):
        make_cluster(ledger, store.objects, 4)
    assert ledger.cluster() is None


def test_an_empty_store_is_not_given_to_a_cluster_that_has_had_brokers(store):
    store.session().close()
    empty = MemoryStore()
    with pytest.raises(NoCluster, match="empty"):
        make_cluster(store.ledger, empty, 4)
    assert not empty.objects
    assert make_cluster(store.ledger, store.objects, 9)[0] is False
