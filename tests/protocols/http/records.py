"""Stores records in a partition without a listener."""

from braidlog.broker.broker import Broker
from braidlog.broker.topics.partition import Partition
from braidlog.storage.formats.plain.codec import PLAIN
from braidlog.storage.formats.record import Record


def append_records(broker: Broker, partition: Partition, count: int) -> None:
    """Append `count` records as a batch; they are not on disk yet."""
    base_offset, append_us = partition.next_offset, broker.now_us()
    records = [
        Record(base_offset + number, append_us, value=b"value %d" % number)
        for number in range(count)
    ]
    body = PLAIN.encode(records, base_offset)
    info = PLAIN.inspect(body)
    partition.append([body], info, body_format=PLAIN.format, append_us=append_us)
