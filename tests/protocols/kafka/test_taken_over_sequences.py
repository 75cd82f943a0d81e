"""Batches of an idempotent producer that are sent again to the next owner of a partition: each is
stored once, however the owner has lost the partition.
"""

from contextlib import asynccontextmanager

import pytest

from braidlog.broker import errors
from braidlog.broker.limits import TAKEOVER_S
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.sequences import NEXT, judge
from braidlog.storage.errors import StoreUnanswered
from braidlog.storage.formats.api import BodyInfo
from braidlog.storage.formats.kafka.record_batches import PRODUCER_BIT
from tests.broker.cluster.nodes import (
    LEASE_MS,
    SteppedBroker,
    balanced,
    settle,
    topic_of,
    two_brokers,
)
from tests.storage.shared.shared_dirs import SharedStore
from tests.waiting import until

STORED = 7  # More than the five batches with a remembered offset.


def info(number, *, epoch=0):
    """Return a batch of the producer, with two records."""
    return BodyInfo(2, None, None, 0, 5 | PRODUCER_BIT, epoch, 2 * number, 2 * number + 1)


async def store_next(partition, number, *, epoch=0):
    """Store a batch if the sequence is next, as `produce.py` does; return the ticket."""
    table = await partition.sequences()
    sent = info(number, epoch=epoch)
    assert judge(table.find(sent.producer_id), sent) is NEXT
    return partition.append([b"ab"], sent, body_format=1, append_us=1).ticket


async def fill(node, name):
    """Store and publish batches at the owner, without an answer to a client."""
    partition = node.broker.topics.get(name).partitions[0]
    for number in range(STORED):
        ticket = await store_next(partition, number)
    await node.broker.durability.reached(ticket)
    return partition


async def check_next_owner(node, name):
    """Send every batch again in order, then a new batch."""
    partition = node.broker.topics.get(name).partitions[0]
    assert partition.next_offset == 2 * STORED
    known = (await partition.sequences()).find(info(0).producer_id)
    judged = [judge(known, info(number)) for number in range(STORED)]
    assert judged[:2] == [Code.DUPLICATE_SEQUENCE] * 2
    assert [judgement.base_offset for judgement in judged[2:]] == [
        2 * number for number in range(2, STORED)
    ]
    assert judge(known, info(STORED + 1)) is Code.OUT_OF_ORDER_SEQUENCE, "one is missing before"
    await store_next(partition, STORED)


@asynccontextmanager
async def owner_and_other(tmp_path):
    """The owner of a topic and another broker, without steps in the background."""
    store = SharedStore(tmp_path)
    async with (
        SteppedBroker(store, 1).running() as first,
        SteppedBroker(store, 3).running() as second,
    ):
        await balanced(store, first, second)
        name = topic_of(first.held)
        if first.broker.catalogue.is_owned:
            await first.broker.topics.create(name, 1)
        else:
            await second.broker.topics.create(name, 1)
        await settle(first, second)
        await until(lambda: first.broker.topics.find(name))
        yield store, first, second, name


async def test_after_a_drain(tmp_path):
    store = SharedStore(tmp_path)
    async with two_brokers(store) as ((first, second), (name, _)):
        former = await fill(first, name)
        store.ledger.drain(first.number, drains=True)
        await until(lambda: second.broker.placement.is_here(name))
        await check_next_owner(second, name)
        with pytest.raises(errors.NotOwner):
            first.broker.topics.partition(name, 0)
        with pytest.raises(errors.BrokerError):  # The former owner stores nothing more.
            former.append([b"ab"], info(STORED), body_format=1, append_us=1)


async def test_after_a_return_the_owner_knows_the_batches_of_the_other(tmp_path):
    store = SharedStore(tmp_path)
    async with two_brokers(store) as ((first, second), (name, _)):
        await fill(first, name)
        store.ledger.drain(first.number, drains=True)
        await until(lambda: second.broker.placement.is_here(name))
        partition = second.broker.topics.get(name).partitions[0]
        ticket = await store_next(partition, STORED)
        await second.broker.durability.reached(ticket)
        store.ledger.drain(first.number, drains=False)
        store.now_ms += 2 * LEASE_MS
        for node in (first, second):
            node.shared.session._beat()
        await until(lambda: first.broker.placement.is_here(name))
        partition = first.broker.topics.get(name).partitions[0]
        known = (await partition.sequences()).find(info(0).producer_id)
        assert judge(known, info(STORED)).base_offset == 2 * STORED
        await store_next(partition, STORED + 1)


