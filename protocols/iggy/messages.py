"""Typed requests of the Iggy listener, the same for every dialect; `replies.py` has the answers.

Knows no bytes (`layouts.py` has them) and no broker. Numbers are already the broker's, whatever the
dialect counts from: a partition is its index from 0, a stream, topic or group has its number in the
catalogue, from 1. A time is in microseconds, an absent thing is None. A stream, topic, group or
consumer is named by its number (int) or its text (str).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

Name = int | str

UNBOUNDED = (1 << 64) - 1  # A topic's expiry or size without a bound.


class Code(enum.IntEnum):
    """Command codes: those of the classic framing, which V has within its own framing."""

    PING = 1
    GET_STATS = 10
    GET_SNAPSHOT = 11
    GET_CLUSTER_METADATA = 12
    GET_ME = 20
    GET_CLIENT = 21
    GET_CLIENTS = 22
    GET_USER = 31
    GET_USERS = 32
    CREATE_USER = 33
    DELETE_USER = 34
    UPDATE_USER = 35
    UPDATE_PERMISSIONS = 36
    CHANGE_PASSWORD = 37
    LOGIN_USER = 38
    LOGOUT_USER = 39
    GET_TOKENS = 41
    CREATE_TOKEN = 42
    DELETE_TOKEN = 43
    LOGIN_WITH_TOKEN = 44
    POLL_MESSAGES = 100
    SEND_MESSAGES = 101
    FLUSH_UNSAVED_BUFFER = 102
    GET_CONSUMER_OFFSET = 120
    STORE_CONSUMER_OFFSET = 121
    DELETE_CONSUMER_OFFSET = 122
    GET_STREAM = 200
    GET_STREAMS = 201
    CREATE_STREAM = 202
    DELETE_STREAM = 203
    UPDATE_STREAM = 204
    PURGE_STREAM = 205
    GET_TOPIC = 300
    GET_TOPICS = 301
    CREATE_TOPIC = 302
    DELETE_TOPIC = 303
    UPDATE_TOPIC = 304
    PURGE_TOPIC = 305
    CREATE_PARTITIONS = 402
    DELETE_PARTITIONS = 403
    DELETE_SEGMENTS = 503
    GET_GROUP = 600
    GET_GROUPS = 601
    CREATE_GROUP = 602
    DELETE_GROUP = 603
    JOIN_GROUP = 604
    LEAVE_GROUP = 605
    SYNC_GROUP = 606
    DESCRIBE_OPTIONS = 13


class ConsumerKind(enum.IntEnum):
    """Who reads: a consumer by itself, or the members of a group together."""

    CONSUMER = 1
    GROUP = 2


class PartitioningKind(enum.IntEnum):
    """How a SEND finds its partition."""

    BALANCED = 1
    PARTITION = 2
    KEY = 3


class PollingKind(enum.IntEnum):
    """Where a poll begins."""

    OFFSET = 1
    TIMESTAMP = 2
    FIRST = 3
    LAST = 4
    NEXT = 5


@dataclass(slots=True)
class Consumer:
    """The reader of a poll or the owner of a stored offset."""

    kind: ConsumerKind
    name: Name


@dataclass(slots=True)
class Partitioning:
    """`partition` is an index (below 0: no such partition can exist); `key` is what a keyed SEND
    hashes.
    """

    kind: PartitioningKind
    partition: int = 0
    key: bytes = b""


@dataclass(slots=True)
class Strategy:
    """`value` is an offset for OFFSET, microseconds since 1970 for TIMESTAMP, else meaningless."""

    kind: PollingKind
    value: int


# Requests.


@dataclass(slots=True)
class Ping:
    """Sent before login too, and every few seconds."""


@dataclass(slots=True)
class GetStats:
    """Figures of the whole broker."""


@dataclass(slots=True)
class GetMe:
    """The caller's own connection."""


@dataclass(slots=True)
class GetClient:
    """Any connection of this listener."""

    client_id: int


@dataclass(slots=True)
class GetClients:
    """All connections of this listener."""


@dataclass(slots=True)
class PollMessages:
    """Read up to `count` messages; there is no waiting in this protocol."""

    consumer: Consumer
    stream: Name
    topic: Name
    partition: int | None
    strategy: Strategy
    count: int
    auto_commit: bool


@dataclass(slots=True)
class SendMessages:
    """`messages` is a view into the frame: valid during the call only. `count` is None in dialects
    that do not send it.
    """

    stream: Name
    topic: Name
    partitioning: Partitioning
    messages: memoryview
    count: int | None = None


