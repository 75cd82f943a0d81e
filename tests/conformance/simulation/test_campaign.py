"""Short runs of the simulations, with fixed seeds."""

import pytest

from conformance.history.checker import check
from conformance.simulation.campaign import CampaignProgress, run
from conformance.simulation.damage import TAIL_BYTES, flips, truncations
from conformance.simulation.failing import failures
from conformance.simulation.histories import MixedHistory, histories
from conformance.simulation.power import Scenario
from conformance.simulation.scratch import scratch


@pytest.fixture
def folder():
    with scratch() as path:
        yield path


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 101, 201, 301])
def test_power_loss_breaks_no_promise(folder, seed):
    """At least 400 states in all; `python -m conformance.simulation` cuts after every call."""

    def unit(seed, folder):
        return Scenario(seed, folder, every=5).run()

    progress = CampaignProgress("power", seed, seed)
    for _ in run(progress, 100, folder, unit):
        pass
    assert progress.states >= 100
    assert progress.failures == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_a_flipped_bit_is_found_or_harmless(folder, seed):
    """600 states in all."""
    assert [problem for problem in flips(seed, folder, 75) if problem] == []


@pytest.mark.slow
def test_a_damaged_slot_of_a_lowered_reservation_leaves_a_reported_gap(folder):
    """With this seed the kill came between the rounds that lower the two slots."""
    faults = list(flips(428, folder, 12))
    assert faults == [None] * 12


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_a_truncated_log_is_found_or_harmless(folder, seed):
    """400 states in all: every second byte near the end, and others before, down to 64 KiB."""
    near, far = range(2 * seed, 320, 8), range(320 + seed * 540, TAIL_BYTES, 1080)
    assert [problem for problem in truncations(seed, folder, near) if problem] == []
    assert [problem for problem in truncations(seed, folder, far) if problem] == []


def test_a_cut_above_all_acknowledged_records_need_not_be_reported(folder):
    """With this seed a batch ends there that no round has covered."""
    assert list(truncations(119, folder, range(5752, 5753))) == [None]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_failing_call_leaves_no_partial_change(folder, seed):
    """The test covers each place of the code that calls the disk in these workloads, with each
    fault.
    """
    assert [problem for problem in failures(seed, folder, each_site_once=True) if problem] == []


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 300, 100))
def test_no_client_receives_a_false_answer(folder, first):
    """120 histories in all."""
    for seed in range(first, first + 40):
        assert list(histories(seed, folder)) == [None], f"seed {seed}"


def test_a_broker_that_loses_a_record_is_found(folder):
    """A reader misses an acknowledged record, in a history of the simulation."""
    mixed = MixedHistory(1, folder)
    assert mixed.run() == []
    whole = mixed.history.reads[-1]
    whole.records = list(whole.records)[1:]
    assert {fault.partition(":")[0] for fault in check(mixed.history)} >= {"lost"}


def test_an_interrupted_run_resumes(folder, tmp_path):
    def unit(seed, folder):
        yield from (None, f"bad {seed}", None)

    path = str(tmp_path / "progress.json")
    begun = CampaignProgress("made up", 7, 7)
    next(run(begun, 100, folder, unit))
    begun.save(path)
    resumed = CampaignProgress.load(path)
    assert (resumed.next_seed, resumed.states, resumed.failed) == (8, 3, 1)
    for _ in run(resumed, 7, folder, unit):
        pass
    assert resumed.states == 9
    assert resumed.failures == [f"seed {seed}, state 2: bad {seed}" for seed in (7, 8, 9)]


def test_a_workload_that_fails_is_a_failure_too(folder):
    def unit(seed, folder):
        yield None
        raise ValueError("odd")

    progress = CampaignProgress("made up", 1, 1)
    for _ in run(progress, 1, folder, unit):
        pass
    assert progress.failures == ["seed 1, state 2: workload: ValueError: odd"]
