"""SUBSCRIBE that waits for the disk while another client changes the subscription."""

from braidlog.protocols.pulsar.machine import Type
from braidlog.storage.formats.pulsar.pb.PulsarApi_pb2 import ServerError
from tests.broker.held_disk import HeldDisk
from tests.broker.positions.replaced import GROUP, replace_meanwhile, two_partitions
from tests.protocols.pulsar.talk import EARLIEST, NAME, TOPIC, entry
from tests.waiting import until


async def test_a_subscription_deleted_during_a_join_is_recreated(broker, client):
    """Otherwise the consumer would have a missing subscription: its acks would have no effect."""
    await client.produce(producer_id=99)
    await client.put(entry(b"a"), entry(b"b"), producer_id=99)
    topic = broker.topics.get(NAME)
    broker._storage.files.adopt("/proc")  # Each file is synced separately.
    disk = HeldDisk([broker.data_dir])
    disk.may_sync.clear()
    broker.committer.mark(disk)
    await disk.is_syncing()
    fields = {"topic": TOPIC, "subscription": "s", "subType": 1, "consumer_id": 0, **EARLIEST}
    await client.send(Type.SUBSCRIBE, request_id=1, **fields)
    await until(lambda: broker.subscriptions.find(topic, b"s"))
    broker.subscriptions.delete(topic, b"s")
    disk.may_sync.set()
    await client.next(Type.SUCCESS)
    subscription = broker.subscriptions.find(topic, b"s")
    assert subscription is not None and subscription.position(0) == 0
    await client.flow(10)
    await client.take(2)
    ids = [{"ledgerId": 1, "entryId": 0}, {"ledgerId": 1, "entryId": 1}]
    await client.ask(Type.ACK, Type.ACK_RESPONSE, consumer_id=0, ack_type=0, message_id=ids)
    assert subscription.position(0) == 2


async def test_a_start_by_time_does_not_affect_a_new_partition_of_the_same_number(broker, client):
    topic = await two_partitions(broker)
    fields = {"topic": f"{TOPIC}-partition-1", "subscription": GROUP.decode(), "subType": 1}

    async def subscribe():
        seconds = {"start_message_rollback_duration_sec": 1}
        code, _ = await client.refused(Type.SUBSCRIBE, consumer_id=0, **fields, **seconds)
        assert code == ServerError.TopicNotFound

    await replace_meanwhile(broker, topic, subscribe)
    assert broker.subscriptions.get(topic, GROUP).position(1) == 0


async def test_a_reader_with_slots_receives_only_their_keys(client):
    """As requested by Java's `keyHashRange`. The slot of "b" is 32259."""
    await client.produce()
    await client.put(*(entry(partition_key=key) for key in "abab"))
    own = {"keySharedMode": 1, "hashRanges": [{"start": 32259, "end": 32260}]}
    await client.subscribe(durable=False, keySharedMeta=own, permits=1, **EARLIEST)
    assert [number for number, _, _ in await client.take(1)] == [1]
    await client.silent()
    await client.flow(10)
    assert [number for number, _, _ in await client.take(1)] == [3]
    await client.put(entry(partition_key="a"), entry(partition_key="b"))
    assert [number for number, _, _ in await client.take(1)] == [5]
    await client.silent()


async def test_a_readers_slots_must_exist(client):
    own = {"keySharedMode": 1, "hashRanges": [{"start": 9, "end": 3}]}
    fields = {"topic": TOPIC, "subscription": "r", "subType": 0, "consumer_id": 0}
    code, text = await client.refused(Type.SUBSCRIBE, keySharedMeta=own, durable=False, **fields)
    assert code == ServerError.ConsumerAssignError
    assert "9 > end 3" in text
