"""A model of ZooKeeper's tree: nodes with all their numbers, sessions, and watches that fire once.

A change returns the events that each session must receive. Written from ZooKeeper's rules, without
the broker's code.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from conformance.clients.raw import zookeeper as zk

UNKNOWN: Final = -1  # The zxid of a change without an answer, until the tree is read.
DATA, ABSENT, CHILDREN = "data", "absent", "children"  # Kinds of watches, as a client keeps them.
RUNTIME_INCONSISTENCY: Final = -2
# The watches that an event fires.
FIRED: Final = {
    zk.CREATED: (DATA, ABSENT),
    zk.CHANGED: (DATA, ABSENT),
    zk.CHILD: (CHILDREN,),
    zk.DELETED: (DATA, ABSENT, CHILDREN),
}

Watch = tuple[str, str]  # Kind and path.
Event = tuple[int, str]  # Kind and path.
Events = dict[int, list[Event]]  # By number of the session.


class ChangeRefused(Exception):
    """The model refuses a change."""

    def __init__(self, code: int) -> None:
        super().__init__(str(code))
        self.code = code


@dataclass(slots=True)
class ModelNode:
    """A node; `created` counts the children that were ever created."""

    data: bytes | None
    czxid: int
    mzxid: int
    pzxid: int
    owner: int = 0
    version: int = 0
    created: int = 0


@dataclass(frozen=True, slots=True)
class Operation:
    """A change: its operation, path, data, version and flags; the parts of a transaction."""

    op: int
    path: str = ""
    data: bytes | None = None
    version: int = zk.ANY_VERSION
    flags: int = 0
    parts: Sequence[Operation] = ()

    def body(self) -> bytes:
        """Return the fields of the request."""
        if self.op == zk.CREATE:
            return zk.create_body(self.path, self.data, self.flags)
        if self.op == zk.SET_DATA:
            return zk.set_body(self.path, self.data, self.version)
        if self.op == zk.MULTI:
            return zk.multi_body([(part.op, part.body()) for part in self.parts])
        return zk.path_body(self.path, self.version)


@dataclass
class ModelTree:
    """All nodes below `root`, and the watches of all sessions."""

    root: str
    nodes: dict[str, ModelNode] = field(default_factory=dict)
    watches: dict[int, set[Watch]] = field(default_factory=dict)
    zxid: int = 0  # Of the last change with a known number.

    def copy(self) -> ModelTree:
        """Return an independent copy."""
        return copy.deepcopy(self)

    def names(self, path: str) -> list[str]:
        """Return the names of the children, sorted."""
        prefix = f"{path}/"
        return sorted(
            other[len(prefix) :]
            for other in self.nodes
            if other.startswith(prefix) and "/" not in other[len(prefix) :]
        )

    def stat(self, path: str) -> tuple[int, ...]:
        """Return the numbers of a node, without its times."""
        node, children = self.nodes[path], len(self.names(path))
        cversion = 2 * node.created - children
        size = len(node.data or b"")
        own = node.czxid, node.mzxid, node.version, cversion, 0, node.owner
        return (*own, size, children, node.pzxid)

    # Changes

    def change(self, session_id: int, operation: Operation, zxid: int) -> tuple[object, Events]:
        """Make a change; return its result, and each session's events. Raises ChangeRefused."""
        before = self.nodes
        self.nodes = {path: replace(node) for path, node in before.items()}
        fired: list[tuple[int, str]] = []
        try:
            result = self._change(session_id, operation, zxid, fired)
        except ChangeRefused:
            self.nodes = before
            raise
        self.zxid = max(self.zxid, zxid)
        return result, self._events(fired)

    def end_session(self, session_id: int, zxid: int) -> Events:
        """Delete a session's ephemeral nodes and forget its watches; return the events."""
        self.watches = {
            number: watches for number, watches in self.watches.items() if number != session_id
        }
        fired: list[tuple[int, str]] = []
        for path in [path for path, node in self.nodes.items() if node.owner == session_id]:
            self._delete(path, zxid, fired)
        self.zxid = max(self.zxid, zxid)
        return self._events(fired)

    def _change(
        self, session_id: int, operation: Operation, zxid: int, fired: list[Event]
    ) -> object:
        path = operation.path
        if operation.op == zk.CREATE:
            return self._create(session_id, operation, zxid, fired)
        if operation.op == zk.MULTI:
            return self._multi(session_id, operation, zxid, fired)
        node = self.nodes.get(path)
        if node is None:
            raise ChangeRefused(zk.NO_NODE)
        if operation.version not in (zk.ANY_VERSION, node.version):
            raise ChangeRefused(zk.BAD_VERSION)
        if operation.op == zk.SET_DATA:
            node.data, node.mzxid = operation.data, zxid
            node.version += 1
            fired.append((zk.CHANGED, path))
        elif operation.op == zk.DELETE:
            if self.names(path):
                raise ChangeRefused(zk.NOT_EMPTY)
            self._delete(path, zxid, fired)
        return None

    def _create(self, session_id: int, operation: Operation, zxid: int, fired: list[Event]) -> str:
        path = operation.path
        parent = self.nodes.get(parent_of(path))
        if parent is None:
            raise ChangeRefused(zk.NO_NODE)
        if operation.flags & zk.SEQUENTIAL:
            path += f"{parent.created:010d}"
        if path in self.nodes:
            raise ChangeRefused(zk.NODE_EXISTS)
        if parent.owner:
            raise ChangeRefused(zk.NO_EPHEMERAL_CHILDREN)
        owner = session_id if operation.flags & zk.EPHEMERAL else 0
        self.nodes[path] = ModelNode(operation.data, zxid, zxid, zxid, owner)
        parent.created += 1
        parent.pzxid = zxid
        fired += [(zk.CREATED, path), (zk.CHILD, parent_of(path))]
        return path

    def _delete(self, path: str, zxid: int, fired: list[Event]) -> None:
        del self.nodes[path]
        self.nodes[parent_of(path)].pzxid = zxid
        fired += [(zk.DELETED, path), (zk.CHILD, parent_of(path))]

    def _multi(
        self, session_id: int, operation: Operation, zxid: int, fired: list[Event]
    ) -> list[int]:
        nodes = {path: replace(node) for path, node in self.nodes.items()}
        for number, part in enumerate(operation.parts):
            try:
                self._change(session_id, part, zxid, fired)
            except ChangeRefused as refused:
                self.nodes = nodes
                fired.clear()
                after = len(operation.parts) - number - 1
                return [0] * number + [refused.code] + [RUNTIME_INCONSISTENCY] * after
        return [0] * len(operation.parts)

    # Watches

    def watch(self, session_id: int, kind: str, path: str) -> None:
        """Set a watch of a session."""
        self.watches.setdefault(session_id, set()).add((kind, path))

    def _events(self, fired: Sequence[Event]) -> Events:
        events: Events = {}
        for session_id in self.watches:
            for kind, path in fired:
                if self._take(session_id, kind, path):
                    events.setdefault(session_id, []).append((kind, path))
        return events

    def _take(self, session_id: int, event: int, path: str) -> bool:
        """Remove the watches that an event fires; return False if there is none."""
        watches = self.watches[session_id]
        removed = {(kind, path) for kind in FIRED[event]} & watches
        watches -= removed
        return bool(removed)

    def set_again(self, session_id: int, zxid_seen: int) -> list[Event]:
        """Return the events of a reconnected session that sets all its watches again."""
        events: set[Event] = set()
        for kind, path in sorted(self.watches.get(session_id, ())):
            event = self._missed(kind, path, zxid_seen)
            if event is not None:
                events.add((event, path))
                self.watches[session_id].discard((kind, path))
        return sorted(events)

    def _missed(self, kind: str, path: str, zxid_seen: int) -> int | None:
        node = self.nodes.get(path)
        if kind == ABSENT:
            return None if node is None else zk.CREATED
        if node is None:
            return zk.DELETED
        if kind == DATA:
            return zk.CHANGED if node.mzxid > zxid_seen else None
        return zk.CHILD if node.pzxid > zxid_seen else None

    # Unknown outcomes

    def matches(self, seen: ModelTree) -> bool:
        """Return True if a tree that was read is this tree, with any number for UNKNOWN."""
        if self.nodes.keys() != seen.nodes.keys():
            return False
        return all(
            all(_agrees(ours, theirs, self.zxid) for ours, theirs in pairs)
            for pairs in (zip(self.stat(path), seen.stat(path), strict=True) for path in self.nodes)
        ) and all(self.nodes[path].data == seen.nodes[path].data for path in self.nodes)

    def adopt(self, seen: ModelTree) -> None:
        """Take the numbers of a tree that was read in place of UNKNOWN."""
        for path, node in self.nodes.items():
            theirs = seen.nodes[path]
            node.czxid, node.mzxid, node.pzxid = theirs.czxid, theirs.mzxid, theirs.pzxid
            self.zxid = max(self.zxid, *_zxids(theirs))


def _zxids(node: ModelNode) -> Iterator[int]:
    yield from (node.czxid, node.mzxid, node.pzxid)


def _agrees(ours: int, theirs: int, zxid: int) -> bool:
    return ours == theirs or (ours == UNKNOWN and theirs > zxid)


def parent_of(path: str) -> str:
    """Return the path of the parent."""
    return path.rpartition("/")[0]
