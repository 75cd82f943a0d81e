"""Large data and lists that connections send in pieces. Knows no socket.

A piece is a small answer for the budget for output, so a peer that does not read holds a single
piece. The bytes themselves are in memory once: data belong to their stored node and cost nothing
more, a list of children is counted once for all connections. Data that the node no longer holds are
counted too; without room for the data, the connections that send them end.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from braidlog.broker.coordination.nodes import Nodes
    from braidlog.broker.runtime.output_budget import OutputBudget
    from braidlog.protocols.zookeeper.sessions import SessionHolder


@dataclass(slots=True, eq=False)
class SentBytes:
    """Bytes on the way to connections; `charged` are counted in the budget. `pzxid`: of the node
    whose children the bytes list, as the bytes show it.
    """

    data: bytes
    pzxid: int = 0
    charged: int = 0
    connections: list[SessionHolder] = field(default_factory=list)


class SentInPieces:
    """All data and lists that are being sent in pieces, by the path of their node."""

    def __init__(self, nodes: Nodes, budget: OutputBudget) -> None:
        self._nodes = nodes
        self._budget = budget
        self._data: dict[str, SentBytes] = {}  # That their node holds.
        self._lists: dict[str, SentBytes] = {}  # The newest list of each node.

    @contextmanager
    def hold_data(self, path: str, data: bytes, connection: SessionHolder) -> Iterator[None]:
        """Note that a connection sends the present data of a node during the block."""
        sent = self._data.setdefault(path, SentBytes(data))
        assert sent.data is data, "`changed` is called for every change"
        with self._held(self._data, path, sent, connection):
            yield

    def children(self, path: str, pzxid: int) -> bytes | None:
        """Return the list of a node's children if a connection sends the same list."""
        sent = self._lists.get(path)
        return sent.data if sent is not None and sent.pzxid == pzxid else None

    @contextmanager
    def hold_children(
        self, path: str, pzxid: int, children: bytes, connection: SessionHolder
    ) -> Iterator[None]:
        """Note that a connection sends the list of a node's children during the block."""
        sent = self._lists.get(path)
        if sent is None or sent.data is not children:
            sent = self._lists[path] = SentBytes(children, pzxid, len(children))
            self._budget.charge(sent.charged)
        with self._held(self._lists, path, sent, connection):
            yield

    @contextmanager
    def _held(
        self,
        by_path: dict[str, SentBytes],
        path: str,
        sent: SentBytes,
        connection: SessionHolder,
    ) -> Iterator[None]:
        sent.connections.append(connection)
        try:
            yield
        finally:
            sent.connections.remove(connection)
            if not sent.connections:
                if by_path.get(path) is sent:
                    del by_path[path]
                self._budget.charge(-sent.charged)

    def changed(self, path: str) -> None:
        """Count the old data of a node that has changed or gone."""
        sent = self._data.get(path)
        if sent is None:
            return
        node = self._nodes.find(path)
        if node is not None and node.data is sent.data:
            return
        del self._data[path]
        size = len(sent.data)
        if self._budget.fits(size):
            self._budget.charge(size)
            sent.charged = size
            return
        for connection in tuple(sent.connections):
            connection.end(f"{path} changed while it was sent, and memory is short")
