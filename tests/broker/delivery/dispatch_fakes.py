"""Consumers of no protocol, and a stage with a dispatcher for tests."""

from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from braidlog.broker.delivery.consumer import Consumer
from braidlog.broker.delivery.cursor import reader_cursor
from braidlog.broker.delivery.dispatch_context import DispatchContext, DispatchSource
from braidlog.broker.delivery.limits import DeliveryLimits
from braidlog.broker.delivery.read_ahead import ReadAheadBudget
from braidlog.broker.reading.entries import EntryId
from braidlog.broker.topics.client_limits import ClientLimits
from tests.broker.delivery.entry_fakes import FakePartition
from tests.fake_clock import FakeClock


@dataclass(slots=True, eq=False, kw_only=True)
class FakeConsumer(Consumer):
    """Stores received entries."""

    inbox: list = field(default_factory=list)
    sends: int = 0
    was_disconnected: bool = False
    is_full: bool = False  # The connection takes no more entries.
    # The dispatcher asked for room while the connection was full: the consumer owes a call.
    was_asked: bool = False
    changes: list = field(default_factory=list)  # Received changes of the active consumer.

    def send(self, entries, size):
        assert size == sum(len(entry.body) for entry in entries)
        self.inbox += entries
        self.sends += 1

    def takes_more(self):
        self.was_asked |= self.is_full
        return not self.is_full

    def active_changed(self, *, is_active):
        self.changes.append(is_active)

    def disconnect(self):
        self.was_disconnected = True

    async def is_alive(self):
        return True

    @property
    def offsets(self):
        return [delivery.offset for delivery in self.inbox]


class FakeTopic:
    """The part of a topic that a subscription asks."""

    deleted = False
    name = "public/default/t"
    meta = SimpleNamespace(topic_id=1)
    partitions = (None,) * 8
    client_limits = ClientLimits()

    def partition(self, index):
        return None


def memory_cursor(position=0):
    """Return a cursor of a reader on partition 0."""
    return reader_cursor(FakeTopic(), b"s", 0, position)


class Stage:
    """A partition, a dispatcher with its pump, and consumers."""

    def __init__(self, nursery, kind, cursor=None, partition=None, limits=None, **settings):
        self.partition = partition or FakePartition()
        self.cursor = cursor or memory_cursor()
        self.clock = FakeClock(1_000_000_000)
        self.budget = ReadAheadBudget()
        context = DispatchContext(self.budget, self.clock, limits=limits or DeliveryLimits())
        source = DispatchSource(self.partition, b"s", self.cursor, context)
        self.dispatcher = kind(source, **settings)
        nursery.start_soon(self.dispatcher.run)

    def join(self, permits=0, name="c", **settings):
        """Attach a new consumer."""
        consumer = FakeConsumer(name, **settings)
        self.dispatcher.attach(consumer)
        self.dispatcher.flow(consumer, permits)
        return consumer

    async def join_settled(self, permits):
        """Attach a new consumer, and wait until it has a place in the turns."""
        consumer = self.join(permits)
        await self.settled()
        return consumer

    def leave(self, consumer):
        self.dispatcher.detach(consumer)

    async def settled(self):
        """Wait until all consumers have received all possible entries."""
        await wait_all_tasks_blocked()

    async def passed(self, seconds):
        """Let time pass on trio's clock.

        The test function itself must take `autojump_clock`: pytest-trio ignores the arguments of
        other fixtures.
        """
        assert isinstance(trio.lowlevel.current_clock(), MockClock)
        await trio.sleep(seconds)

    def limit(self, **limits):
        """Set the limits of the topic's clients."""
        self.cursor.subscription.topic.client_limits = ClientLimits(**limits)
        self.dispatcher.wake()

    def id(self, offset, *ack_set):
        return EntryId(self.partition.partition_id, offset, ack_set)

    async def ack(self, consumer, *offsets):
        """Acknowledge a group of entries as a listener does."""
        return await self.dispatcher.acknowledge(consumer, [], lazy=True, entries=offsets)

    async def ack_by_ids(self, consumer, *offsets):
        """Acknowledge the entries individually."""
        ids = [self.id(offset) for offset in offsets]
        return await self.dispatcher.acknowledge(consumer, ids, lazy=True)

    def nack(self, consumer, *offsets):
        self.dispatcher.redeliver(consumer, [self.id(offset) for offset in offsets])


@asynccontextmanager
async def stage(kind, **settings):
    async with trio.open_nursery() as nursery:
        yield Stage(nursery, kind, **settings)
        nursery.cancel_scope.cancel()
