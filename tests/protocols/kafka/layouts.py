"""An independent description of the Kafka 0.8 layouts, with construct, to check the fast code.

Written from the protocol guide, not from `protocols/kafka`: builds request frames from typed
requests and parses reply frames into typed replies, the two directions that the broker itself does
not need.
"""

from typing import Any

from construct import (
    Adapter,
    Bytes,
    Const,
    Construct,
    GreedyBytes,
    If,
    Int16sb,
    Int32sb,
    Int64sb,
    Prefixed,
    PrefixedArray,
    Struct,
    this,
)

from tests.protocols.kafka import forms as m


class _String(Adapter):
    def _decode(self, obj: Any, context: Any, path: Any) -> bytes | None:
        return obj.data

    def _encode(self, obj: bytes | None, context: Any, path: Any) -> dict[str, Any]:
        return {"size": -1 if obj is None else len(obj), "data": obj}


String = _String(Struct("size" / Int16sb, "data" / If(this.size >= 0, Bytes(this.size))))
MessageSet = Prefixed(Int32sb, GreedyBytes)


def _list(*fields: Construct) -> Construct:
    return PrefixedArray(Int32sb, Struct(*fields))


def _topics(*fields: Construct) -> Construct:
    return "topics" / _list("name" / String, "partitions" / _list("index" / Int32sb, *fields))


def _commit(*fields: Construct) -> Construct:
    return _topics("offset" / Int64sb, *fields, "metadata" / String)


OFFSET_FETCH = Struct("group" / String, _topics())
REQUESTS: dict[tuple[int, int], Construct] = {
    (0, 0): Struct("acks" / Int16sb, "timeout_ms" / Int32sb, _topics("set" / MessageSet)),
    (1, 0): Struct(
        "replica_id" / Int32sb,
        "wait_ms_max" / Int32sb,
        "bytes_min" / Int32sb,
        _topics("offset" / Int64sb, "bytes_max" / Int32sb),
    ),
    (2, 0): Struct("replica_id" / Int32sb, _topics("time_ms" / Int64sb, "offsets_max" / Int32sb)),
    (3, 0): Struct("topics" / PrefixedArray(Int32sb, String)),
    (8, 0): Struct("group" / String, _commit()),
    (8, 1): Struct(
        "group" / String,
        "generation" / Int32sb,
        "consumer_id" / String,
        _commit("time_ms" / Int64sb),
    ),
    (9, 0): OFFSET_FETCH,
    (9, 1): OFFSET_FETCH,
    (10, 0): Struct("group" / String),
}
ADDRESS = Struct("node_id" / Int32sb, "host" / String, "port" / Int32sb)
REPLIES: dict[int, Construct] = {
    0: Struct(_topics("error" / Int16sb, "base_offset" / Int64sb)),
    1: Struct(_topics("error" / Int16sb, "high_watermark" / Int64sb, "set" / MessageSet)),
    2: Struct(_topics("error" / Int16sb, "offsets" / PrefixedArray(Int32sb, Int64sb))),
    3: Struct(
        "brokers" / PrefixedArray(Int32sb, ADDRESS),
        "topics"
        / _list(
            "error" / Int16sb,
            "name" / String,
            "partitions"
            / _list(
                "error" / Int16sb,
                "index" / Int32sb,
                "leader" / Int32sb,
                "replicas" / PrefixedArray(Int32sb, Int32sb),
                "isr" / PrefixedArray(Int32sb, Int32sb),
            ),
        ),
    ),
    8: Struct(_topics("error" / Int16sb)),
    9: Struct(_topics("offset" / Int64sb, "metadata" / String, "error" / Int16sb)),
    10: Struct("error" / Int16sb, "coordinator" / ADDRESS),
}
# Entries of a message set; a partial entry may follow the last entry.
ENTRY = Struct("offset" / Int64sb, "message" / Prefixed(Int32sb, GreedyBytes))


