"""Typical user code for aiokafka 0.7."""

import asyncio

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.structs import TopicPartition
from lines import RECORDS, run, say, say_record


def awaited(call):
    """Wrap a coroutine function in a plain function."""
    return lambda *arguments: asyncio.get_event_loop().run_until_complete(call(*arguments))


async def produce(address, topic, codec):
    kind = None if codec == "none" else codec
    producer = AIOKafkaProducer(bootstrap_servers=address, compression_type=kind)
    await producer.start()
    for key, value in RECORDS:
        await producer.send_and_wait(topic, value, key, partition=0)
    await producer.stop()
    say(done=True)


async def _consumer(address, topic, group=None):
    consumer = AIOKafkaConsumer(bootstrap_servers=address, group_id=group, enable_auto_commit=False)
    await consumer.start()
    place = TopicPartition(topic, 0)
    consumer.assign([place])
    return consumer, place


async def read(address, topic, count):
    consumer, place = await _consumer(address, topic)
    await consumer.seek_to_beginning(place)
    for _ in range(int(count)):
        record = await consumer.getone()
        say_record(record.offset, record.key, record.value)
    await consumer.stop()


async def commit(address, topic, group, offset):
    consumer, place = await _consumer(address, topic, group)
    await consumer.commit({place: int(offset)})
    await consumer.stop()
    say(done=True)


async def committed(address, topic, group):
    consumer, place = await _consumer(address, topic, group)
    say(offset=await consumer.committed(place))
    await consumer.stop()


commands = {"produce": produce, "read": read, "commit": commit, "committed": committed}
run({name: awaited(call) for name, call in commands.items()})
