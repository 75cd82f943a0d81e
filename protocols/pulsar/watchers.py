"""The topic list watchers of a connection: names sent, changes to send. Knows no command.

A client receives changes in the order in which they happened, as soon as its socket has room.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import trio

from braidlog.broker.access.rights import Resource
from braidlog.broker.errors import NotAuthorized, NotSupported
from braidlog.protocols.pulsar import messages
from braidlog.protocols.pulsar.limits import UPDATE_PAUSE_S
from braidlog.protocols.pulsar.names import resource_of
from braidlog.protocols.pulsar.topic_lists import topics_hash

if TYPE_CHECKING:
    from braidlog.broker.server.connection import Connection
    from braidlog.protocols.pulsar.limits import PulsarLimits
    from braidlog.protocols.pulsar.patterns import TopicsPattern
    from braidlog.protocols.pulsar.topic_lists import Change, Namespace, TopicList, TopicLists


@dataclass(slots=True, eq=False)
class Watcher:
    """A client's watcher and the names sent so far."""

    watcher_id: int
    namespace: Namespace
    topics: TopicList
    pattern: TopicsPattern
    next_change: int = 0  # Index in the list of changes: all earlier changes were sent.
    # Names sent, if the client may see only a part of the namespace.
    names_sent: frozenset[str] | None = None
    is_woken: bool = False  # The client's rights may have changed.


