"""All protocols on a position of a real broker, compared with the model; and wrong models."""

from dataclasses import replace

import pytest

from conformance.clients.raw.iggy import IggyWire
from conformance.clients.raw.iggy_w import IggyWWire
from conformance.clients.raw.kafka import KafkaWire
from conformance.position.__main__ import run
from conformance.position.assignment import ModelAssignment
from conformance.position.machine import GROUP, PositionMachine, PositionsDiffer
from conformance.position.model import ModelCursor
from conformance.position.modern import share
from conformance.position.sharing import SharingMachine
from conformance.server import RunningBroker

pytestmark = pytest.mark.slow
SEEDS, STEPS = 8, 40


@pytest.fixture(scope="module")
def running():
    with RunningBroker() as broker:
        yield broker


@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_broker_equals_the_model_after_every_step(running, seed):
    step_counts = run(running, seed, STEPS, kills=False)
    assert step_counts.total() == STEPS


def test_sigkill_keeps_answered_steps_and_adds_no_unrequested_change(running):
    machine = PositionMachine(running, "position-killed", 77)
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


class Keeping(ModelAssignment):
    """A model in which members keep their partitions when another member joins."""

    def join(self, member, positions, *, takes_share, now_s):
        if self.members:
            self.members.append(member)
        else:
            super().join(member, positions, takes_share=takes_share, now_s=now_s)


class Committing(ModelAssignment):
    """A model in which every polled message is committed."""

    def polled(self, member, partition, end):
        pass


@pytest.mark.parametrize("wire_type", [IggyWire, IggyWWire])
def test_a_group_assignment_unlike_the_model_is_found(running, wire_type):
    machine = sharing(running, f"wrong-{wire_type.__name__}", wire_type)
    machine.group = Keeping(machine.group.count)
    machine.join()
    machine.compare()
    machine.join()
    with pytest.raises(PositionsDiffer, match="members have"):
        machine.compare()
    machine.leave()


def test_an_early_move_of_a_partition_is_found(running):
    machine = sharing(running, "wrong-move", IggyWWire)
    machine.group = Committing(machine.group.count)
    machine.join()
    machine.compare()
    (member,) = machine.members
    for place in machine.places:
        member.wire.poll_as_member(
            machine.topic, 1, GROUP, partition=place.index + 1, commits=False
        )
    machine.join()
    with pytest.raises(PositionsDiffer, match="members have"):
        machine.compare()
    machine.leave()


def sharing(broker, name, wire_type):
    """Return a machine whose Iggy clients all speak a single dialect."""
    machine = SharingMachine(broker, f"sharing-{name}", 79)
    machine._iggy = lambda: wire_type(broker.address("iggy"))
    return machine


class Skipping(ModelCursor):
    """A model that forgets the acknowledgements above a forward commit."""

    def commit(self, offset, *, kafka):
        super().commit(offset, kafka=kafka)
        self.above = frozenset()


def test_a_broker_position_unlike_the_model_is_found(running):
    machine = PositionMachine(running, "position-wrong", 5)
    machine.at.cursor = Skipping(machine.log)
    with pytest.raises(PositionsDiffer, match="should be"):
        for _ in range(10 * STEPS):
            machine.step()


class Uncounted(ModelCursor):
    """A model in which a record that came back was never delivered."""

    def came_back(self, offered):
        return False


def test_delivery_counts_unlike_the_model_are_found(running):
    machine = PositionMachine(running, "position-uncounted", 7)
    machine.at.cursor = Uncounted(machine.log, below=0)
    with KafkaWire(running.address("kafka")) as wire:
        assert wire.commit(GROUP, machine.topic, 0) == 0
    with pytest.raises(PositionsDiffer, match="offered"):
        for _ in range(STEPS):
            share(machine)


class Unkillable:
    """A broker that survives a kill: any difference is the model's."""

    def __init__(self, broker):
        self.address = broker.address

    def kill(self):
        pass

    def start(self):
        pass


def test_an_unrequested_state_after_sigkill_is_found(running):
    machine = PositionMachine(Unkillable(running), "position-lost", 6)
    machine.cursor.seek(3)  # Only in the model.
    machine.at.maybe = [replace(machine.cursor)]
    with pytest.raises(PositionsDiffer, match="may be"):
        machine.kill()
