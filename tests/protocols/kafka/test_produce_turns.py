"""Produce requests with several sets: turns for other tasks, and answers in order."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

from braidlog.broker.broker import Broker
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.keys import INLINE_BYTES
from braidlog.protocols.kafka.produce import BYTES_PER_TURN
from braidlog.storage.formats.kafka.message_sets import KAFKA
from braidlog.storage.formats.record import Record
from tests.protocols.kafka import forms as m
from tests.protocols.kafka.frames import RawKafka, message, produce
from tests.protocols.kafka.talk import FOO, FOO_NAME, fetch_one, values


async def produced(client: RawKafka, sets: dict[int, bytes]) -> dict[int, tuple[int, int]]:
    """Return code and base offset of each set."""
    reply = await client.call(produce(FOO, sets))
    assert isinstance(reply, m.ProduceReply)
    return {
        index: (answer.error, answer.base_offset) for index, answer in reply.topics[FOO].items()
    }


async def test_sets_after_many_bytes_are_stored_in_a_later_turn(
    broker: Broker, client: RawKafka
) -> None:
    await broker.topics.add_partitions(FOO_NAME, 3)
    large = message(bytes(BYTES_PER_TURN - 100))
    sets = {0: large, 1: large, 2: message(b"small"), 7: message(b"nowhere")}
    for round_ in range(2):
        assert await produced(client, sets) == {
            **dict.fromkeys((0, 1, 2), (Code.NONE, round_)),
            7: (Code.UNKNOWN_TOPIC_OR_PARTITION, -1),
        }
    topic = broker.topics.get(FOO_NAME)
    assert [partition.high_watermark for partition in topic.partitions] == [2, 2, 2]


async def test_a_compacted_topic_takes_only_records_with_keys(
    broker: Broker, client: RawKafka
) -> None:
    await broker.topics.alter_settings(FOO_NAME, {"cleanup_policy": "compact"})
    for size in (1, INLINE_BYTES):
        keyed = KAFKA.encode([Record(0, 1, key=b"k", value=bytes(size))], 0)
        keyless = KAFKA.encode([Record(0, 1, key=None, value=bytes(size))], 0)
        before = broker.topics.partition(FOO_NAME, 0).next_offset
        assert await produced(client, {0: keyless}) == {0: (Code.INVALID_MESSAGE, -1)}
        assert await produced(client, {0: keyed}) == {0: (Code.NONE, before)}
    assert broker.topics.partition(FOO_NAME, 0).high_watermark == 2
    assert values(await fetch_one(client, 2)) == []


@contextmanager
def files_at_most(size: int) -> Iterator[None]:
    """Let no file of this process grow beyond that many bytes: a write takes what fits."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


async def test_a_set_that_fits_only_in_part_is_refused_alone_and_leaves_nothing(
    broker: Broker, client: RawKafka
) -> None:
    await broker.topics.add_partitions(FOO_NAME, 3)
    # Larger than any other file that the process writes to meanwhile.
    for _ in range(4):
        await produced(client, {1: message(bytes(BYTES_PER_TURN // 2))})
    log = broker.topics.partition(FOO_NAME, 1).log
    path, size = log.segment_set.last.path, os.path.getsize(log.segment_set.last.path)
    sets = {0: message(b"a"), 1: message(bytes(2000)), 2: message(b"c")}
    with files_at_most(size + 1000):
        assert await produced(client, sets) == {
            0: (Code.NONE, 0),
            1: (Code.STORAGE_ERROR, -1),
            2: (Code.NONE, 0),
        }
    assert (os.path.getsize(path), log.high_watermark) == (size, 4)
    assert await produced(client, sets) == {0: (Code.NONE, 1), 1: (Code.NONE, 4), 2: (Code.NONE, 1)}
    assert os.path.getsize(path) == log.segment_set.last.size
