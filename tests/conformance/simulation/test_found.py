"""Former findings of the random power losses, each as a short story."""

import random

import pytest
from structlog.testing import capture_logs

from braidlog.storage.errors import DamagedLog
from conformance.simulation.calls import SYNC_FILE, TracedDisk
from conformance.simulation.facts import Facts
from conformance.simulation.house import Shape, SimulatedBroker, done
from conformance.simulation.medium import Medium
from conformance.simulation.steps import RandomLives
from conformance.simulation.verify import verify, verify_outside

CATALOGUE = "catalogue/00000000000000000000.log"

# Each change is followed by a snapshot.
ALWAYS_SNAPSHOT = 1_000_000


def every(path):
    return True


def none(path):
    return False


class Story:
    """A workload written step by step, with power losses."""

    def __init__(self, tmp_path, journal_factor=1):
        self.shape = Shape(journal_factor=journal_factor)
        self.tmp_path = tmp_path
        path = tmp_path / "life"
        path.mkdir()
        self.disk = TracedDisk(str(path))
        self.base = dict(self.disk.names.numbers)
        house = SimulatedBroker(str(path), self.disk, self.shape)
        rng = random.Random(1)
        self.life = RandomLives(house, self.disk, Facts(), self.shape, rng)
        self.opened = 0

    @property
    def broker(self):
        return self.life.house.broker

    def do(self, *actions):
        for action in actions:
            self.life.do(action)

    def topic(self, name="a", partitions=1, **settings):
        topics = self.broker.topics
        full = topics.resolve_pulsar(name)[0]
        self.do(lambda life: done(topics.create, full, partitions, settings=settings).ticket)
        return full

    def partition(self, name):
        return self.broker.topics.partition(name, 0)

    def commit(self, name, position, *, lazy=False):
        subscription = self.broker.subscriptions.open(self.broker.topics.get(name), b"group")
        self.do(lambda life: subscription.commit(0, position))

    def settle(self):
        self.life.settle()

    def crash(self, keeps=none, *, names=every, at=None):
        """Cut the power; check that the remaining state opens correctly. Return the house."""
        stamp = self.life.now if at is None else at
        medium = Medium.of(str(self.tmp_path / "life"), self.base)
        for call in self.disk.calls[:stamp]:
            medium.take(call)
        state = medium.pick(keeps, names)
        path = self.tmp_path / f"raw-{self.opened}"
        path.mkdir()
        state.write(str(path))
        verify_outside(str(path), self.life.facts, stamp)
        house = self.open(state)
        verify(house, self.life.facts, stamp)
        return house

    def now(self):
        """Return the present directory."""
        medium = Medium.of(str(self.tmp_path / "life"), self.disk.names.numbers)
        return medium.pick(every, every)

    def open(self, state):
        self.opened += 1
        path = self.tmp_path / f"opened-{self.opened}"
        path.mkdir()
        state.write(str(path))
        return SimulatedBroker(str(path), TracedDisk(str(path)), self.shape)

    def crash_at_each_call_since(self, stamp, **how):
        for at in range(stamp, self.life.now + 1):
            self.crash(at=at, **how).kill()


def test_a_journal_slot_names_only_a_durable_snapshot(tmp_path):
    story = Story(tmp_path, ALWAYS_SNAPSHOT)
    story.topic("a")
    story.settle()
    story.commit(story.topic("b"), 1)
    story.do(RandomLives.step_round)
    story.topic("c")
    story.do(RandomLives.step_round, RandomLives.step_round)
    story.crash(lambda path: path.endswith("watermark"))


@pytest.mark.parametrize("journal_factor", [1, ALWAYS_SNAPSHOT])
def test_folders_are_set_aside_after_the_deletion_is_durable(tmp_path, journal_factor):
    """The snapshot with the deletion may be on disk while the replaced files are not."""
    story = Story(tmp_path, journal_factor)
    name = story.topic()
    story.settle()
    story.topic("b")
    story.do(lambda life: done(story.broker.topics.delete, name))
    killed = story.life.now
    story.do(RandomLives.kill)
    story.crash_at_each_call_since(killed)


