"""Typed requests and replies of topic administration. Knows no bytes and no broker."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """One setting of a topic, as Kafka calls it."""

    name: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. With assignments, `partitions` is -1 and the assignments are counted."""

    name: bytes | None
    partitions: int
    replication: int
    assignments: Sequence[object] = ()
    configs: Sequence[TopicConfig] = ()


@dataclass(frozen=True, slots=True)
class CreateTopicsRequest:
    """Asks for topics to be created (key 19)."""

    topics: Sequence[NewTopic]
    validate_only: bool = False


@dataclass(slots=True)
class TopicDone:
    """The result for one topic."""

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
    """Asks for partitions to be added to topics (key 37)."""

    topics: Sequence[GrowingTopic]
    validate_only: bool = False


@dataclass(slots=True)
class CreatePartitionsReply:
    """Answers a CreatePartitionsRequest."""

    topics: Sequence[TopicDone]


@dataclass(frozen=True, slots=True)
class ConfigResource:
    """A resource whose settings are asked for; `keys` None asks for all of them."""

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


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """A setting of a resource to change; the `operation` is SET where a version has none."""

    name: bytes | None
    value: bytes | None
    operation: int = 0


@dataclass(frozen=True, slots=True)
class AlteredResource:
    """A resource whose settings are to be changed."""

    kind: int
    name: bytes | None
    changes: Sequence[ConfigChange]


@dataclass(frozen=True, slots=True)
class AlterConfigsRequest:
    """Sets these settings of resources and resets all others (key 33)."""

    resources: Sequence[AlteredResource]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class IncrementalAlterConfigsRequest:
    """Changes some settings of resources (key 44)."""

    resources: Sequence[AlteredResource]
    validate_only: bool = False


@dataclass(slots=True)
class ResourceDone:
    """The result for one resource."""

    error: int
    message: bytes | None
    kind: int
    name: bytes | None


@dataclass(slots=True)
class AlterConfigsReply:
    """Answers an AlterConfigsRequest."""

    resources: Sequence[ResourceDone]


@dataclass(slots=True)
class IncrementalAlterConfigsReply:
    """Answers an IncrementalAlterConfigsRequest."""

    resources: Sequence[ResourceDone]


@dataclass(frozen=True, slots=True)
class DeleteRecordsRequest:
    """Deletes the records below an offset of each partition, -1 for all (key 21)."""

    topics: Mapping[bytes | None, Mapping[int, int]]


@dataclass(slots=True)
class DeletedRecords:
    """The new log start offset of a partition; -1 with an error."""

    log_start_offset: int
    error: int


@dataclass(slots=True)
class DeleteRecordsReply:
    """Answers a DeleteRecordsRequest."""

    topics: Mapping[bytes | None, Mapping[int, DeletedRecords]]


@dataclass(frozen=True, slots=True)
class LogDirsTopic:
    """Partitions of a topic whose sizes are asked for."""

    name: bytes | None
    partitions: Sequence[int]


@dataclass(frozen=True, slots=True)
class DescribeLogDirsRequest:
    """Asks for sizes on disk (key 35); `topics` None asks for all topics."""

    topics: Sequence[LogDirsTopic] | None


@dataclass(slots=True)
class LogSize:
    """Bytes of one partition."""

    size_bytes: int


@dataclass(slots=True)
class LogDir:
    """The data directory and what is in it."""

    error: int
    path: bytes
    topics: Mapping[bytes | None, Mapping[int, LogSize]]


@dataclass(slots=True)
class DescribeLogDirsReply:
    """Answers a DescribeLogDirsRequest."""

    log_dirs: Sequence[LogDir]


AdminRequest = (
    CreateTopicsRequest
    | DeleteTopicsRequest
    | CreatePartitionsRequest
    | DescribeConfigsRequest
    | AlterConfigsRequest
    | IncrementalAlterConfigsRequest
    | DeleteRecordsRequest
    | DescribeLogDirsRequest
)
AdminReply = (
    CreateTopicsReply
    | DeleteTopicsReply
    | CreatePartitionsReply
    | DescribeConfigsReply
    | AlterConfigsReply
    | IncrementalAlterConfigsReply
    | DeleteRecordsReply
    | DescribeLogDirsReply
)
