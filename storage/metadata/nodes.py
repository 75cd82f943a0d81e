"""The nodes and sessions that ZooKeeper's clients store: the state in memory, every change in a
journal.

Several changes can be made together: `apply` changes memory, `write` stores all applied changes as
one record, `undo` takes them back. Callers check a change first (the parent exists, the node has no
children). Knows no client, no watch and no clock.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from braidlog.storage.errors import DamagedLog
from braidlog.storage.metadata.changes import ChangeJournal, Journal
from braidlog.storage.metadata.node_records import (
    Acl,
    AclSet,
    NodeChange,
    NodeGone,
    NodeKept,
    NodeMade,
    NodeSet,
    SessionGone,
    SessionMade,
    StoredNode,
    StoredNodeChange,
    ZxidsReserved,
)

ROOT: Final = "/"
PERMS_ALL: Final = 31
OPEN: Final = (Acl(PERMS_ALL, "world", "anyone"),)
# Zxids reserved by a record. Clients use some thousand a second at most.
RESERVED_TOGETHER: Final = 1 << 20
# Nodes, and bytes of nodes, that a change adds to a snapshot in progress: well under a millisecond.
GATHERED_NODES: Final = 100
GATHERED_BYTES: Final = 256 * 1024
NODE_OVERHEAD_BYTES: Final = 32  # Bytes that a node counts beside its path, data and access list.


def parent_of(path: str) -> str:
    """Return the path of the parent; the root for the root itself."""
    return path.rpartition("/")[0] or ROOT


def size_of(path: str, data: bytes | None, acl: Iterable[Acl]) -> int:
    """Return the bytes that a node counts."""
    entries = sum(len(entry.scheme) + len(entry.id) + 4 for entry in acl)
    return len(path) + len(data or b"") + entries + NODE_OVERHEAD_BYTES


class StoredNodes:
    """All stored nodes and sessions. Callers must not change the objects returned here.

    Guarantees: memory holds exactly what a replay of the journal gives, except between `apply` and
    `write` or `undo`, which are called without a wait in between. A zxid never repeats, also over a
    crash.
    """

    def __init__(self, journal: Journal, lost: Callable[[DamagedLog], None] | None = None) -> None:
        """Replay the journal.

        `lost` is called for each change that is skipped because the change is unreadable or names
        something missing; without `lost` that is an error. Raises DamagedLog, UnknownRecord.
        """
        root = StoredNode(b"", OPEN, 0, 0, 0, 0, 0, 0, 0, 0, 0)
        self.nodes: dict[str, StoredNode] = {ROOT: root}
        self.sessions: dict[int, SessionMade] = {}
        self.zxid = 0
        """The newest zxid in use."""
        self.stored_bytes = 0
        self._children: dict[str, set[str]] = {}
        self._ephemerals: dict[int, set[str]] = {}
        self._reserved = 0
        self._applied: list[NodeChange] = []
        self._before: list[tuple[str, StoredNode | None]] = []
        self._left: dict[str, None] | None = None  # Paths that a snapshot in progress lacks.
        self._journal: ChangeJournal[StoredNodeChange] = ChangeJournal(
            journal, StoredNodeChange, "nodes"
        )
        self._journal.replay(self._replay, lost)
        self.zxid = max(self.zxid, self._reserved)

    @property
    def ticket(self) -> int:
        """After this ticket every change so far is on disk."""
        return self._journal.ticket

    def children(self, path: str) -> set[str]:
        """Return the names of the children of a node."""
        return self._children.get(path, set())

    def ephemerals(self, session_id: int) -> set[str]:
        """Return the paths of the ephemeral nodes of a session."""
        return self._ephemerals.get(session_id, set())

    def ended_with_nodes(self) -> list[int]:
        """Return ended sessions that still own nodes: a crash left these."""
        return list(self._ephemerals.keys() - self.sessions.keys())

    def next_zxid(self) -> int:
        """Take the next zxid. Raises StorageFull, StorageFailed."""
        if self.zxid + 1 >= self._reserved:
            end = self.zxid + 1 + RESERVED_TOGETHER
            self._journal.append(ZxidsReserved(end))
            self._reserved = end
        self.zxid += 1
        return self.zxid

    def apply(self, change: NodeChange) -> None:
        """Change memory. `write` or `undo` follows before the caller waits."""
        for path in (change.path, parent_of(change.path)):
            before = self.nodes.get(path)
            self._before.append((path, None if before is None else replace(before)))
        self._apply(change)
        self._applied.append(change)

    def write(self) -> int:
        """Store all applied changes as one record; return the ticket.

        Raises StorageFull, StorageFailed, UnwritableChange; then the caller calls `undo`.
        """
        if not self._applied:
            return self.ticket
        ticket = self._journal.append(*self._applied)
        if self._left is not None:
            for path, before in self._before:
                self._gather_before(path, before)
        self._applied, self._before = [], []
        self._shorten()
        return ticket

    def undo(self) -> None:
        """Take back all applied changes that are not written."""
        for path, before in reversed(self._before):
            if path in self.nodes:
                self._unlink(path)
            if before is not None:
                self._link(path, before)
        self._applied, self._before = [], []

    def begin_session(self, session: SessionMade) -> int:
        """Store a session, or another timeout; return the ticket. Raises as `write`."""
        ticket = self._journal.append(session)
        self.sessions[session.session_id] = session
        self._shorten()
        return ticket

    def end_session(self, session_id: int) -> int:
        """Remove a session; its ephemeral nodes stay until deleted. Return the ticket. Raises as
        `write`.
        """
        ticket = self._journal.append(SessionGone(session_id))
        del self.sessions[session_id]
        self._shorten()
        return ticket

    def rewrite(self) -> None:
        """Replace the journal's records by the present state. Raises StorageFull, StorageFailed."""
        state: list[StoredNodeChange] = [*self._state_without_nodes()]
        state += [NodeKept(path, node) for path, node in self.nodes.items()]
        self._journal.rewrite([change] for change in state)

    # Snapshots

    def _state_without_nodes(self) -> Iterator[StoredNodeChange]:
        yield ZxidsReserved(max(self._reserved, self.zxid))
        yield from self.sessions.values()

    def _shorten(self) -> None:
        """Continue a snapshot, or begin a due snapshot: a little with each change."""
        if self._left is None:
            if not self._journal.snapshot_is_due:
                return
            self._left = dict.fromkeys(self.nodes)
            self._journal.begin_gathering()
            self._journal.gather([*self._state_without_nodes()])
        changes: list[StoredNodeChange] = []
        room = GATHERED_BYTES
        while self._left and len(changes) < GATHERED_NODES and room > 0:
            path, _ = self._left.popitem()
            node = self.nodes[path]
            changes.append(NodeKept(path, node))
            room -= len(node.data or b"")
        self._gather(changes)
        if not self._left:
            self._left = None
            self._journal.finish_gathering()

    def _gather_before(self, path: str, before: StoredNode | None) -> None:
        """Add a changed node to the snapshot in its form before the change."""
        assert self._left is not None
        if path in self._left:
            del self._left[path]
            assert before is not None, "the snapshot lists existing nodes"
            self._gather([NodeKept(path, before)])

    def _gather(self, changes: Sequence[StoredNodeChange]) -> None:
        if changes:
            self._journal.gather(changes)

    # Memory

    def _replay(self, change: StoredNodeChange) -> None:
        match change:
            case SessionMade():
                self.sessions[change.session_id] = change
            case SessionGone():
                del self.sessions[change.session_id]
            case ZxidsReserved():
                self._reserved = change.end
            case NodeKept():
                if change.path in self.nodes:
                    self._unlink(change.path)
                self._link(change.path, change.node)
                self.zxid = max(self.zxid, change.node.mzxid, change.node.pzxid)
            case _:
                self._apply(change)

    def _apply(self, change: NodeChange) -> None:
        match change:
            case NodeMade():
                self._child_changed(change.path, change.zxid, created=1)
                zxid, ms = change.zxid, change.time_ms
                node = StoredNode(
                    change.data, change.acl, zxid, zxid, zxid, ms, ms, 0, 0, 0, change.owner
                )
                self._link(change.path, node)
            case NodeSet():
                node = self.nodes[change.path]
                self.stored_bytes += len(change.data or b"") - len(node.data or b"")
                node.data, node.mzxid, node.mtime_ms = change.data, change.zxid, change.time_ms
                node.version += 1
                self.zxid = max(self.zxid, change.zxid)
            case AclSet():
                node = self.nodes[change.path]
                self.stored_bytes += size_of("", None, change.acl) - size_of("", None, node.acl)
                node.acl = change.acl
                node.aversion += 1
            case NodeGone():
                self._child_changed(change.path, change.zxid)
                self._unlink(change.path)

    def _child_changed(self, path: str, zxid: int, created: int = 0) -> None:
        parent = self.nodes[parent_of(path)]
        parent.created += created
        parent.pzxid = zxid
        self.zxid = max(self.zxid, zxid)

    def _link(self, path: str, node: StoredNode) -> None:
        self.nodes[path] = node
        if path != ROOT:
            parent, _, name = path.rpartition("/")
            self._children.setdefault(parent or ROOT, set()).add(name)
        if node.owner:
            self._ephemerals.setdefault(node.owner, set()).add(path)
        self.stored_bytes += size_of(path, node.data, node.acl)

    def _unlink(self, path: str) -> None:
        node = self.nodes.pop(path)
        if path != ROOT:
            parent, _, name = path.rpartition("/")
            names = self._children[parent or ROOT]
            names.discard(name)
            if not names:
                del self._children[parent or ROOT]
        if node.owner:
            owned = self._ephemerals[node.owner]
            owned.discard(path)
            if not owned:
                del self._ephemerals[node.owner]
        self.stored_bytes -= size_of(path, node.data, node.acl)
