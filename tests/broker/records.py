"""Stores durable batches of any format in a topic of the `broker` fixture, and reads them as
records.
"""

from braidlog.broker.reading.transcode import read_as
from braidlog.storage.errors import StorageFull
from braidlog.storage.formats.api import BodyInfo
from braidlog.storage.formats.iggy.classic import pack_key
from braidlog.storage.formats.kafka.set_layout import ENTRY
from braidlog.storage.formats.record import Chunk, Record
from braidlog.storage.formats.registry import codec_named
from braidlog.storage.metadata.names import parse_topic

APPEND_US = 1_700_000_000_000_000
# The part of a stored body before the part for readers.
STORED_HEAD = dict.fromkeys(("iggy", "iggy_typed"), pack_key(None))


class FullOnce:
    """A log without room for the next append, but with room for smaller appends."""

    def __init__(self, log):
        self._log = log
        self._is_full = True

    def __getattr__(self, name):
        return getattr(self._log, name)

    def append(self, *body, **more):
        if self._is_full:
            self._is_full = False
            raise StorageFull("no space")
        return self._log.append(*body, **more)


async def make_partition(broker, name="t", **settings):
    topic = await broker.topics.create(parse_topic(name), 1, settings=settings)
    return topic.partitions[0]


async def append(broker, partition, format_name, values, **fields):
    """Append a batch with a record per value; a value may be a dict of Record fields."""
    codec = codec_named(format_name)
    base_offset = partition.next_offset
    records = []
    for offset, value in enumerate(values, base_offset):
        own = value if isinstance(value, dict) else {"value": value}
        records.append(Record(offset, APPEND_US, **(fields | own)))
    body = codec.encode(records, base_offset)
    return await store(broker, partition, codec.format, body, codec.inspect(body))


async def store(broker, partition, body_format, body, info):
    """Append a prepared body."""
    appended = partition.append([body], info, body_format=body_format, append_us=APPEND_US)
    await broker.durability.all_durable()
    return appended.base_offset


async def append_unreadable(broker, partition, records=3):
    """Append a compressed Kafka set that does not unpack."""
    garbage = b"\x1f\x8b not gzip"
    message = bytes([0, 1]) + b"\xff\xff\xff\xff" + len(garbage).to_bytes(4, "big") + garbage
    last_offset = partition.next_offset + records - 1
    body = ENTRY.pack(last_offset, len(message) + 4) + bytes(4) + message
    return await store(
        broker, partition, codec_named("kafka").format, body, BodyInfo(records, flags=1)
    )


def chunk(number, count, uuid=b"u", total=None, value_bytes=5):
    return Chunk(uuid, number, count, total if total is not None else count * value_bytes)


async def read_values(partition, format_name, offset, **limits):
    """Return (offset, value) of the records of a read, decoded again, and the result itself."""
    codec = codec_named(format_name)
    result = await read_as(partition, codec, offset, **limits)
    assert result.size == sum(map(len, result.parts))
    records = []
    for part in result.parts:
        decoded = codec.decode(STORED_HEAD.get(format_name, b"") + bytes(part), 0, APPEND_US)
        assert decoded.failed is None
        records += [(record.offset, record.value) for record in decoded.records]
    return records, result