class Watchers:
    """The watchers of a client."""

    def __init__(self, connection: Connection, lists: TopicLists, limits: PulsarLimits) -> None:
        self._connection = connection
        self._lists = lists
        self._limits = limits
        self._watchers: dict[int, Watcher] = {}

    def open(self, watcher_id: int, namespace: Namespace, pattern: TopicsPattern) -> Watcher:
        """Return a new watcher. Raises NotSupported above the limit of watchers: the client then
        polls.
        """
        most = self._limits
        if len(self._watchers) >= most.watchers or self._lists.watchers >= most.all_watchers:
            raise NotSupported("there are too many watchers of topic lists")
        topics = self._lists.open(namespace)
        watcher = self._watchers[watcher_id] = Watcher(watcher_id, namespace, topics, pattern)
        return watcher

    def close(self, watcher_id: int) -> None:
        """Forget a watcher, if present."""
        watcher = self._watchers.pop(watcher_id, None)
        if watcher is not None:
            self._lists.close(watcher.namespace)
            watcher.topics.changed.unpark_all()

    def close_all(self) -> None:
        """Forget all watchers when the connection ends."""
        for watcher_id in list(self._watchers):
            self.close(watcher_id)

    def wake(self) -> None:
        """Check all watchers again after a change of the client's rights."""
        for watcher in self._watchers.values():
            watcher.is_woken = True
            watcher.topics.changed.unpark_all()

    async def begin(self, watcher: Watcher) -> Sequence[str]:
        """Return the visible names that match now; later changes are sent from here on.

        Raises NotSupported if there are too many names to remember: the client then polls.
        """
        async with self._lists.turn:
            await self._lists.fill(watcher.namespace, watcher.topics)
            watcher.next_change = watcher.topics.next_change
            names = await self._meant(watcher, watcher.topics.names.copy())
            if not self._sees_all(watcher):
                if len(names) > self._limits.seen_names:
                    self.close(watcher.watcher_id)
                    raise NotSupported("there are too many topics to watch a part of them")
                watcher.names_sent = frozenset(names)
        self._connection.nursery.start_soon(self._follow, watcher)
        return names

    async def _follow(self, watcher: Watcher) -> None:
        """Send every matching change while the watcher is open."""
        topics, outbox = watcher.topics, self._connection.outbox
        while self._watchers.get(watcher.watcher_id) is watcher:
            is_told = watcher.next_change == topics.next_change and not watcher.is_woken
            if is_told or not self._may_see(watcher):
                await topics.changed.park()
                continue
            await outbox.drained()
            async with self._lists.turn:
                updates = await self._updates(watcher)
            if updates and self._watchers.get(watcher.watcher_id) is watcher:
                outbox.answer(updates)  # After the answer with the first list of names.
            await trio.sleep(UPDATE_PAUSE_S)

    def _may_see(self, watcher: Watcher) -> bool:
        """Return True if the client may see the namespace. A client without the right receives no
        changes; the missed changes follow once the right returns.
        """
        try:
            self._connection.check_within(Resource.of_namespace(*watcher.namespace))
        except NotAuthorized:
            return False
        return True

    def _sees_all(self, watcher: Watcher) -> bool:
        return self._connection.sees_all(watcher.namespace)

    async def _meant(self, watcher: Watcher, names: Iterable[str]) -> Sequence[str]:
        """Return the matching names that the client may see."""
        meant = await _matching(watcher.pattern, names)
        return await self._connection.seen(watcher.namespace, meant, resource_of)

    async def _updates(self, watcher: Watcher) -> list[bytes]:
        """Return the frames for the matching changes."""
        watcher.is_woken = False
        topics, pattern = watcher.topics, watcher.pattern
        together = self._limits.changed_names_together
        updates = topics.changes_since(watcher.next_change, together)
        if updates is None:
            self._connection.end("does not take what it wants to watch")
            return []
        # Atomic: no await between reading the changes and the names.
        changes, watcher.next_change = updates
        names = topics.names.copy() if watcher.next_change == topics.next_change else None
        come, gone = net_of(changes)
        come, gone = await _matching(pattern, come), await _matching(pattern, gone)
        if watcher.names_sent is not None or not self._sees_all(watcher):
            if names is None:  # Names seen by the client follow only from all changes together.
                self._connection.end("too much has changed for who sees a part of it")
                return []
            return await self._difference(watcher, names, come, gone)
        if not come and not gone:
            return []
        return self._frames(watcher, come, gone, await self._digest(watcher, names))

    async def _digest(self, watcher: Watcher, names: Sequence[str] | None) -> str:
        """Return the digest of the matching names; empty if more updates follow."""
        topics, pattern, number = watcher.topics, watcher.pattern, watcher.next_change
        if names is None:
            return ""
        digest = topics.digests.get(pattern.text) if number == topics.next_change else None
        if digest is None:
            digest = topics_hash(await _matching(pattern, names))
            if number == watcher.next_change == topics.next_change:
                topics.digests[pattern.text] = digest
        return digest

    async def _difference(
        self, watcher: Watcher, names: Sequence[str], come: Sequence[str], gone: Sequence[str]
    ) -> list[bytes]:
        """Return the frames for a client with a partial view of the namespace, now or before: the
        difference between the visible names and the names sent. `come` and `gone` may include
        unseen names.
        """
        if watcher.names_sent is None:  # Until these changes, the client saw everything.
            before = frozenset(await _matching(watcher.pattern, names))
            watcher.names_sent = before.difference(come).union(gone)
        meant = await self._meant(watcher, names)
        now, names_sent, went = frozenset(meant), watcher.names_sent, frozenset(gone)
        watcher.names_sent = None if self._sees_all(watcher) else now
        if watcher.names_sent is not None and len(now) > self._limits.seen_names:
            self._connection.end("there are too many topics to watch a part of them")
            return []
        again = names_sent & now & went
        fresh = [name for name in meant if name not in names_sent or name in again]
        ended = sorted((names_sent - now) | again)
        return self._frames(watcher, fresh, ended, topics_hash(meant)) if fresh or ended else []

    def _frames(
        self, watcher: Watcher, come: Sequence[str], gone: Sequence[str], digest: str
    ) -> list[bytes]:
        changes = [(name, True) for name in come] + [(name, False) for name in gone]
        most = self._limits.updated_names
        pieces = [changes[first : first + most] for first in range(0, len(changes), most)]
        return [
            messages.watch_topic_update(
                watcher.watcher_id,
                [name for name, is_there in piece if is_there],
                [name for name, is_there in piece if not is_there],
                digest,
            )
            for piece in pieces
        ]


def net_of(changes: Iterable[Change]) -> tuple[list[str], list[str]]:
    """Return the names that appeared and those that disappeared; a name that did both is in both
    lists.
    """
    first: dict[str, bool] = {}
    last: dict[str, bool] = {}
    for name, is_there in changes:
        first.setdefault(name, is_there)
        last[name] = is_there
    gone = [name for name, came in first.items() if not came]
    return [name for name, is_there in last.items() if is_there], gone


async def _matching(pattern: TopicsPattern, names: Iterable[str]) -> list[str]:
    """Return the names that match a pattern."""
    meant: list[str] = []
    for piece in pattern.pieces(names):
        meant += piece
        await trio.lowlevel.checkpoint()
    return meant
