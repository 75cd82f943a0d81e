"""A sweep may end anywhere: the next sweep does the rest, and no record is lost."""

import pytest

from braidlog.storage.shared.layout import pack_name, round_name, segment_name
from braidlog.storage.shared.sweeper import Sweeper
from braidlog.storage.shared.verifying import verify_store
from tests.storage.shared.model_turns import Killed
from tests.storage.shared.shared_dirs import Life, SharedStore


class Dies:
    """A ledger or store that fails after a number of calls."""

    left = 0

    def __init__(self, target):
        self._target = target

    def __getattr__(self, name):
        def call(*args, **kwargs):
            if Dies.left == 0:
                raise Killed
            Dies.left -= 1
            return getattr(self._target, name)(*args, **kwargs)

        return call


@pytest.fixture
def used(tmp_path):
    """Return a store with packs, due trash, and orphans of an ended session."""
    store = SharedStore(tmp_path)
    life = Life(store)
    for number in range(4):
        life.append(b"first %d" % number)
        life.pack()
    life.crash()
    session, next_round = life.directory.session.number, life.directory.publisher.round + 1
    second = Life(store, node=1)
    second.append(b"second")
    second.pack()
    second.stop()
    for part in range(3):  # Put by the first session, and never published.
        store.objects.put(round_name(session, next_round, part), b"orphan")
    store.now_ms += 1_000_000
    return store


def test_a_sweep_killed_anywhere_is_finished_by_the_next(used):
    values = [b"first 0", b"first 1", b"first 2", b"first 3", b"second"]
    done, deaths = False, 0
    while not done:
        Dies.left = deaths
        try:
            Sweeper(Dies(used.ledger), Dies(used.objects), 0).sweep()
            done = True
        except Killed:
            deaths += 1
        report = verify_store(used.ledger, used.objects, print, deep=True)
        assert report.faults == 0
    assert deaths > 5 and report.unnamed == 0
    life = Life(used)
    assert life.read() == values
    life.stop()


def orphans_put(store, shard, epoch):
    """Put a pack and a segment without rows."""
    names = [pack_name(shard, epoch, 77), segment_name(999, 5, epoch, 0)]
    for name in names:
        store.objects.put(name, b"orphan")
    return names


def test_an_owners_objects_wait_for_their_row_during_its_tenure(tmp_path):
    store = SharedStore(tmp_path)
    life = Life(store)
    shard, epoch = life.log.shard, life.directory.session.epochs[life.log.shard]
    names = orphans_put(store, shard, epoch)
    assert Sweeper(store.ledger, store.objects, 0).sweep().orphans == 0
    life.stop()
    swept = Sweeper(store.ledger, store.objects, 0).sweep()
    assert swept.orphans == len(names) + 1, "the round 0 too: nobody comes who could use them"
    assert verify_store(store.ledger, store.objects, print).unnamed == 0


def test_a_segment_is_removed_even_if_another_shard_had_fewer_owners(tmp_path):
    store = SharedStore(tmp_path)
    for _ in range(3):
        last = Life(store)
        shard, epoch = last.log.shard, last.directory.session.epochs[last.log.shard]
        last.stop()
    names = orphans_put(store, shard, epoch)
    session = store.session(takes=False)
    other = next(number for number in range(5) if number != shard)
    session.take([other])
    assert session.epochs[other] > epoch, "its own epoch is another one"
    Sweeper(store.ledger, store.objects, 0).sweep()
    assert not set(names) & set(store.objects.objects)
