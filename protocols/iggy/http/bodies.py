"""Typed bodies of Iggy's HTTP requests, and the values in paths and queries, as requests of the
handlers. Knows no route and no answer.

Streams, topics, groups and partitions are numbered from 0 here, as in all dialects since D4.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, TypeVar

import msgspec
import trio

from braidlog.protocols.iggy import messages as m
from braidlog.protocols.iggy import user_messages as u
from braidlog.protocols.iggy.errors import ErrorCode, Refusal
from braidlog.protocols.iggy.permission_field import PERMITTED_MAX
from braidlog.storage.formats.record import HeaderKind

MESSAGES_MAX: Final = 10_000  # Of a request.
MESSAGES_PER_TURN: Final = 200  # Packed or shown between two checkpoints.
POLL_COUNT: Final = 10  # By default.
U32_MAX, U64_MAX = (1 << 32) - 1, (1 << 64) - 1
LARGEST_ID = (1 << 128) - 1
# A message of D5: checksum, id, offset, time (all by the server), client's time, sizes, reserved.
MESSAGE = struct.Struct("<Q16sQQQIIQ")
HEADER_FIELD = struct.Struct("<BI")
COMPRESSIONS: Final = {1: "none", 2: "gzip"}

U32 = Annotated[int, msgspec.Meta(ge=0, le=U32_MAX)]
# msgspec checks limits of 64 bits only up to 2^63; `_u64` checks the rest.
Whole = Annotated[int, msgspec.Meta(ge=0)]
T = TypeVar("T")


class Login(msgspec.Struct):
    """Body of `POST /users/login`."""

    username: str
    password: str
    version: str | None = None
    context: str | None = None


class TokenBody(msgspec.Struct):
    """A body that has only a token."""

    token: str


class NewName(msgspec.Struct):
    """A body that has only a name; Iggy's clients send options too."""

    name: str
    options: dict[str, str] = {}


class TopicBody(msgspec.Struct):
    """A topic's settings; absent settings stay as they are, or are the server's."""

    name: str
    partitions_count: U32 = 0
    compression_algorithm: int | str | None = None
    message_expiry: Whole | str | None = None
    max_topic_size: Whole | str | None = None
    options: dict[str, str] = {}


class PartitionsBody(msgspec.Struct):
    """A number of partitions."""

    partitions_count: U32


class TopicRights(msgspec.Struct):
    """Permissions on a topic."""

    manage_topic: bool = False
    read_topic: bool = False
    poll_messages: bool = False
    send_messages: bool = False


class StreamRights(msgspec.Struct):
    """Permissions on a stream."""

    manage_stream: bool = False
    read_stream: bool = False
    manage_topics: bool = False
    read_topics: bool = False
    poll_messages: bool = False
    send_messages: bool = False
    topics: dict[str, TopicRights] | None = None


class GlobalRights(msgspec.Struct):
    """Permissions everywhere."""

    manage_servers: bool = False
    read_servers: bool = False
    manage_users: bool = False
    read_users: bool = False
    manage_streams: bool = False
    read_streams: bool = False
    manage_topics: bool = False
    read_topics: bool = False
    poll_messages: bool = False
    send_messages: bool = False


class PermissionsBody(msgspec.Struct, rename={"everywhere": "global"}):
    """A user's permissions."""

    everywhere: GlobalRights
    streams: dict[str, StreamRights] | None = None


class NewUser(msgspec.Struct):
    """Body of `POST /users`."""

    username: str
    password: str
    status: str = "active"
    permissions: PermissionsBody | None = None


class UserChange(msgspec.Struct):
    """Body of `PUT /users/{user}`."""

    username: str | None = None
    status: str | None = None
    options: dict[str, str] = {}


class NewPermissions(msgspec.Struct):
    """Body of `PUT /users/{user}/permissions`."""

    permissions: PermissionsBody | None = None


class NewPassword(msgspec.Struct):
    """Body of `PUT /users/{user}/password`."""

    current_password: str
    new_password: str


class AccessTokenBody(msgspec.Struct):
    """Body of `POST /personal-access-tokens`; `expiry` in microseconds."""

    name: str
    expiry: Whole = 0


class Offset(msgspec.Struct):
    """Body of `PUT .../consumer-offsets`."""

    offset: Whole
    consumer_id: int | str = 1
    partition_id: U32 | None = None


