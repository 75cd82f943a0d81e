"""Non-persistent topics: receipts at once, delivery to consumers with permits, nothing stored."""

import pytest

from braidlog.broker.delivery.non_persistent.topics import NON_PERSISTENT_PARTITIONS_MAX
from braidlog.protocols.pulsar.machine import Type
from braidlog.protocols.pulsar.topic_lists import topics_hash
from braidlog.storage.formats.pulsar.pb.PulsarApi_pb2 import ServerError
from braidlog.storage.metadata.names import TopicName
from tests.protocols.pulsar.talk import EARLIEST, TOPIC, entry, message_id, talking
from tests.waiting import until

NON_PERSISTENT = "non-persistent://public/default/t"
NAME = TopicName("public", "default", "t")
SHARED, FAILOVER, KEY_SHARED = 1, 2, 3


async def payloads(client, count):
    """Return the last byte of the next messages."""
    return [bytes((await client.next(Type.MESSAGE))[1][-1:]) for _ in range(count)]


async def test_a_message_goes_to_present_consumers_once(client, other):
    await client.produce(NON_PERSISTENT)
    assert await client.put(entry(b"a")) == [0]  # There is no consumer.
    await other.subscribe(topic=NON_PERSISTENT, permits=10, **EARLIEST)
    body = entry(b"b", partition_key="k")
    await client.send(Type.SEND, body, producer_id=0, sequence_id=1)
    receipt = await client.next(Type.SEND_RECEIPT)
    assert (receipt.message_id.ledgerId, receipt.message_id.entryId) == (0, 0)
    message, received = await other.next(Type.MESSAGE)
    assert received == body
    identity = message.message_id
    assert (identity.ledgerId, identity.entryId, identity.partition) == (0, 0, -1)
    await other.send(Type.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=0)
    await other.silent()
    await other.ask(Type.CLOSE_CONSUMER, Type.SUCCESS, consumer_id=0)
    await other.subscribe(topic=NON_PERSISTENT, permits=10, **EARLIEST)
    await other.silent()


async def test_a_consumer_without_permits_misses_the_message(broker, client, other):
    await client.produce(NON_PERSISTENT)
    await other.subscribe(topic=NON_PERSISTENT, permits=2)
    await other.silent()
    await client.put(*[entry(b"%d" % number) for number in range(5)])
    assert await payloads(other, 2) == [b"0", b"1"]
    await other.flow(1)
    await other.silent()
    await client.put(entry(b"9"))
    assert await payloads(other, 1) == [b"9"]
    topic = broker.non_persistent.find(NAME, None)
    assert (topic.traffic.records_in, topic.messages_dropped) == (6, 3)
    assert topic.subscriptions[b"s"].messages_dropped == 3


async def test_a_batch_is_sent_whole_even_below_zero_permits(broker, client, other):
    await client.produce(NON_PERSISTENT)
    await other.subscribe(topic=NON_PERSISTENT, permits=1)
    await other.silent()
    await client.put(entry(b"a", count=10), entry(b"b"))
    await other.next(Type.MESSAGE)
    (consumer,) = broker.non_persistent.find(NAME, None).subscriptions[b"s"].consumers
    assert consumer.permits == -9


async def test_shared_consumers_take_turns(client, other):
    await client.produce(NON_PERSISTENT)
    for number in range(2):
        await other.subscribe(number, topic=NON_PERSISTENT, permits=100, subType=SHARED)
    await other.silent()
    await client.put(*[entry(b"%d" % number) for number in range(4)])
    got = {0: [], 1: []}
    for _ in range(4):
        message, body = await other.next(Type.MESSAGE)
        got[message.consumer_id].append(bytes(body[-1:]))
    assert got == {0: [b"0", b"2"], 1: [b"1", b"3"]}


async def test_a_key_goes_only_to_its_consumer(client, other):
    await client.produce(NON_PERSISTENT)
    for number in range(2):
        fields = {"subType": KEY_SHARED, "consumer_name": f"c{number}"}
        await other.subscribe(number, topic=NON_PERSISTENT, permits=100, **fields)
    await other.silent()
    await client.put(*[entry(b"%d" % n, partition_key=f"k{n % 4}") for n in range(40)])
    owners = {}
    for _ in range(40):
        message, body = await other.next(Type.MESSAGE)
        owners.setdefault(int(body[-1:]) % 2, set()).add(message.consumer_id)
    assert set.union(*owners.values()) == {0, 1}


