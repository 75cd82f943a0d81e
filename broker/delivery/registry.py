"""The dispatchers that have consumers, by partition and subscription name.

Links each to its cursor, so that commits, seeks and deletions by other listeners reach its
consumers. A non-durable position outlives the close that its own seek caused, for a while. Knows no
protocol.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import trio

from broker.delivery.consumer import Consumer, SubscriptionKind
from broker.delivery.cursor import Cursor, SubscriptionCursor
from broker.delivery.exclusive import ExclusiveDispatcher
from broker.delivery.shared import SharedDispatcher
from broker.subscriptions.subscriptions import CursorEvent

if TYPE_CHECKING:
    from broker.delivery.dispatcher import Dispatcher
    from broker.topics.partition import Partition

KINDS: Final[dict[SubscriptionKind, type[Dispatcher]]] = {
    SubscriptionKind.EXCLUSIVE: ExclusiveDispatcher,
    SubscriptionKind.SHARED: SharedDispatcher,
}

# How long a non-durable position waits for its reader after a seek closed it: clients come back
# within their reconnection backoff, which is far shorter than this at first.
KEPT_S: Final = 60.0

Key = tuple[int, bytes]


@dataclass(slots=True, eq=False)
class CursorLink:
    """Hears of what happens to a dispatcher's cursor."""

    dispatcher: Dispatcher
    index: int

    def moved(self, index: int, event: CursorEvent) -> None:
        """A cursor of the subscription was changed, by whomever."""
        if index != self.index:
            return
        if event is CursorEvent.DELETED:
            self.dispatcher.close_consumers()
        else:
            self.dispatcher.foreign_move(is_seek=event is CursorEvent.SOUGHT)


class Dispatchers:
    """Every dispatcher of one broker."""

    def __init__(self) -> None:
        self._dispatchers: dict[Key, Dispatcher] = {}
        self._links: dict[Key, CursorLink] = {}
        self._kept: dict[Key, float] = {}  # When it is forgotten, in trio's seconds; oldest first.

    def __len__(self) -> int:
        return len(self._dispatchers)

    def find(self, partition: Partition, name: bytes) -> Dispatcher | None:
        """The dispatcher of a subscription on a partition, if consumers are attached or awaited."""
        self._forget()
        return self._dispatchers.get((partition.partition_id, name))

    def make(
        self, partition: Partition, name: bytes, kind: SubscriptionKind, cursor: Cursor
    ) -> Dispatcher:
        """A dispatcher of that kind from now on, in the place of one that has no consumers."""
        key = (partition.partition_id, name)
        if (old := self._dispatchers.get(key)) is not None:
            assert not old.consumers
            self._drop(key)
        dispatcher = KINDS[kind](partition, name, cursor)
        self._dispatchers[key] = dispatcher
        if isinstance(cursor, SubscriptionCursor):
            link = self._links[key] = CursorLink(dispatcher, cursor.index)
            cursor.subscription.listeners.add(link)
        return dispatcher

    def attach(self, dispatcher: Dispatcher, consumer: Consumer) -> None:
        """Attach a consumer. Raises SubscriptionBusy."""
        dispatcher.attach(consumer)
        self._kept.pop(_key(dispatcher), None)

    def detach(self, dispatcher: Dispatcher, consumer: Consumer) -> None:
        """Take a consumer off, and forget a dispatcher that then has none."""
        if consumer.is_attached:
            dispatcher.detach(consumer)
        self.release(dispatcher)

    def release(self, dispatcher: Dispatcher) -> None:
        """Forget a dispatcher that has no consumers and waits for none."""
        key = _key(dispatcher)
        is_idle = not dispatcher.consumers and dispatcher.resetting is None
        if is_idle and key not in self._kept and self._dispatchers.get(key) is dispatcher:
            self._drop(key)

    def keep(self, dispatcher: Dispatcher) -> None:
        """Its consumers were closed by a seek and come back: remember a position in memory."""
        if not dispatcher.cursor.is_durable:
            key = _key(dispatcher)
            self._kept.pop(key, None)
            self._kept[key] = trio.current_time() + KEPT_S

    def _forget(self) -> None:
        now = trio.current_time()
        while self._kept:
            key = next(iter(self._kept))
            if self._kept[key] > now:
                return
            del self._kept[key]
            dispatcher = self._dispatchers.get(key)
            if dispatcher is not None:
                self.release(dispatcher)

    def _drop(self, key: Key) -> None:
        dispatcher = self._dispatchers.pop(key)
        self._kept.pop(key, None)
        link = self._links.pop(key, None)
        if link is not None and isinstance(dispatcher.cursor, SubscriptionCursor):
            dispatcher.cursor.subscription.listeners.discard(link)


def _key(dispatcher: Dispatcher) -> Key:
    return (dispatcher.partition.partition_id, dispatcher.name)
