"""A partition's memory of its producers while the broker runs: loads, notes, snapshots."""

from pathlib import Path

import pytest
import trio

from braidlog.broker.errors import TopicNotFound
from braidlog.broker.topics.producer_memory import ProducerMemories, ProducerMemory
from braidlog.storage.formats.api import BodyInfo
from braidlog.storage.log.sequence_store import SEQUENCES_NAME, unpack_table
from braidlog.storage.metadata.names import TopicName
from tests.storage.files_twins import StoppingDisk
from tests.storage.log.logs import OneLog
from tests.storage.open_files import closed_files  # noqa: F401
from tests.waiting import until


def append(log, memory, sequence, producer_id=1):
    base_offset = log.append(
        producer_id=producer_id, first_sequence=sequence, last_sequence=sequence
    )
    memory.note(BodyInfo(1, None, None, 0, producer_id, 0, sequence, sequence), base_offset, 5)


async def test_appends_are_noted_from_the_load_on(tmp_path):
    log = OneLog(tmp_path)
    memory = ProducerMemory(log.log, ProducerMemories(log.files))
    append(log, memory, 0)
    table = await memory.loaded()
    assert table.find(1) is None  # Nothing was ever compared with the producer.
    append(log, memory, 1)
    assert table.find(1).last_sequence == 1
    assert await memory.loaded() is table


async def test_the_next_start_remembers_stored_sequences(tmp_path):
    log = OneLog(tmp_path)
    memory = ProducerMemory(log.log, ProducerMemories(log.files))
    await memory.loaded()
    for sequence in range(1000):
        append(log, memory, sequence)
    log.commit()
    second = ProducerMemory(log.log, ProducerMemories(log.files))
    assert (await second.loaded()).find(1).last_sequence == 999


async def test_simultaneous_requests_share_a_table(tmp_path):
    log = OneLog(tmp_path)
    memory = ProducerMemory(log.log, ProducerMemories(log.files))
    got = []

    async def ask():
        got.append(await memory.loaded())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        nursery.start_soon(ask)
    assert got[0] is got[1]


async def test_a_snapshot_is_written_once_it_is_durable(tmp_path):
    log = OneLog(tmp_path)
    memories = ProducerMemories(log.files, snapshot_offsets=10)
    memory = ProducerMemory(log.log, memories)
    await memory.loaded()
    for sequence in range(10):
        append(log, memory, sequence)
    await memory.keep()

    def snapshot():
        return unpack_table(log.files.read_whole(log.file(SEQUENCES_NAME)), 1)

    assert snapshot().next_offset == 0  # A power cut could undo all of the appends.
    append(log, memory, 10)
    log.commit()
    await memory.keep()
    assert snapshot().next_offset == 10
    assert snapshot().find(1).last_sequence == 9
    memories.keep_now()
    assert snapshot().find(1).last_sequence == 10


async def test_sequences_removed_by_retention_are_remembered(tmp_path):
    log = OneLog(tmp_path)
    memory = ProducerMemory(log.log, ProducerMemories(log.files))
    await memory.loaded()
    for sequence in range(5):
        append(log, memory, sequence)
    log.commit()
    log.log.delete_below(5)
    await memory.keep()
    second = ProducerMemory(log.log, ProducerMemories(log.files))
    assert (await second.loaded()).find(1).last_sequence == 4


async def test_a_deleted_topic_leaves_no_snapshot(tmp_path):
    log = OneLog(tmp_path)
    memories = ProducerMemories(log.files, look_s=0.001)
    memory = ProducerMemory(log.log, memories)
    await memory.loaded()
    append(log, memory, 0)  # Too few for a snapshot.
    log.commit()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(memories.run)
        await trio.sleep(0.01)
        assert memory in memories._loaded
        log.data_dir.retire_partition(1)
        await until(lambda: memory not in memories._loaded)
        nursery.cancel_scope.cancel()


async def test_a_topic_deleted_during_its_snapshot_sync_stops_no_other_work(broker):
    name = TopicName("public", "default", "orders")
    (partition,) = (await broker.topics.create(name, 1)).partitions
    folder = Path(partition.log.folder)
    disk = broker._storage.files.disk = StoppingDisk(f"{SEQUENCES_NAME}.new")

    async def ask():
        with pytest.raises(TopicNotFound):
            await partition.sequences()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.to_thread.run_sync(disk.stopped.wait)
        await broker.topics.delete(name)
        await until(lambda: not folder.exists())
        disk.go_on.set()
    (again,) = (await broker.topics.create(name, 1)).partitions
    assert len(await again.sequences()) == 0
