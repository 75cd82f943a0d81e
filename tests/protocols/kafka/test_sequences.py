"""Idempotent producers: a resent batch is stored once, gaps and old epochs are errors."""

import socket
import struct

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from braidlog.broker.broker import Broker
from braidlog.broker.limits import TAKEOVER_S
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.sequences import NEXT, judge
from braidlog.storage.formats.api import BodyInfo
from braidlog.storage.formats.kafka.record_batches import PRODUCER_BIT, SEQUENCE_MAX
from braidlog.storage.log.sequences import ProducerState, StoredBatch
from conformance.server import RunningBroker
from tests.broker.held_disk import HeldDisk
from tests.protocols.kafka import forms as m
from tests.protocols.kafka.frames import RawKafka, message_set, table_request
from tests.protocols.kafka.talk import FOO, FOO_NAME, fetch_one, produce_one, second_client, values
from tests.storage.formats.kafka.test_record_batches import batch
from tests.waiting import HANG_S, until

PID = 12


def sequenced(first: int, count: int = 1, *, epoch: int = 0, pid: int = PID) -> bytes:
    """Return a batch of `count` records of a byte."""
    record = bytes((14, 0, 0))
    records = b"".join(record + bytes((at * 2, 1, 2, 65 + at, 0)) for at in range(count))
    return batch(records, count, pid=pid, epoch=epoch, seq=first)


async def send(client: RawKafka, sent: bytes) -> tuple[int, int]:
    answer = await produce_one(client, sent)
    return answer.error, answer.base_offset


def state(*sequences: tuple[int, int], epoch: int = 3, first: int = -1) -> ProducerState:
    recent = [StoredBatch(low, high, 100 + low) for low, high in sequences]
    return ProducerState(PID | PRODUCER_BIT, epoch, 0, recent, first)


@pytest.mark.parametrize(
    ("known", "epoch", "sequences", "judgement"),
    [
        (None, 0, (0, 0), NEXT),
        (None, 5, (7, 9), NEXT),  # Possibly forgotten.
        (state((0, 4)), 3, (5, 5), NEXT),
        (state((0, 4)), 3, (0, 4), StoredBatch(0, 4, 100)),
        (state((0, 4), (5, 9)), 3, (0, 4), StoredBatch(0, 4, 100)),
        (state((0, 4)), 3, (0, 3), Code.DUPLICATE_SEQUENCE),
        (state((3, 4)), 3, (2, 3), Code.OUT_OF_ORDER_SEQUENCE),
        (state((3, 4)), 3, (4, 5), Code.OUT_OF_ORDER_SEQUENCE),
        # Older than the remembered batches
        (state((5, 9), first=2), 3, (2, 4), Code.DUPLICATE_SEQUENCE),
        # and older than the known batches.
        (state((5, 9), first=2), 3, (1, 4), Code.OUT_OF_ORDER_SEQUENCE),
        (state((0, 3), first=0), 3, (SEQUENCE_MAX, 0), Code.OUT_OF_ORDER_SEQUENCE),
        (state((0, 4)), 3, (6, 6), Code.OUT_OF_ORDER_SEQUENCE),
        (state((5, 9)), 3, (0, 4), Code.OUT_OF_ORDER_SEQUENCE),
        (state((0, 4)), 2, (5, 5), Code.INVALID_PRODUCER_EPOCH),
        (state((0, 4)), 4, (0, 0), NEXT),
        (state((0, 4)), 4, (5, 5), Code.OUT_OF_ORDER_SEQUENCE),
        (state((9, SEQUENCE_MAX)), 3, (0, 0), NEXT),
    ],
)
def test_the_result_of_a_batch(
    known: ProducerState | None,
    epoch: int,
    sequences: tuple[int, int],
    judgement: StoredBatch | Code | None,
) -> None:
    info = BodyInfo(1, None, None, 0, PID | PRODUCER_BIT, epoch, *sequences)
    assert judge(known, info) == judgement


async def test_a_resent_batch_is_stored_once_and_answered_as_before(client: RawKafka) -> None:
    sent = [sequenced(at * 2, 2) for at in range(7)]
    assert [await send(client, batch) for batch in sent] == [(0, at * 2) for at in range(7)]
    assert [await send(client, batch) for batch in sent[2:]] == [(0, at * 2) for at in range(2, 7)]
    # Clients treat this as success; after an out-of-order error, Java's would store the batch
    # again.
    assert (await send(client, sent[1]))[0] == Code.DUPLICATE_SEQUENCE
    assert len(values(await fetch_one(client, 0))) == 14


async def test_gaps_and_old_epochs_are_errors(client: RawKafka) -> None:
    assert await send(client, sequenced(0)) == (0, 0)
    assert (await send(client, sequenced(2)))[0] == Code.OUT_OF_ORDER_SEQUENCE
    assert await send(client, sequenced(0, epoch=1)) == (0, 1)
    assert (await send(client, sequenced(1, epoch=0)))[0] == Code.INVALID_PRODUCER_EPOCH
    assert await send(client, sequenced(1, epoch=1)) == (0, 2)


