"""SUBSCRIBE, FLOW, MESSAGE, ACK, REDELIVER, CLOSE_CONSUMER, UNSUBSCRIBE: sections 10 to 15, 18."""

import pytest

from braidlog.protocols.pulsar.machine import Type
from braidlog.storage.formats.api import BodyFormat
from braidlog.storage.formats.plain.codec import PLAIN
from braidlog.storage.formats.pulsar.entry import read_metadata
from braidlog.storage.formats.pulsar.pb.PulsarApi_pb2 import ServerError
from braidlog.storage.formats.record import Record
from tests.protocols.pulsar.talk import (
    EARLIEST,
    ID_EARLIEST,
    ID_LATEST,
    NAME,
    TOPIC,
    entry,
    message_id,
    taken_apart,
    talking,
)

SHARED = {"subType": 1}


@pytest.fixture
async def five(client):
    """Return a topic with five entries, the fourth a batch of 10: ids 0 1 2 3 13."""
    await client.produce(producer_id=99)
    await client.put(entry(b"a"), entry(b"b"), entry(b"c"), entry(b"d", count=10), producer_id=99)
    await client.put(entry(b"e"), producer_id=99, sequence_id=4)
    return [0, 1, 2, 3, 13]


def entry_ids(deliveries):
    return [entry_id for entry_id, _, _ in deliveries]


# Subscribing.


async def test_an_entry_round_trips(client):
    body = entry(b"hello", partition_key="k", properties=[{"key": "a", "value": "1"}])
    await client.produce()
    await client.put(body)
    await client.subscribe(permits=10, **EARLIEST)
    message, received = await client.next(Type.MESSAGE)
    assert received == body
    identity = message.message_id
    assert (identity.ledgerId, identity.entryId, identity.partition) == (1, 0, -1)
    assert not message.HasField("consumer_epoch")
    assert not identity.HasField("batch_index")


async def test_messages_of_partitioned_topics_have_the_partition_number(broker, client):
    await broker.topics.create(NAME, 2)
    await client.produce(TOPIC + "-partition-1")
    await client.put(entry())
    await client.subscribe(topic=TOPIC + "-partition-1", permits=1, **EARLIEST)
    message, _ = await client.next(Type.MESSAGE)
    assert (message.message_id.ledgerId, message.message_id.partition) == (2, 1)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"subscription": ""}, ServerError.ProducerBusy),
        ({"metadata": [{"key": "k", "value": "v" * 1024}]}, ServerError.NotAllowedError),
        ({"subType": 1, "read_compacted": True}, ServerError.NotAllowedError),
        ({"topic": "persistent://public/default"}, ServerError.NotAllowedError),
        ({"topic": "non-persistent://public/nowhere/t"}, ServerError.TopicNotFound),
        ({"topic": "persistent://public/nowhere/t"}, ServerError.TopicNotFound),
        ({"topic": TOPIC + "-partition-3"}, ServerError.NotAllowedError),
        ({"topic": TOPIC + "x", "force_topic_creation": False}, ServerError.TopicNotFound),
    ],
)
async def test_refused_subscriptions(broker, client, fields, code):
    await broker.topics.create(NAME, 1)
    fields = {"topic": TOPIC, "subscription": "s", "subType": 0, "consumer_id": 0, **fields}
    assert (await client.refused(Type.SUBSCRIBE, **fields))[0] == code
    await client.subscribe()


async def test_a_repeated_subscribe_of_a_consumer_succeeds(client):
    await client.subscribe()
    await client.subscribe(subscription="another", subType=1)


async def test_exclusive_is_busy_on_the_same_connection_without_a_probe(client):
    await client.subscribe()
    code, text = await client.refused(
        Type.SUBSCRIBE, topic=TOPIC, subscription="s", subType=0, consumer_id=1
    )
    assert (code, text) == (ServerError.ConsumerBusy, "Exclusive consumer is already connected")


async def test_a_deaf_holder_loses_an_exclusive_subscription(impatient):
    client, other = await impatient(), await impatient()
    await client.subscribe()
    await other.subscribe()
    await client.next(Type.PING)
    await client.closed()


