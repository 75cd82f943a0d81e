"""Catalogue and cursors over real journals: restarts, snapshots and torn tails."""

import random
import shutil
from pathlib import Path

import pytest

from braidlog.storage.log.committer import Committer
from braidlog.storage.metadata.cursors import KafkaCommit, Moved
from braidlog.storage.metadata.journal_catalogue import JournalCatalogue
from braidlog.storage.metadata.journal_positions import JournalPositions
from braidlog.storage.metadata.names import TopicName
from braidlog.storage.metadata.ranges import RangeSet
from tests.storage.open_directories import open_directory

NAMES = [b"billing", b"audit", b"\xff"]


class MetadataOnDisk:
    """The parts of a broker that catalogue and cursors need."""

    def __init__(self, path):
        self.data_dir = open_directory(path)
        self.committer = Committer(self.data_dir.files)
        self.catalogue = JournalCatalogue(
            self.data_dir.open_journal("catalogue", self.committer), now_us=1
        ).catalogue
        self.cursors = JournalPositions(self.data_dir.open_journal("cursors", self.committer))

    def killed(self):
        """Kill the broker: written changes are in the files, as after SIGKILL; lazy changes are
        lost.
        """
        self.data_dir.abandon()

    def stopped(self):
        self.data_dir.close(self.committer)


def state_of(broker):
    return (
        [(meta.name, meta.partition_ids, meta.settings) for meta in broker.catalogue.all_topics()],
        {
            (topic_id, name, index): repr(cursor)  # A copy: cursors are changed in place.
            for topic_id in broker.cursors.topic_ids()
            for name in broker.cursors.names(topic_id)
            for index, cursor in broker.cursors.find(topic_id, name).cursors.items()
        },
    )


def change_at_random(rng, broker, *, lazy=False):
    cursors, catalogue = broker.cursors, broker.catalogue
    if rng.random() < 0.05:
        name = TopicName("public", "default", str(rng.randrange(1 << 30)))
        catalogue.create_topic(
            name, [catalogue.next_partition_id()], partitioned=False, created_us=rng.randrange(99)
        )
        return
    name = rng.choice(NAMES)
    cursors.open(1, name, partitions=3)
    ranges = RangeSet()
    start = rng.randrange(1000)
    ranges.add(start + 2, start + 2 + rng.randrange(1, 5))
    kafka = rng.choice([None, KafkaCommit(start, b"m", 5)])
    cleared = rng.random() < 0.1
    moved = Moved(1, name, rng.randrange(3), start, start, kafka, cleared, ranges)
    cursors.move(moved, lazy=lazy)


@pytest.mark.parametrize("seed", range(3))
def test_changes_survive_a_kill_or_a_stop(tmp_path, seed):
    rng = random.Random(seed)
    broker = MetadataOnDisk(tmp_path)
    for end in ("killed", "stopped", "killed"):
        for _ in range(30):
            change_at_random(rng, broker)
        if rng.random() < 0.5:
            broker.committer.commit()
        before = state_of(broker)
        getattr(broker, end)()
        broker = MetadataOnDisk(tmp_path)
        assert state_of(broker) == before
    broker.stopped()


def test_tickets_belong_to_the_committers_rounds(tmp_path):
    broker = MetadataOnDisk(tmp_path)
    broker.committer.commit()
    ticket = broker.cursors.open(1, b"billing", partitions=1)
    assert ticket > broker.committer.durable_ticket
    broker.committer.commit()
    assert broker.committer.durable_ticket >= ticket
    assert broker.cursors.move(Moved(1, b"billing", 0, 5, 5), lazy=True) == 0
    ticket = broker.cursors.flush_lazy()
    assert ticket > broker.committer.durable_ticket
    broker.committer.commit()
    assert broker.committer.durable_ticket >= ticket
    broker.killed()
    broker = MetadataOnDisk(tmp_path)
    assert broker.cursors.get(1, 0, b"billing").position == 5
    broker.stopped()


def test_lazy_changes_are_on_disk_after_the_next_round(tmp_path):
    broker = MetadataOnDisk(tmp_path)
    broker.cursors.open(1, b"billing", partitions=1)
    broker.cursors.move(Moved(1, b"billing", 0, 5, 5), lazy=True)
    broker.committer.commit()
    broker.killed()
    broker = MetadataOnDisk(tmp_path)
    assert broker.cursors.get(1, 0, b"billing").position == 5
    broker.stopped()


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["killed", "stopped"])
def test_journals_stay_short_and_complete_over_snapshots(tmp_path, ending):
    rng = random.Random(3)
    broker = MetadataOnDisk(tmp_path)
    for _ in range(12):
        for _ in range(1500):
            change_at_random(rng, broker, lazy=rng.random() < 0.5)
        broker.committer.commit()
    before = state_of(broker)
    getattr(broker, ending)()
    sizes = [file.stat().st_size for file in (tmp_path / "cursors").glob("*.log")]
    assert sum(sizes) < 3 << 20
    assert not (tmp_path / "cursors" / f"{0:020}.log").exists()
    broker = MetadataOnDisk(tmp_path)
    assert state_of(broker) == before
    broker.stopped()


@pytest.mark.slow
def test_a_torn_tail_loses_only_the_last_changes(tmp_path):
    """Cut anywhere above the durable end, the journal yields a prefix of the changes."""
    rng = random.Random(5)
    broker = MetadataOnDisk(tmp_path / "whole")
    broker.cursors.open(1, b"billing", partitions=3)
    broker.committer.commit()
    (log,) = (tmp_path / "whole" / "cursors").glob("*.log")
    durable_bytes = log.stat().st_size
    states = [state_of(broker)]
    for _ in range(4):
        change_at_random(rng, broker)
        states.append(state_of(broker))
    broker.killed()
    seen = []
    # Steps of 7 bytes reach each part of a batch header.
    for cut in range(durable_bytes, log.stat().st_size + 1, 7):
        path = Path(shutil.copytree(tmp_path / "whole", tmp_path / str(cut)))
        with (path / "cursors" / log.name).open("r+b") as file:
            file.truncate(cut)
        again = MetadataOnDisk(path)
        seen.append(states.index(state_of(again)))
        again.cursors.open(1, b"late", partitions=3)
        again.stopped()
        shutil.rmtree(path)
    assert seen == sorted(seen)
    assert set(seen) >= {0, 1}
