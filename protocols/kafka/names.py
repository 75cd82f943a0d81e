"""Kafka topic names to the broker's and back. A listener serves a namespace. Knows no broker.

Rules: kafka/common/Topic.scala of apache/kafka 0.8.2.2, and the length limit of later versions.
"""

from functools import lru_cache

from braidlog.broker.errors import InvalidName
from braidlog.storage.metadata.names import TopicName, kafka_legal, split_partition

PROTOCOL = "kafka"
# Where Kafka keeps the positions of groups, and lag monitors read them. Not made by naming it: they
# would wait for ever on an empty topic, which all other clients would see too.
OFFSETS_TOPIC = "__consumer_offsets"
NAMESPACE_PARTS = 2  # tenant and namespace
# Names already checked, for all connections together: clients send them in every request. Kept for
# each connection, a thousand of them took 200 KB.
NAMES_KEPT_MAX = 10_000
NAMESPACES_KEPT_MAX = 16  # Listeners seldom serve more.


class NameSpace:
    """The topics of a tenant and namespace as Kafka clients see them."""

    def __init__(self, path: str, names_max: int = NAMES_KEPT_MAX) -> None:
        """`path` is `tenant/namespace`. Raises ValueError for anything else. The latest `names_max`
        topics have cached names.
        """
        self._names_max = names_max
        parts = path.split("/")
        if len(parts) != NAMESPACE_PARTS or not all(parts):
            raise ValueError(f"{path!r} is not tenant/namespace")
        self.tenant, self.namespace = parts
        self._known: dict[bytes | None, TopicName] = {}

    def topic_name(self, name: bytes | None) -> TopicName:
        """The broker's name of a Kafka topic. Raises InvalidName.

        To Pulsar clients a name ending in `-partition-N` is one partition of a topic, so it is not
        a topic's name here.
        """
        known = self._known.get(name)
        if known is not None:
            return known
        text = "" if name is None else name.decode("ascii", "replace")
        if not kafka_legal(text) or split_partition(text) is not None:
            raise InvalidName(f"{text!r} is not a topic name")
        if len(self._known) >= self._names_max:
            self._known.clear()
        topic = self._known[name] = TopicName(self.tenant, self.namespace, text)
        return topic


@lru_cache(NAMESPACES_KEPT_MAX)
def name_space(path: str) -> NameSpace:
    """The NameSpace that all connections to that namespace share, with the names it knows. Raises
    as `NameSpace`.
    """
    return NameSpace(path)


def visible(name: TopicName) -> bool:
    """Return True if Kafka clients are shown a topic: a name they cannot use would only confuse
    them.
    """
    return kafka_legal(name.topic) and split_partition(name.topic) is None