def build_request(api_key: int, version: int, request: m.Request) -> bytes:
    """Return the frame of a typed request."""
    header = Struct(
        "api_key" / Const(api_key, Int16sb),
        "version" / Const(version, Int16sb),
        "correlation_id" / Int32sb,
        "client_id" / String,
        "body" / REQUESTS[api_key, version],
    )
    fields = {
        "correlation_id": request.correlation_id,
        "client_id": request.client_id,
        "body": _request_fields(request.body),
    }
    return Prefixed(Int32sb, header).build(fields)


def parse_reply(api_key: int, frame: bytes) -> tuple[int, m.Reply]:
    """Return (correlation id, typed reply) of a frame; no byte may be left over."""
    layout = Struct("correlation_id" / Int32sb, "body" / REPLIES[api_key], "rest" / GreedyBytes)
    parsed = Prefixed(Int32sb, layout).parse(frame)
    assert parsed.rest == b""
    assert len(frame) == 4 + int.from_bytes(frame[:4], "big")
    return parsed.correlation_id, _reply(api_key, parsed.body)


def parse_set(data: bytes) -> list[tuple[int, bytes]]:
    """Return (offset, message from its CRC on) of each whole entry of a message set."""
    entries = []
    pos = 0
    while pos + 12 <= len(data):
        size = int.from_bytes(data[pos + 8 : pos + 12], "big")
        if pos + 12 + size > len(data):
            break
        entry = ENTRY.parse(data[pos : pos + 12 + size])
        entries.append((entry.offset, entry.message))
        pos += 12 + size
    return entries


def _request_fields(body: m.RequestBody) -> dict[str, Any]:
    names = [name for name in body.__slots__ if name != "topics"]
    fields: dict[str, Any] = {name: getattr(body, name) for name in names}
    if isinstance(body, m.MetadataRequest):
        fields["topics"] = body.topics
    elif not isinstance(body, m.ConsumerMetadataRequest):
        fields["topics"] = [
            {"name": name, "partitions": _partitions(parts)} for name, parts in body.topics.items()
        ]
    return fields


def _partitions(partitions: Any) -> list[dict[str, Any]]:
    if isinstance(partitions, list):
        return [{"index": index} for index in partitions]
    return [{"index": index, **_target(target)} for index, target in partitions.items()]


def _target(target: Any) -> dict[str, Any]:
    if isinstance(target, memoryview):
        return {"set": bytes(target)}
    fields = {name: getattr(target, name) for name in target.__slots__}
    if isinstance(target, m.CommitTarget) and target.time_ms is None:
        fields["time_ms"] = -1
    return fields


def _reply(api_key: int, body: Any) -> m.Reply:
    if api_key == 3:
        return m.MetadataReply(
            [m.BrokerAddress(b.node_id, b.host, b.port) for b in body.brokers],
            [m.TopicMetadata(t.error, t.name, _metadata(t.partitions)) for t in body.topics],
        )
    if api_key == 10:
        where = body.coordinator
        return m.ConsumerMetadataReply(
            body.error, m.BrokerAddress(where.node_id, where.host, where.port)
        )
    make, reply = {
        0: (lambda p: m.Produced(p.error, p.base_offset), m.ProduceReply),
        1: (_fetched, m.FetchReply),
        2: (lambda p: m.OffsetsFound(p.error, list(p.offsets)), m.OffsetsReply),
        8: (lambda p: p.error, m.OffsetCommitReply),
        9: (lambda p: m.CommittedOffset(p.offset, p.metadata, p.error), m.OffsetFetchReply),
    }[api_key]
    return reply({t.name: {p.index: make(p) for p in t.partitions} for t in body.topics})


def _fetched(partition: Any) -> m.Fetched:
    parts = [partition.set] if partition.set else []
    return m.Fetched(partition.error, partition.high_watermark, parts, len(partition.set))


def _metadata(partitions: Any) -> list[m.PartitionMetadata]:
    return [
        m.PartitionMetadata(p.error, p.index, p.leader, list(p.replicas), list(p.isr))
        for p in partitions
    ]
