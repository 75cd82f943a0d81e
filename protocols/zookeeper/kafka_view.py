"""The part of the tree that shows the broker as Kafka 0.8 shows itself: a table of paths.

Formats: `kafka.utils.ZkUtils` of release 0.8.2. Knows no session and no watch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

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
from braidlog.protocols.zookeeper.namespace import Namespace
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


class RootNode(VirtualNode):
    """`/`: the stored nodes, and the two nodes of the controller."""

    is_union = True

    def __init__(self, names: Namespace) -> None:
        self._names = names

    def rights(self) -> Resource:
        """See `VirtualNode`."""
        return self._names.resource

    def names(self, caller: Caller | None) -> Iterable[str]:
        """See `VirtualNode`."""
        return ("controller", "controller_epoch")


class BrokersNode(RootNode):
    """`/brokers/ids`: this broker."""

    def names(self, caller: Caller | None) -> Iterable[str]:
        """See `VirtualNode`."""
        return (str(self._names.node_id),) if self._names.address(None) is not None else ()


class BrokerNode(VirtualNode):
    """`/brokers/ids/N`: the address of the Kafka listener."""

    def __init__(self, names: Namespace, number: str) -> None:
        self._names, self._number = names, number

    def rights(self) -> Resource:
        """See `VirtualNode`."""
        return self._names.resource

    def exists(self) -> bool:
        """See `VirtualNode`."""
        names = self._names
        return self._number == str(names.node_id) and names.address(None) is not None

    def data(self, caller: Caller | None) -> bytes | None:
        """See `VirtualNode`."""
        address = self._names.address(caller)
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


class ControllerNode(RootNode):
    """`/controller`: this broker."""

    is_union = False

    def names(self, caller: Caller | None) -> Iterable[str]:
        """See `VirtualNode`."""
        return ()

    def data(self, caller: Caller | None) -> bytes | None:
        """See `VirtualNode`."""
        names = self._names
        controller = {"version": 1, "brokerid": names.node_id, "timestamp": str(names.started_ms)}
        return msgspec.json.encode(controller)


class EpochNode(ControllerNode):
    """`/controller_epoch`."""

    def data(self, caller: Caller | None) -> bytes | None:
        """See `VirtualNode`."""
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
LONGEST: Final = max(map(len, TABLE))
BY_LENGTH: Final[Mapping[int, Sequence[tuple[tuple[str, ...], Make]]]] = {
    size: [(pattern, make) for pattern, make in TABLE.items() if len(pattern) == size]
    for size in range(LONGEST + 1)
}


class KafkaView:
    """See `braidlog.protocols.zookeeper.virtual.VirtualView`."""

    def __init__(self, names: Namespace) -> None:
        self._names = names

    def find(self, path: str) -> VirtualNode | None:
        """See `VirtualView`."""
        parts = tuple(path[1:].split("/")) if path != paths.ROOT else ()
        for pattern, make in BY_LENGTH.get(len(parts), ()):
            names = [part for part, wanted in zip(parts, pattern, strict=True) if wanted == "*"]
            if all(wanted in ("*", part) for part, wanted in zip(parts, pattern, strict=True)):
                node = make(self._names, *names)
                return node if node.applies() else None
        return None

    def rights_of(self, path: str) -> tuple[Resource, Mapping[int, Action]]:
        """See `VirtualView`."""
        parts = path[1:].split("/")
        names = self._names
        if parts[0] == "consumers" and len(parts) > 1:
            group = Resource.of_group_within(parts[1].encode(), names.tenant, names.namespace)
            return group, GROUP_ACTIONS
        return names.resource, NAMESPACE_ACTIONS
