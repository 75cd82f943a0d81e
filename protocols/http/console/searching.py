"""A search in the messages of a topic, by publish time over its partitions, with a budget.

Reads by the HTTP API without a subscription, so no position moves. Knows no page.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

from braidlog.protocols.http.console.expression import Condition, parse_expression
from braidlog.protocols.http.console.inside import InnerApi
from braidlog.protocols.http.console.shown_messages import (
    MessagesRead,
    ReadMessage,
    fields_of,
    offset_of,
    search_text,
    time_us,
)

# Messages that a page looks at, and bytes of their keys and values: some 50 ms of processor time.
SEARCHED_MESSAGES_MAX = 2000
SEARCHED_BYTES_MAX = 1024 * 1024
READ_MESSAGES, READ_BYTES = 250, 256 * 1024  # Of a single call of the API.
PARTITIONS_SEARCHED_MAX = 64  # Together; a read costs half a millisecond.


@dataclass(slots=True)
class PartitionSearch:
    """A search in a partition: `start` and `end` are the kept offsets at the search's start, and
    `position` is the offset of the next message to look at.
    """

    partition: int
    start: int
    end: int
    position: int
    messages: deque[ReadMessage] = field(default_factory=deque)  # Read, not looked at yet.
    read_to: int = 0  # The offset at which the next read begins.

    def __post_init__(self) -> None:
        self.read_to = self.position

    @property
    def is_done(self) -> bool:
        """True if every message was looked at."""
        return not self.messages and self.read_to >= self.end


class Search:
    """Looks at messages of partitions in the order of their publish times."""

    def __init__(
        self,
        api: InnerApi,
        topic: str,
        partitions: Sequence[PartitionSearch],
        wanted: Callable[[ReadMessage], bool],
        *,
        is_exact: bool,
        bytes_max: int = SEARCHED_BYTES_MAX,
    ) -> None:
        self._api = api
        self._topic = topic
        self._partitions = partitions
        self._wanted = wanted
        self._is_exact = is_exact
        self._left_bytes = bytes_max
        # The time and number of each partition whose next message is read; None before the start.
        self._next_times: list[tuple[int, int]] | None = None
        self.count = 0  # Messages looked at.

    @property
    def is_done(self) -> bool:
        """True if every message was looked at."""
        return all(partition.is_done for partition in self._partitions)

    @property
    def positions(self) -> list[int]:
        """The offset of each partition at which a later search goes on."""
        return [partition.position for partition in self._partitions]

    @property
    def share(self) -> float:
        """The share of the kept messages before the positions, 0 to 1."""
        whole = sum(partition.end - partition.start for partition in self._partitions)
        done = sum(partition.position - partition.start for partition in self._partitions)
        return done / whole if whole else 1.0

    async def matches(self, most: int, messages_max: int) -> AsyncIterator[ReadMessage]:
        """Yield at most `most` wanted messages, until the end or the budget. Raises ApiError."""
        while most and self.count < messages_max and self._left_bytes > 0:
            message = await self._next(most)
            if message is None:
                return
            self.count += 1
            if self._wanted(message):
                most -= 1
                yield message

    async def _next(self, most: int) -> ReadMessage | None:
        """Return the earliest message that was not looked at; None at the end."""
        if self._next_times is None:
            self._next_times = []
            for number in range(len(self._partitions)):
                await self._offer(number, most)
        if not self._next_times:
            return None
        _, number = heapq.heappop(self._next_times)
        partition = self._partitions[number]
        message = partition.messages.popleft()
        partition.position = offset_of(message) + 1
        await self._offer(number, most)
        return message

    async def _offer(self, number: int, most: int) -> None:
        """Let a partition take part with its next message, if any is left."""
        partition = self._partitions[number]
        if not partition.messages and self._left_bytes > 0:
            await self._read(partition, most)
        if partition.messages:
            assert self._next_times is not None
            heapq.heappush(self._next_times, (time_us(partition.messages[0]), number))

    async def _read(self, partition: PartitionSearch, most: int) -> None:
        count = min(READ_MESSAGES, most + 1 if self._wanted is everything else READ_MESSAGES)
        while not partition.messages and partition.read_to < partition.end:
            answer = await self._api.get(
                f"/topics/{self._topic}/partitions/{partition.partition}/messages",
                MessagesRead,
                position=partition.read_to,
                timeout=0,
                max_messages=count,
                max_bytes=READ_BYTES // len(self._partitions),
                exact="true" if self._is_exact else None,
                include_format="true",
            )
            partition.messages.extend(
                message for message in answer.messages if offset_of(message) < partition.end
            )
            self._left_bytes -= sum(map(_size, answer.messages))
            if answer.next_offset <= partition.read_to:
                partition.end = partition.read_to  # Retention removed the rest, or nothing is left.
            partition.read_to = max(answer.next_offset, partition.read_to)
            if not partition.messages:
                partition.position = partition.read_to


def everything(_: ReadMessage) -> bool:
    """Return True: every message is wanted."""
    return True


def make_filter(text: str, expression: str) -> Callable[[ReadMessage], bool]:
    """Return a function that is true for messages with the text that satisfy the expression;
    empty ones are no condition. Raises BadExpression.
    """
    if not text and not expression:
        return everything
    condition: Condition | None = parse_expression(expression) if expression else None
    text = text.lower()

    def wanted(message: ReadMessage) -> bool:
        if text and text not in search_text(message):
            return False
        return condition is None or bool(condition(fields_of(message)))

    return wanted


def _size(message: ReadMessage) -> int:
    """Return about the size of a message; decoded values count as small."""
    value, key = message.value, message.key
    size = len(value) if isinstance(value, str) else 200
    return size + (len(key) if isinstance(key, str) else 0) + 100
