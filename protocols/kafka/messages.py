"""Requests with their headers, and Produce requests in a form that the extension makes, whatever
their version. Knows no bytes and no broker. Where a version lacks a field, its default stands.

All other messages are the generated structures of `wire/`. In both, names are bytes as they came,
None for Kafka's null string; the handlers check whether they are legal. Message sets are a dict of
dicts here: see `by_partition.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from braidlog.protocols.kafka.schema import Struct

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


RequestBody = ProduceRequest | Struct
StoredSet = tuple[int, int, int]  # Partition, base offset, log start offset.


@dataclass(slots=True)
class StoredSets:
    """The reply to a Produce request of which the extension stored all sets, by name or id of the
    topic: the same answer as a ProduceResponse, without an object for each set.
    """

    topics: Mapping[bytes | None, Sequence[StoredSet]]


Reply = StoredSets | Struct


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
