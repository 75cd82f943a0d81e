"""The interface of virtual nodes: nodes that show the broker's own state. Knows no path of Kafka's.

A `VirtualView` finds the virtual node of a path. `tree.py` joins virtual and stored nodes.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from braidlog.broker.access.rights import Action, Resource
from braidlog.protocols.zookeeper.errors import NodeError, ZkCode

if TYPE_CHECKING:
    from braidlog.protocols.zookeeper.callers import Caller

Change = int | Coroutine[Any, Any, int]  # The ticket of a change, perhaps after a wait.


class VirtualNode:
    """A path with a meaning. By default: the node exists, has no data and is read-only."""

    is_union = False  # A stored node of the same path counts too, with its children.

    def applies(self) -> bool:
        """Return False if the path has no meaning now: only a stored node can have the path."""
        return True

    def exists(self) -> bool:
        """Return True if the broker's state has this node."""
        return True

    def data(self, caller: Caller | None) -> bytes | None:
        """Return the data as a client sees them; None (the caller): as no particular client."""
        return None

    def ticket(self) -> int:
        """Return the ticket after which a crash takes back no data (0: at once)."""
        return 0

    def names(self, caller: Caller | None) -> Iterable[str]:
        """Return the names of the virtual children that a client may see; None: all."""
        return ()

    def hides(self, name: str) -> bool:
        """Return True if a stored child of that name is not shown."""
        return False

    def rights(self) -> Resource:
        """Return the resource that a reader must be allowed to describe; each kind of node has its
        own.
        """
        raise NotImplementedError

    def create(self, caller: Caller, data: bytes | None) -> Change:
        """Create the node: refused. Raises NodeError, broker errors."""
        raise NodeError(ZkCode.NO_AUTH, "the broker alone writes this node")

    def set_data(self, caller: Caller, data: bytes | None) -> Change:
        """Set the data: refused. Raises NodeError, broker errors."""
        raise NodeError(ZkCode.NO_AUTH, "the broker alone writes this node")

    def delete(self, caller: Caller) -> Change:
        """Delete the node: refused. Raises NodeError, broker errors."""
        raise NodeError(ZkCode.NO_AUTH, "the broker alone deletes this node")


class VirtualView(Protocol):
    """Finds virtual nodes, and the resource behind a stored node."""

    def find(self, path: str) -> VirtualNode | None:
        """Return the virtual node of a path; None if only a stored node can have the path."""

    def may_show(self, path: str) -> bool:
        """Return False if no state of the broker gives this path a virtual node."""

    def refresh(self, shown_paths: Iterable[str]) -> Coroutine[Any, Any, None] | None:
        """Return a coroutine that asks other brokers for their part of these nodes; None if this
        broker has all parts. The coroutine raises NotOwner if a broker does not answer.
        """

    def rights_of(self, path: str) -> tuple[Resource, Mapping[int, Action]]:
        """Return the resource behind a stored node, and the action for each permission."""
