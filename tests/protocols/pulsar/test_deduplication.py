"""A message that a producer resends is stored once: section 9."""

import pytest

from braidlog.protocols.pulsar.machine import Type
from braidlog.storage.formats.pulsar.pb.PulsarApi_pb2 import ServerError
from tests.broker.records import FullOnce
from tests.protocols.pulsar.talk import (
    NAME,
    TOPIC,
    command_bytes,
    entry,
    talking,
)
from tests.protocols.pulsar.test_producer_commands import stored

NO_NUMBER = 2**64 - 1
ON = pytest.mark.parametrize("broker", [{"topics.deduplication": "true"}], indirect=True)


async def send(client, sequence_id, *bodies, **fields):
    """Return the receipts of SENDs with ascending sequence ids, as (ledger, entry) signed."""
    frames = [
        command_bytes(Type.SEND, body, producer_id=0, sequence_id=number, **fields)
        for number, body in enumerate(bodies, sequence_id)
    ]
    await client.stream.send_all(b"".join(frames))
    receipts = [await client.next(Type.SEND_RECEIPT) for _ in bodies]
    return [
        tuple(-1 if n == NO_NUMBER else n for n in (r.message_id.ledgerId, r.message_id.entryId))
        for r in receipts
    ]


async def payloads(broker):
    return [body[-1:] for _, bodies in await stored(broker) for body in bodies]


async def test_without_the_setting_everything_is_stored(broker, client):
    await client.produce(producer_name="p", user_provided_producer_name=True)
    assert await send(client, 0, entry(b"a")) == [(1, 0)]
    assert await send(client, 0, entry(b"a")) == [(1, 1)]


@ON
async def test_a_resent_message_is_not_stored_again(broker, client):
    success = await client.produce(producer_name="p", user_provided_producer_name=True)
    assert success.last_sequence_id == -1
    assert await send(client, 0, entry(b"a"), entry(b"b"), entry(b"c")) == [(1, 0), (1, 1), (1, 2)]
    again = await send(client, 1, entry(b"b"), entry(b"c"), entry(b"d"))
    assert again == [(-1, -1), (-1, -1), (1, 3)]
    assert await payloads(broker) == [b"a", b"b", b"c", b"d"]


@ON
async def test_another_connection_receives_the_producers_last_sequence(broker, client, open_client):
    async with talking(open_client) as first:
        await first.produce(producer_name="p")
        await send(first, 7, entry(b"a"), entry(b"b"))
    success = await client.produce(producer_name="p", epoch=1)
    assert success.last_sequence_id == 8
    assert await send(client, 8, entry(b"b"), entry(b"c")) == [(-1, -1), (1, 2)]
    other = await client.produce(producer_id=1, producer_name="q")
    assert other.last_sequence_id == -1


@ON
async def test_a_topic_can_disable_deduplication(broker, client):
    await broker.topics.create(NAME, 1, settings={"deduplication": False})
    await client.produce(producer_name="p")
    assert await send(client, 0, entry(b"a")) == [(1, 0)]
    assert await send(client, 0, entry(b"a")) == [(1, 1)]


async def test_a_topic_can_enable_deduplication(broker, client):
    await broker.topics.create(NAME, 1, settings={"deduplication": True})
    await client.produce()
    assert await send(client, 0, entry(b"a")) == [(1, 0)]
    assert await send(client, 0, entry(b"a")) == [(-1, -1)]


@ON
async def test_a_batch_counts_by_its_highest_sequence(broker, client):
    await client.produce(producer_name="p")
    batch = entry(count=3)
    assert await send(client, 0, batch, highest_sequence_id=2) == [(1, 0)]
    assert await send(client, 0, batch, highest_sequence_id=2) == [(-1, -1)]
    assert await send(client, 2, entry()) == [(-1, -1)]
    assert await send(client, 3, entry()) == [(1, 3)]


@ON
async def test_chunks_of_a_message_share_a_sequence(broker, client, open_client):
    def piece(number):
        return entry(uuid="u", num_chunks_from_msg=3, chunk_id=number, total_chunk_msg_size=15)

    async with talking(open_client) as first:
        await first.produce(producer_name="p")
        for number in (0, 1):
            await send(first, 5, piece(number), is_chunk=True)
    success = await client.produce(producer_name="p", epoch=1)
    assert success.last_sequence_id == 4  # The message was never complete.
    for number in (0, 1, 2):
        assert await send(client, 5, piece(number), is_chunk=True) != [(-1, -1)]
    for number in (0, 1, 2):
        assert await send(client, 5, piece(number), is_chunk=True) == [(-1, -1)]


