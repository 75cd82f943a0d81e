"""An independent description of dialect D2, with construct: a check of the layouts of
`protocols/iggy`.

Written from the protocol's description, not from the code. Partitions are numbers as on the wire.
"""

from construct import (
    Bytes,
    Const,
    Construct,
    ExprAdapter,
    Flag,
    Float32l,
    GreedyBytes,
    GreedyRange,
    Int8ul,
    Int32ul,
    Int64ul,
    PascalString,
    Prefixed,
    PrefixedArray,
    Rebuild,
    Select,
    Sequence,
    Struct,
    Switch,
    len_,
    this,
)

STR8 = PascalString(Int8ul, "utf8")
STR32 = PascalString(Int32ul, "utf8")
U128 = Bytes(16)

IDENTIFIER = Struct(
    "kind" / Int8ul,
    "value" / Prefixed(Int8ul, Switch(this.kind, {1: Int32ul}, default=GreedyBytes)),
)
CONSUMER = Struct("kind" / Int8ul, "id" / IDENTIFIER)
PARTITIONING = Struct("kind" / Int8ul, "value" / Prefixed(Int8ul, GreedyBytes))
STRATEGY = Struct("kind" / Int8ul, "value" / Int64ul)
HEADER = Struct(
    "key" / PascalString(Int32ul, "utf8"), "kind" / Int8ul, "value" / Prefixed(Int32ul, GreedyBytes)
)
HEADERS = Prefixed(Int32ul, GreedyRange(HEADER))
MESSAGE = Struct("id" / U128, "headers" / HEADERS, "payload" / Prefixed(Int32ul, GreedyBytes))
POLLED_MESSAGE = Struct(
    "offset" / Int64ul,
    "state" / Int8ul,
    "timestamp" / Int64ul,
    "id" / U128,
    "checksum" / Int32ul,
    "headers" / HEADERS,
    "payload" / Prefixed(Int32ul, GreedyBytes),
)


def Maybe(layout: Construct) -> Construct:
    """Return the layout of a presence byte and an optional value."""
    present = Sequence(Const(b"\x01"), layout)
    absent = Const(b"\x00")
    return ExprAdapter(
        Select(present, absent),
        lambda subcon, _: subcon[1] if isinstance(subcon, list) else None,
        lambda value, _: None if value is None else [b"\x01", value],
    )


PERMISSIONS = Maybe(Prefixed(Int32ul, GreedyBytes))
_STREAM = ("stream" / IDENTIFIER,)
_TOPIC = ("stream" / IDENTIFIER, "topic" / IDENTIFIER)
_GROUP = (*_TOPIC, "group" / IDENTIFIER)
_OFFSET = ("consumer" / CONSUMER, *_TOPIC, "partition" / Int32ul)

