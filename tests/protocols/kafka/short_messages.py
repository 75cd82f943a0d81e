"""Short messages for tests: partitions are dicts of dicts, and fields are positional."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from braidlog.protocols.kafka.context import BrokerAddress
from braidlog.protocols.kafka.messages import ByPartition
from braidlog.storage.formats.api import Part


@dataclass(slots=True)
class FetchTarget:
    """A partition's fetch offset, the limit in bytes, and the epoch of the leader that the client
    knows, -1 for none.
    """

    offset: int
    bytes_max: int
    epoch: int = -1


@dataclass(slots=True)
class FetchRequest:
    """A read that may wait for data (key 1)."""

    replica_id: int
    wait_ms_max: int
    bytes_min: int
    topics: ByPartition[FetchTarget]
    bytes_max: int = 2**31 - 1


@dataclass(slots=True)
class Produced:
    """The result for a message set; `base_offset` is -1 on error."""

    error: int
    base_offset: int
    append_ms: int = -1  # -1: the times are the producer's own.
    log_start_offset: int = -1
    message: bytes | None = None
    wrong: Sequence[tuple[int, bytes | None]] = ()  # Records at fault: place in the set, reason.


@dataclass(slots=True)
class ProduceReply:
    """Answers a ProduceRequest."""

    topics: ByPartition[Produced]


@dataclass(slots=True)
class Fetched:
    """Records read from a partition: `parts` joined are the message set, of `size` bytes."""

    error: int
    high_watermark: int
    parts: Sequence[Part] = ()
    size: int = 0
    log_start_offset: int = -1


@dataclass(slots=True)
class FetchReply:
    """Answers a FetchRequest."""

    topics: ByPartition[Fetched]


@dataclass(slots=True)
class OffsetsTarget:
    """A partition's target. `time_ms` is in milliseconds since 1970, or LATEST_TIME or
    EARLIEST_TIME.
    """

    time_ms: int
    offsets_max: int = 1


@dataclass(slots=True)
class OffsetsRequest:
    """Asks for offsets before a time (key 2, later called ListOffsets)."""

    replica_id: int
    topics: ByPartition[OffsetsTarget]


@dataclass(slots=True)
class MetadataRequest:
    """Asks for brokers and topics (key 3): None means all, in version 0 also an empty list."""

    topics: Sequence[bytes | None] | None
    auto_create: bool = True


@dataclass(slots=True)
class CommitTarget:
    """A position to commit: the next offset wanted. `time_ms` None: the server's clock."""

    offset: int
    metadata: bytes | None
    time_ms: int | None = None


@dataclass(slots=True)
class OffsetCommitRequest:
    """Positions of a group (key 8). Generation -1 is a commit from outside the group."""

    version: int
    group: bytes | None
    generation: int = -1
    consumer_id: bytes | None = b""
    topics: ByPartition[CommitTarget] = field(default_factory=dict)
    instance_id: bytes | None = None


@dataclass(slots=True)
class OffsetFetchRequest:
    """Asks for a group's positions (key 9); each partition appears once. None: all positions."""

    version: int
    group: bytes | None
    topics: Mapping[bytes | None, Iterable[int]] | None


@dataclass(slots=True)
class ConsumerMetadataRequest:
    """Asks for the broker of a group's positions (key 10, later called FindCoordinator)."""

    group: bytes | None
    key_type: int = 0


@dataclass(slots=True)
class EpochTarget:
    """The epoch whose end is requested."""

    epoch: int


@dataclass(slots=True)
class OffsetForLeaderEpochRequest:
    """Asks for the end offsets of leader epochs (key 23)."""

    topics: ByPartition[EpochTarget]


@dataclass(slots=True)
class OffsetsFound:
    """Offsets of a partition, descending; later versions give a single `offset` and its time."""

    error: int
    offsets: Sequence[int] = ()
    time_ms: int = -1
    offset: int = -1


@dataclass(slots=True)
class OffsetsReply:
    """Answers an OffsetsRequest."""

    topics: ByPartition[OffsetsFound]


@dataclass(slots=True)
class PartitionMetadata:
    """A partition's leader and replicas: node ids."""

    error: int
    index: int
    leader: int
    replicas: Sequence[int]
    isr: Sequence[int]


@dataclass(slots=True)
class TopicMetadata:
    """A topic and its partitions; no partitions on error."""

    error: int
    name: bytes | None
    partitions: Sequence[PartitionMetadata] = ()


@dataclass(slots=True)
class MetadataReply:
    """Answers a MetadataRequest."""

    brokers: Sequence[BrokerAddress]
    topics: Sequence[TopicMetadata]
    cluster_id: bytes | None = None
    controller_id: int = -1


@dataclass(slots=True)
class OffsetCommitReply:
    """Answers an OffsetCommitRequest: an error code for each partition."""

    topics: ByPartition[int]


@dataclass(slots=True)
class CommittedOffset:
    """A group's position in a partition, -1 if there is none."""

    offset: int
    metadata: bytes | None
    error: int


@dataclass(slots=True)
class OffsetFetchReply:
    """Answers an OffsetFetchRequest."""

    topics: ByPartition[CommittedOffset]
    error: int = 0


@dataclass(slots=True)
class ConsumerMetadataReply:
    """Answers a ConsumerMetadataRequest."""

    error: int
    coordinator: BrokerAddress
    message: bytes | None = None


@dataclass(slots=True)
class EpochEnd:
    """The newest epoch no later than the requested epoch, and that epoch's end offset."""

    error: int
    index: int
    end_offset: int
    epoch: int = -1


@dataclass(slots=True)
class EpochEndsOf:
    """The epoch ends of a topic."""

    name: bytes | None
    partitions: Sequence[EpochEnd]


@dataclass(slots=True)
class OffsetForLeaderEpochReply:
    """Answers an OffsetForLeaderEpochRequest."""

    topics: Sequence[EpochEndsOf]
