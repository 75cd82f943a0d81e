"""The order in which consumers of a shared subscription take turns.

The best priority comes first, then the longest time without a turn. A consumer that can take
nothing is set aside until `ready`, so that nobody looks at it for each message.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from braidlog.broker.delivery.consumer import Consumer


# Items of a heap without a turn that are kept before all of them are removed together.
OLD_ITEMS_MAX: Final = 100


class ConsumerTurns:
    """Consumers in order, those that pull apart from those that get entries sent."""

    __slots__ = ("_aside", "_by_turn", "_count", "_members", "_of", "_senders", "sender_count")

    def __init__(self) -> None:
        """Start without consumers."""
        self._count = 0
        self._of: dict[Consumer, int] = {}  # The number of each consumer's last turn.
        self._by_turn: dict[int, Consumer] = {}  # The same the other way round.
        # Heaps of (priority, number of the turn). Items with an old number are skipped.
        self._senders: list[tuple[int, int]] = []
        self._members: list[tuple[int, int]] = []
        self._aside: set[Consumer] = set()
        self.sender_count = 0

    def add(self, consumer: Consumer) -> None:
        """Add a consumer, as if its turn had just been."""
        self.sender_count += not consumer.pulls
        self.had(consumer)

    def remove(self, consumer: Consumer) -> None:
        del self._by_turn[self._of.pop(consumer)]
        self._aside.discard(consumer)
        self.sender_count -= not consumer.pulls
        heap = self._heap(pulls=consumer.pulls)
        if len(heap) > 2 * len(self._of) + OLD_ITEMS_MAX:
            heap[:] = [item for item in heap if item[1] in self._by_turn]
            heapify(heap)

    def ready(self, consumer: Consumer) -> None:
        """Note that a consumer may take entries again; without effect if the consumer has left."""
        if consumer in self._aside:
            self._aside.discard(consumer)
            self._push(consumer)

    def had(self, consumer: Consumer) -> None:
        """Note that a consumer had a turn."""
        self._count += 1
        self._by_turn.pop(self._of.get(consumer, 0), None)
        self._of[consumer] = self._count
        self._by_turn[self._count] = consumer
        self._aside.discard(consumer)
        self._push(consumer)

    def turn_of(self, consumer: Consumer) -> int:
        """Return the number of the consumer's last turn."""
        return self._of[consumer]

    def first(self, *, pulls: bool = False) -> Consumer | None:
        """Return the consumer with the next turn: among those that get entries sent, or among those
        that pull.
        """
        heap = self._heap(pulls=pulls)
        of_turn = self._by_turn.get
        without_room: list[tuple[int, int]] = []
        chosen: Consumer | None = None
        while heap:
            consumer = of_turn(heap[0][1])
            if consumer is None:
                heappop(heap)
            elif not consumer.can_take:
                heappop(heap)
                self._aside.add(consumer)
            elif consumer.takes_more():
                chosen = consumer
                break
            else:
                without_room.append(heappop(heap))
        for item in without_room:
            heappush(heap, item)
        return chosen

    @property
    def are_ready(self) -> bool:
        """True if some consumer can have a turn."""
        return self.first() is not None or self.first(pulls=True) is not None

    def _push(self, consumer: Consumer) -> None:
        heap = self._heap(pulls=consumer.pulls)
        heappush(heap, (consumer.priority, self._of[consumer]))

    def _heap(self, *, pulls: bool) -> list[tuple[int, int]]:
        return self._members if pulls else self._senders
