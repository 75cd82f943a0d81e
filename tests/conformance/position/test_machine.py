"""All protocols on one position of a real broker, against the model; and a model that is wrong."""

from dataclasses import replace

import pytest

from conformance.position.__main__ import run
from conformance.position.machine import Difference, Machine
from conformance.position.model import Cursor
from conformance.position.sharing import SharingMachine
from conformance.server import RunningBroker

pytestmark = pytest.mark.slow
SEEDS, STEPS = 8, 40


@pytest.fixture(scope="module")
def running():
    with RunningBroker() as broker:
        yield broker


@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_broker_is_where_the_model_is_after_every_step(running, seed):
    made = run(running, seed, STEPS, kills=False)
    assert made.total() == STEPS


def test_what_was_answered_is_there_after_sigkill_and_no_more_than_was_asked_for(running):
    machine = Machine(running, "position-killed", 77)
    for end in (machine.kill, machine.restart):
        for _ in range(STEPS // 2):
            machine.step()
        end()
    machine.deliver()


def test_a_group_that_shares_a_topic_survives_sigkill_without_its_members(running):
    machine = SharingMachine(running, "sharing-killed", 78)
    for end in (machine.kill, machine.restart):
        for _ in range(STEPS // 2):
            machine.step()
        machine.join()
        end()
        assert machine.members == []
    machine.leave()


class Keeping(SharingMachine):
    """A model in which nobody gives up a partition when another member comes."""

    def _deal(self):
        if len(self.members) == 1:
            super()._deal()


def test_a_group_that_deals_otherwise_than_the_model_is_found(running):
    machine = Keeping(running, "sharing-wrong", 79)
    machine.join()
    machine.compare()
    machine.join()
    with pytest.raises(Difference, match="members have"):
        machine.compare()
    machine.leave()


class Skipping(Cursor):
    """A model that forgets what is acknowledged above a forward commit."""

    def commit(self, offset, *, kafka):
        super().commit(offset, kafka=kafka)
        self.above = frozenset()


def test_a_broker_that_is_elsewhere_than_the_model_is_found(running):
    machine = Machine(running, "position-wrong", 5)
    machine.at.cursor = Skipping(machine.log)
    with pytest.raises(Difference, match="should be"):
        for _ in range(10 * STEPS):
            machine.step()


class Unkillable:
    """A broker that goes on: what is to be found is the model's alone."""

    def __init__(self, broker):
        self.address = broker.address

    def kill(self):
        pass

    def start(self):
        pass


def test_a_state_that_nobody_asked_for_is_found_after_sigkill(running):
    machine = Machine(Unkillable(running), "position-lost", 6)
    machine.cursor.seek(3)  # The model's alone.
    machine.at.maybe = [replace(machine.cursor)]
    with pytest.raises(Difference, match="may be"):
        machine.kill()
