"""The topics, groups and address that a ZooKeeper listener shows: those of its Kafka listener."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from braidlog.broker.access.rights import Resource
from braidlog.protocols.zookeeper.paths import is_name
from braidlog.storage.metadata.names import TopicName, kafka_legal, split_partition

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.broker.coordination.nodes import Nodes
    from braidlog.broker.topics.topic import Topic
    from braidlog.protocols.zookeeper.callers import Caller

ANY_ADDRESS = ("0.0.0.0", 0)  # Stands for the local address of no particular client.


class Namespace:
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
        self.started_ms = broker.now_us() // 1000
        self.stale_commits = broker.metrics.number("braidlog_stale_commits", "zookeeper")
        self._kafka = kafka

    def address(self, caller: Caller | None) -> tuple[str, int] | None:
        """Return the Kafka listener's address for a client; None while the listener is closed."""
        listener = self.broker.listeners.get(self._kafka)
        if listener is None:
            return None
        return listener.advertised_to(ANY_ADDRESS if caller is None else caller.connection.local)

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
            for name in self.broker.subscriptions.names(topic):
                group = group_name(name)
                if group is not None:
                    topic_of_group.setdefault(group, topic)
        return topic_of_group


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
