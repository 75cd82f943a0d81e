"""Watches of connections on paths: each fires once. Knows no node and no byte."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Final, Protocol

from braidlog.broker.errors import LimitExceeded
from braidlog.protocols.zookeeper.messages import Event

# Of a connection; clients set a handful to some thousand.
WATCHES_MAX: Final = 10_000
# Paths of a connection's watches, together.
WATCH_BYTES_MAX: Final = 4 * 1024 * 1024
# Of all connections: some 200 MB, and the bytes of their paths.
ALL_WATCHES_MAX: Final = 500_000
ALL_WATCH_BYTES_MAX: Final = 64 * 1024 * 1024


class WatchKind(enum.Enum):
    """The events that a watch waits for."""

    DATA = "data"  # Set by exists and getData.
    CHILDREN = "children"


class NodeWatcher(Protocol):
    """A connection that can receive events."""

    watches: set[Watch]
    watch_bytes: int

    def send_event(self, event: Event, path: str) -> None:
        """Send an event, before every later answer. Must not wait or raise."""


# A watch: kind, path of the node, path as the client named the node.
Watch = tuple[WatchKind, str, str]


class Watches:
    """All watches. `by_path[kind][path]` lists the watchers and the path that each named."""

    def __init__(self, may_be_virtual: Callable[[str], bool]) -> None:
        """Begin without watches. `may_be_virtual` returns False for paths of stored nodes only."""
        self._may_be_virtual = may_be_virtual
        self.count = 0
        self.count_of_watchers = 0
        self.path_bytes = 0
        self.virtual_paths: set[str] = set()
        """Watched paths of nodes that can change without a call."""
        self.by_path: dict[WatchKind, dict[str, set[tuple[NodeWatcher, str]]]] = {
            WatchKind.DATA: {},
            WatchKind.CHILDREN: {},
        }

    def add(self, kind: WatchKind, path: str, watcher: NodeWatcher, shown: str) -> None:
        """Set a watch, unless the watcher has the same watch. Raises LimitExceeded."""
        watch = (kind, path, shown)
        if watch in watcher.watches:
            return
        self.check_room(watcher, 1, len(shown))
        self.count_of_watchers += not watcher.watches
        watcher.watches.add(watch)
        watcher.watch_bytes += len(shown)
        self.path_bytes += len(shown)
        self.count += 1
        watchers = self.by_path[kind].get(path)
        if watchers is None:
            watchers = self.by_path[kind][path] = set()
            if self._may_be_virtual(path):
                self.virtual_paths.add(path)
        watchers.add((watcher, shown))

    def check_room(self, watcher: NodeWatcher, more: int, more_bytes: int) -> None:
        """Raise LimitExceeded unless a watcher can have so many more watches."""
        if len(watcher.watches) + more > WATCHES_MAX:
            raise LimitExceeded(f"limit of {WATCHES_MAX} watches of a connection reached")
        if watcher.watch_bytes + more_bytes > WATCH_BYTES_MAX:
            raise LimitExceeded(f"paths of watches exceed {WATCH_BYTES_MAX} bytes")
        if self.count + more > ALL_WATCHES_MAX:
            raise LimitExceeded(f"limit of {ALL_WATCHES_MAX} watches reached")
        if self.path_bytes + more_bytes > ALL_WATCH_BYTES_MAX:
            raise LimitExceeded(f"paths of all watches exceed {ALL_WATCH_BYTES_MAX} bytes")

    def has(self, path: str) -> bool:
        """Return True if any watch is set on a path."""
        return any(path in paths for paths in self.by_path.values())

    def created(self, path: str) -> None:
        """Fire the watches that wait for a node to appear, or to change."""
        self._fire(WatchKind.DATA, path, Event.CREATED)

    def data_changed(self, path: str) -> None:
        """Fire the watches on a node's data."""
        self._fire(WatchKind.DATA, path, Event.DATA_CHANGED)

    def children_changed(self, path: str) -> None:
        """Fire the watches on a node's children."""
        self._fire(WatchKind.CHILDREN, path, Event.CHILDREN_CHANGED)

    def deleted(self, path: str) -> None:
        """Fire all watches on a node; a watcher receives a single event."""
        watchers = self._fire(WatchKind.DATA, path, Event.DELETED)
        self._fire(WatchKind.CHILDREN, path, Event.DELETED, except_for=watchers)

    def drop(self, watcher: NodeWatcher) -> None:
        """Remove all watches of a connection that ends."""
        for watch in list(watcher.watches):
            self._remove(watch, watcher)

    def _fire(
        self,
        kind: WatchKind,
        path: str,
        event: Event,
        except_for: frozenset[tuple[NodeWatcher, str]] = frozenset(),
    ) -> frozenset[tuple[NodeWatcher, str]]:
        fired = frozenset(self.by_path[kind].get(path, ()))
        for watcher, shown in fired:
            self._remove((kind, path, shown), watcher)
            if (watcher, shown) not in except_for:
                watcher.send_event(event, shown)
        return fired

    def _remove(self, watch: Watch, watcher: NodeWatcher) -> None:
        kind, path, shown = watch
        watcher.watches.discard(watch)
        watcher.watch_bytes -= len(shown)
        self.count_of_watchers -= not watcher.watches
        self.count -= 1
        self.path_bytes -= len(shown)
        watchers = self.by_path[kind][path]
        watchers.discard((watcher, shown))
        if not watchers:
            del self.by_path[kind][path]
            if not self.has(path):
                self.virtual_paths.discard(path)