async def test_the_kind_is_fixed_while_there_are_consumers(client):
    await client.subscribe(**SHARED)
    for kind in (0, 2, 3):
        code, _ = await client.refused(
            Type.SUBSCRIBE, topic=TOPIC, subscription="s", subType=kind, consumer_id=1
        )
        assert code == ServerError.ConsumerBusy
    await client.ask(Type.CLOSE_CONSUMER, Type.SUCCESS, consumer_id=0)
    await client.subscribe(subType=0)


async def test_durable_and_non_durable_consumers_cannot_share_a_name(client):
    await client.subscribe(**SHARED)
    code, _ = await client.refused(
        Type.SUBSCRIBE, topic=TOPIC, subscription="s", durable=False, consumer_id=1, **SHARED
    )
    assert code == ServerError.NotAllowedError


async def test_latest_is_the_default_and_earliest_the_first_kept_entry(client, five):
    await client.subscribe(permits=10)
    await client.silent()
    await client.subscribe(consumer_id=1, subscription="e", permits=100, **EARLIEST)
    assert entry_ids(await client.take(5)) == five


async def test_position_is_remembered_and_initial_position_counts_once(broker, client, five):
    await client.subscribe(permits=10, **EARLIEST)
    await client.take(4)
    await client.send(Type.ACK, consumer_id=0, ack_type=1, message_id=[message_id(1)])
    await client.ask(Type.CLOSE_CONSUMER, Type.SUCCESS, consumer_id=0)
    await client.subscribe(permits=100, **EARLIEST)
    assert entry_ids(await client.take(3)) == five[2:]


async def test_subscription_keeps_its_properties(broker, client):
    await client.subscribe(subscription_properties=[{"key": "a", "value": "1"}])
    subscription = broker.subscriptions.get(broker.topics.get(NAME), b"s")
    assert subscription.properties == {"a": "1"}


async def test_a_start_by_time_moves_an_existing_subscription_too(broker, client, monkeypatch):
    await client.produce()
    now_ms = 1_700_000_000_000
    monkeypatch.setattr(broker, "now_us", lambda: now_ms * 1000)
    for age_s in (100, 50, 10):
        await client.put(entry(publish_time=now_ms - age_s * 1000))
    await client.subscribe(**EARLIEST)
    await client.ask(Type.CLOSE_CONSUMER, Type.SUCCESS, consumer_id=0)
    await client.subscribe(permits=10, start_message_rollback_duration_sec=60)
    assert entry_ids(await client.take(2)) == [1, 2]


# Readers.


@pytest.mark.parametrize(
    ("start", "first"),
    [
        (ID_EARLIEST, 0),
        (message_id(2), 2),
        (message_id(4), 13),  # Inside the batch: the next entry start.
        (message_id(99, ledger=0), 0),
    ],
)
async def test_reader_starts_at_the_entry_itself_or_the_next(broker, client, five, start, first):
    await client.subscribe(
        subscription="reader-1", durable=False, start_message_id=start, permits=100
    )
    assert (await client.take(1))[0][0] == first
    assert broker.subscriptions.names(broker.topics.get(NAME)) == []


async def test_a_reader_from_the_end_gets_new_messages(client, five):
    await client.subscribe(durable=False, start_message_id=ID_LATEST, permits=100)
    await client.subscribe(
        consumer_id=1,
        subscription="odd",
        durable=False,
        start_message_id=ID_LATEST,
        permits=1,
        **EARLIEST,
    )
    assert entry_ids(await client.take(1)) == [0]  # As Apache does for Latest with Earliest.
    await client.put(entry(), producer_id=99)
    assert entry_ids(await client.take(1)) == [14]


# Flow.


async def test_delivery_needs_a_flow_and_sends_whole_entries(client, five):
    await client.subscribe(**EARLIEST)
    await client.silent()
    await client.flow(4)
    assert entry_ids(await client.take(4)) == [0, 1, 2, 3]
    await client.flow(9)  # The permits stand at -9.
    await client.silent()
    await client.flow(1)
    assert entry_ids(await client.take(1)) == [13]