@dataclass(slots=True)
class GetConsumerOffset:
    """The last offset that a consumer has stored."""

    consumer: Consumer
    stream: Name
    topic: Name
    partition: int | None


@dataclass(slots=True)
class StoreConsumerOffset:
    """`offset` is the last one consumed. `quorum`: whose confirmation V's client waits for."""

    consumer: Consumer
    stream: Name
    topic: Name
    partition: int | None
    offset: int
    quorum: int = 1


@dataclass(slots=True)
class DeleteConsumerOffset:
    """Back to "never stored"."""

    consumer: Consumer
    stream: Name
    topic: Name
    partition: int | None
    quorum: int = 1


@dataclass(slots=True)
class GetStream:
    """A stream with its topics."""

    stream: Name


@dataclass(slots=True)
class GetStreams:
    """All streams."""


@dataclass(slots=True)
class CreateStream:
    """`stream_id` None: the server picks one."""

    name: str
    stream_id: int | None = None
    options: dict[str, tuple[int, bytes]] | None = None


@dataclass(slots=True)
class UpdateStream:
    """Give a stream another name."""

    stream: Name
    name: str
    options: dict[str, tuple[int, bytes]] | None = None


@dataclass(slots=True)
class DeleteStream:
    """With all its topics."""

    stream: Name


@dataclass(slots=True)
class GetTopic:
    """A topic with its partitions."""

    stream: Name
    topic: Name


@dataclass(slots=True)
class GetTopics:
    """All topics of a stream."""

    stream: Name


@dataclass(slots=True)
class CreateTopic:
    """`topic_id` None: the server picks one.

    For expiry and size 0 is the server's default, all ones is no bound. `options` are V's, kind and
    value by key: they hold what the fields hold in other dialects, and more.
    """

    stream: Name
    partitions_count: int
    name: str
    topic_id: int | None = None
    compression: int = 1
    expiry_us: int = 0
    size_max: int = 0
    replication: int = 0
    options: dict[str, tuple[int, bytes]] | None = None


@dataclass(slots=True)
class UpdateTopic:
    """Change a topic's settings, or its name. In V only what its options name changes."""

    stream: Name
    topic: Name
    name: str
    compression: int = 1
    expiry_us: int = 0
    size_max: int = 0
    replication: int = 0
    options: dict[str, tuple[int, bytes]] | None = None


@dataclass(slots=True)
class PurgeStream:
    """Delete all messages of a stream's topics."""

    stream: Name


@dataclass(slots=True)
class PurgeTopic:
    """Delete all messages of a topic; stored offsets stay."""

    stream: Name
    topic: Name


@dataclass(slots=True)
class FlushUnsavedBuffer:
    """Get what was sent to a partition onto disk."""

    stream: Name
    topic: Name
    partition: int
    fsync: bool


@dataclass(slots=True)
class DeleteSegments:
    """Delete the oldest `count` segments of a partition."""

    stream: Name
    topic: Name
    partition: int
    count: int


@dataclass(slots=True)
class DeletePartitions:
    """Remove the `count` partitions with the highest numbers."""

    stream: Name
    topic: Name
    count: int


@dataclass(slots=True)
class DeleteTopic:
    """With its records and stored offsets."""

    stream: Name
    topic: Name


@dataclass(slots=True)
class CreatePartitions:
    """Add `count` partitions."""

    stream: Name
    topic: Name
    count: int


@dataclass(slots=True)
class GetGroup:
    """A consumer group with its members."""

    stream: Name
    topic: Name
    group: Name


@dataclass(slots=True)
class GetGroups:
    """All consumer groups of a topic."""

    stream: Name
    topic: Name


@dataclass(slots=True)
class CreateGroup:
    """`group_id` None: the server picks one. `name` None: it has none (D0)."""

    stream: Name
    topic: Name
    group_id: int | None = None
    name: str | None = None


@dataclass(slots=True)
class DeleteGroup:
    """With its stored offsets and memberships."""

    stream: Name
    topic: Name
    group: Name


@dataclass(slots=True)
class JoinGroup:
    """The connection becomes a member."""

    stream: Name
    topic: Name
    group: Name


@dataclass(slots=True)
class LeaveGroup:
    """The connection is no longer a member."""

    stream: Name
    topic: Name
    group: Name


@dataclass(slots=True)
class SyncGroup:
    """Which partitions the caller has now as a member (V)."""

    stream: Name
    topic: Name
    group: Name


@dataclass(slots=True)
class GetClusterMetadata:
    """The nodes of the cluster."""


@dataclass(slots=True)
class DescribeOptions:
    """Which options a topic (1), stream (2) or user (3) can have (V)."""

    scope: int