class HeaderField(msgspec.Struct):
    """The key or the value of a message's header; `value` is Base64."""

    kind: str
    value: str


class HeaderBody(msgspec.Struct):
    """A header of a message."""

    key: HeaderField
    value: HeaderField


class MessageBody(msgspec.Struct):
    """A message to send; `payload` is Base64, and so are headers that are one text."""

    payload: str
    id: int | str = 0
    user_headers: list[HeaderBody] | str | None = None


class PartitioningBody(msgspec.Struct):
    """The choice of a partition; `value` is Base64."""

    kind: str
    value: str = ""


class SendBody(msgspec.Struct):
    """Body of `POST .../messages`."""

    partitioning: PartitioningBody
    messages: list[MessageBody]


def refused(reason: str, code: ErrorCode = ErrorCode.INVALID_COMMAND) -> Refusal:
    """Return the refusal of a value."""
    return Refusal(code, reason)


def name_of(text: str) -> m.Name:
    """Return the stream, topic or group that a path names: a number, else a name."""
    if text.isascii() and text.isdigit() and int(text) <= U32_MAX:
        return int(text) + 1
    return text


def user_of(text: str) -> m.Name:
    """Return the user that a path names; users have Iggy's own numbers."""
    return int(text) if text.isascii() and text.isdigit() and int(text) <= U32_MAX else text


def consumer_of(value: int | str) -> m.ConsumerRef:
    """Return a consumer: a number or a name. Raises Refusal."""
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value)
    if isinstance(value, int) and not 0 <= value <= U32_MAX:
        raise refused("consumer_id: a number of 32 bits, or a name")
    if value == "":
        raise refused("consumer_id: is empty")
    return m.ConsumerRef(m.ConsumerKind.CONSUMER, value)


def number_of(query: Mapping[str, str], name: str, default: int, largest: int = U32_MAX) -> int:
    """Return a number of a query. Raises Refusal."""
    text = query.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and int(text[:40]) <= largest):
        raise refused(f"{name}: a number from 0 to {largest} is needed")
    return int(text)


def whole(value: int, name: str, largest: int = U64_MAX) -> int:
    """Return a number that the protocol can express. Raises Refusal."""
    if not 0 <= value <= largest:
        raise refused(f"{name}: a number from 0 to {largest} is needed")
    return value


def poll_of(query: Mapping[str, str], stream: m.Name, topic: m.Name) -> m.PollMessages:
    """Return the poll of a query. Raises Refusal."""
    kind = query.get("kind", "offset")
    if kind.upper() not in m.PollingKind.__members__:
        kinds = ", ".join(name.lower() for name in m.PollingKind.__members__)
        raise refused(f"kind: one of {kinds} is needed")
    auto_commit = query.get("auto_commit", "false")
    if auto_commit not in ("true", "false"):
        raise refused("auto_commit: true or false is needed")
    return m.PollMessages(
        consumer_of(query.get("consumer_id", "1")),
        stream,
        topic,
        number_of(query, "partition_id", 0),
        m.PollingStrategy(
            m.PollingKind[kind.upper()], number_of(query, "value", 0, largest=U64_MAX)
        ),
        min(number_of(query, "count", POLL_COUNT), MESSAGES_MAX),
        auto_commit == "true",
    )


def options_of(body: TopicBody) -> dict[str, tuple[int, bytes]]:
    """Return a topic's options: the fields of the body, then its other options. Raises Refusal."""
    compression = body.compression_algorithm
    if isinstance(compression, int):
        compression = COMPRESSIONS.get(compression, str(compression))
    options = {key: _option(value) for key, value in body.options.items()}
    fields = {
        "compression_algorithm": compression,
        "message_expiry": body.message_expiry,
        "max_topic_size": body.max_topic_size,
    }
    return options | {key: _option(value) for key, value in fields.items() if value is not None}


def _option(value: int | str) -> tuple[int, bytes]:
    if isinstance(value, str):
        return (HeaderKind.STRING, value.encode())
    return (HeaderKind.UINT64, whole(value, "an option").to_bytes(8, "little"))


def status_of(text: str | None) -> int | None:
    """Return the number of a user's status. Raises Refusal."""
    if text is None:
        return None
    statuses = {"active": 1, "inactive": 2}
    if text not in statuses:
        raise refused("status: active or inactive", ErrorCode.INVALID_USER_STATUS)
    return statuses[text]


