"""Batches of idempotent producers (dialect W): each batch is stored once."""

import struct
from contextlib import asynccontextmanager

import pytest
import trio

from braidlog.broker.broker import Broker
from braidlog.broker.config.settings import load
from braidlog.protocols.iggy.errors import ErrorCode
from braidlog.storage.metadata.names import TopicName
from tests.broker.cluster.cut_links import lossy
from tests.broker.cluster.nodes import topic_of, two_brokers
from tests.listeners import open_listeners
from tests.opened import opened_broker
from tests.protocols.iggy.vtalk import CREATE_STREAM, CREATE_TOPIC, STREAM, TOPIC
from tests.protocols.iggy.wtalk import SEND, client_w, sent
from tests.storage.shared.shared_dirs import SharedStore
from tests.waiting import until

ID = 7 << 20
SEQUENCE_MAX = 2**31 - 1
NAME = TopicName("public", "st", "tp")


class ProducingClient:
    """A client that sends batches as a producer."""

    def __init__(self, client, incarnation, topic=TOPIC):
        self.client = client
        self._incarnation = incarnation
        self._topic = topic

    async def send(self, sequence, *payloads, number=ID, epoch=0, partition=0, **fields):
        """Send a batch; return the base offset, or the error."""
        body = sent(
            *(payloads or (b"x",)),
            partition=partition,
            producer=(number, epoch, sequence),
            topic=self._topic,
            **fields,
        )
        status, answer = await self.client.perform(SEND, body, incarnation=self._incarnation)
        if status:
            return ErrorCode(status)
        (count,) = struct.unpack_from("<I", answer)
        return struct.unpack_from("<Q", answer, 16)[0] if count else None


async def producer_of(connect, *, creates=False, topic=TOPIC):
    """Return the producer of a new connection; `creates`: the stream and the topic are new."""
    client = await client_w(connect)
    if creates:
        assert await client.status(CREATE_STREAM, STREAM[1:]) == 0
        assert await client.status(CREATE_TOPIC, STREAM + struct.pack("<I", 2) + topic[1:]) == 0
    status, route = await client.query(105, STREAM + topic + bytes(4))
    assert status == 0
    return ProducingClient(client, struct.unpack_from("<Q", route)[0], topic)


@pytest.fixture
async def producer(broker, open_client):
    return await producer_of(open_client, creates=True)


async def test_a_repeated_batch_is_stored_once_and_answered_as_before(broker, producer):
    assert await producer.send(0, b"a", b"b") == 0
    assert await producer.send(2, b"c") == 2
    assert await producer.send(0, b"a", b"b") == 0
    assert await producer.send(2, b"c") == 2
    assert broker.topics.partition(NAME, 0).next_offset == 3


async def test_a_batch_whose_place_is_forgotten_is_confirmed_without_a_place(broker, producer):
    for sequence in range(7):
        assert await producer.send(sequence) == sequence
    assert await producer.send(0) is None
    assert broker.topics.partition(NAME, 0).next_offset == 7


async def test_gaps_old_epochs_and_unknown_producers_are_refused(broker, producer):
    assert await producer.send(5) is ErrorCode.PRODUCER_UNKNOWN
    assert await producer.send(0, epoch=3) == 0
    assert await producer.send(2, epoch=3) is ErrorCode.PRODUCER_SEQUENCE_OUT_OF_ORDER
    assert await producer.send(1, epoch=4) is ErrorCode.PRODUCER_SEQUENCE_OUT_OF_ORDER
    assert await producer.send(0, epoch=2) is ErrorCode.PRODUCER_EPOCH_FENCED
    assert await producer.send(0, epoch=4) == 1
    assert await producer.send(1, epoch=3) is ErrorCode.PRODUCER_EPOCH_FENCED
    assert broker.topics.partition(NAME, 0).next_offset == 2


async def test_sequences_begin_again_after_the_greatest(broker, producer):
    """A batch may go over the greatest sequence."""
    partition = broker.topics.partition(NAME, 0)
    assert await producer.send(0) == 0
    table = await partition.sequences()
    (state,) = table
    table.note(state.producer_id, 1, state.recent[-1], 0)
    state.recent[-1].last_sequence = SEQUENCE_MAX - 1
    assert await producer.send(SEQUENCE_MAX, b"a", b"b", epoch=1) == 1
    assert await producer.send(1, epoch=1) == 3


async def test_producers_and_partitions_count_on_their_own(broker, producer):
    assert await producer.send(0) == 0
    assert await producer.send(0, number=ID + 1) == 1
    assert await producer.send(0, number=0) == 2
    assert await producer.send(1) == 3
    assert await producer.send(0, number=(1 << 63) - 1) == 4


async def test_a_name_of_another_protocol_is_another_producer(broker, producer):
    """Names of Pulsar's producers are UTF-8; the names of Iggy's producers are not."""
    assert await producer.send(0) == 0
    ((_, name),) = broker.catalogue.state.producer_numbers()
    with pytest.raises(UnicodeDecodeError):
        name.decode()


