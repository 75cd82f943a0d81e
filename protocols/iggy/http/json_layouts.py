"""The layouts of Iggy's HTTP API, as tables: the bodies of requests, and the records of answers.

A body becomes the fields of the request that the handlers know. Streams, topics, groups and
partitions are numbered from 0 here, as in all dialects since D4. Sizes are texts with a unit, as in
Iggy's server 0.9. Messages are in `json_messages.py`. Knows no route.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

import msgspec

from braidlog.protocols.iggy import replies as r
from braidlog.protocols.iggy.errors import ErrorCode
from braidlog.protocols.iggy.fields import OPTIONS_BYTES_MAX, OPTIONS_MAX
from braidlog.protocols.iggy.http.json_permissions import (
    PermissionsBody,
    permissions_json,
    permissions_of,
)
from braidlog.protocols.iggy.http.json_values import (
    STATUSES,
    U32,
    Json,
    Whole,
    consumer_of,
    refused,
    status_of,
    whole,
)
from braidlog.protocols.iggy.topic_options import topic_options, unpacked
from braidlog.storage.formats.record import HeaderKind

COMPRESSIONS: Final = {1: "none", 2: "gzip"}
TRANSPORTS: Final = {1: "TCP", 2: "QUIC", 3: "HTTP", 4: "WebSocket"}

Options = dict[str, tuple[int, bytes]]


def _option(value: int | str) -> tuple[int, bytes]:
    if isinstance(value, str):
        return (HeaderKind.STRING, value.encode())
    return (HeaderKind.UINT64, whole(value, "an option").to_bytes(8, "little"))


def _texts(options: Mapping[str, int | str]) -> Options | None:
    """Return options, with the limits of the binary protocol. Raises Refusal."""
    values = options.values()
    size = sum(map(len, options)) + sum(len(value) for value in values if isinstance(value, str))
    if len(options) > OPTIONS_MAX or size > OPTIONS_BYTES_MAX:
        reason = f"at most {OPTIONS_MAX} options with {OPTIONS_BYTES_MAX} characters"
        raise refused(reason, ErrorCode.OPTIONS_BLOCK_TOO_LARGE)
    return {key: _option(value) for key, value in options.items()} or None


# Bodies.


class RequestBody(msgspec.Struct):
    """A body whose fields are those of its request, if not said otherwise."""

    def fields(self) -> dict[str, Any]:
        """Return the fields of the request. Raises Refusal."""
        return {name: getattr(self, name) for name in self.__struct_fields__}


class LoginBody(RequestBody):
    """Body of `POST /users/login`."""

    username: str
    password: str
    version: str | None = None
    context: str | None = None

    def fields(self) -> dict[str, Any]:
        return {name: value or "" for name, value in super().fields().items()}


class TokenBody(RequestBody):
    """A body that has only a token."""

    token: str


class NameBody(RequestBody):
    """A body that has only a name; Iggy's clients send options too."""

    name: str
    options: dict[str, str] = {}

    def fields(self) -> dict[str, Any]:
        return {"name": self.name, "options": _texts(self.options)}


class TopicBody(RequestBody):
    """A topic's settings; absent settings stay as they are, or are the server's."""

    name: str
    partitions_count: U32 = 0
    compression_algorithm: int | str | None = None
    message_expiry: Whole | str | None = None
    max_topic_size: Whole | str | None = None
    options: dict[str, str] = {}

    def fields(self) -> dict[str, Any]:
        compression = self.compression_algorithm
        if isinstance(compression, int):
            compression = COMPRESSIONS.get(compression, str(compression))
        settings = {
            "compression_algorithm": compression,
            "message_expiry": self.message_expiry,
            "max_topic_size": self.max_topic_size,
        }
        present = {key: value for key, value in settings.items() if value is not None}
        options = _texts({**self.options, **present}) or {}
        return {
            "name": self.name,
            "partitions_count": self.partitions_count,
            "options": topic_options(options),
        }


class PartitionsBody(RequestBody, rename={"count": "partitions_count"}):
    """A number of partitions."""

    count: U32


