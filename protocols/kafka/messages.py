"""Typed requests and replies of the Kafka 0.8 listener. Knows no bytes and no broker.

Names (topics, groups, metadata) are bytes as they came, None for Kafka's null string: a reply
gives them back as they were, and whether they are legal is the session's question. What belongs to
partitions is a dict of dicts, because a (topic, partition) that a request names twice counts once,
the last one winning, and a topic without partitions is left out of the answer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from storage.codecs.api import Buffer

T = TypeVar("T")
ByPartition = Mapping[bytes | None, Mapping[int, T]]  # topic name -> partition number -> T


@dataclass(frozen=True, slots=True)
class ProduceRequest:
    """Message sets to append (key 0). The views die with the frame and may be written to."""

    acks: int
    timeout_ms: int
    topics: ByPartition[memoryview]


@dataclass(slots=True)
class FetchTarget:
    """Where to read in one partition, and how many bytes of it at most."""

    offset: int
    bytes_max: int


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """A read that may wait for data (key 1)."""

    replica_id: int
    wait_ms_max: int
    bytes_min: int
    topics: ByPartition[FetchTarget]


@dataclass(slots=True)
class OffsetsTarget:
    """`time_ms` is a time in milliseconds since 1970, or LATEST_TIME or EARLIEST_TIME."""

    time_ms: int
    offsets_max: int


@dataclass(frozen=True, slots=True)
class OffsetsRequest:
    """Asks for offsets before a time (key 2, later called ListOffsets)."""

    replica_id: int
    topics: ByPartition[OffsetsTarget]


@dataclass(frozen=True, slots=True)
class MetadataRequest:
    """Asks for brokers and topics (key 3); no topic named means all. Each name is there once."""

    topics: Sequence[bytes | None]


@dataclass(slots=True)
class CommitTarget:
    """A position to keep: the next offset wanted. `time_ms` None: the server's clock."""

    offset: int
    metadata: bytes | None
    time_ms: int | None


@dataclass(frozen=True, slots=True)
class OffsetCommitRequest:
    """Positions of a group (key 8). Version 0 has neither generation nor consumer id."""

    version: int
    group: bytes | None
    generation: int
    consumer_id: bytes | None
    topics: ByPartition[CommitTarget]


@dataclass(frozen=True, slots=True)
class OffsetFetchRequest:
    """Asks for a group's positions (key 9); each partition is there once."""

    version: int
    group: bytes | None
    topics: Mapping[bytes | None, Sequence[int]]


@dataclass(frozen=True, slots=True)
class ConsumerMetadataRequest:
    """Asks which broker keeps a group's positions (key 10)."""

    group: bytes | None


RequestBody = (
    ProduceRequest
    | FetchRequest
    | OffsetsRequest
    | MetadataRequest
    | OffsetCommitRequest
    | OffsetFetchRequest
    | ConsumerMetadataRequest
)


@dataclass(frozen=True, slots=True)
class Request:
    """One request with what its header says. The correlation id goes back with the answer."""

    correlation_id: int
    client_id: bytes | None
    body: RequestBody


@dataclass(slots=True)
class Produced:
    """What became of one message set; `base_offset` is -1 where nothing was appended."""

    error: int
    base_offset: int


@dataclass(slots=True)
class ProduceReply:
    """Answers a ProduceRequest."""

    topics: ByPartition[Produced]


@dataclass(slots=True)
class Fetched:
    """What was read of one partition: `parts` joined are its message set, of `size` bytes."""

    error: int
    high_watermark: int
    parts: Sequence[Buffer] = ()
    size: int = 0


@dataclass(slots=True)
class FetchReply:
    """Answers a FetchRequest."""

    topics: ByPartition[Fetched]


@dataclass(slots=True)
class OffsetsFound:
    """Offsets of one partition, descending."""

    error: int
    offsets: Sequence[int] = ()


@dataclass(slots=True)
class OffsetsReply:
    """Answers an OffsetsRequest."""

    topics: ByPartition[OffsetsFound]


@dataclass(slots=True)
class BrokerAddress:
    """Where clients reach a broker."""

    node_id: int
    host: bytes
    port: int


@dataclass(slots=True)
class PartitionMetadata:
    """Who serves a partition: node ids."""

    error: int
    index: int
    leader: int
    replicas: Sequence[int]
    isr: Sequence[int]


@dataclass(slots=True)
class TopicMetadata:
    """A topic and its partitions; none with an error."""

    error: int
    name: bytes | None
    partitions: Sequence[PartitionMetadata] = ()


@dataclass(slots=True)
class MetadataReply:
    """Answers a MetadataRequest."""

    brokers: Sequence[BrokerAddress]
    topics: Sequence[TopicMetadata]


@dataclass(slots=True)
class OffsetCommitReply:
    """Answers an OffsetCommitRequest: an error code for each partition."""

    topics: ByPartition[int]


@dataclass(slots=True)
class CommittedOffset:
    """A group's position in one partition, -1 where there is none."""

    offset: int
    metadata: bytes | None
    error: int


@dataclass(slots=True)
class OffsetFetchReply:
    """Answers an OffsetFetchRequest."""

    topics: ByPartition[CommittedOffset]


@dataclass(slots=True)
class ConsumerMetadataReply:
    """Answers a ConsumerMetadataRequest."""

    error: int
    coordinator: BrokerAddress


Reply = (
    ProduceReply
    | FetchReply
    | OffsetsReply
    | MetadataReply
    | OffsetCommitReply
    | OffsetFetchReply
    | ConsumerMetadataReply
)
