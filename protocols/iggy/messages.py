"""Typed requests and replies of the Iggy listener, the same for every dialect.

Knows no bytes (`dialects.py` has the layouts) and no broker. Numbers are already ours: a partition
is its index from 0 whatever the dialect counts from, a time is in microseconds, an absent thing is
None. A stream, topic, group or consumer is named by its number (int) or its text (str).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

Name = int | str


class Code(enum.IntEnum):
    """Command codes of the classic framing, D0 to D5."""

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
class LoginUser:
    """`version` is empty before D2; of the Rust and Python clients it is the version of the crate
    `iggy`.
    """

    username: str
    password: str
    version: str = ""
    context: str = ""


@dataclass(slots=True)
class LogoutUser:
    """Back to the state before login."""


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
    """`messages` is a view into the frame: valid during the call only."""

    stream: Name
    topic: Name
    partitioning: Partitioning
    messages: memoryview


@dataclass(slots=True)
class GetConsumerOffset:
    """The last offset that a consumer has stored."""

    consumer: Consumer
    stream: Name
    topic: Name
    partition: int | None


@dataclass(slots=True)
class StoreConsumerOffset:
    """`offset` is the last one consumed."""

    consumer: Consumer
    stream: Name
    topic: Name
    partition: int | None
    offset: int


@dataclass(slots=True)
class DeleteConsumerOffset:
    """Back to "never stored"."""

    consumer: Consumer
    stream: Name
    topic: Name
    partition: int | None


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

    stream_id: int | None
    name: str


@dataclass(slots=True)
class UpdateStream:
    """Give a stream another name."""

    stream: Name
    name: str


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

    Of expiry and size 0 is the server's default, all ones is no bound.
    """

    stream: Name
    topic_id: int | None
    partitions_count: int
    compression: int
    expiry_us: int
    size_max: int
    replication: int
    name: str


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
    """`group_id` None: the server picks one."""

    stream: Name
    topic: Name
    group_id: int | None
    name: str


@dataclass(slots=True)
class DeleteGroup:
    """With its stored offsets; members are out of it."""

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
    """The connection is no member any more."""

    stream: Name
    topic: Name
    group: Name


# Replies: records in the order in which they are sent. No record at all is the empty OK.


@dataclass(slots=True)
class UserIdentity:
    """Answer to a login."""

    user_id: int


@dataclass(slots=True)
class ClientInfo:
    """A connection; `user_id` 0 while nobody has logged in on it."""

    client_id: int
    user_id: int
    transport: int
    address: str
    groups_count: int


@dataclass(slots=True)
class Membership:
    """A consumer group that a connection is a member of."""

    stream_id: int
    topic_id: int
    group_id: int


@dataclass(slots=True)
class Stats:
    """Answer to GET_STATS: times in microseconds, sizes in bytes, cpu in percent."""

    process_id: int
    cpu_usage: float
    total_cpu_usage: float
    memory_bytes: int
    memory_total_bytes: int
    memory_available_bytes: int
    run_time_us: int
    start_time_us: int
    read_bytes: int
    written_bytes: int
    messages_bytes: int
    streams_count: int
    topics_count: int
    partitions_count: int
    segments_count: int
    messages_count: int
    clients_count: int
    groups_count: int
    hostname: str
    os_name: str
    os_version: str
    kernel_version: str
    server_version: str
    server_semver: int
    cache_metrics_count: int


@dataclass(slots=True)
class StreamInfo:
    """A namespace, as Iggy sees it."""

    stream_id: int
    created_us: int
    topics_count: int
    size_bytes: int
    messages_count: int
    name: str


@dataclass(slots=True)
class TopicInfo:
    """A topic; `expiry_us` and `size_max` are all ones where there is no bound."""

    topic_id: int
    created_us: int
    partitions_count: int
    expiry_us: int
    compression: int
    size_max: int
    replication: int
    size_bytes: int
    messages_count: int
    name: str


@dataclass(slots=True)
class PartitionInfo:
    """A partition; `current_offset` is that of the last record that may be read, 0 also where there
    is none.
    """

    partition: int
    created_us: int
    segments_count: int
    current_offset: int
    size_bytes: int
    messages_count: int


@dataclass(slots=True)
class PolledHead:
    """What stands before polled messages."""

    partition: int
    current_offset: int
    messages_count: int


@dataclass(slots=True)
class OffsetInfo:
    """Answer to GET_CONSUMER_OFFSET."""

    partition: int
    current_offset: int
    stored_offset: int


@dataclass(slots=True)
class GroupInfo:
    """A consumer group."""

    group_id: int
    partitions_count: int
    members_count: int
    name: str


@dataclass(slots=True)
class MemberInfo:
    """A member of a consumer group, with the indexes of its partitions."""

    member_id: int
    partitions: list[int]
