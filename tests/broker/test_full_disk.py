"""A broker on a disk without a free block: changes that free space use the reserve, and other
changes are refused.
"""

import contextlib
import os

import pytest
import trio

from braidlog.broker import errors
from braidlog.broker.broker import Broker
from braidlog.broker.topics.partition_factory import LOOK_S, TIDY_S
from braidlog.storage.directory.data_dir import DataDir
from braidlog.storage.formats.api import BodyInfo
from braidlog.storage.log.local_files import LocalFiles
from braidlog.storage.log.reserve import BLOCK_BYTES, PIECE_BYTES, RESERVE_NAME
from braidlog.storage.metadata.names import parse_topic
from tests.broker.test_broker import config_for
from tests.storage.files_twins import LimitedDisk
from tests.waiting import until

BLOCKS = 4000
BODY_FORMAT = 999
RECORD = bytes(30_000)
TWO_A_SEGMENT = {"segment_bytes": 70_000}
T = parse_topic("t")


class TightDir(DataDir):
    """A data directory whose reserve is small beside the disk."""

    reserve_bytes = PIECE_BYTES


@pytest.fixture
async def house(tmp_path):
    """Yield a running broker on a small disk, with a topic of five segments."""
    async with trio.open_nursery() as running:
        house = await FullBroker.built(tmp_path)
        running.start_soon(house.broker.run)
        yield house
        await house.broker.durability.all_durable()
        running.cancel_scope.cancel()
    house.broker.close()


class FullBroker:
    def __init__(self, folder):
        self.disk = LimitedDisk(folder, BLOCKS)
        data_dir = TightDir.open(folder, LocalFiles(folder, self.disk))
        self.broker = Broker(config_for(folder), data_dir)

    @classmethod
    async def built(cls, folder):
        house = cls(folder)
        topic = await house.broker.topics.create(T, 1, settings=TWO_A_SEGMENT)
        house.partition = topic.partitions[0]
        for _ in range(10):
            house.append()
        return house

    def append(self):
        now_us = self.broker.now_us()
        return self.partition.append(
            [RECORD], BodyInfo(1), body_format=BODY_FORMAT, append_us=now_us
        )

    @property
    def reserve_bytes(self):
        return os.path.getsize(os.path.join(self.broker.data_dir, RESERVE_NAME))

    @property
    def partition_folders(self):
        return os.listdir(os.path.join(self.broker.data_dir, "partitions"))

    async def fill(self):
        """Fill the disk, so that no block is free, nor a byte in the last block of the catalogue
        and the log.
        """
        await self.broker.durability.all_durable()
        self.disk.fill()
        with contextlib.suppress(errors.StorageFull):
            while True:
                self.append()
        with contextlib.suppress(errors.StorageFull):
            for number in range(BLOCKS):
                self.broker.named_groups.create(self.broker.topics.get(T), f"{number}")
        assert self.reserve_bytes == TightDir.reserve_bytes


async def test_a_change_that_only_needs_room_is_refused(house):
    await house.fill()
    with pytest.raises(errors.StorageFull):
        house.append()
    for change in (
        lambda: house.broker.topics.create(parse_topic("other"), 1),
        lambda: house.broker.namespaces.create("public", "other"),
        lambda: house.broker.topics.add_partitions(T, 2),
    ):
        with pytest.raises(errors.StorageFull):
            await change()
    assert house.reserve_bytes == TightDir.reserve_bytes


async def test_a_waiter_for_room_is_notified(house, autojump_clock):
    await house.partition.check_room()
    await house.fill()
    with pytest.raises(errors.StorageFull):
        house.append()
    with pytest.raises(errors.StorageFull):
        await house.partition.check_room()
    house.disk.blocks += 1000
    with pytest.raises(errors.StorageFull):
        await house.partition.check_room()  # No task polls.
    await trio.sleep(2 * LOOK_S)  # Exactly LOOK_S could fall slightly short.
    await house.partition.check_room()


async def test_deleting_a_topic_frees_room_and_refills_the_reserve(house):
    await house.fill()
    await house.broker.topics.delete(T)
    assert house.reserve_bytes == TightDir.reserve_bytes - BLOCK_BYTES
    await until(lambda: not house.partition_folders)
    await until(lambda: house.reserve_bytes == TightDir.reserve_bytes)
    assert (await house.broker.topics.create(T, 1)).partitions


async def test_a_namespace_is_deleted_with_its_topics(house):
    broker = house.broker
    await broker.namespaces.create("public", "shop")
    await broker.topics.create(parse_topic("public/shop/t"), 1)
    await house.fill()
    await broker.topics.delete(parse_topic("public/shop/t"))
    await broker.namespaces.delete("public", "shop")
    assert house.reserve_bytes < TightDir.reserve_bytes


async def test_a_smaller_limit_frees_room_at_once(house):
    await house.fill()
    ticket = await house.broker.topics.alter_settings(T, {"retention_bytes": 1})
    await house.broker.retention.apply(house.broker.topics.get(T))
    await house.broker.durability.reached(ticket)
    assert house.partition.log_start_offset == 8
    await until(lambda: house.disk.blocks_free > 0)
    house.append()


async def test_expired_records_of_the_newest_segment_are_removed(house):
    """A new segment must follow first, which takes a block."""
    await house.fill()
    await house.broker.topics.alter_settings(T, {"retention_ms": 1})
    await trio.sleep(0.01)
    await house.broker.retention.apply(house.broker.topics.get(T))
    assert house.partition.log_start_offset == house.partition.log.log_end_offset
    await until(lambda: len(os.listdir(house.partition.log.folder)) < 6)


async def test_expired_records_are_removed_with_an_empty_reserve(house):
    await house.fill()
    await house.broker.topics.alter_settings(T, {"retention_ms": 1})
    os.truncate(os.path.join(house.broker.data_dir, RESERVE_NAME), 0)
    house.disk.fill()
    await trio.sleep(0.01)
    await house.broker.retention.apply(house.broker.topics.get(T))
    assert house.partition.log_start_offset == 8  # All but the newest segment.


async def test_a_deletion_continues_if_a_folder_cannot_be_renamed(house):
    def refuse(path, new_path):
        raise OSError(28, "No space left on device")

    house.disk.rename = refuse
    await house.broker.topics.delete(T)
    await until(lambda: not house.partition_folders)


async def test_files_that_cannot_be_removed_are_removed_later(house, autojump_clock):
    failing = []

    def refuse(path):
        failing.append(path)
        raise OSError(30, "Read-only file system")

    house.disk.unlink = refuse
    await house.broker.topics.delete(T)
    await until(lambda: failing)
    del house.disk.unlink
    await until(lambda: not house.partition_folders, step_s=TIDY_S)


async def test_the_reserve_is_refilled_soon_after_room_is_freed(house, autojump_clock):
    await house.fill()
    await house.broker.topics.alter_settings(T, {"retention_ms": 3_600_000})
    assert house.reserve_bytes == TightDir.reserve_bytes - BLOCK_BYTES
    await trio.sleep(2 * TIDY_S)
    assert house.reserve_bytes == TightDir.reserve_bytes - BLOCK_BYTES
    house.disk.blocks += 5
    await until(lambda: house.reserve_bytes == TightDir.reserve_bytes, step_s=TIDY_S)
