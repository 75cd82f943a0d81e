"""Typical user code for confluent-kafka (librdkafka) with default settings; see ../README.md."""

import sys

from confluent_kafka import (
    AcknowledgeType,
    Consumer,
    ConsumerGroupTopicPartitions,
    Producer,
    ShareConsumer,
    TopicPartition,
)
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
    received = 0
    while received < int(count):
        received += _take(consumer)
    consumer.close()


def _take(consumer):
    message = consumer.poll(0.2)
    if message is None:
        return 0
    assert message.error() is None, message.error()
    say_record(
        message.partition(), message.offset(), message.key(), message.value(), message.headers()
    )
    return 1


def modern(address, topic, group):
    member(address, topic, group, {"group.protocol": "consumer"})


CLASSIC = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 1000}


def member(address, topic, group, protocol=CLASSIC):
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **protocol,
        }
    )

    assigned = set()

    def on_assign(_, partitions):
        assigned.update(partition.partition for partition in partitions)
        say(assigned=sorted(assigned))

    def on_revoke(_, partitions):
        assigned.difference_update(partition.partition for partition in partitions)
        say(assigned=sorted(assigned))

    consumer.subscribe([topic], on_assign=on_assign, on_revoke=on_revoke, on_lost=on_revoke)
    while True:
        if _take(consumer):
            consumer.commit(asynchronous=False)
            say(committed=True)


def share(address, topic, group):
    client = AdminClient({"bootstrap.servers": address})
    early = ConfigEntry(
        "share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ConfigResource.Type.GROUP, group, incremental_configs=[early])
    for future in client.incremental_alter_configs([resource]).values():
        future.result(30)
    produce(address, topic, "none")
    consumer = ShareConsumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "share.acknowledgement.mode": "explicit",
        }
    )
    consumer.subscribe([topic])
    deliveries, left = {}, len(RECORDS)
    while left:
        for message in consumer.poll(1.0):
            assert message.error() is None, message.error()
            offset = message.offset()
            deliveries[offset] = count = deliveries.get(offset, 0) + 1
            is_released = offset % 3 == 0 and count == 1
            kind = AcknowledgeType.RELEASE if is_released else AcknowledgeType.ACCEPT
            consumer.acknowledge(message, kind)
            left -= not is_released
        assert not any(consumer.commit_sync(10.0).values())
    consumer.close()
    say(done=True)


def transact(address, topic):
    producer = Producer({"bootstrap.servers": address, "transactional.id": "t"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"v")
    producer.commit_transaction(60)


def admin(address, topic):
    client = AdminClient({"bootstrap.servers": address})

    def done(futures):
        return [future.result(30) for future in futures.values()]

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
    commands |= {"transact": transact, "modern": modern, "share": share}
    commands[sys.argv[1]](*sys.argv[2:])
