"""Typical user code for kafka-python 3 with default settings; see ../README.md."""

import sys

from kafka import ConsumerRebalanceListener, KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import ConfigResource, ConfigResourceType, NewPartitions, NewTopic
from kafka.structs import TopicPartition
from lines import RECORDS, say, say_record


def produce(address, topic, codec):
    kind = None if codec == "none" else codec
    producer = KafkaProducer(bootstrap_servers=address, compression_type=kind, linger_ms=5)
    sent = [
        producer.send(topic, value, key, partition=0, headers=headers)
        for key, value, headers in RECORDS
    ]
    for promise in sent:
        promise.get(30)
    producer.close()
    say(done=True)


def read(address, topic, count):
    consumer = KafkaConsumer(bootstrap_servers=address)
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    for _ in range(int(count)):
        record = next(consumer)
        say_record(record.partition, record.offset, record.key, record.value, record.headers)
    consumer.close()


class KafkaPythonAssignments(ConsumerRebalanceListener):
    def on_partitions_revoked(self, revoked):
        say(assigned=[])

    def on_partitions_assigned(self, assigned):
        say(assigned=sorted(partition.partition for partition in assigned))


def member(address, topic, group):
    consumer = KafkaConsumer(
        bootstrap_servers=address,
        group_id=group,
        session_timeout_ms=6000,
        heartbeat_interval_ms=1000,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    consumer.subscribe([topic], listener=KafkaPythonAssignments())
    while True:
        polled = consumer.poll(200)
        for records in polled.values():
            for record in records:
                say_record(
                    record.partition, record.offset, record.key, record.value, record.headers
                )
        if polled:
            consumer.commit()
            say(committed=True)


def transact(address, topic):
    producer = KafkaProducer(bootstrap_servers=address, transactional_id="t")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(topic, b"v").get(30)
    producer.commit_transaction()


def admin(address, topic):
    client = KafkaAdminClient(bootstrap_servers=address)
    settings = {"retention.ms": "100000"}
    client.create_topics([NewTopic(topic, 2, 1, topic_configs=settings)])
    (described,) = client.describe_topics([topic])
    assert len(described["partitions"]) == 2, described
    client.create_partitions({topic: NewPartitions(3)})
    changed = ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "200000"})
    client.alter_configs([changed])
    client.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    client.delete_records({TopicPartition(topic, 0): 0})
    client.list_groups()
    client.delete_topics([topic])
    assert topic not in client.list_topics()
    client.close()
    say(done=True)


if __name__ == "__main__":
    commands = {"produce": produce, "read": read, "member": member, "admin": admin}
    commands["transact"] = transact
    commands[sys.argv[1]](*sys.argv[2:])
