"""PRODUCER, SEND and CLOSE_PRODUCER: sections 7 and 8."""

import threading

import pytest
import trio
import trio.testing

from braidlog.protocols.pulsar.machine import Type
from braidlog.storage.errors import StorageFull
from braidlog.storage.formats.api import BatchFlag, BodyFormat
from braidlog.storage.formats.pulsar.entry_runs import entries
from braidlog.storage.formats.pulsar.pb.PulsarApi_pb2 import ServerError
from tests.protocols.pulsar.talk import NAME, TOPIC, RawPulsar, command_bytes, entry, talking

NO_NUMBER = 2**64 - 1


async def stored(broker, index=0):
    """Return (header, bodies of entries) of every batch."""
    partition = broker.topics.partition(NAME, index)
    batches = await partition.read(0, 1 << 20)
    return [
        (
            batch.header,
            [bytes(batch.body[e.start : e.end]) for e in entries(batch.body, batch.base_offset)],
        )
        for batch in batches
    ]


# Opening.


async def test_unnamed_producers_get_unique_names(client):
    names = [(await client.produce(producer_id=number)).producer_name for number in range(3)]
    assert len(set(names)) == 3
    assert all(names)


async def test_a_success_has_no_invented_sequence(client):
    success = await client.produce(producer_name="p")
    assert (success.producer_name, success.last_sequence_id) == ("p", -1)
    assert success.schema_version == b"" and success.producer_ready
    assert not success.HasField("topic_epoch")


async def test_a_producer_creates_a_topic_but_no_single_partition(broker, client):
    await client.produce()
    assert not broker.topics.get(NAME).partitioned
    code, _ = await client.refused(
        Type.PRODUCER, topic="persistent://public/default/u-partition-1", producer_id=1
    )
    assert code == ServerError.TopicNotFound


@pytest.mark.parametrize("opening", [RawPulsar.produce, RawPulsar.subscribe])
async def test_folders_of_a_new_topic_are_created_in_a_thread(broker, client, opening):
    """There may be thousands of folders."""
    disk, threads = broker._storage.files.disk, []

    def make_folder(path):
        threads.append(threading.current_thread())
        type(disk).make_folder(disk, path)

    disk.make_folder = make_folder
    await opening(client)
    assert len(threads) == 1
    assert threading.main_thread() not in threads


async def test_no_topic_is_created_if_disabled(broker, client):
    broker.topics.defaults = type(broker.topics.defaults)(auto_create=False)
    code, _ = await client.refused(Type.PRODUCER, topic=TOPIC, producer_id=0)
    assert code == ServerError.TopicNotFound


async def test_a_partitioned_topic_needs_an_existing_partition(broker, client):
    await broker.topics.create(NAME, 2)
    code, _ = await client.refused(Type.PRODUCER, topic=TOPIC, producer_id=0)
    assert code == ServerError.NotAllowedError
    code, _ = await client.refused(Type.PRODUCER, topic=TOPIC + "-partition-2", producer_id=0)
    assert code == ServerError.TopicNotFound
    await client.produce(TOPIC + "-partition-1")
    await client.put(entry())
    assert len(await stored(broker, 1)) == 1


async def test_both_names_of_an_unpartitioned_topic_are_the_same_partition(client):
    await client.produce()
    await client.produce(TOPIC + "-partition-0", producer_id=1)
    assert await client.put(entry()) == [0]
    assert await client.put(entry(), producer_id=1) == [1]


async def test_unpartitioned_topic_in_use_does_not_grow(broker, client):
    await client.produce()
    assert broker.topics.get(NAME).layout_users == 1
    await client.ask(Type.CLOSE_PRODUCER, Type.SUCCESS, producer_id=0)
    assert broker.topics.get(NAME).layout_users == 0


@pytest.mark.slow
async def test_thousand_pipelined_sends_share_syncs_and_get_their_receipts_in_order(broker, client):
    await client.produce()
    rounds = broker.durability.durable_ticket
    assert await client.put(*[entry()] * 1000) == list(range(1000))
    assert broker.durability.durable_ticket - rounds < 100