async def test_a_flow_directly_behind_the_subscribe_is_kept(client, five):
    await client.send(
        Type.SUBSCRIBE,
        topic=TOPIC,
        subscription="s",
        subType=0,
        consumer_id=0,
        request_id=1,
        **EARLIEST,
    )
    await client.flow(1)
    await client.next(Type.SUCCESS)
    assert entry_ids(await client.take(1)) == [0]


# Acknowledging.


async def test_ack_with_a_request_id_is_answered_once_it_is_stored(broker, client, five):
    await client.subscribe(permits=100, **EARLIEST)
    await client.take(5)
    answer = await client.ask(
        Type.ACK,
        Type.ACK_RESPONSE,
        consumer_id=0,
        ack_type=0,
        message_id=[message_id(0), message_id(3)],
    )
    assert not answer.HasField("error")
    subscription = broker.subscriptions.get(broker.topics.get(NAME), b"s")
    assert subscription.position(0) == 1
    assert list(subscription.acked(0)) == [(3, 13)]


@pytest.mark.parametrize(
    ("kind", "ids"),
    [
        *((kind, []) for kind in (0, 1)),
        *((kind, [message_id(99)]) for kind in (0, 1)),
        *((kind, [message_id(0, ledger=5)]) for kind in (0, 1)),
        (0, [message_id(5)]),  # Inside the batch: names no entry.
        (1, [message_id(1), message_id(2)]),
    ],
)
async def test_acks_without_entry_are_answered_without_error(broker, client, five, kind, ids):
    await client.subscribe(permits=100, **EARLIEST)
    await client.take(5)
    answer = await client.ask(
        Type.ACK, Type.ACK_RESPONSE, consumer_id=0, ack_type=kind, message_id=ids
    )
    assert not answer.HasField("error")
    subscription = broker.subscriptions.get(broker.topics.get(NAME), b"s")
    assert (subscription.position(0), list(subscription.acked(0))) == (0, [])


async def test_ack_of_a_transaction_is_refused(client, five):
    await client.subscribe(permits=100, **EARLIEST)
    await client.take(5)
    await client.send(
        Type.ACK, consumer_id=0, ack_type=0, request_id=5, txnid_most_bits=1, message_id=[]
    )
    answer = await client.next(Type.ACK_RESPONSE)
    assert (answer.request_id, answer.error) == (5, ServerError.NotAllowedError)


async def test_a_partly_acknowledged_entry_is_redelivered_with_its_ack_set(client, five):
    await client.subscribe(permits=100, **EARLIEST, **SHARED)
    await client.take(5)
    for words in ([1022], [1015]):
        ids = [message_id(3, ack_set=words)]
        await client.send(Type.ACK, consumer_id=0, ack_type=0, message_id=ids)
    await client.send(
        Type.ACK, consumer_id=0, ack_type=0, message_id=[message_id(n) for n in (0, 1, 2, 13)]
    )
    await client.send(Type.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=0)
    assert await client.take(1) == [(3, 1, [1014])]


# Redelivery.


async def test_redelivery_counts_only_the_consumers_own_ids(client, five):
    await client.subscribe(permits=100, **EARLIEST, **SHARED)
    assert {count for _, count, _ in await client.take(5)} == {0}
    for count in (1, 2):
        await client.send(
            Type.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=0, message_ids=[message_id(1)]
        )
        assert await client.take(1) == [(1, count, [])]
    await client.send(
        Type.REDELIVER_UNACKNOWLEDGED_MESSAGES,
        consumer_id=0,
        message_ids=[message_id(1, ledger=9), message_id(77)],
    )
    await client.silent()


