"""SEEK, GET_LAST_MESSAGE_ID, CONSUMER_STATS: sections 16 and 17."""

import pytest

from braidlog.protocols.pulsar.machine import Type
from braidlog.storage.formats.pulsar.pb.PulsarApi_pb2 import ServerError
from tests.broker.records import append
from tests.protocols.pulsar.golden import taken_apart
from tests.protocols.pulsar.talk import (
    EARLIEST,
    ID_EARLIEST,
    ID_LATEST,
    NAME,
    TOPIC,
    entry,
    message_id,
)
from tests.waiting import until

SHARED = {"subType": 1}


@pytest.fixture
async def four(client):
    """Return entries 0, 1-5 (a batch), 6, 7, published at 1 to 4 s."""
    await client.produce(producer_id=99)
    bodies = [
        entry(b"x", publish_time=(number + 1) * 1000, count=5 if number == 1 else None)
        for number in range(4)
    ]
    await client.put(*bodies, producer_id=99)
    return [0, 1, 6, 7]


def entry_ids(deliveries):
    return [entry_id for entry_id, _, _ in deliveries]


async def seek(client, **fields):
    await client.send(Type.SEEK, consumer_id=0, request_id=77, **fields)
    closed = await client.next(Type.CLOSE_CONSUMER)
    assert (closed.consumer_id, closed.request_id) == (0, 2**64 - 1)
    assert (await client.next(Type.SUCCESS)).request_id == 77


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"message_id": ID_EARLIEST}, [0, 1, 6, 7]),
        ({"message_id": message_id(1)}, [1, 6, 7]),
        ({"message_id": message_id(2)}, [6, 7]),  # The next entry start.
        ({"message_id": message_id(0, ledger=0)}, [0, 1, 6, 7]),
        ({"message_publish_time": 3000}, [6, 7]),
        ({"message_publish_time": 3001}, [7]),
        ({"message_publish_time": 0}, [0, 1, 6, 7]),
    ],
)
@pytest.mark.parametrize("kind", [0, 1])
async def test_seek_closes_forgets_and_starts_there(client, four, fields, expected, kind):
    await client.subscribe(subType=kind, permits=100, **EARLIEST)
    await client.take(4)
    await client.send(
        Type.ACK, consumer_id=0, ack_type=0, message_id=[message_id(n) for n in (0, 1, 7)]
    )
    await seek(client, **fields)
    await client.subscribe(subType=kind, permits=100)
    assert entry_ids(await client.take(len(expected))) == expected
    await client.silent()


@pytest.mark.parametrize(
    "fields",
    [
        {"message_id": ID_LATEST},
        {"message_id": message_id(8)},
        {"message_id": message_id(0, ledger=9)},
        {"message_publish_time": 4001},
    ],
)
async def test_seek_past_the_end_is_latest(client, four, fields):
    await client.subscribe(permits=100, **EARLIEST)
    await client.take(4)
    await seek(client, **fields)
    await client.subscribe(permits=100)
    await client.silent()
    await client.put(entry(), producer_id=99)
    assert entry_ids(await client.take(1)) == [8]


async def test_seek_into_a_batch_starts_at_the_message(broker, client, four):
    await client.subscribe(**EARLIEST)
    await seek(client, message_id=message_id(1, ack_set=[0b11000]))
    assert broker.subscriptions.get(broker.topics.get(NAME), b"s").position(0) == 4


async def test_seek_closes_every_consumer_of_a_shared_subscription(client, other, four):
    await client.subscribe(**SHARED)
    await other.subscribe(consumer_id=5, **SHARED)
    await seek(client, message_id=ID_EARLIEST)
    assert (await other.next(Type.CLOSE_CONSUMER)).consumer_id == 5


async def test_a_second_seek_during_a_seek_finds_no_consumer(client, four):
    await client.subscribe()
    for number in (1, 2):
        await client.send(
            Type.SEEK, consumer_id=0, request_id=number, message_publish_time=2000 * number
        )
    await client.next(Type.CLOSE_CONSUMER)
    answers = {}
    for _ in range(2):
        command, _ = taken_apart(await client.frame())
        answers[command.type] = command
    assert answers[Type.SUCCESS].success.request_id == 1
    assert answers[Type.ERROR].error.request_id == 2
    assert answers[Type.ERROR].error.error == ServerError.MetadataError


async def test_invalid_seeks_are_refused(client, four):
    code, text = await client.refused(Type.SEEK, consumer_id=0, message_publish_time=1)
    assert (code, text) == (ServerError.MetadataError, "Consumer not found")
    await client.subscribe()
    code, text = await client.refused(Type.SEEK, consumer_id=0)
    assert code == ServerError.MetadataError
    assert text == "Message id and message publish time were not present"
    await client.silent()  # No consumer was closed.


