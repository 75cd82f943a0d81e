"""The dialects of Iggy's classic framing as tables: which layout a command and a record have in
which dialect.

Iggy broke its protocol many times before 1.0; the breaks have names here: D0 (crates 0.0.60 to
0.0.89), D1a (0.0.92 to 0.1.6), D1b (0.1.7 to 0.4), D2 (0.5, 0.6), D3 (0.7), D4 (0.8), D5 (0.9,
0.10). A dialect is a row: the layouts that differ from another one's are named, the rest is taken
over. One without requests is recognised, and refused. Knows no broker and no state of a connection.
Layouts: apache/iggy, tag server-0.4.300, `sdk/src/*/` and `server/src/binary/mapper.rs`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from broker.server.adapters import ProtocolError
from protocols.iggy import fields as f
from protocols.iggy import messages as m
from protocols.iggy.messages import Code
from protocols.iggy.partitioning import xxhash32_from_one
from protocols.reader import LittleEndianReader

VERSION = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")


@dataclass(frozen=True, slots=True)
class RequestLayout:
    """The payload of a command: `fields` in order, each named after its attribute."""

    type: type[Any]
    fields: tuple[tuple[str, f.Readable], ...] = ()

    def read(self, payload: memoryview) -> object:
        """The request. Raises ProtocolError unless the payload is exactly one."""
        reader = LittleEndianReader(payload)
        values = [piece.read(reader) for _, piece in self.fields]
        if reader.left:
            raise ProtocolError(f"{reader.left} bytes too many in {self.type.__name__}")
        return self.type(*values)


@dataclass(frozen=True, slots=True)
class RecordLayout:
    """A record of a reply."""

    fields: tuple[tuple[str, f.Writable], ...]

    def write(self, record: object) -> bytes:
        """The bytes of the record."""
        return b"".join(piece.write(getattr(record, name)) for name, piece in self.fields)


@dataclass(frozen=True, slots=True)
class Dialect:
    """One row of the table. `clients` says in words who speaks it."""

    name: str
    clients: str
    requests: Mapping[int, RequestLayout] = field(default_factory=dict)
    records: Mapping[type[Any], RecordLayout] = field(default_factory=dict)
    unserved: frozenset[int] = frozenset()  # Commands that exist there and are not served here.
    key_partition: Callable[[bytes, int], int] = xxhash32_from_one  # Index of a key, of so many.

    @property
    def served(self) -> bool:
        """Whether this listener speaks it."""
        return bool(self.requests)

    def write(self, records: list[Any]) -> bytes:
        """The payload of a reply."""
        layouts = self.records
        return b"".join(layouts[type(record)].write(record) for record in records)


@dataclass(frozen=True, slots=True)
class Manners:
    """What differs between the clients of one dialect.

    `error_text`: clients of the crate from 0.2.5 to before 0.6.60 read an error's payload, and
    panic if there is none; all others do not read it, and lose step if there is one.
    `absent_is_error`: before 0.6.10 a missing stream, topic, group, client or offset was an error;
    since then it is the empty OK.
    """

    error_text: bool = False
    absent_is_error: bool = False


def _request(type_: type[Any], **fields: f.Readable) -> RequestLayout:
    return RequestLayout(type_, tuple(fields.items()))


def _record(**fields: f.Writable) -> RecordLayout:
    return RecordLayout(tuple(fields.items()))


_STREAM: dict[str, f.Readable] = {"stream": f.IDENTIFIER}
_TOPIC: dict[str, f.Readable] = {"stream": f.IDENTIFIER, "topic": f.IDENTIFIER}
_GROUP: dict[str, f.Readable] = {**_TOPIC, "group": f.IDENTIFIER}
_PARTITION = f.PartitionOrZero()
_OFFSET: dict[str, f.Readable] = {"consumer": f.CONSUMER, **_TOPIC, "partition": _PARTITION}
_PICKED_ID = f.ChosenId(zero_picks=True)
_FROM_ONE = f.PartitionNumber(1)

_D2_REQUESTS: dict[int, RequestLayout] = {
    Code.PING: _request(m.Ping),
    Code.GET_STATS: _request(m.GetStats),
    Code.GET_ME: _request(m.GetMe),
    Code.GET_CLIENT: _request(m.GetClient, client_id=f.U32_FIELD),
    Code.GET_CLIENTS: _request(m.GetClients),
    Code.LOGIN_USER: _request(
        m.LoginUser, username=f.STR8, password=f.STR8, version=f.STR32, context=f.STR32
    ),
    Code.LOGOUT_USER: _request(m.LogoutUser),
    Code.POLL_MESSAGES: _request(
        m.PollMessages,
        **_OFFSET,
        strategy=f.STRATEGY_FIELD,
        count=f.U32_FIELD,
        auto_commit=f.FLAG,
    ),
    Code.SEND_MESSAGES: _request(
        m.SendMessages, **_TOPIC, partitioning=f.PartitioningField(1), messages=f.REST
    ),
    Code.GET_CONSUMER_OFFSET: _request(m.GetConsumerOffset, **_OFFSET),
    Code.STORE_CONSUMER_OFFSET: _request(m.StoreConsumerOffset, **_OFFSET, offset=f.U64_FIELD),
    Code.DELETE_CONSUMER_OFFSET: _request(m.DeleteConsumerOffset, **_OFFSET),
    Code.GET_STREAM: _request(m.GetStream, **_STREAM),
    Code.GET_STREAMS: _request(m.GetStreams),
    Code.CREATE_STREAM: _request(m.CreateStream, stream_id=_PICKED_ID, name=f.NAME8),
    Code.DELETE_STREAM: _request(m.DeleteStream, **_STREAM),
    Code.UPDATE_STREAM: _request(m.UpdateStream, **_STREAM, name=f.NAME8),
    Code.GET_TOPIC: _request(m.GetTopic, **_TOPIC),
    Code.GET_TOPICS: _request(m.GetTopics, **_STREAM),
    Code.CREATE_TOPIC: _request(
        m.CreateTopic,
        **_STREAM,
        topic_id=_PICKED_ID,
        partitions_count=f.U32_FIELD,
        compression=f.U8_FIELD,
        expiry_us=f.U64_FIELD,
        size_max=f.U64_FIELD,
        replication=f.U8_FIELD,
        name=f.NAME8,
    ),
    Code.DELETE_TOPIC: _request(m.DeleteTopic, **_TOPIC),
    Code.CREATE_PARTITIONS: _request(m.CreatePartitions, **_TOPIC, count=f.U32_FIELD),
    Code.GET_GROUP: _request(m.GetGroup, **_GROUP),
    Code.GET_GROUPS: _request(m.GetGroups, **_TOPIC),
    Code.CREATE_GROUP: _request(m.CreateGroup, **_TOPIC, group_id=_PICKED_ID, name=f.NAME8),
    Code.DELETE_GROUP: _request(m.DeleteGroup, **_GROUP),
    Code.JOIN_GROUP: _request(m.JoinGroup, **_GROUP),
    Code.LEAVE_GROUP: _request(m.LeaveGroup, **_GROUP),
}

_D2_RECORDS: dict[type[Any], RecordLayout] = {
    m.UserIdentity: _record(user_id=f.U32_FIELD),
    m.ClientInfo: _record(
        client_id=f.U32_FIELD,
        user_id=f.U32_FIELD,
        transport=f.U8_FIELD,
        address=f.STR32,
        groups_count=f.U32_FIELD,
    ),
    m.Membership: _record(stream_id=f.U32_FIELD, topic_id=f.U32_FIELD, group_id=f.U32_FIELD),
    m.Stats: _record(
        process_id=f.U32_FIELD,
        cpu_usage=f.F32_FIELD,
        total_cpu_usage=f.F32_FIELD,
        memory_bytes=f.U64_FIELD,
        memory_total_bytes=f.U64_FIELD,
        memory_available_bytes=f.U64_FIELD,
        run_time_us=f.U64_FIELD,
        start_time_us=f.U64_FIELD,
        read_bytes=f.U64_FIELD,
        written_bytes=f.U64_FIELD,
        messages_bytes=f.U64_FIELD,
        streams_count=f.U32_FIELD,
        topics_count=f.U32_FIELD,
        partitions_count=f.U32_FIELD,
        segments_count=f.U32_FIELD,
        messages_count=f.U64_FIELD,
        clients_count=f.U32_FIELD,
        groups_count=f.U32_FIELD,
        hostname=f.STR32,
        os_name=f.STR32,
        os_version=f.STR32,
        kernel_version=f.STR32,
        server_version=f.STR32,
        server_semver=f.U32_FIELD,
        cache_metrics_count=f.U32_FIELD,
    ),
    m.StreamInfo: _record(
        stream_id=f.U32_FIELD,
        created_us=f.U64_FIELD,
        topics_count=f.U32_FIELD,
        size_bytes=f.U64_FIELD,
        messages_count=f.U64_FIELD,
        name=f.STR8,
    ),
    m.TopicInfo: _record(
        topic_id=f.U32_FIELD,
        created_us=f.U64_FIELD,
        partitions_count=f.U32_FIELD,
        expiry_us=f.U64_FIELD,
        compression=f.U8_FIELD,
        size_max=f.U64_FIELD,
        replication=f.U8_FIELD,
        size_bytes=f.U64_FIELD,
        messages_count=f.U64_FIELD,
        name=f.STR8,
    ),
    m.PartitionInfo: _record(
        partition=_FROM_ONE,
        created_us=f.U64_FIELD,
        segments_count=f.U32_FIELD,
        current_offset=f.U64_FIELD,
        size_bytes=f.U64_FIELD,
        messages_count=f.U64_FIELD,
    ),
    m.PolledHead: _record(
        partition=_FROM_ONE, current_offset=f.U64_FIELD, messages_count=f.U32_FIELD
    ),
    m.OffsetInfo: _record(
        partition=_FROM_ONE, current_offset=f.U64_FIELD, stored_offset=f.U64_FIELD
    ),
    m.GroupInfo: _record(
        group_id=f.U32_FIELD, partitions_count=f.U32_FIELD, members_count=f.U32_FIELD, name=f.STR8
    ),
    m.MemberInfo: _record(member_id=f.U32_FIELD, partitions=f.PartitionNumbers(1)),
}

D1 = Dialect("D1", "login without a version: Rust crate 0.0.75 to 0.4, iggy-py 0.1 and 0.2.0-0.2.2")
D2 = Dialect(
    "D2",
    "Rust crate 0.5 and 0.6, iggy-py 0.2.3 to 0.4",
    requests=_D2_REQUESTS,
    records=_D2_RECORDS,
    unserved=frozenset(Code)
    - frozenset(_D2_REQUESTS)
    - {Code.GET_CLUSTER_METADATA, Code.DELETE_SEGMENTS},  # These came later.
)
D3 = Dialect("D3", "Rust crate 0.7, apache-iggy 0.5")
D4 = Dialect("D4", "Rust crate 0.8, apache-iggy 0.6")
D5 = Dialect("D5", "Rust crate 0.9 and 0.10, apache-iggy 0.7 and 0.8")
LATER = Dialect("unknown", "a classic client newer than Rust crate 0.10")

_BY_CRATE = {(0, 5): D2, (0, 6): D2, (0, 7): D3, (0, 8): D4, (0, 9): D5, (0, 10): D5}


def dialect_of_login(payload: memoryview) -> tuple[Dialect, Manners]:
    """The dialect of a connection by its login, the first command that says anything about it.

    The version is the crate's in Rust and Python clients; Node sends an empty one, Java a name.
    Those are taken for D2: SEND and POLL of later dialects have other shapes, so such a client is
    refused there and never misread. Raises ProtocolError if this is no login of any dialect.
    """
    reader = LittleEndianReader(payload)
    f.STR8.read(reader)
    f.STR8.read(reader)
    if not reader.left:
        # D1b reads the text; the others lose only the refused connection.
        return D1, Manners(error_text=True)
    version = _parsed(f.STR32.read(reader))
    f.STR32.read(reader)
    if reader.left:
        raise ProtocolError(f"{reader.left} bytes too many in a login")
    if version is None:
        return D2, Manners()
    manners = Manners(
        error_text=(0, 2, 5) <= version < (0, 6, 60), absent_is_error=version < (0, 6, 10)
    )
    return _BY_CRATE.get(version[:2], LATER), manners


def _parsed(version: str) -> tuple[int, int, int] | None:
    """Major, minor, patch; None if the text does not begin like a version."""
    found = VERSION.match(version)
    if found is None:
        return None
    major, minor, patch = found.groups(default="0")
    return int(major), int(minor), int(patch)
