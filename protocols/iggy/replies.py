"""Typed answers of the Iggy listener: records in the order in which they are sent, the same for
every dialect. No record at all is the empty OK.

Knows no bytes (`layouts.py` has them) and no broker. Partitions are indexes from 0, streams, topics
and groups have their numbers in the catalogue, from 1; times are microseconds.
"""

from __future__ import annotations

import msgspec

from braidlog.protocols.iggy.user_messages import Permissions


class ClientInfo(msgspec.Struct):
    """A connection; `user_id` None while nobody has logged in on it."""

    client_id: int
    user_id: int | None
    transport: int
    address: str
    groups_count: int


class JoinedGroup(msgspec.Struct):
    """A consumer group that a connection is a member of."""

    stream_id: int
    topic_id: int
    group_id: int


class StatsReply(msgspec.Struct):
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
    threads_count: int
    disk_free_bytes: int
    disk_total_bytes: int


class StreamInfo(msgspec.Struct):
    """A namespace, as Iggy sees it."""

    stream_id: int
    created_us: int
    topics_count: int
    size_bytes: int
    messages_count: int
    name: str
    options: bytes = b""
    derived_options: bytes = b""


class TopicDetails(msgspec.Struct):
    """A topic; `expiry_us` and `size_max` are all ones if there is no bound."""

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
    options: bytes = b""  # V: the options that clients gave,
    derived_options: bytes = b""  # and the values of all others.


class PartitionDetails(msgspec.Struct):
    """A partition; `current_offset` is that of the last record that may be read, and 0 if there is
    none.
    """

    partition: int
    created_us: int
    segments_count: int
    current_offset: int
    size_bytes: int
    messages_count: int
    # W only: the partition's lasting number, the owner's generation in a group, the place of the
    # catalogue's last change, and the nodes that store the partition.
    incarnation: int = 0
    generation: int = 0
    metadata_op: int = 0
    members: bytes = b""
    in_sync: bytes = b""


class PolledHead(msgspec.Struct):
    """The header before polled messages; the fields of W as in `PartitionDetails`."""

    partition: int
    current_offset: int
    messages_count: int
    incarnation: int = 0
    generation: int = 0
    metadata_op: int = 0
    next_offset: int = 0  # Where the next read continues.


class FetchSection(msgspec.Struct):
    """A partition's part of the answer to FETCH_MESSAGES, before the messages of all partitions.
    `status` is an error or 0; the further fields as in `PolledHead`.
    """

    partition: int
    status: int
    current_offset: int
    messages_count: int
    incarnation: int
    generation: int
    metadata_op: int
    next_offset: int
    records_bytes: int

    @classmethod
    def failed(cls, partition: int, status: int) -> FetchSection:
        """Return the section of a partition that could not be read."""
        return cls(partition, status, 0, 0, 0, 0, 0, 0, 0)


class ReadyPartitions(msgspec.Struct):
    """Answer to WAIT_FOR_MESSAGES."""

    partitions: list[int]


class PartitionRoute(msgspec.Struct):
    """Answer to GET_PARTITION_ROUTE (W)."""

    incarnation: int
    metadata_op: int
    view: int
    partitions_count: int
    primary_replica: int


class OffsetInfo(msgspec.Struct):
    """Answer to GET_CONSUMER_OFFSET."""

    partition: int
    current_offset: int
    stored_offset: int


class GroupInfo(msgspec.Struct):
    """A consumer group."""

    group_id: int
    partitions_count: int
    members_count: int
    name: str


class MemberInfo(msgspec.Struct):
    """A member of a consumer group, with the indexes of its partitions."""

    member_id: int
    partitions: list[int]


class SentInfo(msgspec.Struct):
    """The place of a SEND's messages (V); other dialects have no such field."""

    stream_id: int
    topic_id: int
    partition: int
    base_offset: int
    entries_count: int = 1


class NothingSent(msgspec.Struct):
    """The messages of a repeated SEND are stored, at a place that is not known any more (W)."""

    entries_count: int = 0


class LoginInfo(msgspec.Struct):
    """Answer to a login. Users are numbered from 0, which is root. Only V has the other fields."""

    user_id: int
    session: int
    protocol_version: int
    server_version: str


class Assignment(msgspec.Struct):
    """Answer to SYNC_GROUP."""

    generation: int
    partitions: list[int]


class Node(msgspec.Struct):
    """The single node of a cluster: this broker."""

    cluster: str
    nodes_count: int
    name: str
    host: str
    ports: tuple[int, int, int]  # For TCP, HTTP and WebSocket; 0: no such listener is open.
    replica_id: int = 0


class Count(msgspec.Struct):
    """The number of records in a list; V writes it for some, other dialects for none."""

    count: int


class OptionInfo(msgspec.Struct):
    """An option that can be set (V)."""

    key: str
    kind: int
    default: bytes
    description: str
    flags: int = 0


class UserDetails(msgspec.Struct):
    """A user."""

    user_id: int
    created_us: int
    status: int
    username: str
    options: bytes = b""
    derived_options: bytes = b""


class UserPermissions(msgspec.Struct):
    """A user's permissions, or None."""

    permissions: Permissions | None


class TokenDetails(msgspec.Struct):
    """A token; `expires_us` 0: never."""

    name: str
    expires_us: int


class RawToken(msgspec.Struct):
    """A new token, shown once."""

    token: str
