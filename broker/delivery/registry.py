"""The dispatchers with consumers, by partition and subscription name, and their pumps.

Links each dispatcher to a cursor, so that commits, seeks and deletions by other listeners reach the
consumers. A non-durable position survives the close after a seek, for a while. Knows no protocol.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import structlog
import trio

from braidlog.broker.closing import Closing
from braidlog.broker.delivery.consumer import Consumer, SubscriptionKind
from braidlog.broker.delivery.cursor import DispatchCursor
from braidlog.broker.delivery.dispatch_context import DispatchContext, DispatchSource, wall_clock_us
from braidlog.broker.delivery.dispatch_rates import PartitionRates
from braidlog.broker.delivery.exclusive import ExclusiveDispatcher
from braidlog.broker.delivery.failover import FailoverDispatcher
from braidlog.broker.delivery.key_shared import KeySharedDispatcher
from braidlog.broker.delivery.key_slots import KeyRanges, KeyRing
from braidlog.broker.delivery.read_ahead import IDLE_S, ReadAheadBudget
from braidlog.broker.delivery.share_queue import QueueDispatcher
from braidlog.broker.errors import BrokerError, NotOwner, SubscriptionBusy
from braidlog.broker.positions.members import SubscriptionMember
from braidlog.broker.runtime.output_budget import OutputBudget
from braidlog.broker.topics.topic import Topic, TopicEvent

if TYPE_CHECKING:
    from braidlog.broker.delivery.dead_letters import DeadLetterCopier
    from braidlog.broker.delivery.dispatcher import Dispatcher
    from braidlog.broker.delivery.locking import LockingDispatcher
    from braidlog.broker.topics.partition import Partition

log = structlog.get_logger()

# Time that a non-durable position waits for the reader after a seek closed the reader: clients
# return within their reconnection backoff, which is far shorter at first.
KEPT_S: Final = 60.0

# Events that remove partitions, and their consumers too. After some of them the partition returns
# at once, as another object.
GOING: Final = (TopicEvent.DELETED, TopicEvent.SHRUNK, TopicEvent.RENAMED, TopicEvent.MOVED)
RETURNING: Final = (TopicEvent.RENAMED, TopicEvent.MOVED)

Key = tuple[int, bytes]
IndexT = TypeVar("IndexT", int, bytes)


@dataclass(slots=True, frozen=True)
class KeySharing:
    """The key sharing of a Key_Shared subscription, the same for all its consumers."""

    is_sticky: bool = False  # By the ranges that each consumer asks for.
    in_order: bool = True  # A key moves only when its last consumer holds no entry of the key.


class Dispatchers:
    """Every dispatcher of a broker."""

    def __init__(
        self,
        *,
        now_us: Callable[[], int] = wall_clock_us,
        output: OutputBudget | None = None,
        closing: Closing | None = None,
    ) -> None:
        """Take `output`, the budget for read-ahead, and `closing`, which ends the consumers of
        deleted partitions.
        """
        self._dead_letters: DeadLetterCopier | None = None
        self._now_us = now_us
        self.closing = closing or Closing()
        self._ending: set[Dispatcher] = set()  # Dispatchers of removed partitions.
        self._budget = ReadAheadBudget(output=output)
        self._rates = PartitionRates(trio.current_time)
        self._nursery: trio.Nursery | None = None  # Nursery of the pumps; None: no pump runs yet.
        self._pumps: dict[Dispatcher, trio.CancelScope] = {}
        self._dispatchers: dict[Key, Dispatcher] = {}
        self._named: dict[bytes, dict[Key, Dispatcher]] = {}
        self._on: dict[int, dict[Key, Dispatcher]] = {}  # By partition.
        self._removed_at: dict[Key, float] = {}  # Time of removal, in trio's seconds; oldest first.

    def __len__(self) -> int:
        return len(self._dispatchers)

    def topic_changed(self, topic: Topic, event: TopicEvent) -> None:
        """Disconnect the consumers of removed partitions soon: no consumer can join from now on,
        and nothing more is read. Consumers of a terminated topic get the end of the topic.
        """
        if event is TopicEvent.TERMINATED:
            numbers = {partition.partition_id for partition in topic.partitions}
            for dispatcher in self._dispatchers.values():
                if dispatcher.partition.partition_id in numbers:
                    dispatcher.wake()
        elif event is TopicEvent.ALTERED:
            for partition in topic.partitions:
                for dispatcher in self._on.get(partition.partition_id, {}).values():
                    dispatcher.wake()
        elif event in GOING:
            gone = [
                dispatcher
                for dispatcher in self._of(topic, event)
                if dispatcher.partition.removed and dispatcher not in self._ending
            ]
            if event in RETURNING:
                for dispatcher in gone:
                    self._drop(_key(dispatcher))
            self._ending.update(gone)
            self.closing.add(self._end(deque(gone)))

    def _of(self, topic: Topic, event: TopicEvent) -> Iterable[Dispatcher]:
        """Return the dispatchers of partitions that may be removed. After a rename only those of
        the topic: a namespace may be renamed with thousands of topics at once.
        """
        if event is not TopicEvent.RENAMED:
            return self._dispatchers.values()
        numbers = (partition.partition_id for partition in topic.partitions)
        return [
            dispatcher for number in numbers for dispatcher in self._on.get(number, {}).values()
        ]

    def _end(self, gone: deque[Dispatcher]) -> Iterator[None]:
        """Detach the consumers, a dispatcher at a time, and disconnect them, one a step. Each
        dispatcher is released once done: otherwise all would be freed in a turn.
        """
        while gone:
            dispatcher = gone.popleft()
            self._ending.discard(dispatcher)
            consumers = _let_off(dispatcher)
            if self._dispatchers.get(_key(dispatcher)) is dispatcher:
                self._drop(_key(dispatcher))
            yield
            for consumer in consumers:
                consumer.disconnect()
                yield

    def find(self, partition: Partition, name: bytes) -> Dispatcher | None:
        """Return the dispatcher of a subscription on a partition, if consumers are attached or
        awaited.
        """
        self._forget()
        return self._dispatchers.get((partition.partition_id, name))

    def on(self, partition: Partition) -> list[Dispatcher]:
        """Return the dispatchers of a partition, also those of readers without stored positions."""
        self._forget()
        return list(self._on.get(partition.partition_id, {}).values())

    def members(self, topic: Topic, name: bytes) -> list[SubscriptionMember]:
        """Return the consumers of a subscription of the topic, each with its partitions."""
        self._forget()
        by_client: dict[tuple[str, str], tuple[Consumer, list[int]]] = {}
        named = self._named.get(name)
        # Very many topics may have a subscription of that name.
        for partition in topic.partitions if named else ():
            dispatcher = self._dispatchers.get((partition.partition_id, name))
            if dispatcher is not None and dispatcher.cursor.is_durable:
                for consumer in dispatcher.consumers:
                    _, partitions = by_client.setdefault(
                        (consumer.protocol, consumer.identity), (consumer, [])
                    )
                    partitions.append(partition.index)
        return [
            SubscriptionMember(
                consumer.protocol,
                consumer.name,
                consumer.address,
                sorted(partitions),
                is_delivered_to=True,
            )
            for consumer, partitions in by_client.values()
        ]

    async def run(self) -> None:
        """Run every dispatcher's pump, and drop unused read-ahead, until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            for dispatcher, scope in self._pumps.items():
                nursery.start_soon(self._pump, dispatcher, scope)
            while True:
                await trio.sleep(IDLE_S)
                self._budget.sweep(trio.current_time())

    async def _pump(self, dispatcher: Dispatcher, scope: trio.CancelScope) -> None:
        with scope:
            await self._run(dispatcher, dispatcher.run)

    async def _run(self, dispatcher: Dispatcher, work: Callable[[], Awaitable[None]]) -> None:
        """Run a part of a delivery. A bug ends only the dispatcher's consumers."""
        try:
            await work()
        except NotOwner:  # The broker gave up the shard: clients look it up again.
            for consumer in _let_off(dispatcher):
                consumer.disconnect()
        except Exception:  # A bug ends only this delivery and its consumers.
            log.exception("delivery_failed", partition=dispatcher.partition.partition_id)
            dispatcher.close_consumers()
            if self._dispatchers.get(_key(dispatcher)) is dispatcher:
                self._drop(_key(dispatcher))

    def make(
        self,
        partition: Partition,
        name: bytes,
        kind: SubscriptionKind,
        cursor: DispatchCursor,
        *,
        keys: KeySharing | None = None,
    ) -> Dispatcher:
        """Make a dispatcher of that kind, which replaces a dispatcher without consumers; `keys` is
        for Key_Shared alone.
        """
        key = (partition.partition_id, name)
        if (old := self._dispatchers.get(key)) is not None:
            assert not old.consumers
            self._drop(key)
        dispatcher = self._new_dispatcher(partition, name, kind, cursor, keys or KeySharing())
        self._dispatchers[key] = dispatcher
        self._named.setdefault(name, {})[key] = dispatcher
        self._on.setdefault(partition.partition_id, {})[key] = dispatcher
        scope = self._pumps[dispatcher] = trio.CancelScope()
        if self._nursery is not None:
            self._nursery.start_soon(self._pump, dispatcher, scope)
        cursor.follow(dispatcher.cursor_moved)
        return dispatcher

    def _new_dispatcher(
        self,
        partition: Partition,
        name: bytes,
        kind: SubscriptionKind,
        cursor: DispatchCursor,
        keys: KeySharing,
    ) -> Dispatcher:
        shared = DispatchContext(
            self._budget, self._now_us, self.release, self.keep, self._bury, rates=self._rates
        )
        source = DispatchSource(partition, name, cursor, shared)
        match kind:
            case SubscriptionKind.EXCLUSIVE:
                return ExclusiveDispatcher(source)
            case SubscriptionKind.FAILOVER:
                return FailoverDispatcher(source)
            case SubscriptionKind.SHARED:
                return QueueDispatcher(source)
            case SubscriptionKind.KEY_SHARED:
                policy = KeyRanges() if keys.is_sticky else KeyRing()
                return KeySharedDispatcher(source, policy=policy, in_order=keys.in_order)

    def copy_dead_letters(self, copier: DeadLetterCopier) -> None:
        """Copy the records that queues give up by `copier`."""
        self._dead_letters = copier

    def _bury(self, dispatcher: LockingDispatcher) -> None:
        """Copy the records that a queue gives up."""
        if self._nursery is not None and self._dead_letters is not None:
            copying = partial(self._dead_letters.bury, dispatcher)
            self._nursery.start_soon(self._run, dispatcher, copying)

    def check_count(self, topic: Topic, partition: Partition) -> None:
        """Raise SubscriptionBusy if the topic's settings allow no more consumers."""
        most = topic.client_limits.consumers
        present = self.on(partition) if most is not None else ()
        if most is not None and sum(len(other.consumers) for other in present) >= most:
            raise SubscriptionBusy("Topic reached max consumers limit")  # Apache's words.

    def attach(self, dispatcher: Dispatcher, consumer: Consumer) -> None:
        """Attach a consumer.

        Raises SubscriptionBusy, InvalidRequest, and TopicNotFound, NotOwner if the partition is
        removed.
        """
        try:
            dispatcher.partition.check_here()
            self.check_count(dispatcher.cursor.subscription.topic, dispatcher.partition)
        except BrokerError:
            self.release(dispatcher)
            raise
        dispatcher.attach(consumer)
        self._removed_at.pop(_key(dispatcher), None)

    def release(self, dispatcher: Dispatcher) -> None:
        """Remove a dispatcher that has no consumers and waits for none."""
        key = _key(dispatcher)
        is_idle = not dispatcher.consumers and dispatcher.resetting is None
        if is_idle and key not in self._removed_at and self._dispatchers.get(key) is dispatcher:
            self._drop(key)

    def close(self) -> None:
        """End all deliveries, at a stop; each stores its counts."""
        for key in list(self._dispatchers):
            self._drop(key)

    def keep(self, dispatcher: Dispatcher) -> None:
        """Remember a position in memory: a seek closed the consumers, which will return."""
        if not dispatcher.cursor.is_durable:
            key = _key(dispatcher)
            self._removed_at.pop(key, None)
            self._removed_at[key] = trio.current_time() + KEPT_S

    def _forget(self) -> None:
        now = trio.current_time()
        while self._removed_at:
            key = next(iter(self._removed_at))
            if self._removed_at[key] > now:
                return
            del self._removed_at[key]
            dispatcher = self._dispatchers.get(key)
            if dispatcher is not None:
                self.release(dispatcher)

    def _drop(self, key: Key) -> None:
        dispatcher = self._dispatchers.pop(key, None)
        if dispatcher is None:
            return
        _take_out(self._named, dispatcher.name, key)
        _take_out(self._on, dispatcher.partition.partition_id, key)
        if dispatcher.partition.partition_id not in self._on:
            self._rates.forget(dispatcher.partition.partition_id)
        self._pumps.pop(dispatcher).cancel()
        dispatcher.close()
        self._removed_at.pop(key, None)
        dispatcher.cursor.unfollow()


def _take_out(indexed: dict[IndexT, dict[Key, Dispatcher]], under: IndexT, key: Key) -> None:
    dispatchers = indexed[under]
    del dispatchers[key]
    if not dispatchers:
        del indexed[under]


def _let_off(dispatcher: Dispatcher) -> Sequence[Consumer]:
    """Detach every consumer of a dispatcher that delivers no more. Their entries go to no other
    consumer, so no new owner is computed.
    """
    consumers = dispatcher.take_consumers()
    for consumer in consumers:
        consumer.is_attached = False
        consumer.pending.clear()
    return consumers


def _key(dispatcher: Dispatcher) -> Key:
    return (dispatcher.partition.partition_id, dispatcher.name)
