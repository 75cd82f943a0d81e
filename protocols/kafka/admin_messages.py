"""Typed requests and replies of topic administration. Knows no bytes and no broker."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """One setting of a topic, as Kafka calls it."""

    name: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to make. With assignments, `partitions` is -1 and they are counted."""

    name: bytes | None
    partitions: int
    replication: int
    assignments: Sequence[object] = ()
    configs: Sequence[TopicConfig] = ()


@dataclass(frozen=True, slots=True)
class CreateTopicsRequest:
    """Asks for topics to be made (key 19)."""

    topics: Sequence[NewTopic]
    validate_only: bool = False


@dataclass(slots=True)
class TopicDone:
    """What became of one topic."""

    name: bytes | None
    error: int
    message: bytes | None = None


@dataclass(slots=True)
class CreateTopicsReply:
    """Answers a CreateTopicsRequest."""

    topics: Sequence[TopicDone]


@dataclass(frozen=True, slots=True)
class DeleteTopicsRequest:
    """Asks for topics to be deleted (key 20)."""

    topics: Sequence[bytes | None]


@dataclass(slots=True)
class DeleteTopicsReply:
    """Answers a DeleteTopicsRequest."""

    topics: Sequence[TopicDone]


@dataclass(frozen=True, slots=True)
class GrowingTopic:
    """A topic that is to have `count` partitions."""

    name: bytes | None
    count: int


@dataclass(frozen=True, slots=True)
class CreatePartitionsRequest:
    """Asks for topics to grow (key 37)."""

    topics: Sequence[GrowingTopic]
    validate_only: bool = False


@dataclass(slots=True)
class CreatePartitionsReply:
    """Answers a CreatePartitionsRequest."""

    topics: Sequence[TopicDone]


@dataclass(frozen=True, slots=True)
class ConfigResource:
    """Something whose settings are asked for; None asks for all of them."""

    kind: int
    name: bytes | None
    keys: Sequence[bytes | None] | None = None


@dataclass(frozen=True, slots=True)
class DescribeConfigsRequest:
    """Asks for settings (key 32)."""

    resources: Sequence[ConfigResource]


@dataclass(slots=True)
class ConfigEntry:
    """One setting and where it comes from."""

    name: bytes
    value: bytes | None
    is_default: bool = False
    source: int = 0


@dataclass(slots=True)
class DescribedConfigs:
    """The settings of one resource."""

    error: int
    message: bytes | None
    kind: int
    name: bytes | None
    entries: Sequence[ConfigEntry] = ()


@dataclass(slots=True)
class DescribeConfigsReply:
    """Answers a DescribeConfigsRequest."""

    resources: Sequence[DescribedConfigs]


AdminRequest = (
    CreateTopicsRequest | DeleteTopicsRequest | CreatePartitionsRequest | DescribeConfigsRequest
)
AdminReply = CreateTopicsReply | DeleteTopicsReply | CreatePartitionsReply | DescribeConfigsReply
