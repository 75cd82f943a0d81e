"""Consumers over HTTP of a topic that skips unreadable records."""

from braidlog.storage.formats.pulsar.entry_runs import ENTRY_PREFIX, PULSAR
from braidlog.storage.formats.pulsar.pb.PulsarApi_pb2 import MessageMetadata
from tests.protocols.http.pip64.conftest import BASE
from tests.protocols.http.pip64.test_consumers import (
    EARLIEST,
    SUBSCRIPTION,
    PulsarLike,
    deliveries,
    fetch,
)
from tests.waiting import until


def encrypted_entry(value):
    """Return the stored bytes of an entry that only clients with the key can open."""
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1)
    metadata.encryption_keys.add(key="k", value=b"v")
    packed = metadata.SerializeToString()
    entry = len(packed).to_bytes(4, "big") + packed + value
    return ENTRY_PREFIX.pack(len(entry), 0, 1) + entry


async def test_skipping_unreadable_records_keeps_another_consumers_messages(
    broker, orders, ask, nursery
):
    """The fetch continues to the messages behind."""
    await broker.topics.alter_settings(orders.name, {"unreadable_records": "skip"})
    created = await ask("POST", SUBSCRIPTION, EARLIEST)
    path = f"{SUBSCRIPTION}/consumer/{created.json['id']}/messages"
    assert await fetch(ask, path) == []
    partition, messages = orders.partitions[1], []
    dispatcher = broker.dispatchers.find(partition, b"billing")
    (mine,) = dispatcher.consumers

    @nursery.start_soon
    async def wait():
        messages.extend(await fetch(ask, path, "?timeout=60000&max_messages=1"))

    await until(lambda: mine.permits)
    other = PulsarLike("theirs")
    broker.dispatchers.attach(dispatcher, other)
    dispatcher.flow(other, 1)
    for value in (b"a", b"b"):
        body = encrypted_entry(value)
        partition.append([body], PULSAR.inspect(body), body_format=PULSAR.format, append_us=1)
    await broker.durability.all_durable()
    await until(lambda: other.taken)
    await ask("POST", f"{BASE}/partitions/1", {"messages": [{"value": "7"}]})
    await until(lambda: messages)
    assert deliveries(messages) == [(7, 0)]
    assert list(other.pending) == other.taken == [1]
    subscription = broker.subscriptions.find(orders, b"billing")
    assert subscription.committed(1).offset == 1
