"""What failing calls at random places once found, each as a short story of its own."""

import errno
import os

import pytest

from broker.errors import StorageFull
from storage.codecs.api import BodyInfo
from storage.errors import StorageFailed
from tests.storage.simulation.calls import READ, UNLINK, WRITE, Refusal, TracedDisk
from tests.storage.simulation.house import House
from tests.storage.simulation.test_found import Story
from tests.storage.simulation.verify import verify


def refusing(number, *kinds, path="", times=1_000_000):
    """A plan: calls of these kinds, to files whose path has this in it, fail so many times."""
    left = [times]

    def plan(kind, called):
        if kind in kinds and path in called and left[0]:
            left[0] -= 1
            return Refusal(number)
        return None

    return plan


def killed(tmp_path, **settings):
    """A story up to a kill: one topic, a durable record, one that may be lost."""
    story = Story(tmp_path)
    name = story.topic(**settings)
    story.do(lambda life: life.append_to(story.partition(name), records=1))
    story.settle()
    story.do(lambda life: life.append_to(story.partition(name), records=1))
    story.life.house.kill()
    return story


def started(story, plan):
    return House(str(story.tmp_path / "life"), TracedDisk(story.disk.root, plan), story.shape)


def logs_of(story):
    files = story.now().files
    return {path: files[path] for path in files if path.endswith(".log")}


@pytest.mark.parametrize("times", [1, 1_000_000])
def test_what_cannot_be_read_is_no_torn_tail(tmp_path, times):
    story = killed(tmp_path)
    before = logs_of(story)
    house = started(story, refusing(errno.EIO, READ, path="partitions/1/0", times=times))
    report = house.partitions[1].log.recovery
    assert report.damages and not report.cuts
    house.kill()
    assert logs_of(story) == before
    verify(started(story, refusing(0)), story.life.facts, story.life.now, is_whole=True)


def test_a_start_without_the_reservation_would_give_offsets_out_again(tmp_path):
    story = killed(tmp_path, durability="written")
    with pytest.raises(StorageFailed, match="reserved"):
        started(story, refusing(errno.EIO, READ, path="reserved"))


def test_a_full_disk_at_a_stop_keeps_only_what_it_must_from_ending_cleanly(tmp_path):
    story = Story(tmp_path)
    for name in "ab":
        topic = story.topic(name, durability="written")
        story.do(lambda life, topic=topic: life.append_to(story.partition(topic), records=1))
    story.settle()
    story.disk.plan = refusing(errno.ENOSPC, WRITE, path="partitions/1/reserved")
    story.life.house.stop()
    house = started(story, refusing(0))
    gaps = {number: one.log.recovery.gap for number, one in house.partitions.items()}
    assert gaps[1] is not None
    assert gaps[2] is None


@pytest.mark.parametrize("again", ["same life", "next start"])
def test_a_segment_begun_in_vain_is_in_nobodys_way(tmp_path, again):
    """The disk takes the new file, but neither its header nor that it goes."""
    story = Story(tmp_path)
    name = story.topic()
    partition = story.partition(name)
    partition.append([bytes(700)], BodyInfo(1), body_format=1, append_us=1)
    vain = os.path.join(partition.log.folder, "00000000000000000001.log")
    story.disk.plan = refusing(errno.EROFS, WRITE, UNLINK, path=vain)
    with pytest.raises(StorageFull):
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


def test_a_growth_that_finds_no_room_leaves_no_cursors(tmp_path):
    story = Story(tmp_path)
    name = story.topic(partitions=2)
    story.commit(name, 1)
    story.settle()
    story.disk.plan = refusing(errno.ENOSPC, WRITE, path="catalogue")
    with pytest.raises(StorageFull):
        story.broker.topics.add_partitions(name, 3)
    story.disk.plan = refusing(0)
    found = story.life.house.cursors.find(1, b"group")
    assert (found.partitions, sorted(found.cursors)) == (2, [0])
    story.settle()
    story.life.restart(cleanly=False)


def test_a_log_goes_on_behind_a_header_that_was_unreadable_once(tmp_path):
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
