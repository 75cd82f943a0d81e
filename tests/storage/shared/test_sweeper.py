"""A sweep may end anywhere: the next one does what is left, and no record is gone."""

import pytest

from storage.shared.layout import round_name
from storage.shared.sweeper import Sweeper
from storage.shared.verifying import verify_store
from tests.storage.shared.shared_dirs import Life, SharedStore


class Killed(BaseException):
    """The process was killed."""


class Dies:
    """A ledger or store that is called so often, and no more."""

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
    """A store with packs, trash that is due, and orphans of a session that is over."""
    store = SharedStore(tmp_path)
    life = Life(store)
    for number in range(4):
        life.append(b"first %d" % number)
        life.pack()
    life.crash()
    session = life.directory.session.number
    second = Life(store, node=1)
    second.append(b"second")
    second.pack()
    second.stop()
    for part in range(3):  # Put by the first, and never published.
        store.objects.put(round_name(session, 90, part), b"orphan")
    store.now_ms += 1_000_000
    return store


def test_a_sweep_that_is_killed_anywhere_is_finished_by_the_next(used):
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