async def test_the_epoch_of_a_redelivery_is_on_later_messages(client, five):
    await client.subscribe(permits=100, consumer_epoch=0, **EARLIEST)
    message, _ = await client.next(Type.MESSAGE)
    assert (message.HasField("consumer_epoch"), message.consumer_epoch) == (True, 0)
    await client.take(4)
    for epoch, shown in ((3, 3), (2, 3)):
        await client.send(
            Type.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=0, consumer_epoch=epoch
        )
        message, _ = await client.next(Type.MESSAGE)
        assert (message.message_id.entryId, message.consumer_epoch) == (0, shown)
        await client.take(4)


async def test_unacknowledged_entries_of_a_lost_connection_go_to_the_other(
    open_client, client, five
):
    async with talking(open_client) as gone:
        await gone.subscribe(permits=100, **EARLIEST, **SHARED)
        await gone.take(5)
        await gone.send(Type.ACK, consumer_id=0, ack_type=0, message_id=[message_id(1)])
        await gone.silent()
        await client.subscribe(permits=100, **SHARED)
    assert await client.take(4) == [(0, 0, []), (2, 0, []), (3, 0, []), (13, 0, [])]


# Unsubscribing.


async def test_unsubscribe_deletes_the_cursor_and_frees_the_name(broker, client, five):
    await client.subscribe(**EARLIEST)
    await client.ask(Type.UNSUBSCRIBE, Type.SUCCESS, consumer_id=0)
    assert broker.subscriptions.names(broker.topics.get(NAME)) == []
    await client.ask(Type.CLOSE_CONSUMER, Type.SUCCESS, consumer_id=0)
    await client.subscribe(permits=10)
    await client.silent()


async def test_unsubscribe_of_a_shared_subscription_needs_force(broker, client, other):
    await client.subscribe(**SHARED)
    await other.subscribe(consumer_id=4, **SHARED)
    code, text = await client.refused(Type.UNSUBSCRIBE, consumer_id=0)
    assert code == ServerError.MetadataError
    assert text == "Unconnected or shared consumer attempting to unsubscribe"
    await client.ask(Type.UNSUBSCRIBE, Type.SUCCESS, consumer_id=0, force=True)
    assert (await other.next(Type.CLOSE_CONSUMER)).consumer_id == 4
    assert broker.subscriptions.names(broker.topics.get(NAME)) == []


async def test_unsubscribe_of_an_unknown_consumer_is_refused(client):
    code, text = await client.refused(Type.UNSUBSCRIBE, consumer_id=0)
    assert (code, text) == (ServerError.MetadataError, "Consumer not found")


# Other listeners.


async def test_records_of_another_format_are_separate_entries(broker, client):
    partition = (await broker.topics.create(NAME, 1)).partitions[0]
    put_records(partition, [b"x", b"y"])
    await client.subscribe(permits=10, **EARLIEST)
    for number, value in enumerate([b"x", b"y"]):
        message, body = await client.next(Type.MESSAGE)
        assert message.message_id.entryId == number
        metadata, payload = read_metadata(body, check=True)
        assert (body[payload:], metadata.publish_time) == (value, 1000)
        assert not metadata.HasField("num_messages_in_batch")


def put_records(partition, payloads):
    base = partition.next_offset
    records = [Record(base + at, 0, 1_000_000, value=p) for at, p in enumerate(payloads)]
    body = PLAIN.encode(records, base)
    partition.append([body], PLAIN.inspect(body), body_format=BodyFormat.PLAIN, append_us=0)


async def test_a_record_above_the_frame_limit_is_chunks_with_the_same_id(broker, client):
    partition = (await broker.topics.create(NAME, 1)).partitions[0]
    payload = bytes(range(256)) * 48 * 1024
    put_records(partition, [payload])
    await client.subscribe(permits=3, **EARLIEST)
    joined, whole = b"", 1
    number = 0
    while number < whole:
        message, body = await client.next(Type.MESSAGE)
        assert message.message_id.entryId == 0
        metadata, at = read_metadata(body, check=True)
        assert (metadata.chunk_id, metadata.total_chunk_msg_size) == (number, len(payload))
        whole = metadata.num_chunks_from_msg
        joined += body[at:]
        number += 1
    assert (joined, whole) == (payload, 3)
    answer = await client.ask(
        Type.ACK, Type.ACK_RESPONSE, consumer_id=0, ack_type=0, message_id=[message_id(0)] * 3
    )
    assert not answer.HasField("error")
    assert broker.subscriptions.get(broker.topics.get(NAME), b"s").position(0) == 1


