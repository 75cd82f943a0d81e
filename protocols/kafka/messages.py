"""Requests and replies of Produce and Fetch, in a form that is quick to make, whatever their
version. Knows no bytes and no broker. Where a version lacks a field, its default stands.

All other messages are the generated structures of `wire/`. In both, names are bytes as they came,
None for Kafka's null string; the handlers check whether they are legal. Data of partitions is a
dict of dicts here: see `by_partition.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from braidlog.protocols.kafka.schema import Struct
from braidlog.storage.formats.api import Part

T = TypeVar("T")
# Topic name, or from version 13 of both messages on its id -> partition number -> T.
ByPartition = Mapping[bytes | None, Mapping[int, T]]
BY_ID_VERSION = 13


# Not frozen: many small objects are created, and frozen costs four times as much.
@dataclass(slots=True)
class ProduceRequest:
    """Message sets to append (key 0). The views die with the frame and may be written to."""

    acks: int
    timeout_ms: int
    topics: ByPartition[memoryview]
    transactional_id: bytes | None = None


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
    session_epoch: int = -1


RequestBody = ProduceRequest | FetchRequest | Struct


@dataclass(slots=True)
class Request:
    """A request with the fields of its header. The answer repeats the correlation id."""

    correlation_id: int
    client_id: bytes | None
    body: RequestBody
    version: int = 0


@dataclass(slots=True)
class Leader:
    """The present leader of a partition, and the broker's address: in a refusal, so that clients
    need no Metadata request (KIP-951).
    """

    node_id: int
    epoch: int
    host: bytes
    port: int


@dataclass(slots=True)
class Produced:
    """The result for a message set; `base_offset` is -1 on error."""

    error: int
    base_offset: int
    append_ms: int = -1  # -1: the times are the producer's own.
    log_start_offset: int = -1
    message: bytes | None = None
    wrong: Sequence[tuple[int, bytes | None]] = ()  # Records at fault: place in the set, reason.
    leader: Leader | None = None


@dataclass(slots=True)
class ProduceReply:
    """Answers a ProduceRequest."""

    FLEXIBLE: ClassVar[int] = 9

    topics: ByPartition[Produced]


@dataclass(slots=True)
class Fetched:
    """Records read from a partition: `parts` joined are the message set, of `size` bytes."""

    error: int
    high_watermark: int
    parts: Sequence[Part] = ()
    size: int = 0
    log_start_offset: int = -1
    leader: Leader | None = None


@dataclass(slots=True)
class FetchReply:
    """Answers a FetchRequest."""

    FLEXIBLE: ClassVar[int] = 12

    topics: ByPartition[Fetched]
    error: int = 0  # of the whole request, from version 7 on


Reply = ProduceReply | FetchReply | Struct
