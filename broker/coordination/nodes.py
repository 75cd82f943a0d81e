"""Nodes and sessions that clients store for coordination (ZooKeeper's tree), within limits.

The journal is opened by the first listener that needs it. Knows no protocol, no connection and no
watch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import contextmanager
from typing import Final

from braidlog.broker.commit.storage_errors import Report, as_broker_errors
from braidlog.broker.errors import LimitExceeded, NotOwner
from braidlog.storage.metadata.changes import Journal
from braidlog.storage.metadata.node_records import (
    Acl,
    Acls,
    AclSet,
    NodeChange,
    NodeGone,
    NodeMade,
    NodeSet,
    SessionMade,
    StoredNode,
)
from braidlog.storage.metadata.nodes import OPEN, StoredNodes, size_of

__all__ = [
    "OPEN",
    "Acl",
    "AclSet",
    "Acls",
    "NodeGone",
    "NodeMade",
    "NodeSet",
    "Nodes",
    "SessionMade",
    "StoredNode",
]

# Like ZooKeeper's jute.maxbuffer.
NODE_BYTES_MAX: Final = 1024 * 1024
# All nodes are in memory, some 500 bytes each beside their data.
NODES_MAX: Final = 100_000
NODES_BYTES_MAX: Final = 256 * 1024 * 1024
SESSIONS_MAX: Final = 10_000  # As many as connections.


class Nodes:
    """The stored tree. Changes between `together` and its end are made all or not at all.

    Guarantees: nothing waits; a change is in memory when the block ends, and durable with `ticket`.
    """

    def __init__(
        self,
        open_journal: Callable[[], Journal],
        report: Report,
        *,
        sessions_max: int = SESSIONS_MAX,
    ) -> None:
        """`report` is called with each storage error before the broker error is raised."""
        self._sessions_max = sessions_max
        self._open_journal = open_journal
        self._report = report
        self._opened: StoredNodes | None = None
        self.tenure = 0  # Changes when the nodes come or go.

    def open(self) -> None:
        """Read the stored nodes, unless that was done. Raises NotOwner, storage errors."""
        if self._opened is None:
            self.accept(self.read())

    def read(self) -> StoredNodes:
        """Read the stored nodes, in any thread. Raises NotOwner, storage errors."""
        return StoredNodes(self._open_journal())

    def accept(self, stored: StoredNodes) -> None:
        """Use the nodes that `read` returned."""
        self._opened = stored
        self.tenure += 1

    def close(self) -> None:
        """Let another broker have the nodes: every later use raises NotOwner."""
        self._opened = None
        self.tenure += 1

    @property
    def is_open(self) -> bool:
        """True if the nodes were read, and belong to this broker."""
        return self._opened is not None

    @property
    def _stored(self) -> StoredNodes:
        if self._opened is None:
            raise NotOwner("the nodes of ZooKeeper's clients are owned by another broker")
        return self._opened

    @property
    def ticket(self) -> int:
        """After this ticket every change so far is on disk."""
        return self._stored.ticket

    @property
    def zxid(self) -> int:
        """The newest number of a change."""
        return self._stored.zxid

    @property
    def count(self) -> int:
        """Number of nodes."""
        return len(self._stored.nodes)

    @property
    def stored_bytes(self) -> int:
        """Bytes of all nodes."""
        return self._stored.stored_bytes

    @property
    def sessions(self) -> Mapping[int, SessionMade]:
        """All sessions by id."""
        return self._stored.sessions

    def find(self, path: str) -> StoredNode | None:
        """Return the node of that path, None if absent."""
        return self._stored.nodes.get(path)

    def children(self, path: str) -> Set[str]:
        """Return the names of a node's children."""
        return self._stored.children(path)

    def ephemerals(self, session_id: int) -> Set[str]:
        """Return the paths of a session's ephemeral nodes."""
        return self._stored.ephemerals(session_id)

    def ended_with_nodes(self) -> list[int]:
        """Return ended sessions that still own nodes: a crash left these."""
        return self._stored.ended_with_nodes()

    def next_zxid(self) -> int:
        """Take the next number of a change. Raises StorageFull, StorageFailed."""
        with as_broker_errors(self._report):
            return self._stored.next_zxid()

    @contextmanager
    def together(self) -> Iterator[None]:
        """Make the changes of the block as one record; an error in the block undoes them all.

        Raises StorageFull, StorageFailed.
        """
        stored = self._stored
        try:
            yield
            with as_broker_errors(self._report):
                stored.write()
        except BaseException:  # After any error, memory is as before the block.
            stored.undo()
            raise

    def apply(self, change: NodeChange) -> None:
        """Make a change, in a block of `together`. Raises LimitExceeded."""
        if isinstance(change, NodeMade):
            if self.count >= NODES_MAX:
                raise LimitExceeded(f"limit of {NODES_MAX} nodes reached")
            self._check_bytes(change.data, size_of(change.path, change.data, change.acl))
        elif isinstance(change, NodeSet):
            before = self._stored.nodes[change.path].data
            self._check_bytes(change.data, len(change.data or b"") - len(before or b""))
        self._stored.apply(change)

    def begin_session(self, session: SessionMade) -> int:
        """Store a session, or another timeout of a session; return the ticket.

        Raises LimitExceeded, StorageFull, StorageFailed.
        """
        if session.session_id not in self.sessions and len(self.sessions) >= self._sessions_max:
            raise LimitExceeded(f"limit of {self._sessions_max} sessions reached")
        with as_broker_errors(self._report):
            return self._stored.begin_session(session)

    def end_session(self, session_id: int) -> int:
        """Remove a session; the caller deletes its ephemeral nodes. Return the ticket.

        Raises StorageFull, StorageFailed.
        """
        with as_broker_errors(self._report):
            return self._stored.end_session(session_id)

    def _check_bytes(self, data: bytes | None, more: int) -> None:
        if len(data or b"") > NODE_BYTES_MAX:
            raise LimitExceeded(f"a node holds at most {NODE_BYTES_MAX} bytes")
        if more > 0 and self.stored_bytes + more > NODES_BYTES_MAX:
            raise LimitExceeded(f"all nodes together hold at most {NODES_BYTES_MAX} bytes")
