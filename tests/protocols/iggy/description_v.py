"""A description of dialect V's answers with construct, and the fields that vary between servers."""

from construct import (
    Array,
    Bytes,
    GreedyBytes,
    GreedyRange,
    Int8ul,
    Int32ul,
    Int64ul,
    Prefixed,
    PrefixedArray,
    Struct,
    this,
)

from tests.protocols.iggy.description import CLIENT, GROUP, MEMBERSHIP, PARTITION, STR8, plain

OPTION = Struct(
    "key_kind" / Int8ul,
    "key" / Prefixed(Int32ul, GreedyBytes),
    "kind" / Int8ul,
    "value" / Prefixed(Int32ul, GreedyBytes),
)
OPTIONS = Prefixed(Int32ul, GreedyRange(OPTION))
STREAM = Struct(
    "id" / Int32ul,
    "created_at" / Int64ul,
    "topics" / Int32ul,
    "size" / Int64ul,
    "messages" / Int64ul,
    "name" / STR8,
    "options" / OPTIONS,
)
TOPIC = Struct(
    "id" / Int32ul,
    "created_at" / Int64ul,
    "partitions" / Int32ul,
    "expiry" / Int64ul,
    "compression" / Int8ul,
    "max_size" / Int64ul,
    "size" / Int64ul,
    "messages" / Int64ul,
    "name" / STR8,
    "options" / OPTIONS,
    "derived" / OPTIONS,
)
USER = Struct(
    "id" / Int32ul,
    "created_at" / Int64ul,
    "status" / Int8ul,
    "username" / STR8,
    "options" / OPTIONS,
    "permissions" / GreedyBytes,
)
USERS = Struct(
    "id" / Int32ul,
    "created_at" / Int64ul,
    "status" / Int8ul,
    "username" / STR8,
    "options" / OPTIONS,
)
FRAME = Struct(
    "checksum" / Int64ul,
    "id" / Bytes(16),
    "offset_delta" / Int32ul,
    "timestamp_delta" / Int32ul,
    "headers_bytes" / Int32ul,
    "payload_bytes" / Int32ul,
    "reserved" / Int64ul,
    "payload" / Bytes(this.payload_bytes),
    "headers" / Bytes(this.headers_bytes),
)
BATCH = Struct(
    "partition" / Int64ul,
    "base_offset" / Int64ul,
    "base_timestamp" / Int64ul,
    "origin_timestamp" / Int64ul,
    "length" / Int64ul,
    "checksum" / Int64ul,
    "count" / Int32ul,
    "zeros" / Bytes(204),
    "frames" / Array(this.count, FRAME),
)
POLLED = Struct(
    "partition" / Int32ul,
    "current_offset" / Int64ul,
    "messages_count" / Int32ul,
    "batches" / GreedyRange(BATCH),
)
MEMBER = Struct("id" / Int32ul, "partitions" / PrefixedArray(Int32ul, Int32ul))

BODIES = {
    20: Struct("client" / CLIENT, "memberships" / GreedyRange(MEMBERSHIP)),
    22: Struct("clients" / GreedyRange(CLIENT)),
    31: USER,
    32: Struct("users" / GreedyRange(USERS)),
    100: POLLED,
    200: Struct("stream" / STREAM, "topics" / GreedyRange(TOPIC)),
    201: Struct("streams" / GreedyRange(STREAM)),
    300: Struct("topic" / TOPIC, "partitions" / GreedyRange(PARTITION)),
    600: Struct("group" / GROUP, "members" / GreedyRange(MEMBER)),
    601: Struct("groups" / GreedyRange(GROUP)),
    606: Struct("generation" / Int64ul, "partitions" / PrefixedArray(Int32ul, Int32ul)),
    1001: Struct("user" / Int32ul, "session" / Int64ul, "version" / Int32ul, "server" / STR8),
    1128: STREAM,
    1132: Struct("topic" / TOPIC, "partitions" / GreedyRange(PARTITION)),
    1139: GROUP,
    1141: USER,
    1146: Struct("token" / STR8),
    1160: Struct(
        "count" / Int32ul,
        "stream_id" / Int32ul,
        "topic_id" / Int32ul,
        "partition" / Int32ul,
        "base_offset" / Int64ul,
    ),
}
# A separate description: the count of other streams and topics is included.
TOPICS = PrefixedArray(Int32ul, TOPIC)
DESCRIBED = PrefixedArray(
    Int32ul,
    Struct(
        "key" / STR8,
        "kind" / Int8ul,
        "default" / Prefixed(Int32ul, GreedyBytes),
        "description" / Prefixed(Int32ul, GreedyBytes),
    ),
)
# The server's own numbers and times, and its storage of records. Checksums depend on them.
VARYING = {
    *("id", "created_at", "client_id", "address", "size", "segments", "session", "server"),
    *("generation", "token", "base_timestamp"),
    *("origin_timestamp", "timestamp_delta", "checksum", "user_id"),
}


def normal(code: int, body: bytes) -> object:
    """Return a body without varying fields; undescribed bodies are returned as bytes."""
    if not body or code not in BODIES:
        return body
    return steady(plain(Struct("value" / BODIES[code], "rest" / GreedyBytes).parse(body)))


def steady(value: object) -> object:
    if isinstance(value, dict):
        if "batches" in value:
            return _polled(value)
        return {key: steady(item) for key, item in value.items() if key not in VARYING}
    if isinstance(value, list):
        return sorted((steady(item) for item in value), key=repr)
    return value


def _polled(value: dict) -> object:
    """Return messages individually: each server batches them differently."""
    messages = [
        (batch["base_offset"] + frame["offset_delta"], frame["payload"], frame["headers"])
        for batch in value["batches"]
        for frame in batch["frames"]
    ]
    return value["partition"], value["current_offset"], value["messages_count"], messages