REQUESTS = {
    1: Struct(),
    10: Struct(),
    20: Struct(),
    21: Struct("client_id" / Int32ul),
    22: Struct(),
    38: Struct("username" / STR8, "password" / STR8, "version" / STR32, "context" / STR32),
    39: Struct(),
    100: Struct(*_OFFSET, "strategy" / STRATEGY, "count" / Int32ul, "auto_commit" / Flag),
    101: Struct(*_TOPIC, "partitioning" / PARTITIONING, "messages" / GreedyRange(MESSAGE)),
    120: Struct(*_OFFSET),
    121: Struct(*_OFFSET, "offset" / Int64ul),
    122: Struct(*_OFFSET),
    200: Struct(*_STREAM),
    201: Struct(),
    202: Struct("stream_id" / Int32ul, "name" / STR8),
    203: Struct(*_STREAM),
    204: Struct(*_STREAM, "name" / STR8),
    300: Struct(*_TOPIC),
    301: Struct(*_STREAM),
    302: Struct(
        *_STREAM,
        "topic_id" / Int32ul,
        "partitions" / Int32ul,
        "compression" / Int8ul,
        "expiry" / Int64ul,
        "max_size" / Int64ul,
        "replication" / Int8ul,
        "name" / STR8,
    ),
    303: Struct(*_TOPIC),
    402: Struct(*_TOPIC, "count" / Int32ul),
    403: Struct(*_TOPIC, "count" / Int32ul),
    102: Struct(*_TOPIC, "partition" / Int32ul, "fsync" / Flag),
    205: Struct(*_STREAM),
    304: Struct(
        *_TOPIC,
        "compression" / Int8ul,
        "expiry" / Int64ul,
        "max_size" / Int64ul,
        "replication" / Int8ul,
        "name" / STR8,
    ),
    305: Struct(*_TOPIC),
    44: Struct("token" / STR8),
    31: Struct("user" / IDENTIFIER),
    32: Struct(),
    33: Struct(
        "username" / STR8, "password" / STR8, "status" / Int8ul, "permissions" / PERMISSIONS
    ),
    34: Struct("user" / IDENTIFIER),
    35: Struct("user" / IDENTIFIER, "username" / Maybe(STR8), "status" / Maybe(Int8ul)),
    36: Struct("user" / IDENTIFIER, "permissions" / PERMISSIONS),
    37: Struct("user" / IDENTIFIER, "old" / STR8, "new" / STR8),
    41: Struct(),
    42: Struct("name" / STR8, "expiry" / Int64ul),
    43: Struct("name" / STR8),
    600: Struct(*_GROUP),
    601: Struct(*_TOPIC),
    602: Struct(*_TOPIC, "group_id" / Int32ul, "name" / STR8),
    603: Struct(*_GROUP),
    604: Struct(*_GROUP),
    605: Struct(*_GROUP),
}

CLIENT = Struct(
    "client_id" / Int32ul,
    "user_id" / Int32ul,
    "transport" / Int8ul,
    "address" / STR32,
    "groups_count" / Int32ul,
)
MEMBERSHIP = Struct("stream_id" / Int32ul, "topic_id" / Int32ul, "group_id" / Int32ul)
STREAM = Struct(
    "id" / Int32ul,
    "created_at" / Int64ul,
    "topics" / Int32ul,
    "size" / Int64ul,
    "messages" / Int64ul,
    "name" / STR8,
)
TOPIC = Struct(
    "id" / Int32ul,
    "created_at" / Int64ul,
    "partitions" / Int32ul,
    "expiry" / Int64ul,
    "compression" / Int8ul,
    "max_size" / Int64ul,
    "replication" / Int8ul,
    "size" / Int64ul,
    "messages" / Int64ul,
    "name" / STR8,
)
PARTITION = Struct(
    "id" / Int32ul,
    "created_at" / Int64ul,
    "segments" / Int32ul,
    "current_offset" / Int64ul,
    "size" / Int64ul,
    "messages" / Int64ul,
)
GROUP = Struct("id" / Int32ul, "partitions" / Int32ul, "members" / Int32ul, "name" / STR8)
MEMBER = Struct("id" / Int32ul, "partitions" / PrefixedArray(Int32ul, Int32ul))
STATS = Struct(
    "process_id" / Int32ul,
    "cpu_usage" / Float32l,
    "total_cpu_usage" / Float32l,
    "memory_usage" / Int64ul,
    "total_memory" / Int64ul,
    "available_memory" / Int64ul,
    "run_time" / Int64ul,
    "start_time" / Int64ul,
    "read_bytes" / Int64ul,
    "written_bytes" / Int64ul,
    "messages_size" / Int64ul,
    "streams" / Int32ul,
    "topics" / Int32ul,
    "partitions" / Int32ul,
    "segments" / Int32ul,
    "messages" / Int64ul,
    "clients" / Int32ul,
    "groups" / Int32ul,
    "hostname" / STR32,
    "os_name" / STR32,
    "os_version" / STR32,
    "kernel_version" / STR32,
    "server_version" / STR32,
    "server_semver" / Int32ul,
    "cache_metrics" / PrefixedArray(Int32ul, Bytes(36)),
)
USER = Struct("id" / Int32ul, "created_at" / Int64ul, "status" / Int8ul, "username" / STR8)
MAYBE_SIZED = Struct(Const(b"\x01"), "value" / Prefixed(Int32ul, GreedyBytes))
ZERO = Struct("none" / Int32ul)
TOKEN = Struct("name" / STR8, "expires" / Int64ul)
RAW_TOKEN = Struct("token" / STR8)
PERMISSIONS_FIELD = (
    "permissions"
    / ExprAdapter(
        Select(Sequence(Const(b"\x01"), Prefixed(Int32ul, GreedyBytes)), Const(bytes(4))),
        lambda elements, _: elements[1] if isinstance(elements, list) else None,
        lambda value, _: value,
    ),
)
EMPTY = Struct()

