"""The tree that clients see: stored nodes and virtual nodes together, with their watches.

A change of stored nodes is a record, and fires watches at once. A change of virtual nodes has no
record: `look` compares the present state with the state last shown, gives a change a new zxid and
fires the watches. So every read shows a change only after its events. Knows no connection's bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from braidlog.broker.coordination.nodes import (
    OPEN,
    Acls,
    AclSet,
    NodeGone,
    NodeMade,
    Nodes,
    NodeSet,
    StoredNode,
)
from braidlog.protocols.zookeeper import acl as lists
from braidlog.protocols.zookeeper import paths
from braidlog.protocols.zookeeper.errors import NodeError, ZkCode
from braidlog.protocols.zookeeper.virtual import VirtualNode, VirtualView
from braidlog.protocols.zookeeper.watches import Watches

if TYPE_CHECKING:
    from braidlog.protocols.zookeeper.callers import Caller
    from braidlog.protocols.zookeeper.pieces import SentInPieces

Stat = tuple[int, int, int, int, int, int, int, int, int, int, int]

ANY_VERSION: Final = -1
EPHEMERAL, SEQUENTIAL = 1, 2  # Flags of create.
FLAGS_LAST: Final = 3
VERSION_MASK: Final = (1 << 31) - 1
# Virtual nodes whose last state is remembered; a forgotten node gets new numbers when shown again.
REMEMBERED_MAX: Final = 100_000
# Children whose names are shown in order. ZooKeeper has no order; sorting 100,000 takes 30 ms.
SORTED_MAX: Final = 10_000


@dataclass(slots=True)
class Remembered:
    """The state of a virtual node as last shown, and the numbers of its last changes."""

    data: bytes | None
    names: frozenset[str]
    czxid: int
    mzxid: int
    pzxid: int
    ctime_ms: int
    mtime_ms: int


@dataclass(slots=True)
class VisibleNode:
    """A node as a client sees the node."""

    stored: StoredNode | None
    virtual: VirtualNode | None
    stat: Stat
    data: bytes | None
    names: Callable[[], list[str]]

    @property
    def acl(self) -> Acls:
        """The access list; of virtual nodes everyone's, as access control decides there."""
        return self.stored.acl if self.stored is not None else OPEN