async def test_a_repeated_open_returns_the_producers_name(client):
    first = await client.produce()
    again = await client.produce(producer_name="other")
    assert again.producer_name == first.producer_name


async def test_name_in_use_is_busy_on_the_same_connection_and_on_another(client, other):
    await client.produce(producer_name="p")
    code, _ = await client.refused(
        Type.PRODUCER, topic=TOPIC, producer_id=1, producer_name="p", epoch=5
    )
    assert code == ServerError.ProducerBusy
    async with trio.open_nursery() as nursery:
        nursery.start_soon(answer_ping, client)
        code, _ = await other.refused(
            Type.PRODUCER, topic=TOPIC, producer_id=0, producer_name="p", epoch=5
        )
    assert code == ServerError.ProducerBusy


async def answer_ping(client):
    await client.next(Type.PING)
    await client.send(Type.PONG)


async def test_higher_epoch_replaces_the_same_producer(broker, client):
    await client.produce(producer_name="p")
    await client.produce(producer_name="p", epoch=1)
    assert await client.put(entry()) == [0]
    assert broker.topics.get(NAME).layout_users == 1


async def test_a_deaf_holder_of_a_name_loses_name_and_connection(impatient):
    client, other = await impatient(), await impatient()
    await client.produce(producer_name="p")
    success = await other.produce(producer_name="p")
    assert success.producer_name == "p"
    await client.next(Type.PING)
    await client.closed()


async def test_an_initial_subscription_starts_at_the_first_entry(broker, client):
    await client.produce()
    await client.put(entry(), entry())
    await client.produce(producer_id=1, initial_subscription_name="dead")
    topic = broker.topics.get(NAME)
    assert broker.subscriptions.get(topic, b"dead").position(0) == 0


# Sending.


async def test_a_run_of_sends_is_a_single_stored_batch_of_unchanged_entries(broker, client):
    await client.produce(producer_name="p", user_provided_producer_name=True)
    bodies = [entry(b"m%d" % number, sequence_id=number) for number in range(50)]
    assert await client.put(*bodies, sequence_id=7) == list(range(50))
    ((header, entries),) = await stored(broker)
    assert entries == bodies
    assert header.body_format == BodyFormat.PULSAR
    assert (header.record_count, header.last_offset_delta) == (50, 49)
    assert (header.first_sequence, header.last_sequence) == (7, 56)
    assert header.producer_id == broker.producers.number(b"p", broker.topics.all()[0])[0]


async def test_a_producer_with_a_generated_name_has_no_number(broker, client):
    await client.produce()
    await client.put(entry())
    ((header, _),) = await stored(broker)
    assert header.producer_id == 0


async def test_receipts_name_the_first_record_and_batches_count_all(client):
    await client.produce()
    batch = entry(b"x", count=10)
    assert await client.put(entry(), batch, entry(), batch) == [0, 1, 11, 12]
    assert await client.put(entry(checksum=False)) == [22]


async def test_highest_sequence_id_is_echoed_or_minus_1(client):
    await client.produce()
    await client.send(
        Type.SEND, entry(count=3), producer_id=0, sequence_id=4, highest_sequence_id=6
    )
    receipt = await client.next(Type.SEND_RECEIPT)
    assert (receipt.sequence_id, receipt.highest_sequence_id) == (4, 6)
    await client.send(Type.SEND, entry(), producer_id=0, sequence_id=7)
    assert (await client.next(Type.SEND_RECEIPT)).highest_sequence_id == NO_NUMBER


async def test_times_and_flags_of_a_run_are_in_its_header(broker, client):
    await client.produce()
    bodies = [
        entry(publish_time=5),
        entry(publish_time=9, compression=1, uncompressed_size=9),
        entry(publish_time=7),
    ]
    await client.put(*bodies)
    ((header, _),) = await stored(broker)
    assert (header.first_publish_us, header.max_publish_us) == (5000, 9000)
    assert header.flags & BatchFlag.COMPRESSED