class OffsetBody(RequestBody, rename={"consumer": "consumer_id", "partition": "partition_id"}):
    """Body of `PUT .../consumer-offsets`."""

    offset: Whole
    consumer: int | str = 1
    partition: U32 | None = None

    def fields(self) -> dict[str, Any]:
        offset, consumer = whole(self.offset, "offset"), consumer_of(self.consumer)
        return {"offset": offset, "consumer": consumer, "partition": self.partition}


class NewPermissions(RequestBody):
    """Body of `PUT /users/{user}/permissions`."""

    permissions: PermissionsBody | None = None

    def fields(self) -> dict[str, Any]:
        return {**super().fields(), "permissions": permissions_of(self.permissions)}


class NewUser(NewPermissions, kw_only=True):
    """Body of `POST /users`."""

    username: str
    password: str
    status: str = "active"

    def fields(self) -> dict[str, Any]:
        return {**super().fields(), "status": status_of(self.status)}


class UserChange(RequestBody):
    """Body of `PUT /users/{user}`."""

    username: str | None = None
    status: str | None = None
    options: dict[str, str] = {}

    def fields(self) -> dict[str, Any]:
        status = status_of(self.status)
        return {"username": self.username, "status": status, "options": _texts(self.options)}


class NewPassword(RequestBody, rename={"old": "current_password", "new": "new_password"}):
    """Body of `PUT /users/{user}/password`."""

    old: str
    new: str


class AccessTokenBody(RequestBody, rename={"expiry_us": "expiry"}):
    """Body of `POST /personal-access-tokens`."""

    name: str
    expiry_us: Whole = 0

    def fields(self) -> dict[str, Any]:
        return {"name": self.name, "expiry_us": whole(self.expiry_us, "expiry")}


# Records.

Piece = Callable[[Any], object]


def record(*same: str, **pieces: str | Piece) -> Mapping[str, Piece]:
    """Return a row: attributes that keep their names, and fields that are another attribute or
    a function of the record.
    """
    renamed = {
        name: attrgetter(piece) if isinstance(piece, str) else piece
        for name, piece in pieces.items()
    }
    return {name: attrgetter(name) for name in same} | renamed


def _number(attribute: str) -> Piece:
    return lambda info: getattr(info, attribute) - 1


def _size(attribute: str) -> Piece:
    return lambda info: f"{getattr(info, attribute)} B"


def _endpoints(node: r.Node) -> Json:
    tcp, http, websocket = node.ports
    return {"tcp": tcp, "quic": 0, "http": http, "websocket": websocket}


def _kind(info: r.OptionInfo) -> str:
    return HeaderKind(info.kind).name.lower()


def options_json(info: r.StreamInfo | r.TopicDetails | r.UserDetails) -> Json:
    """Return a resource's options with their values as texts."""
    return {
        key: {
            "value": _option_text(kind, value),
            "kind": HeaderKind(kind).name.lower(),
            "explicit": is_explicit,
        }
        for block, is_explicit in ((info.derived_options, False), (info.options, True))
        for key, (kind, value) in unpacked(block).items()
    }


def _option_text(kind: int, value: bytes) -> str:
    if kind == HeaderKind.STRING:
        return value.decode("utf-8", "replace")
    if kind == HeaderKind.BOOL:
        return "true" if any(value) else "false"
    return str(int.from_bytes(value, "little"))


_RESOURCE: Final[dict[str, str | Piece]] = {"created_at": "created_us", "options": options_json}

