"""Delivery counts of queues' records, in the cursors' journal (FORMAT.md, section 9.2).

A queue is a subscription's partition that members of a share group read. The counts are those of
the last time that the queue had no consumers. A seek makes them 0, and the end of the cursor
removes them. Knows no consumer and no log.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar, Final

import msgspec

from braidlog.storage.metadata.cursors import (
    CursorChange,
    CursorGone,
    Moved,
    TopicDropped,
    TopicResized,
    Unsubscribed,
)

RECORD_RUNS: Final = 1 << 14  # Of a record; a run takes at most 21 bytes.

Run = tuple[int, int, int]
"""Records `[start, end)` that were each given out `count` times."""
QueueKey = tuple[int, bytes, int]
"""A topic's id, a subscription's name and a partition."""


class DeliveriesCounted(
    msgspec.Struct, array_like=True, forbid_unknown_fields=True, tag=8, gc=False
):
    """The queue has these counts, in addition to the earlier counts unless `cleared`."""

    # Of a record with this change: earlier programs do not know the change.
    LAYOUT: ClassVar[int] = 5
    topic_id: int
    name: bytes
    index: int
    cleared: bool
    runs: list[Run]


class StoredCounts:
    """The counts of all queues. A queue without counted records has an empty list."""

    def __init__(self) -> None:
        # By topic: a change of a topic's cursors looks at the queues of that topic only.
        self._topics: dict[int, dict[tuple[bytes, int], list[Run]]] = {}

    def get(self, key: QueueKey) -> Sequence[Run] | None:
        """Return the counts of a queue; None if no member of a share group has read there."""
        topic_id, name, index = key
        return self._topics.get(topic_id, {}).get((name, index))

    def apply(self, change: DeliveriesCounted) -> None:
        queues, queue = self._topics.setdefault(change.topic_id, {}), (change.name, change.index)
        if change.cleared:
            queues[queue] = list(change.runs)
        else:
            queues.setdefault(queue, []).extend(change.runs)

    def follow(self, change: CursorChange) -> None:
        """Forget the counts that a change of cursors ends."""
        queues = self._topics.get(change.topic_id)
        if queues is None:
            return
        match change:
            case Moved(name=name, index=index, cleared=True):
                if (name, index) in queues:
                    queues[name, index] = []
            case CursorGone(name=name, index=index):
                queues.pop((name, index), None)
            case Unsubscribed(name=ended):
                _forget(queues, lambda name, _: name == ended)
            case TopicDropped():
                queues.clear()
            case TopicResized(partitions=partitions):
                _forget(queues, lambda _, index: index >= partitions)
        if not queues:
            del self._topics[change.topic_id]

    def state(self) -> Iterator[list[DeliveriesCounted]]:
        """Yield the records of a snapshot."""
        for topic_id, queues in self._topics.items():
            for (name, index), runs in queues.items():
                for change in counted((topic_id, name, index), runs):
                    yield [change]


def _forget(queues: dict[tuple[bytes, int], list[Run]], ends: Callable[[bytes, int], bool]) -> None:
    for queue in [queue for queue in queues if ends(*queue)]:
        del queues[queue]


def counted(key: QueueKey, runs: Sequence[Run]) -> Iterator[DeliveriesCounted]:
    """Yield the changes that replace a queue's counts by these, each of bounded size."""
    for start in range(0, max(len(runs), 1), RECORD_RUNS):
        piece = list(runs[start : start + RECORD_RUNS])
        yield DeliveriesCounted(*key, start == 0, piece)