async def test_failover_has_one_active_consumer(client, other):
    await client.produce(NON_PERSISTENT)
    fields = {"topic": NON_PERSISTENT, "subscription": "s", "subType": FAILOVER, "request_id": 7}
    for number, name in enumerate("ab"):  # The second consumer has the better priority.
        await other.send(
            Type.SUBSCRIBE,
            consumer_id=number,
            consumer_name=name,
            priority_level=1 - number,
            **fields,
        )
        changes = [await other.next(Type.ACTIVE_CONSUMER_CHANGE) for _ in range(1 + number)]
        is_active = {change.consumer_id: change.is_active for change in changes}
        assert is_active == ({0: False, 1: True} if number else {0: True})
        await other.next(Type.SUCCESS)
        await other.flow(10, number)
    await other.silent()
    await client.put(entry(b"a"))
    message, _ = await other.next(Type.MESSAGE)
    assert message.consumer_id == 1
    await other.ask(Type.CLOSE_CONSUMER, Type.ACTIVE_CONSUMER_CHANGE, consumer_id=1)
    await other.next(Type.SUCCESS)
    await client.put(entry(b"b"))
    message, _ = await other.next(Type.MESSAGE)
    assert message.consumer_id == 0


async def test_unsupported_requests_are_answered_as_by_apache(client):
    await client.subscribe(topic=NON_PERSISTENT)
    await client.ask(Type.SEEK, Type.SUCCESS, consumer_id=0, message_id=message_id(0))
    error, _ = await client.refused(Type.GET_LAST_MESSAGE_ID, consumer_id=0)
    assert error == ServerError.NotAllowedError
    answer = await client.ask(
        Type.ACK, Type.ACK_RESPONSE, consumer_id=0, ack_type=0, message_id=[message_id(0, 0)]
    )
    assert not answer.HasField("error")
    stats = await client.ask(Type.CONSUMER_STATS, Type.CONSUMER_STATS_RESPONSE, consumer_id=0)
    assert (stats.type, stats.msgBacklog) == ("Exclusive", 0)


async def test_exclusive_and_another_kind_are_busy(client):
    await client.subscribe(topic=NON_PERSISTENT)
    for kind in (0, SHARED):
        fields = {"topic": NON_PERSISTENT, "subscription": "s", "consumer_id": 1, "subType": kind}
        error, _ = await client.refused(Type.SUBSCRIBE, **fields)
        assert error == ServerError.ConsumerBusy


async def test_a_silent_holder_is_replaced(impatient):
    holder = await impatient()
    await holder.subscribe(topic=NON_PERSISTENT)
    newcomer = await impatient()
    await newcomer.subscribe(topic=NON_PERSISTENT)  # The holder does not answer the PING.
    for client in (holder, newcomer):
        await client.stream.aclose()


async def test_unsubscribe_and_a_readers_close_end_the_subscription(broker, client):
    await client.subscribe(topic=NON_PERSISTENT)
    await client.subscribe(1, topic=NON_PERSISTENT, subscription="reader", durable=False)
    topic = broker.non_persistent.find(NAME, None)
    assert set(topic.subscriptions) == {b"s", b"reader"}
    await client.ask(Type.CLOSE_CONSUMER, Type.SUCCESS, consumer_id=1)
    await client.ask(Type.UNSUBSCRIBE, Type.SUCCESS, consumer_id=0)
    assert not topic.subscriptions


async def test_a_persistent_topic_of_the_same_name_is_separate(broker, client):
    await client.produce(NON_PERSISTENT)
    assert broker.topics.find(NAME) is None
    await client.produce(TOPIC, 1)
    await client.subscribe(topic=TOPIC, permits=1)
    await client.put(entry())
    await client.silent()