class Tree:
    """All nodes. Calls do not wait; a change is durable with `nodes.ticket` and the returned
    ticket.
    """

    def __init__(
        self,
        nodes: Nodes,
        view: VirtualView,
        pieces: SentInPieces,
        *,
        fixed: frozenset[str],
        now_ms: Callable[[], int],
    ) -> None:
        """`fixed` are paths that clients cannot delete."""
        self.nodes = nodes
        self.view = view
        self.pieces = pieces
        self.watches = Watches(view.may_show)
        self._fixed = fixed
        self._now_ms = now_ms
        self._remembered: dict[str, Remembered] = {}
        self._events: list[tuple[Callable[[str], None], str]] = []
        self._zxid = 0  # Of the change in progress.

    # Reading

    def look(self, path: str, caller: Caller | None) -> VisibleNode | None:
        """Return the node of a path, None if absent; fires the watches of an unseen change."""
        virtual = self.view.find(path)
        if virtual is None:
            stored = self.nodes.find(path)
            if stored is None:
                return None
            count = len(self.nodes.children(path))
            stat = _stored_stat(stored, count)
            return VisibleNode(
                stored, None, stat, stored.data, lambda: _in_order(self.nodes.children(path))
            )
        stored = self.nodes.find(path) if virtual.is_union else None
        known = self._observe(path, virtual, is_stored=stored is not None)
        if known is None:
            return None
        names = self._names(path, virtual, caller)
        if stored is not None:
            data = stored.data
            stat = _union_stat(stored, known, len(names))
        else:
            data = virtual.data(caller)
            stat = _virtual_stat(known, data, len(names))
        return VisibleNode(stored, virtual, stat, data, lambda: _in_order(names))

    def observe(self, path: str) -> None:
        """Fire the watches of a virtual node if the node has changed since the last look."""
        virtual = self.view.find(path)
        if virtual is not None:
            is_stored = virtual.is_union and self.nodes.find(path) is not None
            self._observe(path, virtual, is_stored=is_stored)

    def _names(self, path: str, virtual: VirtualNode, caller: Caller | None) -> set[str]:
        names = set(virtual.names(caller))
        if virtual.is_union:
            names.update(name for name in self.nodes.children(path) if not virtual.hides(name))
        return names

    def _observe(self, path: str, virtual: VirtualNode, *, is_stored: bool) -> Remembered | None:
        known = self._remembered.get(path)
        if not (is_stored or virtual.exists()):
            if known is not None:
                del self._remembered[path]
                self.nodes.next_zxid()
                self.watches.deleted(path)
            return None
        data, names = virtual.data(None), frozenset(virtual.names(None))
        if known is None:
            return self._remember(path, data, names)
        if known.data != data:
            known.mzxid = self.nodes.next_zxid()
            known.data, known.mtime_ms = data, self._now_ms()
            self.watches.data_changed(path)
        if known.names != names:
            known.pzxid = self.nodes.next_zxid()
            known.names = names
            self.watches.children_changed(path)
        return known

    def _remember(self, path: str, data: bytes | None, names: frozenset[str]) -> Remembered:
        if len(self._remembered) >= REMEMBERED_MAX:
            self._forget_some()
        zxid, now = self.nodes.next_zxid(), self._now_ms()
        known = self._remembered[path] = Remembered(data, names, zxid, zxid, zxid, now, now)
        self.watches.created(path)  # A watched node that was remembered was absent at that time.
        return known

    def _forget_some(self) -> None:
        """Forget the older half of the nodes that nobody watches."""
        for path in list(self._remembered)[: REMEMBERED_MAX // 2]:
            if not self.watches.has(path):
                del self._remembered[path]

    # Changing

    @contextmanager
    def change(self) -> Iterator[None]:
        """Make the changes of the block as one, all or none; then fire the watches."""
        self._events = []
        try:
            with self.nodes.together():
                self._zxid = self.nodes.next_zxid()
                yield
            for fire, path in self._events:
                fire(path)
                self.pieces.changed(path)
        finally:
            self._events = []

    def create(self, caller: Caller, path: str, data: bytes | None, acl: Acls, flags: int) -> str:
        """Create a stored node, in a block of `change`; return its path, with the number of a
        sequential node. Raises NodeError, broker errors.
        """
        if not 0 <= flags <= FLAGS_LAST:
            raise NodeError(ZkCode.BAD_ARGUMENTS, f"create mode {flags} is not served")
        if not path.startswith("/") or "\0" in path:
            raise NodeError(ZkCode.BAD_ARGUMENTS)
        acl = lists.fixed(acl, caller.identities)
        parent_path = paths.parent_of(path)
        if self._is_read_only(parent_path):
            raise NodeError(ZkCode.NO_AUTH, "the broker alone creates nodes here")
        parent = self._present(parent_path)
        self._check(caller, path, OPEN if parent is None else parent.acl, lists.CREATE)
        if flags & SEQUENTIAL:
            path += f"{0 if parent is None else parent.created:010d}"
        paths.check(path)
        self._check_storable(path)
        if self._is_there(path):
            raise NodeError(ZkCode.NODE_EXISTS)
        if parent is not None and parent.owner:
            raise NodeError(ZkCode.NO_CHILDREN_FOR_EPHEMERALS)
        self._store_parents(parent_path)
        owner = caller.session_id if flags & EPHEMERAL else 0
        self.nodes.apply(NodeMade(path, data, acl, owner, self._zxid, self._now_ms()))
        self._events += [
            (self.watches.created, path),
            (self.watches.children_changed, parent_path),
        ]
        return path

    def set_data(self, caller: Caller, path: str, data: bytes | None, version: int) -> None:
        """Set the data of a stored node, in a block of `change`. Raises NodeError."""
        node = self._stored_for(path, caller, lists.WRITE)
        check_version(node.version, version)
        self.nodes.apply(NodeSet(path, data, self._zxid, self._now_ms()))
        self._events.append((self.watches.data_changed, path))

    def stored_stat(self, path: str) -> Stat:
        """Return the numbers of a stored node within a block of `change`."""
        node = self.nodes.find(path)
        assert node is not None, "the block has changed the node"
        return _stored_stat(node, len(self.nodes.children(path)))

    def set_acl(self, caller: Caller, path: str, acl: Acls, version: int) -> None:
        """Set the access list of a stored node, in a block of `change`. Raises NodeError."""
        acl = lists.fixed(acl, caller.identities)
        node = self._stored_for(path, caller, lists.ADMIN)
        check_version(node.aversion, version)
        self.nodes.apply(AclSet(path, acl))

    def delete(self, caller: Caller, path: str, version: int) -> None:
        """Delete a stored node, in a block of `change`. Raises NodeError."""
        if path in self._fixed or not path.startswith("/"):
            raise NodeError(ZkCode.BAD_ARGUMENTS, f"{path} cannot be deleted")
        self._check_storable(path)
        node = self._present(path)
        parent = self.nodes.find(paths.parent_of(path))
        self._check(caller, path, OPEN if parent is None else parent.acl, lists.DELETE)
        check_version(0 if node is None else node.version, version)
        virtual = self.view.find(path)
        if self.nodes.children(path) if virtual is None else self._names(path, virtual, None):
            raise NodeError(ZkCode.NOT_EMPTY)
        self._gone(path)

    def delete_owned(self, owned_paths: Sequence[str]) -> None:
        """Delete ephemeral nodes of a session that ended, in a block of `change`."""
        for path in owned_paths:
            self._gone(path)

    def keep(self, path: str, data: bytes | None) -> None:
        """Store a node for the broker itself, with the nodes above. Raises broker errors."""
        with self.change():
            if self.nodes.find(path) is None:
                self._store_parents(paths.parent_of(path))
                self.nodes.apply(NodeMade(path, data, OPEN, 0, self._zxid, self._now_ms()))
            else:
                self.nodes.apply(NodeSet(path, data, self._zxid, self._now_ms()))
        self.pieces.changed(path)

    def remove(self, path: str) -> None:
        """Delete a stored node without children for the broker itself; nothing if absent. Raises
        broker errors.
        """
        if self.nodes.find(path) is not None and not self.nodes.children(path):
            with self.change():
                self._gone(path)

    def check(self, path: str, version: int) -> None:
        """Compare the version of a node. Raises NodeError."""
        if self._is_read_only(path):
            look = self.look(path, None)
            if look is None:
                raise NodeError(ZkCode.NO_NODE)
            check_version(look.stat[4], version)
        else:
            node = self._present(path)
            check_version(0 if node is None else node.version, version)

    def check_read(self, caller: Caller, path: str, look: VisibleNode) -> None:
        """Check that a client may read a node. Raises NodeError, NotAuthorized."""
        self._check(caller, path, look.acl, lists.READ)

    def check_describe(self, caller: Caller, path: str) -> None:
        """Check that a client may know of a node. Raises NotAuthorized."""
        if not caller.broker.access.allows_all:
            virtual = self.view.find(path)
            resource, actions = self.view.rights_of(path)
            action = actions[lists.READ]
            caller.check(action, resource if virtual is None else virtual.rights())

    def _check(self, caller: Caller, path: str, acl: Acls, perm: int) -> None:
        """Check the node's access list, and access control. Raises NodeError, NotAuthorized."""
        if not lists.allows(acl, perm, caller.identities):
            raise NodeError(ZkCode.NO_AUTH)
        if caller.broker.access.allows_all:
            return
        resource, actions = self.view.rights_of(path)
        virtual = self.view.find(path) if perm == lists.READ else None
        caller.check(actions[perm], resource if virtual is None else virtual.rights())

    def _gone(self, path: str) -> None:
        self.nodes.apply(NodeGone(path, self._zxid))
        parent_path = paths.parent_of(path)
        self._events += [
            (self.watches.deleted, path),
            (self.watches.children_changed, parent_path),
        ]

    # Without `look`, which would remember nodes of a change that is undone.

    def _is_read_only(self, path: str) -> bool:
        """Return True if no stored node can have this path."""
        virtual = self.view.find(path)
        return virtual is not None and not virtual.is_union

    def _check_storable(self, path: str) -> None:
        if self._is_read_only(path):
            raise NodeError(ZkCode.UNIMPLEMENTED, "a part of multi cannot write this node")

    def _is_there(self, path: str) -> bool:
        if self.nodes.find(path) is not None:
            return True
        virtual = self.view.find(path)
        return virtual is not None and virtual.exists()

    def _present(self, path: str) -> StoredNode | None:
        """Return a node that clients can store; None if the node exists, but is not stored.

        Raises NodeError if the node does not exist.
        """
        if not self._is_there(path):
            raise NodeError(ZkCode.NO_NODE)
        return self.nodes.find(path)

    def _stored_for(self, path: str, caller: Caller, perm: int) -> StoredNode:
        """Return a node that a client may change, stored if it was not. Raises NodeError."""
        self._check_storable(path)
        node = self._present(path)
        self._check(caller, path, OPEN if node is None else node.acl, perm)
        self._store_parents(path)
        node = self.nodes.find(path)
        assert node is not None, "stored now"
        return node

    def _store_parents(self, path: str) -> None:
        """Store a node that exists only virtually, with its parents: a child needs them."""
        missing = []
        while self.nodes.find(path) is None:
            missing.append(path)
            path = paths.parent_of(path)
        for missing_path in reversed(missing):
            self.nodes.apply(NodeMade(missing_path, None, OPEN, 0, self._zxid, self._now_ms()))


def _in_order(names: Set[str]) -> list[str]:
    return sorted(names) if len(names) <= SORTED_MAX else list(names)


def check_version(version: int, wanted: int) -> None:
    """Raise NodeError unless a client wants any version, or this version."""
    if wanted not in (ANY_VERSION, version):
        raise NodeError(ZkCode.BAD_VERSION, f"version {wanted} is wanted, the node has {version}")


def _stored_stat(node: StoredNode, children: int) -> Stat:
    return (
        node.czxid,
        node.mzxid,
        node.ctime_ms,
        node.mtime_ms,
        node.version,
        (2 * node.created - children) & VERSION_MASK,  # Created and deleted children.
        node.aversion,
        node.owner,
        len(node.data or b""),
        children,
        node.pzxid,
    )


def _union_stat(node: StoredNode, known: Remembered, children: int) -> Stat:
    """Return the numbers of a stored node that has virtual children as well."""
    pzxid = max(node.pzxid, known.pzxid)
    stat = _stored_stat(node, children)
    return (*stat[:5], pzxid & VERSION_MASK, *stat[6:10], pzxid)


def _virtual_stat(known: Remembered, data: bytes | None, children: int) -> Stat:
    """Return the numbers of a virtual node. Zxids never repeat, so neither do the versions."""
    return (
        known.czxid,
        known.mzxid,
        known.ctime_ms,
        known.mtime_ms,
        known.mzxid & VERSION_MASK,
        known.pzxid & VERSION_MASK,
        0,
        0,
        len(data or b""),
        children,
        known.pzxid,
    )
