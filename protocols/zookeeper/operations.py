"""The operations of clients: requests to calls of the tree. Knows no bytes and no socket.

A handler returns the values of the answer, or a coroutine where the broker has to wait.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from braidlog.broker.errors import BrokerError, LimitExceeded
from braidlog.broker.limits import OUTPUT_SHARE_BYTES_MIN
from braidlog.broker.runtime.turns import in_turns
from braidlog.protocols.zookeeper import acl as lists
from braidlog.protocols.zookeeper import jute, paths
from braidlog.protocols.zookeeper.errors import NodeError, ZkCode, wire_code
from braidlog.protocols.zookeeper.messages import ERROR, Event, Op, PartResult
from braidlog.protocols.zookeeper.tree import Stat, Tree, VisibleNode
from braidlog.protocols.zookeeper.watches import WatchKind

if TYPE_CHECKING:
    from braidlog.broker.coordination.nodes import Acls
    from braidlog.broker.runtime.output_budget import OutputBudget
    from braidlog.protocols.zookeeper.callers import Caller
    from braidlog.protocols.zookeeper.virtual import Change, VirtualNode
    from braidlog.protocols.zookeeper.watches import NodeWatcher

Values = Sequence[Any]
Result = Values | Coroutine[Any, Any, Values]
Handler = Callable[..., Result]

# Names of a node's children in an answer; ZooKeeper's clients read 1 to 4 MiB (jute.maxbuffer).
NAMES_BYTES_MAX: Final = 16 * 1024 * 1024


@dataclass(slots=True)
class OperationContext:
    """A connection, as seen by the operations. `ticket`: the answer waits for its durability.
    `pieces`: set if the answer is sent in pieces, as a block that holds its bytes meanwhile.
    """

    tree: Tree
    caller: Caller
    watcher: NodeWatcher
    chroot: str
    ticket: int = 0
    pieces: AbstractContextManager[None] | None = None
    in_task: bool = False  # The handler runs in the connection's task, which may send pieces.

    def path(self, shown: str) -> str:
        """Return the path of the node that the client names."""
        return paths.within(shown, self.chroot)

    def shown(self, path: str, named: str) -> str:
        """Return a path below the chroot if the client named the node so."""
        return f"{self.chroot}{path}" if self.path(named) != named else path

    def look(self, path: str) -> VisibleNode:
        """Return a node that the client may know of. Raises NodeError, NotAuthorized."""
        self.tree.check_describe(self.caller, path)
        node = self.tree.look(path, self.caller)
        if node is None:
            raise NodeError(ZkCode.NO_NODE)
        return node

    def read(self, path: str) -> VisibleNode:
        """Return a node that the client may read. Raises NodeError, NotAuthorized."""
        node = self.look(path)
        self.tree.check_read(self.caller, path, node)
        return node

    def watch(self, kind: WatchKind, path: str, named: str, *, is_wanted: bool) -> None:
        """Set a watch if the client wants the watch. Raises LimitExceeded."""
        if is_wanted and paths.is_valid(named):
            self.tree.watches.add(kind, path, self.watcher, named)

    def virtual(self, path: str) -> VirtualNode | None:
        """Return the node if the broker's own state takes its writes."""
        virtual = self.tree.view.find(path)
        return None if virtual is None or virtual.is_union else virtual

    def has_room(self, size: int) -> bool:
        """Return True if an answer of so many bytes can be made now."""
        return size <= OUTPUT_SHARE_BYTES_MIN or self._budget.has_room(size)

    async def with_room(self, size: int, handler: Handler, *fields: object) -> Values:
        """Serve a read again once there is memory for its answer: the node may have changed."""
        await self._budget.room(size)
        result = handler(self, *fields)
        return await result if isinstance(result, Coroutine) else result

    async def as_task(self, handler: Handler, *fields: object) -> Values:
        """Serve a read again in the connection's task: the node may have changed."""
        self.in_task = True
        try:
            result = handler(self, *fields)
        finally:
            self.in_task = False
        return await result if isinstance(result, Coroutine) else result

    @property
    def _budget(self) -> OutputBudget:
        return self.caller.connection.outbox.budget

    def observed(self, path: str) -> Values:
        """Note that a virtual node has gone; there is nothing to answer."""
        self.tree.observe(path)
        return ()

    def stat(self, path: str) -> Stat:
        """Return the numbers of a node after a change; zeros if the node is gone already."""
        node = self.tree.look(path, self.caller)
        return (0,) * 11 if node is None else node.stat


