"""The protocol holds under any failure, and the simulation finds every missing rule."""

import pytest

from braidlog.storage.shared.ledger import SessionState
from braidlog.storage.shared.pieces import partitions_of
from braidlog.storage.shared.sweeper import Sweeper
from braidlog.storage.shared.takeover import read_shards
from tests.storage.shared.memory import MemoryLedger
from tests.storage.shared.simulation import Violation, run_seed

SEEDS = 100
STEPS = 1000
# Seeds for catching a wrong variant. The seed that catches a rare violation today comes first.
CHANCES = 600
FIRST_SEEDS = {
    "log ends without log start": 32,
    "sweeps rounds under way": 26,
    "no epoch check": 78,
    "shut for what a deleted topic left": 307,
}


@pytest.mark.slow
def test_no_seed_breaks_an_invariant():
    counts = {}
    for seed in range(SEEDS):
        for name, count in run_seed(seed, STEPS).counts.items():
            counts[name] = counts.get(name, 0) + count
    assert min(counts.values()) > SEEDS, f"too little happened: {counts}"


class NoStateCheck(MemoryLedger):
    """Publishes for an ended session."""

    def may_publish(self, publication):
        row = self._sessions.get(publication.session)
        return row is not None and row.round == publication.round - 1

    def session_state(self, session):
        return (SessionState.LIVE, super().session_state(session)[1])


class NoCompareAndSet(MemoryLedger):
    """Publishes with any number: a repeated statement counts twice."""

    def may_publish(self, publication):
        return self.is_live(publication.session)


class EarlyDelete(MemoryLedger):
    """Removes rounds that one of several shards has not packed."""

    def trash_rounds(self, after_ms):
        held = self._tenures
        self._tenures = {key: t for key, t in held.items() if t.shard == 1}
        try:
            return super().trash_rounds(after_ms)
        finally:
            self._tenures = held


class NoEpochCheck(MemoryLedger):
    """Lets an earlier owner pack and drop."""

    def owns(self, owned):
        return True


def without_rounds(ledger, objects, shards, patience, *, at_once):
    """Take over without reading unpacked rounds."""
    contents = read_shards(ledger, objects, shards, patience, at_once=at_once)
    contents.partitions = partitions_of(contents.contents, [])
    return contents


def without_starts(ledger, objects, shards, patience, *, at_once):
    """Take over with log ends from pieces alone."""
    contents = read_shards(ledger, objects, shards, patience, at_once=at_once)
    for partition in contents.partitions.values():
        if not partition.segments:
            partition.log_start = 0
    return contents


def shut_by_leftovers(ledger, objects, shards, patience, *, at_once):
    """Take over and require every partition to be complete, even partitions without topic."""
    contents = read_shards(ledger, objects, shards, patience, at_once=at_once)
    for partition in contents.partitions.values():
        partition.check()
    return contents


class SweepsEverything(Sweeper):
    """Treats every round without a row as an orphan, even a round that is about to count."""

    def _round_orphans(self, names):
        rounds = {(r.session, r.round) for r in self._ledger.contents(range(10)).rounds}
        for name in names:
            _, session, rest = name.split("/")
            if (int(session), int(rest.split(".")[0])) not in rounds:
                yield name


WRONG = {
    "no state check": {"ledger_type": NoStateCheck},
    "no compare-and-set": {"ledger_type": NoCompareAndSet},
    "early delete": {"ledger_type": EarlyDelete},
    "log ends without unpacked rounds": {"takeover": without_rounds},
    "log ends without log start": {"takeover": without_starts},
    "sweeps rounds under way": {"sweeper": SweepsEverything},
    "no epoch check": {"ledger_type": NoEpochCheck},
    "shut for what a deleted topic left": {"takeover": shut_by_leftovers},
    "appends to a shard that was released": {"mistakes": ("releases early",)},
    "publishes out of order": {"mistakes": ("reorders",)},
    "drops before its deletion counts": {"mistakes": ("drops before the round",)},
    "takes without following": {"mistakes": ("takes without following",)},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_variant_is_caught(name):
    for seed in (FIRST_SEEDS.get(name, 0), *range(CHANCES)):
        try:
            run_seed(seed, STEPS, **WRONG[name])
        except Violation:
            return
        except (AssertionError, KeyError):
            return  # The ledger in memory met a row that no table would accept.
    pytest.fail(f"{name}: {CHANCES} seeds went by without a violation")
