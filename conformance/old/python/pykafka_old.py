"""Typical user code for pykafka 2.8; its Fetch is of version 1."""

from lines import RECORDS, run, say, say_record
from pykafka import KafkaClient
from pykafka.common import CompressionType, OffsetType
from pykafka.protocol import PartitionOffsetCommitRequest, PartitionOffsetFetchRequest

CODECS = {
    "none": CompressionType.NONE,
    "gzip": CompressionType.GZIP,
    "snappy": CompressionType.SNAPPY,
}


def produce(address, topic, codec):
    # Kept, because the other objects have weak references to the client.
    client = KafkaClient(hosts=address)
    handle = client.topics[topic.encode()]

    def first(partitions, key):
        return min(partitions, key=lambda partition: partition.id)

    with handle.get_sync_producer(compression=CODECS[codec], partitioner=first) as producer:
        for key, value in RECORDS:
            producer.produce(value, partition_key=key)
    say(done=True)


def read(address, topic, count):
    # Kept, because the other objects have weak references to the client.
    client = KafkaClient(hosts=address)
    handle = client.topics[topic.encode()]
    consumer = handle.get_simple_consumer(
        partitions=[handle.partitions[0]], auto_offset_reset=OffsetType.EARLIEST
    )
    for _ in range(int(count)):
        message = consumer.consume()
        say_record(message.offset, message.partition_key, message.value)
    consumer.stop()


def commit(address, topic, group, offset):
    wanted = PartitionOffsetCommitRequest(topic.encode(), 0, int(offset), -1, b"")
    client = KafkaClient(hosts=address)
    coordinator = client.cluster.get_group_coordinator(group.encode())
    coordinator.commit_consumer_group_offsets(group.encode(), -1, b"", [wanted])
    say(done=True)


def committed(address, topic, group):
    wanted = PartitionOffsetFetchRequest(topic.encode(), 0)
    client = KafkaClient(hosts=address)
    coordinator = client.cluster.get_group_coordinator(group.encode())
    answer = coordinator.fetch_consumer_group_offsets(group.encode(), [wanted])
    say(offset=answer.topics[topic.encode()][0].offset)


run({"produce": produce, "read": read, "commit": commit, "committed": committed})
