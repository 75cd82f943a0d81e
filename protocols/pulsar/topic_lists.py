"""Which topics a namespace has, for clients that watch it: its names in order, and the latest
changes. Knows no client and no command.

Only namespaces that somebody watches are kept here.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, insort
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

import trio
from crc32c import crc32c

from braidlog.broker.runtime.turns import in_turns
from braidlog.protocols.pulsar.limits import CHANGES_KEPT_MAX
from braidlog.protocols.pulsar.names import full_names, is_system
from braidlog.storage.metadata.names import split_partition

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from braidlog.broker.topics.registry import TopicRegistry
    from braidlog.broker.topics.topic import Topic

_LITTLE: Final = struct.Struct("<I")
_TOPICS_TOGETHER: Final = 2000  # Listed in a turn: some milliseconds.
_FEW: Final = 16  # Names inserted or removed individually: each moves all later names.

Namespace = tuple[str, str]
Change = tuple[str, bool]  # A name, and True if it was added, False if it was removed.


class TopicChange(NamedTuple):
    """The change of a topic, in short form: it may have ten thousand partitions."""

    full: str
    was_unpartitioned: bool
    partitions_before: int
    is_unpartitioned: bool
    partitions_now: int

    @property
    def removed(self) -> list[str]:
        """Names that no longer exist."""
        return self._names(
            self.partitions_now,
            self.partitions_before,
            whole=self.was_unpartitioned and not self.is_unpartitioned,
        )

    @property
    def added(self) -> list[str]:
        """Names that did not exist before."""
        return self._names(
            self.partitions_before,
            self.partitions_now,
            whole=self.is_unpartitioned and not self.was_unpartitioned,
        )

    def _names(self, first: int, end: int, *, whole: bool) -> list[str]:
        names = [f"{self.full}-partition-{index}" for index in range(first, end)]
        return [self.full, *names] if whole else names


class TopicList:
    """The names of a namespace's persistent topics, each partition separately."""

    def __init__(self, changes_kept: int = CHANGES_KEPT_MAX) -> None:
        self.names: list[str] = []  # In order.
        self.is_filled = False
        self.watchers = 0
        self.next_change = 0  # The number that the next change will have.
        self.changed = trio.lowlevel.ParkingLot()
        self.digests: dict[str, str] = {}  # Pattern -> digest of the names that match now.
        self._steps: deque[TopicChange] = deque(maxlen=changes_kept)
        self._early: list[Topic] = []  # Topics that change while the list is being filled.

    def changes_since(self, number: int, names_max: int) -> tuple[list[Change], int] | None:
        """Return the changes from that number on, and the number of the change after them. Stops at
        the first topic that reaches `names_max` names. Returns None if the first change is
        forgotten.
        """
        behind = self.next_change - number
        if behind > len(self._steps):
            return None
        changes: list[Change] = []
        for step in islice(self._steps, len(self._steps) - behind, None):
            if len(changes) >= names_max:
                break
            changes += [(name, False) for name in step.removed]
            changes += [(name, True) for name in step.added]
            number += 1
        return changes, number

    async def fill(self, topics: Sequence[Topic]) -> None:
        """Fill the list in pieces; topics may change meanwhile."""
        self._early.clear()
        names: list[str] = []
        async for topic in in_turns(topics, _TOPICS_TOGETHER):
            names += _names_of(topic)
        names.sort()
        self.names = names
        self.is_filled = True
        for topic in self._early:
            self.follow(topic)
        self._early.clear()

    def follow(self, topic: Topic) -> None:
        """Follow a topic of the namespace that was created, deleted, grown or shrunk."""
        if not self.is_filled:
            self._early.append(topic)
            return
        (full,) = full_names(1, topic.name, partitioned=False)
        was_unpartitioned, before = self._state_of(full)
        is_unpartitioned = not topic.deleted and not topic.partitioned
        now = 0 if topic.deleted or is_unpartitioned else len(topic.partitions)
        step = TopicChange(full, was_unpartitioned, before, is_unpartitioned, now)
        removed, added = step.removed, step.added
        if removed or added:
            self._steps.append(step)
            self._change(removed, added)

    def _change(self, removed: Sequence[str], added: Sequence[str]) -> None:
        if len(removed) + len(added) <= _FEW:
            for name in removed:
                del self.names[bisect_left(self.names, name)]
            for name in added:
                insort(self.names, name)
        else:
            left_out = set(removed)
            self.names = [name for name in self.names if name not in left_out]
            self.names += added
            self.names.sort()  # Most are in order already.
        self.next_change += 1
        self.digests.clear()
        self.changed.unpark_all()

    def _state_of(self, full: str) -> tuple[bool, int]:
        """Return True if the list has a topic of that name without partitions, and how many
        partitions of that name it has: a topic of the other kind may have replaced the topic.
        """
        place = bisect_left(self.names, full)
        prefix = f"{full}-partition-"
        first = bisect_left(self.names, prefix)
        end = bisect_left(self.names, f"{prefix[:-1]}.", first)  # "." comes right after "-".
        count = sum(split_partition(name) is not None for name in self.names[first:end])
        return full in self.names[place : place + 1], count


class TopicLists:
    """The namespaces that are watched."""

    def __init__(self, topics: TopicRegistry, changes_kept: int) -> None:
        self._topics, self._changes_kept = topics, changes_kept
        self._lists: dict[Namespace, TopicList] = {}
        self.watchers = 0  # Of all clients.
        self.turn = trio.Lock()  # Names are matched for a single watcher at a time.

    def open(self, namespace: Namespace) -> TopicList:
        """Return the list of a namespace for another watcher, which calls `close` at its end."""
        topic_list = self._lists.get(namespace)
        if topic_list is None:
            topic_list = self._lists[namespace] = TopicList(self._changes_kept)
        topic_list.watchers += 1
        self.watchers += 1
        return topic_list

    def close(self, namespace: Namespace) -> None:
        """Note that a watcher of the namespace has removed."""
        topic_list = self._lists[namespace]
        topic_list.watchers -= 1
        self.watchers -= 1
        if not topic_list.watchers:
            del self._lists[namespace]

    async def fill(self, namespace: Namespace, topic_list: TopicList) -> None:
        """Fill a list if that is not done yet; the caller holds `turn`."""
        if not topic_list.is_filled:
            await topic_list.fill(
                [topic for topic in self._topics.list(*namespace) if not is_system(topic.name)]
            )

    def topic_changed(self, topic: Topic) -> None:
        """A topic came, went, grew or shrank."""
        topic_list = self._lists.get((topic.name.tenant, topic.name.namespace))
        if topic_list is None or not topic.is_persistent:
            return
        if not is_system(topic.name):
            topic_list.follow(topic)


def _names_of(topic: Topic) -> list[str]:
    if topic.deleted:
        return []
    return full_names(len(topic.partitions), topic.name, partitioned=topic.partitioned)


def topics_hash(names: Iterable[str]) -> str:
    """Apache's TopicList.calculateHash: CRC-32C of the sorted names, little-endian, in hex."""
    return _LITTLE.pack(crc32c(",".join(sorted(names)).encode())).hex()
