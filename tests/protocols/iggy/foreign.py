"""Records stored by another listener, for tests of the views of Iggy's readers."""

from braidlog.storage.formats.api import BodyFormat
from braidlog.storage.formats.plain.codec import PLAIN
from braidlog.storage.formats.record import Record
from braidlog.storage.metadata.names import TopicName


def topic_of(broker, topic="tp", stream="st"):
    return broker.topics.get(TopicName("public", stream, topic))


def partition_of(broker, topic="tp", stream="st", index=0):
    return broker.topics.partition(TopicName("public", stream, topic), index)


async def append(broker, *values, append_us=None, publish_us=None, partition=None, key=None):
    """Append a batch of these values (None: a tombstone); the batch is on disk when
    this returns.
    """
    partition = partition or partition_of(broker)
    append_us = append_us or broker.now_us()
    base = partition.next_offset
    records = [
        Record(base + number, append_us, publish_us=publish_us, key=key, value=value)
        for number, value in enumerate(values)
    ]
    body = PLAIN.encode(records, base)
    partition.append([body], PLAIN.inspect(body), body_format=BodyFormat.PLAIN, append_us=append_us)
    await broker.durability.all_durable()
