"""The part of the tree that shows the broker as Kafka 0.8 shows itself: a table of paths.

Formats: `kafka.utils.ZkUtils` of release 0.8.2. Knows no session and no watch.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from braidlog.broker.access.rights import Action, Resource
from braidlog.protocols.zookeeper import acl as lists
from braidlog.protocols.zookeeper import paths
from braidlog.protocols.zookeeper.group_nodes import (
    GroupNode,
    GroupsNode,
    OffsetNode,
    OffsetsNode,
    OffsetTopicNode,
)
from braidlog.protocols.zookeeper.namespace import NamespaceNode, SharedNodes
from braidlog.protocols.zookeeper.topic_nodes import (
    ConfigNode,
    ConfigsNode,
    DeletedTopicNode,
    ElectionNode,
    PartitionNode,
    PartitionsNode,
    StateNode,
    TopicNode,
    TopicsNode,
)
from braidlog.protocols.zookeeper.virtual import VirtualNode

if TYPE_CHECKING:
    from braidlog.protocols.zookeeper.callers import Caller

# Nodes that always exist, parents first.
FIXED: Final = (
    "/zookeeper",
    "/zookeeper/quota",
    "/brokers",
    "/brokers/ids",
    "/brokers/topics",
    "/consumers",
    "/config",
    "/config/topics",
    "/config/changes",
    "/admin",
    "/admin/delete_topics",
)
CHANGES: Final = "/config/changes"
NAMESPACE_ACTIONS: Final = {
    lists.READ: Action.DESCRIBE,
    lists.WRITE: Action.ALTER,
    lists.CREATE: Action.CREATE,
    lists.DELETE: Action.DELETE,
    lists.ADMIN: Action.ALTER,
}
# A group's consumers create, change and delete its nodes.
GROUP_ACTIONS: Final = {
    **dict.fromkeys((lists.WRITE, lists.CREATE, lists.DELETE, lists.ADMIN), Action.CONSUME),
    lists.READ: Action.DESCRIBE,
}

Make = Callable[..., VirtualNode]


class RootNode(NamespaceNode):
    """`/`: the stored nodes, and the two nodes of the controller."""

    is_union = True

    def names(self, caller: Caller | None) -> Iterable[str]:
        return ("controller", "controller_epoch")


class BrokersNode(RootNode):
    """`/brokers/ids`: the live brokers."""

    def names(self, caller: Caller | None) -> Iterable[str]:
        return map(str, self._names.brokers(None))


class BrokerNode(NamespaceNode):
    """`/brokers/ids/N`: the address of the Kafka listener."""

    def __init__(self, names: SharedNodes, number: str) -> None:
        super().__init__(names)
        self._number = number

    def exists(self) -> bool:
        return self._address(None) is not None

    def data(self, caller: Caller | None) -> bytes | None:
        address = self._address(caller)
        assert address is not None, "the node exists"
        return msgspec.json.encode(
            {
                "jmx_port": -1,
                "timestamp": str(self._names.started_ms),
                "host": address[0],
                "version": 1,
                "port": address[1],
            }
        )

    def _address(self, caller: Caller | None) -> tuple[str, int] | None:
        brokers = self._names.brokers(caller)
        return next((brokers[node] for node in brokers if str(node) == self._number), None)


class ControllerNode(RootNode):
    """`/controller`: this broker, which owns the catalogue."""

    is_union = False

    def names(self, caller: Caller | None) -> Iterable[str]:
        return ()

    def data(self, caller: Caller | None) -> bytes | None:
        names = self._names
        controller = {"version": 1, "brokerid": names.node_id, "timestamp": str(names.started_ms)}
        return msgspec.json.encode(controller)


class EpochNode(ControllerNode):
    """`/controller_epoch`."""

    def data(self, caller: Caller | None) -> bytes | None:
        return b"1"


# Patterns of paths, by number of names; "*" is a parameter of the node.
TABLE: Final[Mapping[tuple[str, ...], Make]] = {
    (): RootNode,
    ("brokers", "ids"): BrokersNode,
    ("brokers", "ids", "*"): BrokerNode,
    ("brokers", "topics"): TopicsNode,
    ("brokers", "topics", "*"): TopicNode,
    ("brokers", "topics", "*", "partitions"): PartitionsNode,
    ("brokers", "topics", "*", "partitions", "*"): PartitionNode,
    ("brokers", "topics", "*", "partitions", "*", "state"): StateNode,
    ("controller",): ControllerNode,
    ("controller_epoch",): EpochNode,
    ("config", "topics"): ConfigsNode,
    ("config", "topics", "*"): ConfigNode,
    ("admin", "delete_topics", "*"): DeletedTopicNode,
    ("admin", "preferred_replica_election"): ElectionNode,
    ("admin", "reassign_partitions"): ElectionNode,
    ("consumers",): GroupsNode,
    ("consumers", "*"): GroupNode,
    ("consumers", "*", "offsets"): OffsetsNode,
    ("consumers", "*", "offsets", "*"): OffsetTopicNode,
    ("consumers", "*", "offsets", "*", "*"): OffsetNode,
}
# Most paths of applications have another first name: these are no virtual nodes.
FIRST_NAMES: Final = frozenset(pattern[0] if pattern else "" for pattern in TABLE)
LONGEST: Final = max(map(len, TABLE))
BY_LENGTH: Final[Mapping[int, Sequence[tuple[tuple[str, ...], Make]]]] = {
    size: [(pattern, make) for pattern, make in TABLE.items() if len(pattern) == size]
    for size in range(LONGEST + 1)
}


class KafkaView:
    """See `braidlog.protocols.zookeeper.virtual.VirtualView`."""

    def __init__(self, names: SharedNodes) -> None:
        self._names = names

    def find(self, path: str) -> VirtualNode | None:
        for make, names in _patterns_of(path):
            node = make(self._names, *names)
            return node if node.applies() else None
        return None

    def may_show(self, path: str) -> bool:
        return any(True for _ in _patterns_of(path))

    def refresh(self, shown_paths: Iterable[str]) -> Coroutine[Any, Any, None] | None:
        if self._names.broker.placement.is_alone:
            return None
        wanted: dict[str, set[str]] = {}
        for path in shown_paths:
            _, first, *parts = (*path.split("/"), "")[:5]
            if first == "consumers":
                group, kind, topic = (*parts, "", "", "")[:3]
                is_stored = group and self._names.nodes.find(f"/consumers/{group}") is not None
                if kind in ("", "offsets") or not is_stored:
                    wanted.setdefault(group, set()).add(topic if kind == "offsets" else "")
        return self._refresh(wanted) if wanted else None

    async def _refresh(self, wanted: Mapping[str, set[str]]) -> None:
        """Ask for the positions of groups on topics ("": on all); "": for all groups' names."""
        remote = self._names.remote
        for group, topics in wanted.items():
            if not group:
                await remote.refresh_names()
                continue
            name = group.encode(errors="surrogateescape")
            for topic in [""] if "" in topics else topics:
                await remote.refresh(name, topic or None)

    def rights_of(self, path: str) -> tuple[Resource, Mapping[int, Action]]:
        parts = path[1:].split("/")
        names = self._names
        if parts[0] == "consumers" and len(parts) > 1:
            group = Resource.of_group_within(parts[1].encode(), names.tenant, names.namespace)
            return group, GROUP_ACTIONS
        return names.resource, NAMESPACE_ACTIONS


def _patterns_of(path: str) -> Iterator[tuple[Make, Sequence[str]]]:
    """Yield the kind of virtual node that a path has, with the names of its parameters."""
    if path[1:].partition("/")[0] not in FIRST_NAMES:
        return
    parts = tuple(path[1:].split("/")) if path != paths.ROOT else ()
    for pattern, make in BY_LENGTH.get(len(parts), ()):
        pairs = list(zip(parts, pattern, strict=True))
        if all(wanted in ("*", part) for part, wanted in pairs):
            yield make, [part for part, wanted in pairs if wanted == "*"]
