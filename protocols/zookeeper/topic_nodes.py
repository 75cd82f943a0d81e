"""Nodes of topics: `/brokers/topics`, `/config/topics` and `/admin`. Knows no session and no watch.

Formats: `kafka.utils.ZkUtils` and `kafka.admin.AdminUtils` of release 0.8.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from braidlog.broker.access.rights import Action, Resource
from braidlog.broker.errors import InvalidName
from braidlog.broker.topics.dead_letter_topics import check_dead_letters
from braidlog.protocols.kafka_settings import SETTINGS, Setting, parse_setting, shown_setting
from braidlog.protocols.zookeeper.errors import NodeError, ZkCode
from braidlog.protocols.zookeeper.namespace import NamespaceNode, SharedNodes, is_visible
from braidlog.protocols.zookeeper.virtual import Change, VirtualNode
from braidlog.storage.metadata.names import TopicName

if TYPE_CHECKING:
    from braidlog.broker.topics.topic import Topic
    from braidlog.protocols.zookeeper.callers import Caller

# Text of a topic's settings: some tools write their own names.
CONFIG_BYTES_MAX: Final = 64 * 1024
CONFIGS: Final = "/config/topics"

T = TypeVar("T")


class ReplicaAssignment(msgspec.Struct):
    """The data of a topic's node: the replicas of each partition."""

    partitions: dict[str, list[int]]
    version: int = 1


class SettingsData(msgspec.Struct):
    """The data of a node of settings."""

    config: dict[str, str]
    version: int = 1


class TopicsNode(NamespaceNode):
    """`/brokers/topics`."""

    is_union = True

    def names(self, caller: Caller | None) -> Iterable[str]:
        return [topic.name.topic for topic in self._names.topics(caller)]


class ConfigsNode(TopicsNode):
    """`/config/topics`: every topic has settings; a tool writes settings before it writes the
    topic.
    """


class TopicPart(VirtualNode):
    """A node of a topic; exists with the topic."""

    def __init__(self, names: SharedNodes, name: str) -> None:
        self._names, self._name = names, name
        self._topic = names.topic(name)

    @property
    def topic_name(self) -> TopicName:
        """The topic's name."""
        return TopicName(self._names.tenant, self._names.namespace, self._name)

    @property
    def topic(self) -> Topic:
        """The topic. Raises NodeError if the topic does not exist."""
        if self._topic is None:
            raise NodeError(ZkCode.NO_NODE)
        return self._topic

    def rights(self) -> Resource:
        return Resource.of_topic(self.topic_name)

    def exists(self) -> bool:
        return self._topic is not None


class TopicNode(TopicPart):
    """`/brokers/topics/T`: the partitions and their replicas. A write creates or grows the
    topic.
    """

    def data(self, caller: Caller | None) -> bytes | None:
        replicas = [self._names.leader(self.topic)]
        count = len(self.topic.partitions)
        return msgspec.json.encode(
            {"version": 1, "partitions": {str(index): replicas for index in range(count)}}
        )

    def names(self, caller: Caller | None) -> Iterable[str]:
        return ("partitions",) if self.topic.partitions else ()

    def create(self, caller: Caller, data: bytes | None) -> Change:
        """Create the topic, with the settings that a tool wrote before. Raises NodeError, broker
        errors.
        """
        caller.check(Action.CREATE, self.rights())
        if self._topic is not None:
            raise NodeError(ZkCode.NODE_EXISTS)
        if not is_visible(self.topic_name):
            raise InvalidName(f"{self._name!r} is not a topic name")
        return self._create(caller, self._count(data))

    def set_data(self, caller: Caller, data: bytes | None) -> Change:
        """Grow the topic. Raises NodeError, broker errors."""
        topic = self.topic
        caller.check(Action.ALTER, topic.resource)
        count, seen = self._count(data), len(topic.partitions)
        if count < seen:
            raise NodeError(ZkCode.BAD_ARGUMENTS, f"{topic.name} has {seen} partitions already")
        if count == seen:
            return topic.ticket
        return self._names.broker.topics.add_partitions(topic.name, count, seen=seen)

    async def _create(self, caller: Caller, count: int) -> int:
        stored = self._names.nodes.find(f"{CONFIGS}/{self._name}")
        config = {} if stored is None else read_settings(stored.data)
        settings = known_settings(config)
        topics = self._names.broker.topics
        check_dead_letters(topics, self.topic_name, settings, caller.check)
        return (await topics.create(self.topic_name, count, settings=settings)).ticket

    def _count(self, data: bytes | None) -> int:
        """Return the number of partitions that a tool wants. Raises NodeError."""
        wanted = _decoded(data, ReplicaAssignment).partitions
        if not wanted or any(str(index) not in wanted for index in range(len(wanted))):
            raise NodeError(ZkCode.BAD_ARGUMENTS, "partitions are numbered from 0 without gaps")
        live = {self._names.node_id, *self._names.brokers(None)}
        if not all(replicas and live >= set(replicas) for replicas in wanted.values()):
            raise NodeError(ZkCode.BAD_ARGUMENTS, "a replica is on a broker that does not exist")
        return len(wanted)


