"""The topics, groups and address that a ZooKeeper listener shows: those of its Kafka listener."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from braidlog.broker.access.rights import Resource
from braidlog.protocols.zookeeper.paths import is_name
from braidlog.protocols.zookeeper.remote_groups import RemoteGroups
from braidlog.protocols.zookeeper.virtual import VirtualNode
from braidlog.storage.metadata.names import TopicName, kafka_legal, split_partition

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.broker.coordination.nodes import Nodes
    from braidlog.broker.topics.topic import Topic
    from braidlog.protocols.zookeeper.callers import Caller

ANY_ADDRESS = ("0.0.0.0", 0)  # Stands for the local address of no particular client.
NO_LEADER: Final = -1


class SharedNodes:
    """State that all virtual nodes of a listener share."""

    def __init__(
        self, broker: Broker, nodes: Nodes, kafka: str, keep: Callable[[str, bytes | None], None]
    ) -> None:
        """`kafka` is the name of the Kafka listener; `keep` stores a node for the broker itself."""
        self.keep = keep
        self.broker = broker
        self.nodes = nodes
        path = str(broker.config.listener(kafka).options.get("namespace", "public/default"))
        self.tenant, _, self.namespace = path.partition("/")
        self.resource = Resource.of_namespace(self.tenant, self.namespace)
        self.node_id = broker.placement.node_id
        self.remote = RemoteGroups(broker, (self.tenant, self.namespace))
        self.started_ms = broker.now_us() // 1000
        self.stale_commits = broker.metrics.number("braidlog_stale_commits", "zookeeper")
        self._kafka = kafka

    def address(self, caller: Caller | None) -> tuple[str, int] | None:
        """Return the Kafka listener's address for a client; None while the listener is closed."""
        listener = self.broker.listeners.get(self._kafka)
        if listener is None:
            return None
        if caller is None:
            return listener.advertised_to(ANY_ADDRESS)
        if caller.is_forwarded:  # The client connected to another broker's address.
            return listener.advertised_to((socket.gethostname(), listener.bound[1]))
        return listener.advertised_to(caller.connection.local)

    def brokers(self, caller: Caller | None) -> dict[int, tuple[str, int]]:
        """Return the live brokers, with the addresses of their Kafka listeners."""
        own = self.address(caller)
        addresses = {} if own is None else {self.node_id: own}
        for owner in self.broker.placement.others():
            if (address := owner.addresses.get(self._kafka)) is not None:
                addresses[owner.node_id] = address
        return addresses

    def leader(self, topic: Topic) -> int:
        """Return the node that owns a topic; -1 if there is none now."""
        owner = self.broker.placement.owner(topic.name)
        if owner is None:
            return self.node_id
        return owner.node_id or NO_LEADER

    def positions(self, topic: Topic, group: bytes) -> Mapping[int, int] | None:
        """Return a group's positions on a topic, by partition; None without a subscription."""
        if not self.broker.placement.is_here(topic.name):
            return self.remote.positions(topic.name, group)
        subscription = self.broker.subscriptions.find(topic, group)
        if subscription is None:
            return None
        commits = ((index, subscription.committed(index)) for index in range(len(topic.partitions)))
        return {index: commit.offset for index, commit in commits if commit is not None}

    def topic(self, name: str) -> Topic | None:
        """Return the topic that Kafka's clients know by this name."""
        topic_name = TopicName(self.tenant, self.namespace, name)
        return self.broker.topics.find(topic_name) if is_visible(topic_name) else None

    def topics(self, caller: Caller | None) -> Iterator[Topic]:
        """Yield the topics that a client may see; None: all."""
        for topic in self.broker.topics.list(self.tenant, self.namespace):
            if is_visible(topic.name) and (caller is None or caller.may_see(topic.resource)):
                yield topic

    def groups(self, topics: Iterable[Topic]) -> dict[str, Topic]:
        """Return the groups of these topics whose names can be names of nodes."""
        topic_of_group: dict[str, Topic] = {}
        for topic in topics:
            for name in self._group_names(topic):
                group = group_name(name)
                if group is not None:
                    topic_of_group.setdefault(group, topic)
        return topic_of_group

    def _group_names(self, topic: Topic) -> Sequence[bytes]:
        if self.broker.placement.is_here(topic.name):
            return self.broker.subscriptions.names(topic)
        return self.remote.names(topic.name)


def is_visible(name: TopicName) -> bool:
    """Return True if Kafka's clients can name a topic."""
    return kafka_legal(name.topic) and split_partition(name.topic) is None


def group_name(name: bytes) -> str | None:
    """Return a group's name as a node's name; None if no node can have the name."""
    try:
        text = name.decode()
    except UnicodeDecodeError:
        return None
    return text if is_name(text) else None


class NamespaceNode(VirtualNode):
    """A node about the whole namespace: a reader must be allowed to describe the namespace."""

    def __init__(self, names: SharedNodes) -> None:
        self._names = names

    def rights(self) -> Resource:
        return self._names.resource
