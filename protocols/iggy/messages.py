"""Typed requests of the Iggy listener, the same for every dialect; `replies.py` has the answers.

Knows no bytes (`layouts.py` has them) and no broker. Numbers are already the broker's, whatever the
dialect counts from: a partition is its index from 0, a stream, topic or group has its number in the
catalogue, from 1. A time is in microseconds, an absent thing is None. A stream, topic, group or
consumer is named by its number (int) or its text (str).
"""

from __future__ import annotations

import enum

import msgspec

Name = int | str

UNBOUNDED = (1 << 64) - 1  # Expiry or size of a topic without a limit.


class CommandCode(enum.IntEnum):
    """Command codes of the classic framing; V uses the same codes within its own framing."""

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
    BIND_SESSION = 15  # Since W.
    UPDATE_RESOURCE = 16  # This and the following commands since W.
    GET_METADATA_CHANGES = 17
    GET_PARTITION_ROUTE = 105
    POLL_MESSAGES_DEFERRED = 106
    WAIT_FOR_MESSAGES = 107  # Only in development builds of W.
    CANCEL_DEFERRED_REQUEST = 108
    FETCH_MESSAGES = 109


class ConsumerKind(enum.IntEnum):
    """The kind of reader: a single consumer, or the members of a group together. The members of an
    external group (W) are clients of another protocol.
    """

    CONSUMER = 1
    GROUP = 2
    EXTERNAL = 3


class PartitioningKind(enum.IntEnum):
    """A SEND's choice of partition."""

    BALANCED = 1
    PARTITION = 2
    KEY = 3


class PollingKind(enum.IntEnum):
    """The start of a poll."""

    OFFSET = 1
    TIMESTAMP = 2
    FIRST = 3
    LAST = 4
    NEXT = 5


class ConsumerRef(msgspec.Struct):
    """The reader of a poll or the owner of a stored offset."""

    kind: ConsumerKind
    name: Name


class Partitioning(msgspec.Struct):
    """A SEND's partition. `partition` is an index (below 0: no such partition can exist); a keyed
    SEND hashes `key`.
    """

    kind: PartitioningKind
    partition: int = 0
    key: bytes = b""


class PollingStrategy(msgspec.Struct):
    """A poll's start. `value` is an offset for OFFSET, microseconds since 1970 for TIMESTAMP, else
    meaningless.
    """

    kind: PollingKind
    value: int


# Requests.


class OfTopic(msgspec.Struct):
    """A request that names a topic."""

    stream: Name
    topic: Name


class OfGroup(OfTopic):
    """A request that names a consumer group."""

    group: Name


class OfStoredOffset(msgspec.Struct):
    """A request that names a stored offset."""

    consumer: ConsumerRef
    stream: Name
    topic: Name
    partition: int | None


class Ping(msgspec.Struct):
    """A PING, also sent before login, and every few seconds."""


class GetStats(msgspec.Struct):
    """Asks for statistics of the whole broker."""


class GetMe(msgspec.Struct):
    """Asks for the caller's own connection."""


class GetClient(msgspec.Struct):
    """Asks for any connection of this listener."""

    client_id: int


class GetClients(msgspec.Struct):
    """Asks for all connections of this listener."""


class PollMessages(msgspec.Struct):
    """Asks for up to `count` messages; this protocol has no waiting polls."""

    consumer: ConsumerRef
    stream: Name
    topic: Name
    partition: int | None
    strategy: PollingStrategy
    count: int
    auto_commit: bool
    max_bytes: int = 0  # Limit of the messages together, but for the first; 0: the broker's own.
    fits_only: bool = False  # The limit also holds for the first message.


class PollDeferred(PollMessages):
    """Asks for messages, and waits for at least `min_count` (W)."""

    wait_us: int = 0
    min_count: int = 1
    request_timeout_us: int = 0


class WaitForMessages(msgspec.Struct):
    """Asks which partitions have messages, and waits for one with some (development builds of W).
    `targets` has the start of a poll by partition.
    """

    consumer: ConsumerRef
    stream: Name
    topic: Name
    wait_us: int
    request_timeout_us: int
    targets: dict[int, PollingStrategy]


