"""Typical user code for kafka-python 1.3 to 2.0 (in PyPI also as `kafka`)."""

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.structs import OffsetAndMetadata
from lines import RECORDS, run, say, say_record


def produce(address, topic, codec):
    kind = None if codec == "none" else codec
    producer = KafkaProducer(bootstrap_servers=address, compression_type=kind, linger_ms=5)
    sent = [producer.send(topic, value, key, partition=0) for key, value in RECORDS]
    for promise in sent:
        promise.get(30)
    producer.close()
    say(done=True)


def _consumer(address, topic, group=None):
    consumer = KafkaConsumer(bootstrap_servers=address, group_id=group, enable_auto_commit=False)
    place = TopicPartition(topic, 0)
    consumer.assign([place])
    return consumer, place


def read(address, topic, count):
    consumer, place = _consumer(address, topic)
    consumer.seek_to_beginning(place)
    for _ in range(int(count)):
        record = next(consumer)
        say_record(record.offset, record.key, record.value)


def commit(address, topic, group, offset):
    consumer, place = _consumer(address, topic, group)
    consumer.commit({place: OffsetAndMetadata(int(offset), "")})
    say(done=True)


def committed(address, topic, group):
    consumer, place = _consumer(address, topic, group)
    say(offset=consumer.committed(place))


run({"produce": produce, "read": read, "commit": commit, "committed": committed})
