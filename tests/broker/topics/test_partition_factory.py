"""Effects of refused and altered topic settings on the topic's logs."""

import contextlib
import os
import threading
from types import SimpleNamespace

import pytest
import trio

from braidlog.broker.broker import Broker
from braidlog.broker.config.settings import LogConfig
from braidlog.broker.errors import Conflict, InvalidRequest, TopicNotFound
from braidlog.broker.topics.partition_factory import LOOK_S, ROOM_BESIDE_BYTES, Partitions
from braidlog.storage.errors import StorageFailed
from braidlog.storage.metadata.names import parse_topic
from tests.broker.test_broker import config_for
from tests.storage.files_twins import StoppingDisk
from tests.waiting import HANG_S, until


@pytest.mark.parametrize(
    "setting",
    [
        {"segment_bytes": 1},
        {"segment_bytes": "many"},
        {"segment_ms": -1},
        {"retention_ms": 0},
        {"durability": "hopeful"},
        {"keep_unacknowledged": "yes"},
    ],
)
async def test_an_invalid_value_is_refused_and_no_topic_is_created(broker, setting):
    with pytest.raises(InvalidRequest, match=next(iter(setting))):
        await broker.topics.create(parse_topic("t"), 2, settings=setting)
    assert broker.topics.find(parse_topic("t")) is None
    assert (await broker.topics.create(parse_topic("t"), 1)).partitions


async def test_altered_settings_reach_the_logs_and_refused_settings_do_not(broker):
    topic = await broker.topics.create(parse_topic("t"), 2)
    await broker.topics.alter_settings(topic.name, {"durability": "written"})
    assert {partition.log.settings.durability for partition in topic.partitions} == {"written"}
    with pytest.raises(InvalidRequest):
        await broker.topics.alter_settings(topic.name, {"durability": "hopeful"})
    assert topic.meta.settings == {"durability": "written"}


async def test_altering_many_partitions_gives_turns_to_other_tasks(broker):
    topic = await broker.topics.create(parse_topic("t"), 5)
    turns = []

    def look():
        turns.append([str(partition.log.settings.durability) for partition in topic.partitions])

    async def work():
        while not finished:
            look()
            await trio.lowlevel.checkpoint()

    finished = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(work)
        await broker.topics.alter_settings(topic.name, {"durability": "written"})
        finished.append(True)
    assert topic.meta.settings == {"durability": "written"}
    look()
    assert len(turns) > 5
    assert turns[0] != turns[-1] == ["written"] * 5


async def test_partitions_added_during_an_alteration_follow_too(broker):
    topic = await broker.topics.create(parse_topic("t"), 2)
    async with trio.open_nursery() as nursery:
        changes = {"durability": "written"}
        nursery.start_soon(broker.topics.alter_settings, topic.name, changes)
        await trio.lowlevel.checkpoint()
        with contextlib.suppress(Conflict):  # Another change may overtake this; then it is refused.
            await broker.topics.add_partitions(topic.name, 4)
    assert {str(partition.log.settings.durability) for partition in topic.partitions} == {"written"}


async def cancelled_at_the_second(broker, alter, *arguments):
    """Alter, and cancel while the second partition is about to be altered, as a leaving client
    does.
    """
    disk = broker._storage.files.disk = StoppingDisk("/2/reserved")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(alter, *arguments)
        await trio.to_thread.run_sync(disk.stopped.wait)
        nursery.cancel_scope.cancel()
        disk.go_on.set()


async def test_a_change_of_a_leaving_client_affects_no_partition(broker):
    topic = await broker.topics.create(parse_topic("t"), 3)
    change = {"durability": "written"}
    await cancelled_at_the_second(broker, broker.topics.alter_settings, topic.name, change)
    assert not topic.settings
    assert [partition.log.settings.durability for partition in topic.partitions] == ["synced"] * 3


async def test_topics_follow_their_namespace_even_if_the_client_leaves(broker):
    topics = [await broker.topics.create(parse_topic(name), 2) for name in ("t", "u")]
    change = {"durability": "written"}
    await cancelled_at_the_second(
        broker, broker.topics.alter_namespace, "public", "default", change
    )
    for topic in topics:
        assert topic.settings == change
        assert [partition.log.settings.durability for partition in topic.partitions] == [
            "written"
        ] * 2


