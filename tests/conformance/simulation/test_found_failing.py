"""Former findings of failing calls at random places, each as a short story."""

import errno
import os
from itertools import count

import pytest

from braidlog.broker import errors
from braidlog.storage.errors import StorageFailed
from braidlog.storage.formats.api import BodyInfo
from conformance.simulation.calls import (
    CREATE,
    READ,
    SYNC_FILE,
    UNLINK,
    WRITE,
    CallRefused,
    TracedDisk,
)
from conformance.simulation.house import SimulatedBroker, done
from conformance.simulation.steps import RandomLives
from conformance.simulation.verify import verify
from tests.conformance.simulation.test_found import ALWAYS_SNAPSHOT, Story, none


def refusing(number, *kinds, path="", but="no such path", after=0, times=1_000_000):
    """Return a plan that fails calls of these kinds.

    The path must contain `path` and not `but`; the first `after` calls succeed, then `times` calls
    fail.
    """
    calls = count()

    def plan(kind, called):
        if kind in kinds and path in called and but not in called:
            return CallRefused(number) if after <= next(calls) < after + times else None
        return None

    return plan


def killed(tmp_path, **settings):
    """Return a story up to a kill: a topic, a durable record, and a record that may be lost."""
    story = Story(tmp_path)
    name = story.topic(**settings)
    story.do(lambda life: life.append_to(story.partition(name), records=1))
    story.settle()
    story.do(lambda life: life.append_to(story.partition(name), records=1))
    story.life.house.kill()
    return story


def started(story, plan):
    return SimulatedBroker(
        str(story.tmp_path / "life"), TracedDisk(story.disk.root, plan), story.shape
    )


def logs_of(story):
    files = story.now().files
    return {path: files[path] for path in files if path.endswith(".log")}


def test_a_read_that_succeeds_the_second_time_is_no_damage(tmp_path):
    """The short read of a log's end fails; the recovery afterwards reads the same bytes."""
    story = killed(tmp_path)
    before = logs_of(story)
    house = started(story, refusing(errno.EIO, READ, path="partitions/1/0", times=1))
    report = house.partitions[1].log.recovery
    assert not report.damages and not report.cuts
    house.kill()
    assert logs_of(story).keys() == before.keys()
    verify(started(story, refusing(0)), story.life.facts, story.life.now, is_whole=True)


@pytest.mark.parametrize("times", [2, 1_000_000])
def test_an_unreadable_tail_is_no_torn_tail(tmp_path, times):
    story = killed(tmp_path)
    before = logs_of(story)
    house = started(story, refusing(errno.EIO, READ, path="partitions/1/0", times=times))
    report = house.partitions[1].log.recovery
    assert report.damages and not report.cuts
    house.kill()
    assert logs_of(story) == before
    verify(started(story, refusing(0)), story.life.facts, story.life.now, is_whole=True)


def test_a_start_without_the_reservation_would_repeat_offsets(tmp_path):
    story = killed(tmp_path, durability="written")
    with pytest.raises(StorageFailed, match="reserved"):
        started(story, refusing(errno.EIO, READ, path="reserved"))


def test_a_full_disk_at_a_stop_leaves_only_the_affected_log_unclean(tmp_path):
    story = Story(tmp_path)
    for name in "ab":
        topic = story.topic(name, durability="written")
        story.do(lambda life, topic=topic: life.append_to(story.partition(topic), records=1))
    story.settle()
    story.disk.plan = refusing(errno.ENOSPC, WRITE, path="partitions/1/reserved")
    story.life.house.stop()
    house = started(story, refusing(0))
    gaps = {number: partition.log.recovery.gap for number, partition in house.partitions.items()}
    assert gaps[1] is not None
    assert gaps[2] is None


@pytest.mark.parametrize("again", ["same life", "next start"])
def test_an_incomplete_new_segment_does_no_harm(tmp_path, again):
    """The disk takes the new file, but neither its header nor its removal."""
    story = Story(tmp_path)
    name = story.topic()
    partition = story.partition(name)
    partition.append([bytes(700)], BodyInfo(1), body_format=1, append_us=1)
    vain = os.path.join(partition.log.folder, "00000000000000000001.log")
    story.disk.plan = refusing(errno.EROFS, WRITE, UNLINK, path=vain)
    with pytest.raises(errors.StorageFull):
        partition.append([bytes(700)], BodyInfo(1), body_format=1, append_us=1)
    assert os.path.exists(vain)
    partition.append([b"small"], BodyInfo(1), body_format=1, append_us=1)
    story.disk.plan = refusing(0)
    if again == "next start":
        story.settle()
        story.life.house.kill()
        partition = started(story, refusing(0)).partitions[1]
        assert not partition.log.recovery.damages
    partition.append([bytes(700)], BodyInfo(1), body_format=1, append_us=1)
    assert not os.path.exists(vain)
    assert partition.log.log_end_offset == 3