@pytest.mark.parametrize("kind", [b"\x01\x00", b"\x03\x01k"])
async def test_a_producer_must_name_the_partition(producer, kind):
    refused = await producer.send(0, partitioning=kind)
    assert refused is ErrorCode.PRODUCER_NEEDS_PARTITION


@pytest.mark.parametrize(
    ("pos", "value"),
    [
        (0, 2),  # A flag that does not exist,
        (0, 0),  # a producer without the flag,
        (1, 1),  # reserved bytes,
        (14, 1),
        (11, 0x80),  # an id,
        (13, 0x80),  # an epoch and a sequence above the greatest.
        (19, 0x80),
    ],
)
async def test_an_invalid_producer_section_is_refused(broker, producer, pos, value):
    section = bytearray(struct.pack("<B3xQHxxI", 1, ID, 3, 0))
    section[pos] = value
    assert await producer.send(0, section=bytes(section)) is ErrorCode.INVALID_COMMAND
    assert broker.topics.partition(NAME, 0).next_offset == 0


async def test_the_checksum_covers_the_producer(producer):
    section = struct.pack("<B3xQHxxI", 1, ID, 3, 0)
    assert await producer.send(0, section=section) is ErrorCode.INVALID_BATCH_CHECKSUM


async def test_a_large_batch_is_stored_once(broker, producer):
    """The body of a large batch is made in a thread."""
    large = bytes(200_000)
    assert await producer.send(0, large, large) == 0
    assert await producer.send(0, large, large) == 0
    assert await producer.send(2, large, large) == 2
    assert broker.topics.partition(NAME, 0).next_offset == 4


async def test_a_retry_on_another_connection_is_stored_once(broker, producer, open_client):
    assert await producer.send(0, b"a", b"b") == 0
    again = await producer_of(open_client)
    assert await again.send(0, b"a", b"b") == 0
    assert await again.send(2, b"c") == 2


@asynccontextmanager
async def crashing_broker(folder):
    """Yield a broker that ends without a clean stop."""
    flags = [("data_dir", str(folder), "test")]
    opened = Broker.open(load(environment={}, file="/dev/null", flags=flags))
    async with trio.open_nursery() as running:
        running.start_soon(opened.run)
        opened.ready.set()
        yield opened
        running.cancel_scope.cancel()
    opened.abandon()


@pytest.mark.parametrize("opened", [opened_broker, crashing_broker])
async def test_a_retry_after_a_restart_is_stored_once(tmp_path, opened):
    folder = tmp_path / "data"
    settings = ({},) if opened is opened_broker else ()
    async with opened(folder, *settings) as broker, open_listeners(broker) as connect:
        producer = await producer_of(connect, creates=True)
        assert [await producer.send(at) for at in range(3)] == [0, 1, 2]
    async with opened_broker(folder, {}) as broker, open_listeners(broker) as connect:
        producer = await producer_of(connect)
        assert await producer.send(2) == 2
        assert await producer.send(3) == 3
        assert broker.topics.partition(NAME, 0).next_offset == 4


@pytest.mark.slow
async def test_a_retry_after_a_takeover_is_stored_once(tmp_path):
    store = SharedStore(tmp_path)
    async with two_brokers(store) as ((first, second), _):
        name = topic_of(first.held, "tp", "st")
        topic = b"\x02" + bytes([len(name.topic)]) + name.topic.encode()
        async with open_listeners(first.broker) as near, open_listeners(second.broker) as far:
            producer = await producer_of(near, creates=True, topic=topic)
            assert [await producer.send(at) for at in range(3)] == [0, 1, 2]
            store.ledger.drain(first.number, drains=True)
            await until(lambda: second.broker.placement.is_here(name))
            producer = await producer_of(far, topic=topic)
            assert await producer.send(2) == 2
            assert await producer.send(3) == 3
            assert second.broker.topics.partition(name, 0).next_offset == 4


@pytest.mark.slow
async def test_a_retry_after_a_lost_answer_is_stored_once(tmp_path):
    """The owner has stored the batch, and the link to the owner is cut before the answer."""
    async with (
        lossy(tmp_path) as (asker, owner, cutter, _),
        open_listeners(owner.broker) as far,
        open_listeners(asker.broker) as near,
    ):
        await far("iggy")  # Commands are forwarded to this listener.
        name = topic_of(owner.held, "tp", "st")
        topic = b"\x02" + bytes([len(name.topic)]) + name.topic.encode()
        producer = await producer_of(near, creates=True, topic=topic)
        assert await producer.send(0) == 0
        cutter.answers_to_lose = 1
        with pytest.raises(EOFError):
            await producer.send(1)
        assert cutter.lost == 1
        producer = await producer_of(near, topic=topic)
        assert await producer.send(1) == 1
        assert owner.broker.topics.partition(name, 0).next_offset == 2