def test_cursors_are_removed_after_the_topic_deletion_is_durable(tmp_path):
    story = Story(tmp_path)
    name = story.topic()
    story.commit(name, 3)
    story.settle()
    story.do(lambda life: done(story.broker.topics.delete, name), RandomLives.step_round)
    story.crash(lambda path: path.startswith("cursors"))
    story.settle()
    assert not story.life.house.cursors.topic_ids()


def test_a_start_removes_expired_segments_after_the_slot_is_durable(tmp_path):
    """All records are too old: an empty segment follows them, not yet durable."""
    story = Story(tmp_path)
    name = story.topic(retention_ms=1)
    story.do(lambda life: life.append_to(story.partition(name), records=1))
    story.settle()
    log = story.partition(name).log
    story.do(lambda life: log.retain(story.broker.now_us() + 10_000_000) and None)
    killed = story.life.now
    story.do(RandomLives.kill)
    story.settle()
    story.crash_at_each_call_since(killed)
    story.crash_at_each_call_since(killed, names=none)
    story.crash_at_each_call_since(killed, names=lambda name: name != "00000000000000000001.log")
    assert len(story.partition(name).log.segments()) == 1


def test_a_start_removes_replaced_segments_after_the_snapshot_is_durable(tmp_path):
    story = Story(tmp_path, ALWAYS_SNAPSHOT)
    story.topic("a")
    story.settle()
    story.topic("b")
    killed = story.life.now
    story.do(RandomLives.kill)
    story.settle()
    story.crash_at_each_call_since(killed)


def test_the_content_of_a_torn_snapshot_is_not_durable(tmp_path):
    story = Story(tmp_path, ALWAYS_SNAPSHOT)
    story.topic("a")
    story.settle()
    story.topic("b")
    calls = story.disk.calls
    marker = max(number for number, call in enumerate(calls) if len(call.data) == 128)
    calls[marker].data = calls[marker].data[:64]
    house = story.crash(lambda path: path.startswith("catalogue"), at=marker + 1)
    house.kill()
    again = SimulatedBroker(house.path, TracedDisk(house.path), story.shape)
    assert len(again.broker.topics) == 2


def test_a_remaining_superseded_segment_is_no_damage(tmp_path):
    """Names may be removed in any order: of three old segments the middle may go alone."""
    story = Story(tmp_path, ALWAYS_SNAPSHOT)
    for name in "abc":
        story.topic(name)
    began = story.life.now
    story.settle()
    unlinked = [call for call in story.disk.calls[began:] if call.kind == "unlink"]
    assert len(unlinked) >= 3
    for call in unlinked[:1] + unlinked[2:]:
        call.kind = SYNC_FILE
        call.node, call.failed = call.child, True  # As if the call had not been made.
    story.crash()


@pytest.mark.parametrize("journal", ["catalogue", "cursors"])
def test_an_empty_journal_may_have_lost_its_file(tmp_path, journal):
    story = Story(tmp_path)
    state = story.now()
    del state.files[f"{journal}/00000000000000000000.log"]
    state.files[f"{journal}/watermark"] = b""
    story.open(state).kill()


def test_a_journal_with_records_must_have_its_file(tmp_path):
    story = Story(tmp_path)
    story.topic()
    story.settle()
    state = story.now()
    del state.files[CATALOGUE]
    with pytest.raises(DamagedLog):
        story.open(state)


def test_a_cut_of_a_journal_is_reported(tmp_path):
    story = Story(tmp_path)
    name = story.topic()
    story.settle()
    story.do(lambda life: done(story.broker.topics.delete, name))
    state = story.now()
    state.files[CATALOGUE] = state.files[CATALOGUE][:-1]
    with capture_logs() as events:
        house = story.open(state)
    assert len(house.broker.topics) == 1
    assert [line["journal"] for line in events if line["event"] == "torn_tail_cut"] == ["catalogue"]