async def test_a_wrong_checksum_is_answered_in_order_and_later_sends_continue(broker, client):
    await client.produce()
    bad = bytearray(entry(b"bad"))
    bad[-1] ^= 1
    await client.stream.send_all(
        b"".join(
            command_bytes(Type.SEND, body, producer_id=0, sequence_id=number)
            for number, body in enumerate([entry(b"a"), bytes(bad), entry(b"b")])
        )
    )
    assert (await client.next(Type.SEND_RECEIPT)).message_id.entryId == 0
    error = await client.next(Type.SEND_ERROR)
    assert (error.sequence_id, error.error) == (1, ServerError.ChecksumError)
    assert error.message == "Checksum failed on the broker"
    assert (await client.next(Type.SEND_RECEIPT)).message_id.entryId == 1
    assert [len(entries) for _, entries in await stored(broker)] == [2]


@pytest.mark.parametrize(
    ("version", "code"),
    [
        ("Pulsar-CPP-v4.2.0", ServerError.ChecksumError),
        ("3.1.2", ServerError.ChecksumError),
        ("Pulsar-Java-v4.2.4", ServerError.NotAllowedError),
        ("Pulsar-Go-v0.19.0", ServerError.NotAllowedError),
    ],
)
@pytest.mark.parametrize("count", [0, -1, 1000, 2**31 - 1])
async def test_an_impossible_batch_count_drops_a_single_message(open_client, version, code, count):
    async with talking(open_client, client=version) as client:
        await client.produce()
        body = entry(b"x" * 20, num_messages_in_batch=count)
        await client.send(Type.SEND, body, producer_id=0, sequence_id=0)
        assert (await client.next(Type.SEND_ERROR)).error == code
        assert await client.put(entry()) == [0]


@pytest.mark.parametrize("fields", [{"txnid_most_bits": 1}, {"message_id": {"ledgerId": 1}}])
async def test_messages_of_transactions_and_replication_are_not_allowed(client, fields):
    await client.produce()
    await client.send(Type.SEND, entry(), producer_id=0, sequence_id=0, **fields)
    assert (await client.next(Type.SEND_ERROR)).error == ServerError.NotAllowedError


async def test_markers_are_not_allowed(client):
    await client.produce()
    await client.send(Type.SEND, entry(marker_type=1), producer_id=0, sequence_id=0)
    assert (await client.next(Type.SEND_ERROR)).error == ServerError.NotAllowedError


async def test_sends_of_several_producers_in_one_receive(broker, client):
    await client.produce(producer_id=0)
    await client.produce(producer_id=1)
    frames = [
        command_bytes(Type.SEND, entry(b"%d" % number), producer_id=number % 2, sequence_id=number)
        for number in range(6)
    ]
    await client.stream.send_all(b"".join(frames))
    got = {0: [], 1: []}
    for _ in range(6):
        receipt = await client.next(Type.SEND_RECEIPT)
        got[receipt.producer_id].append(receipt.sequence_id)
    assert got == {0: [0, 2, 4], 1: [1, 3, 5]}
    assert len(await stored(broker)) == 2


async def test_send_behind_a_close_in_one_receive_closes_the_connection(client):
    await client.produce()
    send = command_bytes(Type.SEND, entry(), producer_id=0, sequence_id=0)
    close = command_bytes(Type.CLOSE_PRODUCER, producer_id=0, request_id=9)
    await client.stream.send_all(send + close + send)
    await client.next(Type.SEND_RECEIPT)
    await client.next(Type.SUCCESS)
    await client.closed()


async def test_producer_of_a_deleted_topic_is_closed_and_its_late_sends_dropped(broker, client):
    await client.produce()
    await broker.topics.delete(NAME)
    await client.send(Type.SEND, entry(), producer_id=0, sequence_id=0)
    assert (await client.next(Type.CLOSE_PRODUCER)).producer_id == 0
    await client.send(Type.SEND, entry(), producer_id=0, sequence_id=1)
    await client.silent()
    await client.produce()
    assert await client.put(entry()) == [0]