WATCHES_PER_TURN: Final = 200  # Set again between two checkpoints: some milliseconds.
MZXID, CHILDREN, PZXID = 1, 9, 10  # Their places among the numbers of a node.
CHILDREN_AT_ONCE: Final = 1000  # A longer list is made once for all connections that read it.


def exists(context: OperationContext, named: str, is_watched: bool) -> Result:
    """Return the numbers of a node; the watch is set even if the node is absent."""
    path = context.path(named)
    try:
        node = context.look(path)
    except NodeError:
        context.watch(WatchKind.DATA, path, named, is_wanted=is_watched)
        raise
    context.watch(WatchKind.DATA, path, named, is_wanted=is_watched)
    return (node.stat,)


def get_data(context: OperationContext, named: str, is_watched: bool) -> Result:
    """Return data and numbers of a node."""
    path = context.path(named)
    node = context.read(path)
    size = len(node.data or b"")
    if node.stored is None:  # The data are made for each answer.
        if not context.has_room(size):
            return context.with_room(size, get_data, named, is_watched)
    elif size > OUTPUT_SHARE_BYTES_MIN:
        if not context.in_task:
            return context.as_task(get_data, named, is_watched)
        connection = context.caller.connection
        context.pieces = context.tree.pieces.hold_data(path, node.data or b"", connection)
    context.watch(WatchKind.DATA, path, named, is_wanted=is_watched)
    if node.virtual is not None:
        context.ticket = max(context.ticket, node.virtual.ticket())
    return node.data, node.stat


def get_children(context: OperationContext, named: str, is_watched: bool) -> Result:
    """Return the names of a node's children."""
    return _only_first(get_children2(context, named, is_watched))


def get_children2(context: OperationContext, named: str, is_watched: bool) -> Result:
    """Return the names of a node's children, and the node's numbers."""
    path = context.path(named)
    node = context.read(path)
    is_stored = node.virtual is None
    if is_stored and context.in_task:
        children = context.tree.pieces.children(path, node.stat[PZXID])
        if children is not None:
            return _children_in_pieces(context, node, children, path, named, is_watched=is_watched)
    elif is_stored and node.stat[CHILDREN] > CHILDREN_AT_ONCE:
        return context.as_task(get_children2, named, is_watched)
    names = node.names()
    size = sum(map(len, names))
    if size > NAMES_BYTES_MAX:
        raise LimitExceeded(f"names of {len(names)} children exceed {NAMES_BYTES_MAX} bytes")
    if is_stored and size > OUTPUT_SHARE_BYTES_MIN and not context.in_task:
        return context.as_task(get_children2, named, is_watched)
    if not context.has_room(size):
        return context.with_room(size, get_children2, named, is_watched)
    if is_stored and context.in_task:
        children = jute.strings(names)
        return _children_in_pieces(context, node, children, path, named, is_watched=is_watched)
    context.watch(WatchKind.CHILDREN, path, named, is_wanted=is_watched)
    return names, node.stat


def _children_in_pieces(
    context: OperationContext,
    node: VisibleNode,
    children: bytes,
    path: str,
    named: str,
    *,
    is_watched: bool,
) -> Values:
    connection = context.caller.connection
    context.watch(WatchKind.CHILDREN, path, named, is_wanted=is_watched)
    context.pieces = context.tree.pieces.hold_children(path, node.stat[PZXID], children, connection)
    return children, node.stat


def get_acl(context: OperationContext, named: str) -> Result:
    """Return the access list of a node."""
    node = context.look(context.path(named))
    size = sum(len(entry.id) for entry in node.acl)
    if not context.has_room(size):
        return context.with_room(size, get_acl, named)
    return node.acl, node.stat