async def test_a_topic_deleted_during_an_alteration_is_not_found(broker):
    topic = await broker.topics.create(parse_topic("t"), 3)
    async with trio.open_nursery() as nursery:

        async def alter():
            with pytest.raises(TopicNotFound):
                await broker.topics.alter_settings(topic.name, {"durability": "written"})

        nursery.start_soon(alter)
        await trio.lowlevel.checkpoint()
        await broker.topics.delete(topic.name)


async def test_files_of_a_deleted_topic_are_removed_soon_in_a_thread(broker):
    topic = await broker.topics.create(parse_topic("t"), 3)
    folders = [partition.log.folder for partition in topic.partitions]
    await broker.topics.delete(topic.name)
    await until(lambda: not os.listdir(os.path.dirname(folders[0])))
    assert not any(map(os.path.exists, folders))


def folders_of(broker):
    return sorted(os.listdir(os.path.join(broker.data_dir, "partitions")))


async def test_a_stop_waits_for_a_single_folder_and_the_next_start_continues(tmp_path):
    broker = Broker.open(config_for(tmp_path))
    disk, gate, removed = broker._storage.files.disk, threading.Event(), []

    def unlink(path):
        removed.append(path)
        assert gate.wait(HANG_S)
        type(disk).unlink(disk, path)

    async with trio.open_nursery() as running:
        running.start_soon(broker.run)
        topic = await broker.topics.create(parse_topic("t"), 5)
        disk.unlink = unlink
        await broker.topics.delete(topic.name)
        await until(lambda: removed)
        running.cancel_scope.cancel()
        gate.set()
    assert folders_of(broker) == ["2.deleted", "3.deleted", "4.deleted", "5.deleted"]
    broker.close()
    again = Broker.open(config_for(tmp_path))
    assert len(folders_of(again)) == 4  # A start does not wait for them.
    async with trio.open_nursery() as running:
        running.start_soon(again.run)
        await until(lambda: not folders_of(again))
        running.cancel_scope.cancel()
    again.close()


async def test_folders_of_the_last_deletions_are_known_to_the_next_start(tmp_path):
    broker = Broker.open(config_for(tmp_path))
    topic = await broker.topics.create(parse_topic("t"), 2)
    broker.topics.leaving.round_ended(await broker.topics.delete(topic.name))
    assert folders_of(broker) == ["1", "2"]
    broker.close()
    assert folders_of(broker) == ["1.deleted", "2.deleted"]


async def test_retiring_thousands_gives_turns_to_other_tasks(broker):
    topic = await broker.topics.create(parse_topic("t"), 50)
    await broker.durability.all_durable()
    seen = set()
    await broker.topics.delete(topic.name)
    with trio.fail_after(HANG_S):
        while names := folders_of(broker):
            seen.add(sum(name.endswith(".deleted") for name in names))
            await trio.lowlevel.checkpoint()
    assert len(seen & set(range(1, 50))) > 20


class SlowReserve:
    """A disk that answers on the test's request; `answers` are the results of its
    checks, in order.
    """

    def __init__(self, *answers):
        self.answers = list(answers)
        self.wanted = []
        self.let = threading.Semaphore(0)

    def has_room(self, size):
        assert threading.current_thread() is not threading.main_thread()
        self.wanted.append(size)
        assert self.let.acquire(timeout=HANG_S)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def over_reserve(broker, reserve):
    data_dir = SimpleNamespace(files=None, reserve=reserve)
    return Partitions(data_dir, LogConfig(), broker.durability, broker.output)


async def test_requests_for_room_share_a_disk_check_and_others_do_not_wait(broker):
    reserve = SlowReserve(False)
    partitions, answers = over_reserve(broker, reserve), []

    async def ask():
        answers.append(await partitions.has_room(100))

    async with trio.open_nursery() as nursery:
        for _ in range(50):
            nursery.start_soon(ask)
        await until(lambda: reserve.wanted)
        for _ in range(10):  # The disk is slow, and the loop continues.
            await trio.lowlevel.checkpoint()
        assert answers == []
        reserve.let.release()
    assert answers == [False] * 50
    assert reserve.wanted == [100 + ROOM_BESIDE_BYTES]


async def test_a_disk_check_is_reused_briefly_and_a_failed_check_never(broker, autojump_clock):
    reserve = SlowReserve(StorageFailed("EIO"), True, False)
    partitions = over_reserve(broker, reserve)
    reserve.let.release(3)
    with pytest.raises(StorageFailed):
        await partitions.has_room()
    assert await partitions.has_room()
    await trio.sleep(2 * LOOK_S)
    assert not await partitions.has_room()
    assert len(reserve.wanted) == 3