@ON
async def test_a_missing_topic_is_created_with_deduplication(broker, client):
    await client.produce(producer_name="p")
    assert broker.topics.find(NAME) is not None
    await send(client, 0, entry())
    assert await send(client, 0, entry()) == [(-1, -1)]


@ON
async def test_a_closed_producer_returns_its_number(broker, client):
    await client.produce(producer_name="p")
    code, _ = await client.refused(Type.PRODUCER, topic=TOPIC, producer_id=1, producer_name="p")
    assert code == ServerError.ProducerBusy
    assert broker.producers._users == {(0, b"p"): 1}
    await client.ask(Type.CLOSE_PRODUCER, Type.SUCCESS, producer_id=0)
    assert broker.producers._users == {}


@ON
async def test_a_topic_recreated_during_a_probe_remembers_nothing(broker, client, open_client):
    async with talking(open_client) as holder:
        await holder.produce(producer_name="p")
        await send(holder, 0, entry(b"a"), entry(b"b"), entry(b"c"))
        await client.send(
            Type.PRODUCER, topic=TOPIC, producer_id=0, request_id=9, producer_name="p"
        )
        await holder.next(Type.PING)  # A probe of the client with that name.
        await broker.topics.delete(NAME)
        await broker.topics.create(NAME, 1)
    assert (await client.next(Type.PRODUCER_SUCCESS)).last_sequence_id == -1
    assert await send(client, 0, entry(b"d"), entry(b"e")) == [(2, 0), (2, 1)]
    assert await payloads(broker) == [b"d", b"e"]


@ON
async def test_messages_behind_a_refused_message_are_not_stored_before_it(broker, client):
    """Otherwise the refused message, sent again, would be a repeat of a message
    that is not stored.
    """
    opened = {"producer_name": "p", "user_provided_producer_name": True}
    await client.produce(**opened)
    assert await send(client, 0, entry(b"a")) == [(1, 0)]
    partition = broker.topics.partition(NAME, 0)
    partition.log = FullOnce(partition.log)
    await client.send(Type.SEND, entry(b"b"), producer_id=0, sequence_id=1)
    error = await client.next(Type.SEND_ERROR)
    assert (error.sequence_id, error.error) == (1, ServerError.PersistenceError)
    assert (await client.next(Type.CLOSE_PRODUCER)).producer_id == 0
    await client.send(Type.SEND, entry(b"c"), producer_id=0, sequence_id=2)
    await client.silent()
    success = await client.produce(**opened, epoch=1)
    assert success.last_sequence_id == 0
    assert await send(client, 1, entry(b"b"), entry(b"c")) == [(1, 1), (1, 2)]
    assert await payloads(broker) == [b"a", b"b", b"c"]


OPENED = {"producer_name": "p", "user_provided_producer_name": True}


async def send_again(broker, client):
    """Open the producer again, and send again what followed the first message."""
    assert (await client.next(Type.CLOSE_PRODUCER)).producer_id == 0
    await client.send(Type.SEND, entry(b"d"), producer_id=0, sequence_id=3)
    await client.silent()
    success = await client.produce(**OPENED, epoch=1)
    assert success.last_sequence_id == 0
    sent_again = await send(client, 1, entry(b"b"), entry(b"c"), entry(b"d"))
    assert sent_again == [(1, 1), (1, 2), (1, 3)]
    assert await payloads(broker) == [b"a", b"b", b"c", b"d"]


@ON
async def test_a_message_refused_during_a_deletion_that_fails_is_stored_when_sent_again(
    broker, client
):
    await client.produce(**OPENED)
    assert await send(client, 0, entry(b"a")) == [(1, 0)]
    with broker.topics.get(NAME).without_appends():
        await client.send(Type.SEND, entry(b"b"), producer_id=0, sequence_id=1)
        error = await client.next(Type.SEND_ERROR)
    assert (error.sequence_id, error.error) == (1, ServerError.ServiceNotReady)
    await client.send(Type.SEND, entry(b"c"), producer_id=0, sequence_id=2)
    await send_again(broker, client)


@ON
async def test_a_message_with_a_wrong_checksum_is_stored_when_sent_again(broker, client):
    """Java's client sends such a message again, after the messages behind it."""
    await client.produce(**OPENED)
    bad = bytearray(entry(b"b"))
    bad[-1] ^= 1
    bodies = [entry(b"a"), bytes(bad), entry(b"c")]
    frames = [
        command_bytes(Type.SEND, body, producer_id=0, sequence_id=number)
        for number, body in enumerate(bodies)
    ]
    await client.stream.send_all(b"".join(frames))
    assert (await client.next(Type.SEND_RECEIPT)).sequence_id == 0
    error = await client.next(Type.SEND_ERROR)
    assert (error.sequence_id, error.error) == (1, ServerError.ChecksumError)
    await send_again(broker, client)