def set_acl(context: OperationContext, named: str, acl: Acls, version: int) -> Result:
    """Set the access list of a stored node."""
    path = context.path(named)
    if context.virtual(path) is not None:
        raise NodeError(ZkCode.NO_AUTH, "access control decides about this node")
    with context.tree.change():
        context.tree.set_acl(context.caller, path, acl, version)
    return (context.stat(path),)


def create(
    context: OperationContext, named: str, data: bytes | None, acl: Acls, flags: int
) -> Result:
    """Create a node; return its path."""
    return _only_first(create2(context, named, data, acl, flags))


def _only_first(result: Result) -> Result:
    return _first_later(result) if isinstance(result, Coroutine) else result[:1]


async def _first_later(result: Coroutine[Any, Any, Values]) -> Values:
    return (await result)[:1]


def create2(
    context: OperationContext, named: str, data: bytes | None, acl: Acls, flags: int
) -> Result:
    """Create a node; return its path and numbers."""
    path = context.path(named)
    virtual = context.virtual(path) if paths.is_valid(path) else None
    if virtual is not None:
        if flags:
            raise NodeError(ZkCode.BAD_ARGUMENTS, "this node is neither ephemeral nor sequential")
        lists.fixed(acl, context.caller.identities)
        change = virtual.create(context.caller, data)
        return _changed(context, change, lambda: (named, context.stat(path)))
    with context.tree.change():
        path = context.tree.create(context.caller, path, data, acl, flags)
    return context.shown(path, named), context.stat(path)


def set_data(context: OperationContext, named: str, data: bytes | None, version: int) -> Result:
    """Set the data of a node; return its numbers."""
    path = context.path(named)
    virtual = context.virtual(path)
    if virtual is not None:
        context.tree.check(path, version)
        change = virtual.set_data(context.caller, data)
        return _changed(context, change, lambda: (context.stat(path),))
    with context.tree.change():
        context.tree.set_data(context.caller, path, data, version)
    return (context.stat(path),)


def delete(context: OperationContext, named: str, version: int) -> Result:
    """Delete a node."""
    path = context.path(named)
    virtual = context.virtual(path)
    if virtual is not None:
        context.tree.check(path, version)
        return _changed(context, virtual.delete(context.caller), lambda: context.observed(path))
    with context.tree.change():
        context.tree.delete(context.caller, path, version)
    return ()


def sync(context: OperationContext, named: str) -> Result:
    """Return the path: this broker has seen every change."""
    if not context.has_room(len(named)):
        return context.with_room(len(named), sync, named)
    return (named,)


def check(context: OperationContext, named: str, version: int) -> Result:
    """Compare the version of a node."""
    path = context.path(named)
    context.tree.check_describe(context.caller, path)
    context.tree.check(path, version)
    return ()


def _changed(context: OperationContext, change: Change, answer: Callable[[], Values]) -> Result:
    """Return the answer to a change of a virtual node, made after the change."""
    if not isinstance(change, int):
        return _changed_later(context, change, answer)
    context.ticket = max(context.ticket, change)
    return answer()


async def _changed_later(
    context: OperationContext, change: Coroutine[Any, Any, int], answer: Callable[[], Values]
) -> Values:
    context.ticket = max(context.ticket, await change)
    return answer()


def multi(context: OperationContext, *parts: tuple[int, Values]) -> Result:
    """Make all parts or none; an answer for each part."""
    results: list[PartResult] = []
    error: NodeError | BrokerError
    try:
        with context.tree.change():
            for op, fields in parts:
                results.append(_part(context, op, fields))
    except (NodeError, BrokerError) as caught:
        error = caught
    else:
        return results
    code = error.code if isinstance(error, NodeError) else wire_code(error)
    failed = len(results)
    after = max(len(parts) - failed - 1, 0)
    codes = [ZkCode.OK] * failed + [code] + [ZkCode.RUNTIME_INCONSISTENCY] * after
    return [PartResult(ERROR, (), code) for code in codes[: max(len(parts), 1)]]