async def test_full_disk_refuses_sends_with_the_storage_error(broker, client):
    await client.produce()
    log = broker.topics.partition(NAME, 0).log

    class FullLog:
        def __getattr__(self, name):
            return getattr(log, name)

        def append_at_once(self, *arguments):
            return None

        def append(self, *arguments, **settings):
            raise StorageFull("no space")

    broker.topics.partition(NAME, 0).log = FullLog()
    await client.send(Type.SEND, entry(), producer_id=0, sequence_id=0)
    assert (await client.next(Type.SEND_ERROR)).error == ServerError.PersistenceError
    broker.topics.partition(NAME, 0).log = log
    assert await client.put(entry()) == [0]


# Access modes over the wire; every pair of them is in test_registry.py.


async def test_an_exclusive_producer_has_an_epoch_and_excludes_others(client, other):
    first = await client.produce(producer_access_mode=1)
    assert (first.HasField("topic_epoch"), first.topic_epoch) == (True, 0)
    code, _ = await other.refused(Type.PRODUCER, topic=TOPIC, producer_id=0)
    assert code == ServerError.ProducerBusy
    code, _ = await other.refused(Type.PRODUCER, topic=TOPIC, producer_id=0, producer_access_mode=1)
    assert code == ServerError.ProducerFenced


async def test_waiting_producer_is_answered_twice(client, other):
    await client.produce(producer_access_mode=1)
    waiting = await other.produce(producer_access_mode=2)
    assert not waiting.producer_ready
    await client.ask(Type.CLOSE_PRODUCER, Type.SUCCESS, producer_id=0)
    ready = await other.next(Type.PRODUCER_SUCCESS)
    assert (ready.request_id, ready.producer_ready, ready.topic_epoch) == (
        waiting.request_id,
        True,
        1,
    )
    assert await other.put(entry()) == [0]


async def test_full_disk_refuses_the_turn_of_a_waiting_producer(broker, client, open_client):
    async def waits(waiting):
        answer = await waiting.produce(producer_access_mode=2)
        assert not answer.producer_ready
        return answer.request_id

    async with talking(open_client) as first, talking(open_client) as second:
        await client.produce(producer_access_mode=1)
        await client.produce(producer_id=1, topic=TOPIC + "-other", producer_name="p")
        requests = [(connection, await waits(connection)) for connection in (first, second)]
        state, broker.catalogue.state = broker.catalogue.state, FullState(broker.catalogue.state)
        await client.stream.aclose()
        for connection, request_id in requests:
            with trio.fail_after(10):
                error = await connection.next(Type.ERROR)
            assert (error.request_id, error.error) == (request_id, ServerError.PersistenceError)
        broker.catalogue.state = state
        assert (await first.produce(producer_access_mode=1)).producer_ready
        # This producer has ended as well.
        await second.produce(topic=TOPIC + "-other", producer_name="p")


class FullState:
    """A catalogue without room for the epochs of topics."""

    def __init__(self, state):
        self._state = state

    def __getattr__(self, name):
        return getattr(self._state, name)

    def bump_topic_epoch(self, topic_id):
        raise StorageFull("no space")


async def test_fenced_producers_next_send_closes_its_connection(client, other):
    await client.produce()
    await other.produce(producer_access_mode=3)
    await client.silent()
    await client.send(Type.SEND, entry(), producer_id=0, sequence_id=0)
    await client.closed()


async def test_a_fenced_waiting_producer_is_notified(client, other):
    await client.produce(producer_access_mode=1)
    waiting = await client.produce(producer_id=1, producer_access_mode=2)
    await other.produce(producer_access_mode=3)
    error = await client.next(Type.ERROR)
    assert (error.request_id, error.error) == (waiting.request_id, ServerError.ProducerFenced)
