"""Typical user code for confluent-kafka (librdkafka) with default settings; see ../README.md."""

import sys

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)
from lines import RECORDS, say, say_record


def produce(address, topic, codec):
    producer = Producer({"bootstrap.servers": address, "compression.type": codec})
    failed = []
    for key, value, headers in RECORDS:
        producer.produce(
            topic,
            value,
            key,
            partition=0,
            headers=headers,
            on_delivery=lambda error, _: error and failed.append(error),
        )
    assert not producer.flush(30) and not failed, failed
    say(done=True)


def read(address, topic, count):
    consumer = Consumer({"bootstrap.servers": address, "group.id": "unused"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    taken = 0
    while taken < int(count):
        taken += _take(consumer)
    consumer.close()


def _take(consumer):
    one = consumer.poll(0.2)
    if one is None:
        return 0
    assert one.error() is None, one.error()
    say_record(one.partition(), one.offset(), one.key(), one.value(), one.headers())
    return 1


def member(address, topic, group):
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 1000,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )

    def on_assign(_, partitions):
        say(assigned=sorted(one.partition for one in partitions))

    def on_revoke(_, partitions):
        say(assigned=[])

    consumer.subscribe([topic], on_assign=on_assign, on_revoke=on_revoke, on_lost=on_revoke)
    while True:
        if _take(consumer):
            consumer.commit(asynchronous=False)
            say(committed=True)


def transact(address, topic):
    producer = Producer({"bootstrap.servers": address, "transactional.id": "t"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"v")
    producer.commit_transaction(60)


def admin(address, topic):
    client = AdminClient({"bootstrap.servers": address})

    def done(futures):
        return [one.result(30) for one in futures.values()]

    done(client.create_topics([NewTopic(topic, 2, 1, config={"retention.ms": "100000"})]))
    assert len(client.list_topics(topic, 30).topics[topic].partitions) == 2
    done(client.create_partitions([NewPartitions(topic, 3)]))
    change = ConfigEntry("retention.ms", "200000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[change])
    done(client.incremental_alter_configs([resource]))
    (settings,) = done(client.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, topic)]))
    assert settings["retention.ms"].value == "200000"
    done(client.delete_records([TopicPartition(topic, 0, 0)]))
    client.list_consumer_groups().result(30)
    client.describe_cluster().result(30)
    group = ConsumerGroupTopicPartitions(f"g-{topic}", [TopicPartition(topic, 0, 5)])
    done(client.alter_consumer_group_offsets([group]))
    done(client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(f"g-{topic}")]))
    done(client.delete_consumer_groups([f"g-{topic}"]))
    done(client.delete_topics([topic]))
    say(done=True)


if __name__ == "__main__":
    commands = {"produce": produce, "read": read, "member": member, "admin": admin}
    commands["transact"] = transact
    commands[sys.argv[1]](*sys.argv[2:])