def permissions_of(body: PermissionsBody | None) -> u.Permissions | None:
    """Return a user's permissions. Raises Refusal."""
    if body is None:
        return None
    streams = body.streams or {}
    count = len(streams) + sum(len(rights.topics or {}) for rights in streams.values())
    if count > PERMITTED_MAX:
        raise refused(f"permissions: more than {PERMITTED_MAX} streams and topics")
    return u.Permissions(
        _granted(body.everywhere, u.GLOBAL_PERMISSIONS),
        {_catalogue(number): _stream(rights) for number, rights in streams.items()},
    )


def _stream(rights: StreamRights) -> u.StreamPermissions:
    return u.StreamPermissions(
        _granted(rights, u.STREAM_PERMISSIONS),
        {
            _catalogue(number): _granted(topic, u.TOPIC_PERMISSIONS)
            for number, topic in (rights.topics or {}).items()
        },
    )


def _granted(rights: object, names: Sequence[str]) -> frozenset[str]:
    return frozenset(name for name in names if getattr(rights, name))


def _catalogue(text: str) -> int:
    """Return the catalogue's number of a stream or topic. Raises Refusal."""
    number = name_of(text)
    if isinstance(number, str):
        raise refused(f"permissions: {text!r} is no number of a stream or topic")
    return number


async def sending_of(body: SendBody, stream: m.Name, topic: m.Name, now_us: int) -> m.SendMessages:
    """Return the SEND of a body, with messages as in D5; other tasks get their turns.

    Raises Refusal.
    """
    if not 0 < len(body.messages) <= MESSAGES_MAX:
        reason = f"messages: 1 to {MESSAGES_MAX} are needed"
        raise refused(reason, ErrorCode.INVALID_MESSAGES_COUNT)
    pieces = []
    for count, message in enumerate(body.messages, 1):
        pieces.append(_message(message, now_us))
        if count % MESSAGES_PER_TURN == 0:
            await trio.lowlevel.checkpoint()
    packed, count = b"".join(pieces), len(pieces)
    return m.SendMessages(
        stream, topic, _partitioning(body.partitioning), memoryview(packed), count
    )


def _partitioning(body: PartitioningBody) -> m.Partitioning:
    value = _decoded(body.value, "partitioning.value")
    if body.kind == "balanced":
        return m.Partitioning(m.PartitioningKind.BALANCED)
    if body.kind == "partition_id" and len(value) == 4:
        partition = int.from_bytes(value, "little")
        return m.Partitioning(m.PartitioningKind.PARTITION, partition)
    if body.kind == "messages_key" and 1 <= len(value) <= 255:
        return m.Partitioning(m.PartitioningKind.KEY, key=value)
    raise refused(
        "partitioning: balanced, partition_id with 4 bytes, or messages_key with 1 to 255"
    )


def _message(body: MessageBody, now_us: int) -> bytes:
    payload = _decoded(body.payload, "payload")
    headers = body.user_headers or []
    if isinstance(headers, str):
        packed = _decoded(headers, "user_headers")
    else:
        packed = b"".join(map(_header, headers))
    number = body.id
    if isinstance(number, str):
        if not (number.isascii() and number.isdigit() and len(number) < 40):
            raise refused("id: a decimal number of 128 bits")
        number = int(number)
    message_id = whole(number, "id", LARGEST_ID).to_bytes(16, "little")
    head = MESSAGE.pack(0, message_id, 0, 0, now_us, len(packed), len(payload), 0)
    return head + payload + packed


def _header(header: HeaderBody) -> bytes:
    parts = []
    for field in (header.key, header.value):
        kind = field.kind.upper()
        if kind not in HeaderKind.__members__:
            raise refused(f"user_headers: there is no kind {field.kind!r}")
        value = _decoded(field.value, "user_headers")
        parts += [HEADER_FIELD.pack(HeaderKind[kind], len(value)), value]
    return b"".join(parts)


def _decoded(text: str, name: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise refused(f"{name}: this is no Base64", ErrorCode.INVALID_FORMAT) from None


def parsed(body: bytes, into: type[T]) -> T:
    """Return a JSON body. Raises Refusal."""
    try:
        value: Any = msgspec.json.decode(body or b"{}", type=into)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise refused(str(error), ErrorCode.INVALID_FORMAT) from None
    result: T = value
    return result