async def test_sequences_wrap_around(client: RawKafka) -> None:
    assert await send(client, sequenced(SEQUENCE_MAX - 1, 3)) == (0, 0)
    assert await send(client, sequenced(1)) == (0, 3)


async def test_producers_and_partitions_have_separate_sequences(client: RawKafka) -> None:
    assert await send(client, sequenced(0, pid=0)) == (0, 0)
    assert await send(client, sequenced(0, pid=1)) == (0, 1)
    assert await send(client, sequenced(0, pid=0)) == (0, 0)
    assert await produce_one(client, message_set(b"a producer without")) == m.Produced(0, 2)
    assert await send(client, sequenced(1, pid=0)) == (0, 3)


@pytest.mark.parametrize(
    "sent",
    [
        sequenced(0) + sequenced(1),
        sequenced(-1),
        sequenced(0, epoch=-1),
        sequenced(0, pid=-2),
    ],
)
async def test_invalid_idempotent_batches_are_refused(client: RawKafka, sent: bytes) -> None:
    assert (await send(client, sent))[0] == Code.INVALID_MESSAGE


async def test_two_connections_at_once_store_a_batch_once(open_client, client: RawKafka) -> None:
    again = await second_client(open_client)
    for connection in (client, again):
        await connection.send(m.ProduceRequest(1, 1000, {FOO: {0: memoryview(sequenced(0))}}))
    answers = [await connection.answer(m.ProduceRequest) for connection in (client, again)]
    assert answers == [m.ProduceReply({FOO: {0: m.Produced(0, 0)}})] * 2
    assert len(values(await fetch_one(client, 0))) == 1


@pytest.mark.slow
def test_sequences_are_known_after_a_kill(tmp_path) -> None:
    running = RunningBroker(tmp_path, listen={"kafka": "127.0.0.1:0"}, others=False)

    def exchange(body: object, api_key: int, version: int) -> bytes:
        with socket.create_connection(running.address("kafka"), timeout=HANG_S) as sock:
            sock.sendall(table_request(api_key, version, 1, body))
            stream = sock.makefile("rb")
            return stream.read(struct.unpack(">i", stream.read(4))[0])

    def store(sent: bytes) -> tuple[int, int]:
        body = m.ProduceRequest(-1, 1000, {FOO: {0: memoryview(sent)}})
        answer = exchange(body, 0, 3)
        answered: tuple[int, int] = struct.unpack_from(">hq", answer, 4 + 4 + 5 + 4 + 4)
        return answered

    with running:
        exchange(m.MetadataRequest([FOO]), 3, 4)
        assert [store(sequenced(at)) for at in range(3)] == [(0, 0), (0, 1), (0, 2)]
        running.kill()
        running.start()
        assert store(sequenced(2)) == (0, 2)
        assert store(sequenced(4))[0] == Code.OUT_OF_ORDER_SEQUENCE
        assert store(sequenced(3)) == (0, 3)
        running.stop()
        running.start()
        assert store(sequenced(1)) == (0, 1)
        assert store(sequenced(4)) == (0, 4)


async def test_a_resent_batch_waits_until_the_first_copy_is_durable(
    open_client, client: RawKafka, broker: Broker, nursery: trio.Nursery
) -> None:
    """With and without a known place of the first copy."""
    await send(client, sequenced(0))
    broker._storage.files.adopt("/proc")  # Each file is synced separately.
    disk = HeldDisk([broker.data_dir])
    disk.may_sync.clear()
    broker.committer.mark(disk)
    await disk.is_syncing()
    for at in range(1, 8):
        await client.send(m.ProduceRequest(1, 1000, {FOO: {0: memoryview(sequenced(at))}}))
    partition = broker.topics.partition(FOO_NAME, 0)
    await until(lambda: partition.next_offset == 8)
    answered = []

    async def send_again(sent: bytes) -> None:
        answered.append(await send(await second_client(open_client), sent))

    nursery.start_soon(send_again, sequenced(1))
    nursery.start_soon(send_again, sequenced(7))
    await wait_all_tasks_blocked()
    assert not answered
    disk.may_sync.set()
    await until(lambda: len(answered) == 2)
    assert sorted(answered) == [(0, 7), (Code.DUPLICATE_SEQUENCE, -1)]
    assert partition.next_offset == 8


async def test_a_new_owner_takes_the_batches_of_an_unknown_producer_in_order(broker, client):
    """Otherwise a batch whose answer is lost is stored again under a new epoch."""
    partition = broker.topics.get(FOO_NAME).partitions[0]
    partition.take_over()
    assert await send(client, sequenced(1)) == (Code.NOT_ENOUGH_REPLICAS, -1)
    assert await send(client, sequenced(0)) == (Code.NONE, 0)
    assert await send(client, sequenced(1)) == (Code.NONE, 1)
    assert await send(client, sequenced(1)) == (Code.NONE, 1)
    partition._taken_over_at -= TAKEOVER_S
    assert await send(client, sequenced(7, pid=PID + 1)) == (Code.NONE, 2)