async def test_a_consumer_waits_at_an_unreadable_record(broker, client):
    partition = (await broker.topics.create(NAME, 1)).partitions[0]
    put_records(partition, [b"x"])
    base = partition.next_offset
    body = PLAIN.encode([Record(base, 0, value=b"y")], base)
    info = PLAIN.inspect(body)
    partition.append([b"\xff" * 30], info, body_format=BodyFormat.PLAIN, append_us=0)
    await broker.durability.all_durable()
    await client.subscribe(permits=10, **EARLIEST)
    await client.take(1)
    await client.silent()
    await client.send(Type.ACK, consumer_id=0, ack_type=0, message_id=[message_id(0)])
    await client.silent()
    assert broker.subscriptions.get(broker.topics.get(NAME), b"s").position(0) == 1
    await client.ask(Type.CLOSE_CONSUMER, Type.SUCCESS, consumer_id=0)
    code, _ = await client.refused(
        Type.SUBSCRIBE, topic=TOPIC, subscription="s", subType=0, consumer_id=0
    )
    assert code == ServerError.NotAllowedError


async def test_commit_forward_by_another_listener_is_a_cumulative_ack(broker, client, five):
    await client.subscribe(permits=2, **EARLIEST)
    await client.take(2)
    broker.subscriptions.get(broker.topics.get(NAME), b"s").commit(0, 3)
    await client.flow(100)
    assert entry_ids(await client.take(2)) == [3, 13]


async def test_commit_backward_by_another_listener_closes_the_consumers(broker, client, five):
    await client.subscribe(permits=100, **EARLIEST)
    await client.take(5)
    await client.send(Type.ACK, consumer_id=0, ack_type=1, message_id=[message_id(2)])
    await client.silent()
    broker.subscriptions.get(broker.topics.get(NAME), b"s").commit(0, 1)
    closed = await client.next(Type.CLOSE_CONSUMER)
    assert (closed.consumer_id, closed.request_id) == (0, 2**64 - 1)
    await client.subscribe(permits=100)
    assert entry_ids(await client.take(4)) == five[1:]


async def test_an_entry_partly_committed_by_another_listener_is_sent_whole(broker, client, five):
    await client.subscribe(**EARLIEST)
    await client.ask(Type.CLOSE_CONSUMER, Type.SUCCESS, consumer_id=0)
    broker.subscriptions.get(broker.topics.get(NAME), b"s").commit(0, 7)
    await client.subscribe(permits=100)
    assert await client.take(2) == [(3, 0, []), (13, 0, [])]


async def test_deleted_topic_closes_its_consumers(broker, client, five):
    await client.subscribe(permits=100, **EARLIEST)
    await client.take(5)
    await broker.topics.delete(NAME)
    closed = {taken_apart(await client.frame())[0].type for _ in range(2)}
    assert closed == {Type.CLOSE_CONSUMER, Type.CLOSE_PRODUCER}  # Of `five`.


# Old clients.


async def test_clients_below_version_11_get_no_checksum(open_client, client, five):
    async with talking(open_client, version=10) as old:
        await old.subscribe(permits=1, **EARLIEST)
        _, body = await old.next(Type.MESSAGE)
        assert body == entry(b"a")[6:]


async def test_clients_below_version_4_are_disconnected_at_the_first_batch(
    open_client, client, five
):
    async with talking(open_client, version=3) as old:
        await old.subscribe(permits=3, **EARLIEST)
        await old.take(3)
        await old.flow(1)
        await old.closed()


async def test_clients_below_version_5_are_disconnected_instead_of_notified(
    broker, open_client, client, five
):
    async with talking(open_client, version=4) as old:
        await old.subscribe(**EARLIEST)
        await broker.topics.delete(NAME)
        await old.closed()