async def test_non_persistent_topics_are_listed_by_their_domain(client):
    await client.produce(NON_PERSISTENT)
    listed = {}
    for mode in (0, 1, 2):
        answer = await client.ask(
            Type.GET_TOPICS_OF_NAMESPACE,
            Type.GET_TOPICS_OF_NAMESPACE_RESPONSE,
            namespace="public/default",
            mode=mode,
        )
        assert answer.topics_hash == topics_hash(answer.topics)
        listed[mode] = list(answer.topics)
    assert listed == {0: [], 1: [NON_PERSISTENT], 2: [NON_PERSISTENT]}


async def partitions(client, **fields):
    return await client.ask(
        Type.PARTITIONED_METADATA,
        Type.PARTITIONED_METADATA_RESPONSE,
        topic=NON_PERSISTENT,
        **fields,
    )


async def test_partitions_are_separate_topics(broker, client):
    assert (await partitions(client)).partitions == 0
    missing = await partitions(client, metadata_auto_creation_enabled=False)
    assert missing.error == ServerError.TopicNotFound
    await broker.non_persistent.partition(NAME, 3)
    assert (await partitions(client)).partitions == 3
    for name, code in ((NON_PERSISTENT, 22), (NON_PERSISTENT + "-partition-3", 11)):
        fields = {"topic": name, "consumer_id": 0, "subscription": "s", "subType": 0}
        assert (await client.refused(Type.SUBSCRIBE, **fields))[0] == code
    await client.subscribe(topic=NON_PERSISTENT + "-partition-2", permits=1)
    await client.produce(NON_PERSISTENT + "-partition-2")
    await client.put(entry())
    message, _ = await client.next(Type.MESSAGE)
    assert message.message_id.partition == 2
    with pytest.raises(Exception, match=str(NON_PERSISTENT_PARTITIONS_MAX)):
        await broker.non_persistent.partition(NAME, NON_PERSISTENT_PARTITIONS_MAX + 1)


async def test_a_deleted_topic_disconnects_its_users(broker, client):
    await client.produce(NON_PERSISTENT)
    await client.subscribe(topic=NON_PERSISTENT)
    await broker.non_persistent.delete(NAME)
    await client.next(Type.CLOSE_CONSUMER)
    await client.next(Type.CLOSE_PRODUCER)
    assert not broker.non_persistent.exists(NAME)


async def test_an_exclusive_producer_has_an_epoch_that_grows(client):
    first = await client.produce(NON_PERSISTENT, producer_access_mode=1)
    await client.ask(Type.CLOSE_PRODUCER, Type.SUCCESS, producer_id=0)
    second = await client.produce(NON_PERSISTENT, 1, producer_access_mode=1)
    assert (first.topic_epoch, second.topic_epoch) == (0, 1)


async def test_schemas_are_kept_while_the_topic_is_used(client):
    schema = {"name": "s", "schema_data": b"null", "type": 1}
    produced = await client.produce(NON_PERSISTENT, schema=schema)
    assert produced.schema_version == bytes(8)
    answer = await client.ask(Type.GET_SCHEMA, Type.GET_SCHEMA_RESPONSE, topic=NON_PERSISTENT)
    assert answer.schema.schema_data == b"null"


async def test_a_send_during_a_deletion_asks_for_a_new_lookup(broker, client):
    await client.produce(NON_PERSISTENT)
    broker.non_persistent.find(NAME, None).delete()
    await client.send(Type.SEND, entry(), producer_id=0, sequence_id=0)
    await client.next(Type.CLOSE_PRODUCER)


async def test_ended_connections_release_their_objects(broker, open_client):
    async with talking(open_client) as client:
        await client.produce(NON_PERSISTENT)
        await client.subscribe(topic=NON_PERSISTENT)
        topic = broker.non_persistent.find(NAME, None)
        assert not topic.is_idle
    await until(lambda: topic.is_idle)


async def test_only_the_enabled_kinds_of_subscription_are_served(broker, client):
    types = {"subscription_types": "Exclusive,Failover"}
    await broker.topics.alter_namespace("public", "default", types)
    subscribe = {"topic": NON_PERSISTENT, "subscription": "s", "consumer_id": 1}
    refused = await client.refused(Type.SUBSCRIBE, **subscribe, subType=SHARED)
    text = f"Topic[{{{NON_PERSISTENT}}}] doesn't support Shared sub type!"
    assert refused == (ServerError.NotAllowedError, text)
    await client.subscribe(topic=NON_PERSISTENT)
