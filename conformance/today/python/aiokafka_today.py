"""Typical user code for aiokafka with default settings; see ../README.md."""

import asyncio
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from lines import RECORDS, say, say_record


async def produce(address, topic, codec):
    kind = None if codec == "none" else codec
    async with AIOKafkaProducer(bootstrap_servers=address, compression_type=kind) as producer:
        sent = [
            await producer.send(topic, value, key, partition=0, headers=headers)
            for key, value, headers in RECORDS
        ]
        await asyncio.gather(*sent)
    say(done=True)


async def read(address, topic, count):
    async with AIOKafkaConsumer(bootstrap_servers=address) as consumer:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)
        for _ in range(int(count)):
            record = await consumer.getone()
            say_record(record.partition, record.offset, record.key, record.value, record.headers)


class AiokafkaAssignments(ConsumerRebalanceListener):
    async def on_partitions_revoked(self, revoked):
        say(assigned=[])

    async def on_partitions_assigned(self, assigned):
        say(assigned=sorted(partition.partition for partition in assigned))


async def member(address, topic, group):
    consumer = AIOKafkaConsumer(
        bootstrap_servers=address,
        group_id=group,
        session_timeout_ms=6000,
        heartbeat_interval_ms=1000,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    consumer.subscribe([topic], listener=AiokafkaAssignments())
    async with consumer:
        while True:
            polled = await consumer.getmany(timeout_ms=200)
            for records in polled.values():
                for record in records:
                    say_record(
                        record.partition, record.offset, record.key, record.value, record.headers
                    )
            if polled:
                await consumer.commit()
                say(committed=True)


async def transact(address, topic):
    producer = AIOKafkaProducer(bootstrap_servers=address, transactional_id="t")
    async with producer, producer.transaction():
        await producer.send_and_wait(topic, b"v")


async def admin(address, topic):
    client = AIOKafkaAdminClient(bootstrap_servers=address)
    await client.start()
    settings = {"retention.ms": "100000"}
    await client.create_topics([NewTopic(topic, 2, 1, topic_configs=settings)])
    (described,) = await client.describe_topics([topic])
    assert len(described["partitions"]) == 2, described
    await client.create_partitions({topic: NewPartitions(3)})
    changed = ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "200000"})
    await client.alter_configs([changed])
    await client.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    await client.list_consumer_groups()
    await client.delete_topics([topic])
    assert topic not in await client.list_topics()
    await client.close()
    say(done=True)


if __name__ == "__main__":
    commands = {"produce": produce, "read": read, "member": member, "admin": admin}
    commands["transact"] = transact
    asyncio.run(commands[sys.argv[1]](*sys.argv[2:]))