class PartitionsNode(TopicPart):
    """`/brokers/topics/T/partitions`."""

    def exists(self) -> bool:
        return self._topic is not None and bool(self._topic.partitions)

    def names(self, caller: Caller | None) -> Iterable[str]:
        return [str(index) for index in range(len(self.topic.partitions))]


class PartitionNode(TopicPart):
    """`/brokers/topics/T/partitions/P`."""

    def __init__(self, names: SharedNodes, name: str, index: str) -> None:
        super().__init__(names, name)
        self._index = index

    def exists(self) -> bool:
        return self._topic is not None and is_index(self._index, len(self._topic.partitions))

    def names(self, caller: Caller | None) -> Iterable[str]:
        return ("state",)


class StateNode(PartitionNode):
    """`/brokers/topics/T/partitions/P/state`: the leader."""

    def names(self, caller: Caller | None) -> Iterable[str]:
        return ()

    def data(self, caller: Caller | None) -> bytes | None:
        node = self._names.leader(self.topic)
        return msgspec.json.encode(
            {"controller_epoch": 1, "leader": node, "version": 1, "leader_epoch": 0, "isr": [node]}
        )


class ConfigNode(TopicPart):
    """`/config/topics/T` of an existing topic: its settings by Kafka's names.

    Names that the broker does not know are kept in a stored node of the same path.
    """

    def applies(self) -> bool:
        return self._topic is not None

    def data(self, caller: Caller | None) -> bytes | None:
        own = self.topic.meta.settings
        config = {
            key: shown_setting(row, own[row.name])
            for key, row in SETTINGS.items()
            if row.name in own
        }
        return msgspec.json.encode({"version": 1, "config": self._unknown() | config})

    def set_data(self, caller: Caller, data: bytes | None) -> Change:
        """Change the settings to these; settings that are not named are unset. Raises NodeError,
        broker errors.
        """
        caller.check(Action.ALTER, self.topic.resource)
        config = read_settings(data)
        topics = self._names.broker.topics
        check_dead_letters(topics, self.topic.name, known_settings(config), caller.check)
        return self._set(config)

    async def _set(self, config: Mapping[str, str]) -> int:
        known = known_settings(config)
        own = self.topic.meta.settings
        changes: dict[str, Setting | None] = {
            row.name: known.get(row.name)
            for row in SETTINGS.values()
            if row.name in known or row.name in own
        }
        unknown = {key: value for key, value in config.items() if key not in SETTINGS}
        ticket = 0
        if changes:
            topics = self._names.broker.topics
            ticket = await topics.alter_settings(self.topic.name, changes)
        if unknown != self._unknown():
            self._names.keep(f"{CONFIGS}/{self._name}", msgspec.json.encode(SettingsData(unknown)))
        return ticket

    def _unknown(self) -> dict[str, str]:
        stored = self._names.nodes.find(f"{CONFIGS}/{self._name}")
        try:
            config = {} if stored is None else read_settings(stored.data)
        except NodeError:  # A client stored other data before the topic existed.
            return {}
        return {key: value for key, value in config.items() if key not in SETTINGS}


class DeletedTopicNode(TopicPart):
    """`/admin/delete_topics/T`: creating the node deletes the topic."""

    def exists(self) -> bool:
        return False

    def create(self, caller: Caller, data: bytes | None) -> Change:
        """Delete the topic. Raises NotAuthorized, and the errors of a deletion."""
        caller.check(Action.DELETE, self.rights())
        if self._topic is None:
            return 0  # As Kafka's controller, which only removes the node.
        return self._names.broker.topics.delete(self._topic.name)


class ElectionNode(NamespaceNode):
    """`/admin/preferred_replica_election` and `/admin/reassign_partitions`: a request for leaders.

    Each partition has a single broker, so every request ends at once, and the node goes.
    """

    def exists(self) -> bool:
        return False

    def create(self, caller: Caller, data: bytes | None) -> Change:
        """Accept the request. Raises NodeError, NotAuthorized."""
        caller.check(Action.ALTER, self._names.resource)
        _decoded(data, dict[str, Any])
        return 0


def is_index(text: str, count: int) -> bool:
    """Return True if a text is the number of one of `count` partitions."""
    is_number = text.isascii() and text.isdecimal() and len(text) <= len(str(count))
    return is_number and str(int(text)) == text and int(text) < count


def read_settings(data: bytes | None) -> dict[str, str]:
    """Return the settings in the data of a node. Raises NodeError."""
    if len(data or b"") > CONFIG_BYTES_MAX:
        raise NodeError(ZkCode.BAD_ARGUMENTS, f"settings exceed {CONFIG_BYTES_MAX} bytes")
    return _decoded(data, SettingsData).config


def known_settings(config: Mapping[str, str]) -> dict[str, Setting]:
    """Return the settings that the broker knows. Raises NodeError for a bad value."""
    try:
        return {
            SETTINGS[key].name: parse_setting(SETTINGS[key], text)
            for key, text in config.items()
            if key in SETTINGS
        }
    except ValueError as error:
        raise NodeError(ZkCode.BAD_ARGUMENTS, str(error)) from None


def _decoded(data: bytes | None, kind: type[T]) -> T:
    """Return the JSON in the data of a node. Raises NodeError."""
    try:
        return msgspec.json.decode(data or b"", type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NodeError(ZkCode.BAD_ARGUMENTS, str(error)) from None
