"""Copies of given-up records in a dead letter topic."""

from collections import deque
from dataclasses import dataclass, field

import pytest
import trio

from braidlog.broker.delivery.dead_letters import COPY_RECORDS, DeadLetterCopier
from braidlog.broker.delivery.pulling import ShareLimits
from braidlog.broker.errors import StorageFull
from braidlog.broker.reading.records import read_records
from braidlog.broker.topics.partition import Partition
from braidlog.storage.formats.api import BodyInfo
from braidlog.storage.metadata.names import TopicName
from tests.protocols.kafka.talk import foreign_append

FOO, DEAD = (TopicName("public", "default", name) for name in ("foo", "dead"))


@dataclass(eq=False)
class Queue:
    """A queue that gives records up."""

    partition: Partition
    name: bytes = b"group"
    share_limits: ShareLimits = field(default_factory=lambda: ShareLimits(dead_letters=DEAD))
    consumers: tuple = ("a consumer",)
    seeks: int = 0
    dead: deque = field(default_factory=deque)
    done: list = field(default_factory=list)

    def buried(self, start, end):
        self.done.append(self.dead.popleft())


@pytest.fixture
async def queue(broker):
    topic = await broker.topics.create(FOO, partitions=1)
    foreign_append(broker, "foo", [b"a", b"b", b"c"])
    await broker.durability.all_durable()
    return Queue(topic.partitions[0])


@pytest.fixture
def letters(broker):
    return DeadLetterCopier(broker.topics, broker.durability, broker.now_us)


class OnceUnanswered:
    """Rounds of commits, of which the second reports an error."""

    def __init__(self, durability):
        self._durability = durability
        self.waits = 0

    async def reached(self, ticket):
        self.waits += 1
        if self.waits == 2:
            raise StorageFull("the store does not answer")
        await self._durability.reached(ticket)


async def values(broker):
    (partition,) = broker.topics.get(DEAD).partitions
    read = await read_records(partition, 0, bytes_max=1 << 20, records_max=1000)
    return [placed.record.value for placed in read.records]


async def test_a_missing_topic_is_tried_again(broker, queue, letters, nursery, autojump_clock):
    queue.dead.append((1, 3))
    nursery.start_soon(letters.bury, queue)
    nursery.start_soon(letters.bury, queue)  # After all consumers left and others came.
    await trio.sleep(0.01)
    assert queue.done == []
    await broker.topics.create(DEAD, partitions=1)
    while not queue.done:
        await trio.sleep(0.05)
    assert queue.done == [(1, 3)] and await values(broker) == [b"b", b"c"]


async def test_a_failed_copy_is_repeated_from_its_last_durable_piece(broker, queue, autojump_clock):
    await broker.topics.create(DEAD, partitions=1)
    texts = [b"%d" % number for number in range(COPY_RECORDS + 50)]
    foreign_append(broker, "foo", texts)
    await broker.durability.all_durable()
    queue.dead.append((3, 3 + len(texts)))
    rounds = OnceUnanswered(broker.durability)
    await DeadLetterCopier(broker.topics, rounds, broker.now_us).bury(queue)
    assert rounds.waits == 3
    assert await values(broker) == texts + texts[COPY_RECORDS:]


async def test_records_that_retention_left_are_copied(broker, queue, letters):
    await broker.topics.create(DEAD, partitions=1)
    queue.partition.log.delete_below(2)
    queue.dead.append((0, 3))
    await letters.bury(queue)
    assert queue.done == [(0, 3)] and await values(broker) == [b"c"]


async def test_a_record_that_cannot_be_opened_leaves_a_letter_without_value(broker, queue, letters):
    await broker.topics.create(DEAD, partitions=1)
    queue.partition.append([b"?"], BodyInfo(1, None, None), body_format=63, append_us=1)
    await broker.durability.all_durable()
    queue.dead.extend([(2, 3), (3, 4)])
    await letters.bury(queue)
    assert queue.done == [(2, 3), (3, 4)] and await values(broker) == [b"c", None]


async def test_a_queue_without_consumers_keeps_its_records(queue, letters):
    queue.dead.append((0, 1))
    queue.consumers = ()
    await letters.bury(queue)
    assert queue.done == []