def test_a_topic_growth_without_room_leaves_no_cursors(tmp_path):
    story = Story(tmp_path)
    name = story.topic(partitions=2)
    story.commit(name, 1)
    story.settle()
    story.disk.plan = refusing(errno.ENOSPC, WRITE, path="catalogue")
    with pytest.raises(errors.StorageFull):
        done(story.broker.topics.add_partitions, name, 3)
    story.disk.plan = refusing(0)
    subscription = story.life.house.cursors.find(1, b"group")
    assert (subscription.partitions, sorted(subscription.cursors)) == (2, [0])
    story.settle()
    story.life.restart(cleanly=False)


def test_a_log_continues_behind_a_header_that_was_unreadable_once(tmp_path):
    story = Story(tmp_path)
    name = story.topic()
    for _ in range(2):
        story.do(lambda life: life.append_to(story.partition(name), records=1))
        story.settle()
    story.life.house.kill()
    house = started(story, refusing(errno.EIO, READ, path="partitions/1/0", times=1))
    partition = house.partitions[1]
    for _ in range(3):
        partition.append([bytes(700)], BodyInfo(1), body_format=1, append_us=1)
    house.broker.committer.commit()
    assert partition.high_watermark == partition.next_offset == 5


@pytest.mark.parametrize("path", ["partitions", "catalogue"])
def test_data_of_a_failed_sync_is_rewritten(tmp_path, path):
    """The data reads back at the next start, but a sync alone would not bring the
    data to the disk.
    """
    story = Story(tmp_path)
    name = story.topic()
    story.settle()
    story.do(lambda life: life.append_to(story.partition(name), records=1))
    story.topic("b")
    story.disk.plan = refusing(errno.EIO, SYNC_FILE, path=path)
    with pytest.raises(StorageFailed):
        story.settle()
    story.disk.plan = refusing(0)
    story.life.house.kill()
    story.life.revive()
    story.crash()


def test_a_segment_that_a_killed_broker_began_gets_a_durable_name(tmp_path):
    """The segment is empty, and all before is durable: the start has nothing to sync."""
    story = Story(tmp_path)
    name = story.topic()
    story.do(lambda life: life.append_to(story.partition(name), records=1, size=1000))
    story.settle()
    story.disk.plan = refusing(errno.ENOSPC, WRITE, path="00000001.log", after=1)
    with pytest.raises(errors.StorageFull):
        story.partition(name).append([bytes(1000)], BodyInfo(1), body_format=1, append_us=1)
    story.disk.plan = refusing(0)
    story.life.house.kill()
    story.life.revive()
    story.do(lambda life: life.append_to(story.partition(name), records=1))
    story.do(RandomLives.whole_round)
    story.crash(names=none)


def test_a_slot_with_a_failed_sync_is_rewritten_before_segments_are_removed(tmp_path):
    story = Story(tmp_path)
    name = story.topic(retention_bytes=1)
    for _ in range(8):
        story.do(lambda life: life.append_to(story.partition(name), records=1))
    story.settle()
    story.do(lambda life: story.partition(name).log.retain(0) and None)
    story.disk.plan = refusing(errno.EIO, SYNC_FILE, path="partitions/1/watermark")
    with pytest.raises(StorageFailed):
        story.settle()
    story.disk.plan = refusing(0)
    story.life.house.kill()
    story.life.revive()
    story.do(RandomLives.whole_round)
    story.crash()


def test_an_incomplete_snapshot_does_no_harm(tmp_path):
    """The snapshot's records are written, its end is not, and the file cannot be removed."""
    story = Story(tmp_path, ALWAYS_SNAPSHOT)
    story.topic("a")
    story.settle()
    last = max(path for path in story.now().files if path.startswith("catalogue/0"))
    story.disk.plan = refusing(errno.EROFS, WRITE, UNLINK, path="catalogue/0", but=last, after=2)
    story.topic("b")
    assert any(path.endswith(".log.new") for path in story.now().files)
    story.broker.catalogue.state.bump_topic_epoch(1)
    story.disk.plan = refusing(0)
    story.topic("c")
    story.life.restart(cleanly=False)
    assert len(story.broker.topics) == 3
    assert story.broker.catalogue.state.topic_by_id(1).topic_epoch == 1


def test_folders_stay_while_the_catalogue_may_name_them(tmp_path):
    """The record is written, but the snapshot after the record fails permanently."""
    story = Story(tmp_path, ALWAYS_SNAPSHOT)
    story.disk.plan = refusing(errno.EIO, CREATE, path="catalogue")
    with pytest.raises(errors.StorageFailed):
        story.topic()
    story.disk.plan = refusing(0)
    story.life.house.kill()
    story.life.revive()