@pytest.mark.parametrize("back", [{}, {"start_message_id": ID_EARLIEST}], ids=["C++", "Java"])
async def test_a_reader_continues_at_its_seek(client, four, back):
    """After a seek by time C++ leaves start_message_id out, and Java names the first message."""
    reader = {"subscription": "reader-1", "durable": False}
    await client.subscribe(start_message_id=ID_LATEST, **reader)
    await seek(client, message_publish_time=3000)
    await client.subscribe(permits=100, **reader, **back)
    assert entry_ids(await client.take(2)) == [6, 7]


# Last id.


async def last_id(client):
    answer = await client.ask(
        Type.GET_LAST_MESSAGE_ID, Type.GET_LAST_MESSAGE_ID_RESPONSE, consumer_id=0
    )
    return answer.last_message_id, answer.consumer_mark_delete_position


async def test_last_id_of_an_empty_topic(client):
    await client.subscribe()
    last, deleted = await last_id(client)
    assert (last.ledgerId, last.entryId) == (2**64 - 1, 2**64 - 1)
    assert (last.partition, last.batch_index) == (-1, -1)
    assert (deleted.ledgerId, deleted.entryId) == (1, 2**64 - 1)


async def test_last_id_and_mark_delete(client, four):
    await client.subscribe(permits=100, **EARLIEST)
    last, deleted = await last_id_after(client, 4)
    assert (last.ledgerId, last.entryId, last.batch_index) == (1, 7, -1)
    assert deleted.entryId == 2**64 - 1
    await client.send(Type.ACK, consumer_id=0, ack_type=1, message_id=[message_id(1)])
    _, deleted = await last_id(client)
    assert deleted.entryId == 1
    await client.put(entry(count=3), producer_id=99)
    last, _ = await last_id_after(client, 1)
    assert (last.entryId, last.batch_index) == (8, 2)


async def last_id_after(client, messages):
    await client.take(messages)
    return await last_id(client)


async def test_a_batch_of_a_single_message_has_batch_index_0(client):
    await client.produce()
    await client.put(entry(count=1))
    await client.subscribe()
    last, _ = await last_id(client)
    assert last.batch_index == 0


@pytest.mark.parametrize(("start", "deleted"), [(ID_LATEST, 7), (message_id(6), 1)])
async def test_mark_delete_of_a_reader_is_right_from_the_start(client, four, start, deleted):
    """Clients compare it with the last id to find out if there are messages."""
    await client.subscribe(durable=False, start_message_id=start)
    last, deleted_id = await last_id(client)
    assert (last.entryId, deleted_id.entryId) == (7, deleted)


async def test_ids_of_partitioned_topics_have_the_partition(broker, client):
    await broker.topics.create(NAME, 2)
    await client.produce(TOPIC + "-partition-1")
    await client.put(entry())
    await client.subscribe(topic=TOPIC + "-partition-1")
    last, _ = await last_id(client)
    assert (last.ledgerId, last.entryId, last.partition) == (2, 0, 1)


async def test_last_id_for_an_unknown_consumer_is_refused(client):
    code, text = await client.refused(Type.GET_LAST_MESSAGE_ID, consumer_id=0)
    assert (code, text) == (ServerError.MetadataError, "Consumer not found")


async def test_consumer_stats(client, four):
    await client.subscribe(consumer_name="c", subType=1, permits=6, **EARLIEST)
    await client.take(2)
    stats = await client.ask(Type.CONSUMER_STATS, Type.CONSUMER_STATS_RESPONSE, consumer_id=0)
    assert (stats.consumerName, stats.type, stats.unackedMessages) == ("c", "Shared", 6)
    assert (stats.availablePermits, stats.msgBacklog) == (0, 8)
    assert stats.address.startswith("/127.0.0.1:")
    assert stats.connectedSince.endswith("Z")


@pytest.mark.parametrize("command", ["subscribe", "last id"])
async def test_a_look_at_a_large_record_waits_for_output_memory(broker, client, nursery, command):
    partition = (await broker.topics.create(NAME, 1)).partitions[0]
    await append(broker, partition, "plain", [bytes(2 << 20)])
    if command == "last id":
        await client.subscribe()  # At the end.
    output, answers = broker.output, []
    held = output._bytes_max - (1 << 20)
    output.charge(held)

    async def ask():
        if command == "subscribe":
            answers.append(await client.subscribe(**EARLIEST))
        else:
            answers.append(await last_id(client))

    nursery.start_soon(ask)
    await until(lambda: output._large)
    assert output.used == held and not answers
    output.charge(-held)
    await until(lambda: answers)
    assert output.used == 0
