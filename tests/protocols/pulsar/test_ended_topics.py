"""Topics that are terminated or deleted while clients use them: section 18."""

import pytest

from braidlog.broker.closing import STEPS_TOGETHER
from braidlog.broker.errors import TopicNotFound, TopicTerminated
from braidlog.protocols.pulsar.machine import Type
from braidlog.storage.formats.api import BodyFormat, BodyInfo
from braidlog.storage.formats.pulsar.pb.PulsarApi_pb2 import ServerError
from tests.protocols.pulsar.talk import (
    EARLIEST,
    NAME,
    TOPIC,
    RawPulsar,
    command_bytes,
    entry,
    message_id,
    taken_apart,
)


async def test_a_terminated_topic_closes_its_producers_and_takes_no_new_ones(broker, client):
    await client.produce()
    await client.put(entry(b"a"))
    await broker.topics.terminate(NAME)
    assert (await client.next(Type.CLOSE_PRODUCER)).producer_id == 0
    await client.stream.send_all(
        command_bytes(Type.SEND, entry(b"b"), producer_id=0, sequence_id=1)
    )  # In transit: dropped.
    code, _ = await client.refused(Type.PRODUCER, topic=TOPIC, producer_id=0)
    assert code == ServerError.TopicTerminatedError
    assert broker.topics.partition(NAME, 0).next_offset == 1


async def test_a_terminated_topic_takes_no_append_and_does_not_grow(broker):
    await broker.topics.create(NAME, 2)
    await broker.topics.terminate(NAME)
    partition = broker.topics.partition(NAME, 1)
    with pytest.raises(TopicTerminated):
        partition.append([b"x"], BodyInfo(1), body_format=BodyFormat.KAFKA, append_us=1)
    with pytest.raises(TopicTerminated):
        await broker.topics.add_partitions(NAME, 3)


async def test_a_producer_that_waits_for_its_turn_is_refused(broker, client):
    await client.produce(producer_access_mode=1)
    waiting = await client.produce(producer_id=1, producer_access_mode=2)
    assert not waiting.producer_ready
    await broker.topics.terminate(NAME)
    await client.next(Type.CLOSE_PRODUCER)
    assert (await client.next(Type.ERROR)).error == ServerError.TopicTerminatedError


async def java(open_client):
    client = RawPulsar(await open_client("pulsar"))
    await client.connect(client="Pulsar-Java-v4.2.4")
    return client


@pytest.mark.parametrize("kind", [0, 1, 2, 3])
async def test_java_clients_are_notified_of_the_end_after_all_acks(broker, open_client, kind):
    client = await java(open_client)
    await client.produce()
    await client.subscribe(subType=kind, permits=10, **EARLIEST)
    if kind == 2:
        await client.next(Type.ACTIVE_CONSUMER_CHANGE)
    await client.stream.send_all(
        b"".join(
            command_bytes(Type.SEND, entry(b"x"), producer_id=0, sequence_id=n) for n in range(2)
        )
    )
    kinds = {Type.SEND_RECEIPT: 0, Type.MESSAGE: 0}
    while sum(kinds.values()) < 4:
        kinds[_kind(await client.frame())] += 1
    await broker.topics.terminate(NAME)
    await client.next(Type.CLOSE_PRODUCER)
    await client.send(Type.ACK, consumer_id=0, ack_type=0, message_id=[message_id(0)])
    await client.silent()
    await client.send(Type.ACK, consumer_id=0, ack_type=0, message_id=[message_id(1)])
    assert (await client.next(Type.REACHED_END_OF_TOPIC)).consumer_id == 0
    await client.ask(Type.CLOSE_CONSUMER, Type.SUCCESS, consumer_id=0)
    await client.subscribe(subType=kind)
    if kind == 2:
        await client.next(Type.ACTIVE_CONSUMER_CHANGE)
    await client.next(Type.REACHED_END_OF_TOPIC)
    await client.stream.aclose()


def _kind(frame):
    return taken_apart(frame)[0].type


async def test_other_clients_receive_no_end_notification(broker, client):
    await client.produce()
    await client.put(entry(b"a"))
    await client.subscribe(permits=10)
    await broker.topics.terminate(NAME)
    await client.next(Type.CLOSE_PRODUCER)
    await client.silent()


async def test_a_terminated_topic_stays_terminated(broker):
    await broker.topics.create(NAME, 1)
    await broker.topics.terminate(NAME)
    await broker.topics.alter_settings(NAME, {"segment_bytes": 5_000_000})
    assert broker.topics.get(NAME).is_terminated


async def test_a_deleted_topics_clients_are_closed_and_do_not_recreate_it(broker, client):
    await client.produce()
    await client.put(entry(b"a"))
    await client.subscribe(durable=False, permits=1, start_message_id=message_id(0))
    await client.next(Type.MESSAGE)
    await broker.topics.delete(NAME, holds_name=True)
    closed = {_kind(await client.frame()), _kind(await client.frame())}
    assert closed == {Type.CLOSE_PRODUCER, Type.CLOSE_CONSUMER}
    code, _ = await client.refused(Type.PRODUCER, topic=TOPIC, producer_id=0)
    assert code == ServerError.TopicNotFound
    with pytest.raises(TopicNotFound):
        await broker.topics.auto_create(NAME)
    await broker.topics.create(NAME, 1)
    await client.produce()


async def test_each_producer_of_a_deleted_topic_is_closed_once(broker, client):
    count = 3 * STEPS_TOGETHER
    for number in range(count):
        await client.produce(producer_id=number)
    deleted = broker.topics.get(NAME)
    await client.stream.send_all(
        command_bytes(Type.SEND, entry(b"x"), producer_id=count - 1, sequence_id=0)
    )  # Possibly before its turn: then the closed topic closes the producer too.
    await broker.topics.delete(NAME)
    closed = []
    while len(closed) < count:
        command, _ = taken_apart(await client.frame())
        if command.type != Type.SEND_RECEIPT:
            closed.append(command.close_producer.producer_id)
    assert sorted(closed) == list(range(count))
    await client.silent()
    await client.produce(producer_id=count - 1)
    assert broker.topics.get(NAME) is not deleted
    await client.silent()