def _part(context: OperationContext, op: int, fields: Values) -> PartResult:
    tree, caller = context.tree, context.caller
    named, *rest = fields
    path = context.path(named)
    match op:
        case Op.CREATE:
            return PartResult(op, (context.shown(tree.create(caller, path, *rest), named),))
        case Op.CREATE2:
            path = tree.create(caller, path, *rest)
            return PartResult(op, (context.shown(path, named), tree.stored_stat(path)))
        case Op.DELETE:
            tree.delete(caller, path, *rest)
        case Op.SET_DATA:
            tree.set_data(caller, path, *rest)
            return PartResult(op, (tree.stored_stat(path),))
        case _:
            tree.check_describe(caller, path)
            tree.check(path, *rest)
    return PartResult(op)


async def set_watches(
    context: OperationContext,
    zxid_seen: int,
    data: Sequence[str],
    absent: Sequence[str],
    children: Sequence[str],
    *persistent: Sequence[str],
) -> Values:
    """Set the watches of a client that reconnects; changes since `zxid_seen` fire at once."""
    if any(persistent):
        raise NodeError(ZkCode.UNIMPLEMENTED, "persistent watches are not served")
    every = (*data, *absent, *children)
    context.tree.watches.check_room(context.watcher, len(every), sum(map(len, every)))
    wanted = chain(
        ((_rewatch, WatchKind.DATA, named, MZXID) for named in data),
        ((_watch_absent, WatchKind.DATA, named, MZXID) for named in absent),
        ((_rewatch, WatchKind.CHILDREN, named, PZXID) for named in children),
    )
    async for watch, kind, named, field in in_turns(wanted, WATCHES_PER_TURN):
        watch(context, kind, named, zxid_seen, field)
    return ()


def _seen(context: OperationContext, named: str) -> VisibleNode | None:
    try:
        return context.look(context.path(named))
    except NodeError:
        return None


def _watch_absent(
    context: OperationContext, kind: WatchKind, named: str, zxid_seen: int, field: int
) -> None:
    """Set a watch on a node that was absent; fire it if the node is there now."""
    if _seen(context, named) is not None:
        context.watcher.send_event(Event.CREATED, named)
    else:
        context.watch(kind, context.path(named), named, is_wanted=True)


def _rewatch(
    context: OperationContext, kind: WatchKind, named: str, zxid_seen: int, field: int
) -> None:
    """Set a watch again; fire it if the node has gone or changed. `field`: of the numbers."""
    path = context.path(named)
    look = _seen(context, named)
    if look is None:
        context.watcher.send_event(Event.DELETED, named)
    elif look.stat[field] > zxid_seen:
        is_data = kind is WatchKind.DATA
        event = Event.DATA_CHANGED if is_data else Event.CHILDREN_CHANGED
        context.watcher.send_event(event, named)
    else:
        context.watch(kind, path, named, is_wanted=True)


def named_paths(op: int, fields: Values) -> Iterator[str]:
    """Yield the paths that a request names, as the client names them."""
    match op:
        case Op.MULTI:
            yield from (part[0] for _, part in fields)
        case Op.SET_WATCHES | Op.SET_WATCHES2:
            for named in fields[1:]:
                yield from named
        case _:
            yield fields[0]


OPERATIONS: Final[Mapping[int, tuple[str, Handler]]] = {
    Op.CREATE: ("create", create),
    Op.DELETE: ("delete", delete),
    Op.EXISTS: ("exists", exists),
    Op.GET_DATA: ("get_data", get_data),
    Op.SET_DATA: ("set_data", set_data),
    Op.GET_ACL: ("get_acl", get_acl),
    Op.SET_ACL: ("set_acl", set_acl),
    Op.GET_CHILDREN: ("get_children", get_children),
    Op.SYNC: ("sync", sync),
    Op.GET_CHILDREN2: ("get_children2", get_children2),
    Op.CHECK: ("check", check),
    Op.MULTI: ("multi", multi),
    Op.CREATE2: ("create2", create2),
    Op.SET_WATCHES: ("set_watches", set_watches),
    Op.SET_WATCHES2: ("set_watches2", set_watches),
}