class CancelDeferred(msgspec.Struct):
    """Cancels the waiting poll of the same request number (W); there is no answer."""


class SendMessages(OfTopic):
    """Messages to append. `messages` is a view into the frame: valid during the call only. `count`
    is None in dialects that do not send a count.
    """

    partitioning: Partitioning
    messages: memoryview
    count: int | None = None


class GetPartitionRoute(OfTopic):
    """Asks which node serves a partition (W)."""

    partition: int


class GetConsumerOffset(OfStoredOffset):
    """Asks for the last offset that a consumer has stored."""


class StoreConsumerOffset(OfStoredOffset):
    """A consumer's offset to store. `offset` is the last consumed offset. `quorum`: the
    confirmation that V's client waits for.
    """

    offset: int
    quorum: int = 1


class DeleteConsumerOffset(OfStoredOffset):
    """Resets a stored offset to "never stored"."""

    quorum: int = 1


class GetStream(msgspec.Struct):
    """Asks for a stream with its topics."""

    stream: Name


class GetStreams(msgspec.Struct):
    """Asks for all streams."""


class CreateStream(msgspec.Struct):
    """Creates a stream. `stream_id` None: the server picks an id."""

    name: str
    stream_id: int | None = None
    options: dict[str, tuple[int, bytes]] | None = None


class UpdateStream(msgspec.Struct):
    """Renames a stream."""

    stream: Name
    name: str
    options: dict[str, tuple[int, bytes]] | None = None


class DeleteStream(msgspec.Struct):
    """Deletes a stream with all its topics."""

    stream: Name


class GetTopic(OfTopic):
    """Asks for a topic with its partitions."""


class GetTopics(msgspec.Struct):
    """Asks for all topics of a stream."""

    stream: Name


class CreateTopic(msgspec.Struct):
    """Creates a topic. `topic_id` None: the server picks an id.

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


class UpdateTopic(OfTopic):
    """Changes a topic's settings or name. In V only the named options change. In W the name may be
    absent, and the options in `resets` return to the server's value.
    """

    name: str | None
    compression: int = 1
    expiry_us: int = 0
    size_max: int = 0
    replication: int = 0
    options: dict[str, tuple[int, bytes]] | None = None
    resets: tuple[str, ...] = ()


class PurgeStream(msgspec.Struct):
    """Deletes all messages of a stream's topics."""

    stream: Name


class PurgeTopic(OfTopic):
    """Deletes all messages of a topic; stored offsets stay."""


class FlushUnsavedBuffer(OfTopic):
    """Flushes a partition's messages to disk."""

    partition: int
    fsync: bool


class DeleteSegments(OfTopic):
    """Deletes the oldest `count` segments of a partition."""

    partition: int
    count: int


class DeletePartitions(OfTopic):
    """Removes the `count` partitions with the highest numbers."""

    count: int


class DeleteTopic(OfTopic):
    """Deletes a topic with its records and stored offsets."""


class CreatePartitions(OfTopic):
    """Adds `count` partitions."""

    count: int


class GetGroup(OfGroup):
    """Asks for a consumer group with its members."""


class GetGroups(OfTopic):
    """Asks for all consumer groups of a topic."""


class CreateGroup(OfTopic):
    """Creates a group. `group_id` None: the server picks an id. `name` None: a group without a name
    (D0).
    """

    group_id: int | None = None
    name: str | None = None


class DeleteGroup(OfGroup):
    """Deletes a group with its stored offsets and memberships."""


class JoinGroup(OfGroup):
    """Makes the connection a member of a group."""


class LeaveGroup(OfGroup):
    """Ends the connection's membership of a group."""


class SyncGroup(OfGroup):
    """Asks for the caller's present partitions as a member (V)."""


class GetClusterMetadata(msgspec.Struct):
    """Asks for the nodes of the cluster."""


class DescribeOptions(msgspec.Struct):
    """Asks for the possible options of a topic (1), stream (2) or user (3) (V)."""

    scope: int