ANSWERS = {
    10: STATS,
    20: Struct("client" / CLIENT, "memberships" / GreedyRange(MEMBERSHIP)),
    21: Struct("client" / CLIENT, "memberships" / GreedyRange(MEMBERSHIP)),
    22: Struct("clients" / GreedyRange(CLIENT)),
    31: Struct("user" / USER, *PERMISSIONS_FIELD),
    32: Struct("users" / GreedyRange(USER)),
    33: Struct("user" / USER, *PERMISSIONS_FIELD),
    38: Struct("user_id" / Int32ul),
    41: Struct("tokens" / GreedyRange(TOKEN)),
    42: RAW_TOKEN,
    44: Struct("user_id" / Int32ul),
    100: Struct(
        "partition" / Int32ul,
        "current_offset" / Int64ul,
        "messages_count" / Int32ul,
        "messages" / GreedyRange(POLLED_MESSAGE),
    ),
    120: Struct("partition" / Int32ul, "current_offset" / Int64ul, "stored_offset" / Int64ul),
    200: Struct("stream" / STREAM, "topics" / GreedyRange(TOPIC)),
    201: Struct("streams" / GreedyRange(STREAM)),
    202: Struct("stream" / STREAM),
    300: Struct("topic" / TOPIC, "partitions" / GreedyRange(PARTITION)),
    301: Struct("topics" / GreedyRange(TOPIC)),
    302: Struct("topic" / TOPIC, "partitions" / GreedyRange(PARTITION)),
    600: Struct("group" / GROUP, "members" / GreedyRange(MEMBER)),
    601: Struct("groups" / GreedyRange(GROUP)),
    602: Struct("group" / GROUP),
}

REQUEST_FRAME = Struct(
    "length" / Rebuild(Int32ul, len_(this.payload) + 4), "code" / Int32ul, "payload" / GreedyBytes
)
ANSWER_FRAME = Struct("status" / Int32ul, "payload" / Prefixed(Int32ul, GreedyBytes))


def request(code: int, **values: object) -> bytes:
    """Return a whole request frame."""
    payload = REQUESTS[code].build(values)
    return REQUEST_FRAME.build({"code": code, "payload": payload})


def whole(layout: Struct, payload: bytes) -> dict:
    """Return the payload as plain values; the layout must cover the whole payload."""
    parsed = Struct("value" / layout, "rest" / GreedyBytes).parse(payload)
    assert parsed.rest == b"", f"{len(parsed.rest)} bytes too many"
    return plain(parsed.value)


def answer(code: int, frame: bytes) -> dict:
    """Return status and values of an answer to that command; the empty OK has no values."""
    parsed = ANSWER_FRAME.parse(frame)
    assert len(frame) == 8 + len(parsed.payload)
    if not parsed.payload:
        return {"status": parsed.status}
    return {"status": parsed.status, **whole(ANSWERS[code], parsed.payload)}


def plain(value: object) -> object:
    """Return containers as dicts and lists, without construct's own entries."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items() if not key.startswith("_")}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value


def named(name: str | int) -> dict:
    """Return an identifier."""
    if isinstance(name, int):
        return {"kind": 1, "value": name}
    return {"kind": 2, "value": name.encode()}
