"""Typical user code for kafka-python 0.9: requests by hand, a consumer that fetches."""

from kafka import KafkaClient, KafkaConsumer
from kafka.common import OffsetCommitRequest, OffsetFetchRequest, ProduceRequest
from kafka.protocol import CODEC_GZIP, CODEC_NONE, CODEC_SNAPPY, create_message_set
from lines import RECORDS, run, say, say_record

CODECS = {"none": CODEC_NONE, "gzip": CODEC_GZIP, "snappy": CODEC_SNAPPY}


def produce(address, topic, codec):
    client = KafkaClient(address)
    messages = create_message_set([(value, key) for key, value in RECORDS], CODECS[codec])
    client.send_produce_request([ProduceRequest(topic.encode(), 0, messages)])
    say(done=True)


def read(address, topic, count):
    consumer = KafkaConsumer(
        (topic.encode(), 0, 0),
        bootstrap_servers=[address],
        auto_offset_reset="smallest",
        consumer_timeout_ms=20000,
    )
    for _ in range(int(count)):
        record = consumer.next()
        say_record(record.offset, record.key, record.value)


def commit(address, topic, group, offset):
    client = KafkaClient(address)
    wanted = OffsetCommitRequest(topic.encode(), 0, int(offset), None)
    (answer,) = client.send_offset_commit_request(group.encode(), [wanted])
    assert not answer.error, answer
    say(done=True)


def committed(address, topic, group):
    client = KafkaClient(address)
    wanted = OffsetFetchRequest(topic.encode(), 0)
    (answer,) = client.send_offset_fetch_request(group.encode(), [wanted])
    say(offset=answer.offset)


run({"produce": produce, "read": read, "commit": commit, "committed": committed})
