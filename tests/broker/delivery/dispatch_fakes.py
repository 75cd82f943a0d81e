"""Consumers of no protocol, and a house with one dispatcher for tests to play in."""

from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import trio
from trio.testing import wait_all_tasks_blocked

from broker.delivery.consumer import Consumer
from broker.delivery.cursor import MemoryCursor
from broker.delivery.entries import EntryId
from tests.broker.delivery.entry_fakes import FakePartition


@dataclass(slots=True, eq=False, kw_only=True)
class FakeConsumer(Consumer):
    """Keeps what it is sent."""

    inbox: list = field(default_factory=list)
    was_let_go: bool = False
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)

    def let_go(self):
        self.was_let_go = True
        self.scope.cancel()

    async def is_alive(self):
        return True

    @property
    def offsets(self):
        return [delivery.offset for delivery in self.inbox]


class Stage:
    """One partition, one dispatcher, consumers with a task each."""

    def __init__(self, nursery, kind, cursor=None, partition=None):
        self.partition = partition or FakePartition()
        self.cursor = cursor or MemoryCursor(0)
        self.dispatcher = kind(self.partition, b"s", self.cursor)
        self._nursery = nursery

    def join(self, permits=0, name="c"):
        """A new consumer."""
        consumer = FakeConsumer(name)
        self.dispatcher.attach(consumer)
        self._nursery.start_soon(self._pull, consumer)
        self.dispatcher.flow(consumer, permits)
        return consumer

    async def join_settled(self, permits):
        """A new consumer that has its place in the turns before anything else happens."""
        consumer = self.join(permits)
        await self.settled()
        return consumer

    def leave(self, consumer):
        self.dispatcher.detach(consumer)
        consumer.scope.cancel()

    async def _pull(self, consumer):
        with consumer.scope:
            while True:
                consumer.inbox += await self.dispatcher.pull(consumer)
                await trio.lowlevel.checkpoint()

    async def settled(self):
        """Everybody has what they can have."""
        await wait_all_tasks_blocked()

    def id(self, offset, *ack_set):
        return EntryId(self.partition.partition_id, offset, ack_set)

    async def ack(self, consumer, *offsets):
        """As a listener hands over a group of acknowledgements."""
        return await self.dispatcher.acknowledge(consumer, [], lazy=True, entries=offsets)

    async def ack_by_ids(self, consumer, *offsets):
        """The same one by one."""
        ids = [self.id(offset) for offset in offsets]
        return await self.dispatcher.acknowledge(consumer, ids, lazy=True)

    def nack(self, consumer, *offsets):
        self.dispatcher.redeliver(consumer, [self.id(offset) for offset in offsets])


@asynccontextmanager
async def stage(kind, **settings):
    async with trio.open_nursery() as nursery:
        yield Stage(nursery, kind, **settings)
        nursery.cancel_scope.cancel()