@pytest.mark.slow
async def test_after_a_lost_lease_an_unpublished_batch_can_be_stored_again(tmp_path):
    """The former owner still runs, with an unpublished batch. Such a batch does not count."""
    async with owner_and_other(tmp_path) as (store, first, second, name):
        former = await fill(first, name)
        first.broker.committer.mark = lambda member: None  # No more rounds.
        await store_next(former, STORED)
        store.now_ms += 2 * LEASE_MS
        second.shared.session._beat()
        await settle(second)
        assert second.broker.placement.is_here(name)
        await check_next_owner(second, name)


@pytest.mark.slow
async def test_after_a_kill(tmp_path):
    async with owner_and_other(tmp_path) as (store, first, second, name):
        await fill(first, name)
        first.nursery.cancel_scope.cancel()
        store.now_ms += 2 * LEASE_MS
        second.shared.session._beat()
        await settle(second)
        await check_next_owner(second, name)


async def test_a_store_that_does_not_answer_is_no_proof_that_a_producer_is_unknown(tmp_path):
    """Nothing is judged by half a table: an unknown producer may begin with any sequence."""
    store = SharedStore(tmp_path)
    async with two_brokers(store) as ((first, second), (name, _)):
        await fill(first, name)
        store.ledger.drain(first.number, drains=True)
        await until(lambda: second.broker.placement.is_here(name))
        partition, get = second.broker.topics.get(name).partitions[0], store.objects.get

        def unanswered(*place):
            raise StoreUnanswered("no answer")

        store.objects.get = unanswered
        with pytest.raises(errors.BrokerError):
            await partition.sequences()
        assert partition.known_sequences is None
        store.objects.get = get
        await check_next_owner(second, name)


async def test_a_new_epoch_begins_at_0_and_ends_the_old_one(tmp_path):
    """A batch of a new epoch is always stored, even if the old epoch has stored the same batch. So
    no answer above may lead clients to a new epoch.
    """
    store = SharedStore(tmp_path)
    async with two_brokers(store) as ((first, second), (name, _)):
        await fill(first, name)
        store.ledger.drain(first.number, drains=True)
        await until(lambda: second.broker.placement.is_here(name))
        partition = second.broker.topics.get(name).partitions[0]
        known = (await partition.sequences()).find(info(0).producer_id)
        assert judge(known, info(1, epoch=1)) is Code.OUT_OF_ORDER_SEQUENCE
        await store_next(partition, 0, epoch=1)
        known = (await partition.sequences()).find(info(0).producer_id)
        assert judge(known, info(STORED)) is Code.INVALID_PRODUCER_EPOCH


async def test_first_batches_that_the_former_owner_refused_are_stored_before_later_batches(
    tmp_path,
):
    """The client hears of the new owner while the former owner's refusal of batch 0 is on its way,
    and sends batch 1 to the new owner. The answer to batch 1 is lost later.
    """
    store = SharedStore(tmp_path)
    async with two_brokers(store) as ((first, second), (name, _)):
        former = first.broker.topics.get(name).partitions[0]
        assert not former.is_new_here
        store.ledger.drain(first.number, drains=True)
        await until(lambda: second.broker.placement.is_here(name))
        with pytest.raises(errors.BrokerError):
            former.append([b"ab"], info(0), body_format=1, append_us=1)
        partition = second.broker.topics.get(name).partitions[0]
        table = await partition.sequences()

        def judged(number):
            state = table.find(info(0).producer_id)
            return judge(state, info(number), is_new_owner=partition.is_new_here)

        assert judged(1) is Code.NOT_ENOUGH_REPLICAS
        for number in (0, 1):
            await store_next(partition, number)
        assert judged(1).base_offset == 2
        partition._taken_over_at -= TAKEOVER_S
        assert not partition.is_new_here
