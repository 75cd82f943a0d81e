"""A partition that is removed during a search for a place in it; another partition
gets its number.
"""

import trio

from braidlog.storage.formats.api import BodyFormat, BodyInfo
from braidlog.storage.formats.plain.codec import PLAIN
from braidlog.storage.formats.record import Record
from braidlog.storage.metadata.names import TopicName
from tests.storage.files_twins import StoppingDisk

NAME = TopicName("public", "default", "t")
GROUP = b"billing"
RECORDS = 5


async def two_partitions(broker):
    """Return a topic whose second partition has old records and a group that has read none."""
    topic = await broker.topics.create(NAME, 2)
    partition = topic.partitions[1]
    for offset in range(RECORDS):
        body = PLAIN.encode([Record(offset, 1, value=b"old")], offset)
        appended = partition.append([body], BodyInfo(1), body_format=BodyFormat.PLAIN, append_us=1)
    await broker.durability.reached(appended.ticket)
    broker.subscriptions.open(topic, GROUP).start(1, 0)
    return topic


async def replace_meanwhile(broker, topic, work):
    """Start the work on the second partition, replace the partition meanwhile, and let the work
    end.
    """
    old = topic.partitions[1]
    name = f"/{old.partition_id}/{0:020d}.log"
    disk = broker._storage.files.disk = StoppingDisk(name, "read")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(work)
        await trio.to_thread.run_sync(disk.stopped.wait)
        await broker.topics.keep_partitions(topic.name, 1)
        await broker.topics.add_partitions(topic.name, 2)
        disk.go_on.set()
    assert topic.partitions[1] is not old