RECORDS: Final[Mapping[type[Any], Mapping[str, Piece]]] = {
    r.StreamInfo: record(
        *("name", "messages_count", "topics_count"),
        **_RESOURCE,
        id=_number("stream_id"),
        size=_size("size_bytes"),
    ),
    r.TopicDetails: record(
        *("name", "messages_count", "partitions_count"),
        **_RESOURCE,
        id=_number("topic_id"),
        size=_size("size_bytes"),
        message_expiry="expiry_us",
        compression_algorithm=lambda topic: COMPRESSIONS.get(topic.compression, "none"),
        max_topic_size="size_max",
        replication_factor=lambda topic: max(topic.replication, 1),
    ),
    r.PartitionDetails: record(
        *("segments_count", "current_offset", "messages_count"),
        id="partition",
        created_at="created_us",
        size=_size("size_bytes"),
    ),
    r.GroupInfo: record("name", "partitions_count", "members_count", id=_number("group_id")),
    r.MemberInfo: record(
        "partitions", id="member_id", partitions_count=lambda member: len(member.partitions)
    ),
    r.ClientInfo: record(
        *("client_id", "user_id", "address"),
        transport=lambda client: TRANSPORTS.get(client.transport, "TCP"),
        consumer_groups_count="groups_count",
    ),
    r.JoinedGroup: record(
        stream_id=_number("stream_id"), topic_id=_number("topic_id"), group_id=_number("group_id")
    ),
    r.UserDetails: record(
        "username",
        **_RESOURCE,
        id="user_id",
        status=lambda user: STATUSES.get(user.status, "inactive"),
    ),
    r.UserPermissions: record(permissions=permissions_json),
    r.TokenDetails: record("name", expiry_at=lambda token: token.expires_us or None),
    r.RawToken: record("token"),
    r.OffsetInfo: record("current_offset", "stored_offset", partition_id="partition"),
    r.SentInfo: record(
        "base_offset",
        stream_id=_number("stream_id"),
        topic_id=_number("topic_id"),
        partition_id="partition",
    ),
    r.StatsReply: record(
        *("process_id", "cpu_usage", "total_cpu_usage", "streams_count", "topics_count"),
        *("partitions_count", "segments_count", "messages_count", "clients_count", "hostname"),
        *("os_name", "os_version", "kernel_version", "threads_count"),
        memory_usage=_size("memory_bytes"),
        total_memory=_size("memory_total_bytes"),
        available_memory=_size("memory_available_bytes"),
        run_time="run_time_us",
        start_time="start_time_us",
        read_bytes=_size("read_bytes"),
        written_bytes=_size("written_bytes"),
        messages_size_bytes=_size("messages_bytes"),
        consumer_groups_count="groups_count",
        iggy_server_version="server_version",
        iggy_server_semver="server_semver",
        cache_metrics=lambda _: {},
        free_disk_space=_size("disk_free_bytes"),
        total_disk_space=_size("disk_total_bytes"),
    ),
    r.Node: record(
        *("replica_id", "name"),
        ip="host",
        endpoints=_endpoints,
        role=lambda _: "leader",
        status=lambda _: "healthy",
    ),
    r.OptionInfo: record(
        *("key", "description"),
        kind=_kind,
        default=lambda option: _option_text(option.kind, option.default),
    ),
}
# Name of the list of further records in an answer that begins with such a record.
FURTHER: Final[Mapping[type[Any], str]] = {
    r.StreamInfo: "topics",
    r.TopicDetails: "partitions",
    r.GroupInfo: "members",
    r.ClientInfo: "consumer_groups",
}


@dataclass(frozen=True, slots=True)
class JsonRecords:
    """An answer in JSON: text, a list of records, and text."""

    before: bytes
    records: Iterable[Any]
    after: bytes

    def parts(self) -> Iterator[bytes]:
        """Yield the parts of the answer; each record is made when its part is."""
        yield self.before
        between = b""
        for info in self.records:
            if type(info) is not r.Count:
                yield between + msgspec.json.encode(_fields(info))
                between = b","
        yield self.after


def _fields(info: object) -> dict[str, object]:
    return {name: piece(info) for name, piece in RECORDS[type(info)].items()}


def each(records: Iterable[Any]) -> JsonRecords:
    """Return the records as a list."""
    return JsonRecords(b"[", records, b"]")


def details(records: Sequence[Any]) -> JsonRecords:
    """Return the first record, with the list of the further records, or with their fields."""
    first, *others = records
    fields, further = _fields(first), FURTHER.get(type(first))
    if further is not None:
        return _with_list(fields, further, others)
    for other in others:
        fields |= _fields(other)
    return JsonRecords(msgspec.json.encode(fields), (), b"")


def cluster(records: Sequence[Any]) -> JsonRecords:
    """Return the cluster with its nodes."""
    return _with_list({"name": records[0].cluster}, "nodes", records)


def _with_list(fields: dict[str, object], name: str, records: Iterable[Any]) -> JsonRecords:
    before = msgspec.json.encode(fields | {name: []})
    return JsonRecords(before[:-2], records, before[-2:])
